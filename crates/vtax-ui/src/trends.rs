//! Level shifts in the results of the studies that were measured last.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use vtax_model::analysis::analyse_readings;
use vtax_report::{self as report, TrendInput, TrendOptions, html::escaped};
use vtax_store::{Condition, RunSummary, Store};

/// Number of studies whose level shifts are shown.
const STUDIES: usize = 3;
/// Maximum number of results in which level shifts are searched for, the newest ones of a study.
const RESULTS: usize = 40;
/// Maximum number of their samples, all of which are read.
const SAMPLES_MOST: u32 = 20_000;

/// Cache of level shifts by study. The results of complete runs don't change.
#[derive(Debug, Default)]
pub(crate) struct KnownShifts(Mutex<BTreeMap<String, StudyShifts>>);

#[derive(Debug, Clone)]
struct StudyShifts {
    /// Results in which they were searched for.
    ids: Vec<String>,
    sentences: Arc<[String]>,
}

impl KnownShifts {
    /// Returns the level shifts in these results, the oldest first; none if they can't be read or are too few. Does not
    /// compute any if `may_compute` is unset.
    fn of(&self, state_dir: &Path, study: &str, ids: Vec<String>, may_compute: bool) -> Arc<[String]> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(study).filter(|found| found.ids == ids) {
            return Arc::clone(&found.sentences);
        }
        if !may_compute {
            return Arc::default();
        }
        let sentences: Arc<[String]> = shifts(state_dir, &ids).into();
        known().insert(study.to_owned(), StudyShifts { ids, sentences: Arc::clone(&sentences) });
        sentences
    }
}

fn shifts(state_dir: &Path, ids: &[String]) -> Vec<String> {
    let taken = |run| TrendInput::of(analyse_readings(&run), None);
    let runs = Store::reading(state_dir, |store| store.each(ids, taken)).unwrap_or_default();
    let Some(newest) = runs.last().cloned() else { return Vec::new() };
    let (kept, _) = TrendInput::continuing(runs, &newest);
    report::trend(&kept, &TrendOptions::default()).map(|trend| trend.level_shifts()).unwrap_or_default()
}

/// Returns the section of the start page; empty if no level has shifted. `all` begins with the newest run. Nothing is
/// computed while a run is in progress.
pub(crate) fn section(shifts: &KnownShifts, state_dir: &Path, all: &[RunSummary]) -> String {
    let is_quiet = all.iter().all(|run| run.state != Condition::Running);
    let told = |study: &str| item(study, &shifts.of(state_dir, study, newest(all, study), is_quiet));
    let items: String = studies(all).into_iter().map(told).collect();
    match items.is_empty() {
        true => items,
        false => format!("<section aria-label=\"Level shifts\">\n<h2>Level shifts</h2>\n{items}</section>\n"),
    }
}

/// Returns the studies that were measured last.
fn studies(all: &[RunSummary]) -> Vec<&str> {
    let mut studies: Vec<&str> = Vec::new();
    for run in all.iter().filter(|run| run.state == Condition::Complete) {
        if !studies.contains(&run.study.as_str()) && studies.len() < STUDIES {
            studies.push(&run.study);
        }
    }
    studies
}

/// Returns the IDs of the newest complete results of a study, the oldest first.
fn newest(all: &[RunSummary], study: &str) -> Vec<String> {
    let mut samples = 0;
    let fits = |run: &&RunSummary| {
        samples += run.samples;
        samples <= SAMPLES_MOST
    };
    let of_study = all.iter().filter(|run| run.state == Condition::Complete && run.study == study);
    let mut ids: Vec<String> = of_study.take(RESULTS).take_while(fits).map(|run| run.id.clone()).collect();
    ids.reverse();
    ids
}

fn item(study: &str, sentences: &[String]) -> String {
    let lines: String = sentences.iter().map(|sentence| format!("<li>{}</li>\n", escaped(sentence))).collect();
    match lines.is_empty() {
        true => lines,
        false => {
            let study = escaped(study);
            format!(
                "<p>{study} <small class=\"faint\">vtax results trend --study {study}</small></p>\n<ul>\n{lines}</ul>\n"
            )
        }
    }
}
