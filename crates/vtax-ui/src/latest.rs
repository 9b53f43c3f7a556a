//! The latest results with their figures, and the runs in progress.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use vtax_report::{self as report, html::escaped};
use vtax_store::{Condition, RunSummary, Store};

/// Number of results whose figure is shown.
const SHOWN: usize = 3;
/// Maximum number of samples of a result whose figure is drawn here: drawing reads all of them.
const SAMPLES_MOST: u32 = 20_000;
/// Maximum number of cached figures.
const KEPT: usize = 16;

/// Cache of drawn figures by run ID. A complete run doesn't change.
#[derive(Debug, Default)]
pub(crate) struct DrawnFigures(Mutex<BTreeMap<String, Arc<str>>>);

impl DrawnFigures {
    /// Returns the figure of a run; empty if it has none or can't be read.
    fn of(&self, state_dir: &Path, run: &RunSummary) -> Arc<str> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(figure) = known().get(&run.id) {
            return Arc::clone(figure);
        }
        let document = Store::reading(state_dir, |store| store.document(&run.id));
        let drawn = document.ok().and_then(|document| report::small_figure(&document).ok().flatten());
        let figure: Arc<str> = drawn.unwrap_or_default().into();
        let mut all = known();
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(run.id.clone(), Arc::clone(&figure));
        figure
    }
}

/// Returns the sections of runs in progress and of the latest complete ones with their results. `base` is the prefix of
/// all paths.
pub(crate) fn sections(figures: &DrawnFigures, state_dir: &Path, base: &str, all: &[RunSummary]) -> String {
    let running: String = all.iter().filter(|run| run.state == Condition::Running).map(|run| item(base, run)).collect();
    let running = match running.is_empty() {
        true => running,
        false => format!("<section aria-label=\"Running\">\n<h2>Running</h2>\n<ul>\n{running}</ul>\n</section>\n"),
    };
    let complete = all.iter().filter(|run| run.state == Condition::Complete && !run.brief.is_empty()).take(SHOWN);
    let figure = |run: &RunSummary| match run.samples {
        0..=SAMPLES_MOST => figures.of(state_dir, run),
        _ => Arc::default(),
    };
    let latest: String = complete.map(|run| card(base, run, &figure(run))).collect();
    match latest.is_empty() {
        true => running,
        false => format!(
            "{running}<section aria-label=\"Latest results\">\n<h2>Latest results</h2>\n\
             <div class=\"latest\">\n{latest}</div>\n</section>\n"
        ),
    }
}

fn item(base: &str, run: &RunSummary) -> String {
    format!("<li>{} <small class=\"faint\">{} samples</small></li>\n", link(base, run), run.samples)
}

fn card(base: &str, run: &RunSummary, figure: &str) -> String {
    format!(
        "<div class=\"chart\">\n<h3>{}</h3>\n<p>{} <small class=\"faint\">{}</small></p>\n{figure}</div>\n",
        link(base, run),
        escaped(&run.brief),
        escaped(&minute(&run.started))
    )
}

/// Returns date and minute of a time in RFC 3339.
fn minute(time: &str) -> String {
    format!("{} UTC", time.get(..16).unwrap_or(time).replace('T', " "))
}

fn link(base: &str, run: &RunSummary) -> String {
    format!("<a href=\"{base}/run/{}\">{}</a>", escaped(&run.id), escaped(&run.heading()))
}
