//! `vtax results`.

mod find;
mod import;
mod trend;

use std::path::Path;

use clap::Subcommand;
use miette::miette;

use vtax_model::{metric::Metric, run::Difference};
use vtax_report::{self as report, Column, Format};
use vtax_store::{RunSummary, Store, worthless};

use super::{
    Locations, answer, lists,
    metric::{ChosenMetric, METRICS},
    run::{FormatArgs, OutputOptions, print_report, print_run},
};
use find::FindArgs;
use import::ImportArgs;
use trend::TrendArgs;

use crate::{
    exit::{Exit, Stop},
    one_of::one_of,
    terminal::print_styled,
    whole_number::whole,
};

#[derive(Debug, Subcommand)]
pub(crate) enum ResultsVerb {
    /// List runs, newest first
    List {
        /// Words that the id, label or title of a run must contain, e.g. demo tuning [default: list all runs]
        #[arg(value_name = "WORD")]
        words: Vec<String>,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a run's tables
    Show {
        /// Run: `last`, its id, or a prefix of it, e.g. demo-20260102
        #[arg(default_value = "last")]
        id: String,
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Remove runs with all their samples
    Rm {
        /// Runs: ids, or prefixes of ids, e.g. demo-20260102
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Remove runs without samples, and optionally old runs
    Prune {
        /// Number of newest runs to keep per study, e.g. 10; older ones are removed [default: keep all]
        #[arg(long, value_name = "N", value_parser = whole::<usize>)]
        keep: Option<usize>,
        /// List the runs without removing them
        #[arg(long)]
        dry_run: bool,
    },
    /// Compare two runs, cell by cell
    Compare {
        /// Earlier run: `last`, its id, or a prefix of it, e.g. demo-20260102
        before: String,
        /// Later run, likewise, e.g. last
        after: String,
        /// Exit with status 1 if a cell of the later run is significantly worse, and by more than this, e.g. 5%
        #[arg(long, value_name = "PERCENT")]
        fail_above: Option<Difference>,
        /// Metric to compare, in tests that have it
        #[arg(long, value_parser = one_of(&METRICS), default_value = "figure")]
        metric: ChosenMetric,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Search the findings of all complete runs by method, metric, test, machine and time
    Find(FindArgs),
    /// Find level shifts over a study's results, and other changes at the same time
    Trend(TrendArgs),
    /// Import output of iperf3 (-J), netperf, sockperf or fio, or published figures, as results
    Import(ImportArgs),
    /// Print the whole result with all samples and histograms (vtax.result/v1)
    Export {
        /// Run: `last`, its id, or a prefix of it, e.g. demo-20260102
        #[arg(default_value = "last")]
        id: String,
        /// Print JSON (default)
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Print CSV, one line per cell
        #[arg(long)]
        csv: bool,
    },
}

pub(crate) fn results(verb: ResultsVerb, places: &Locations) -> Result<Exit, Stop> {
    let dir = places.state_dir()?;
    match verb {
        ResultsVerb::Find(args) => return find::find(&dir, &args),
        ResultsVerb::List { words, json } => return list(&dir, &words.join(" "), json),
        ResultsVerb::Rm { ids } => remove(&Store::open_to_remove(&dir)?, &ids)?,
        ResultsVerb::Prune { keep, dry_run } => prune(&dir, keep, dry_run)?,
        ResultsVerb::Show { id, output } => show(&dir, &id, &output.options())?,
        ResultsVerb::Compare { before, after, fail_above, metric, format } => {
            let comparison = compare(&dir, [&before, &after], metric.0)?;
            print_styled(&comparison.render(&options(format.chosen())))?;
            return Ok(fail_above.map_or(Exit::Done, |limit| passed(&comparison, limit)));
        }
        ResultsVerb::Trend(args) => trend::trend(&dir, &args)?,
        ResultsVerb::Import(args) => import::import(&dir, &args)?,
        ResultsVerb::Export { id, csv, .. } => {
            show(&dir, &id, &options(if csv { Format::Csv } else { Format::Json }))?;
        }
    }
    Ok(Exit::Done)
}

fn remove(store: &Store, ids: &[String]) -> Result<(), Stop> {
    store.remove(ids, |id| tell!("removed {id}"))?;
    Ok(store.shrink()?)
}

fn prune(dir: &Path, keep: Option<usize>, dry_run: bool) -> Result<(), Stop> {
    let runs = Store::reading(dir, Store::list)?;
    let ids: Vec<String> = worthless(&runs, keep).into_iter().map(|run| run.id.clone()).collect();
    match (ids.is_empty(), dry_run) {
        (true, _) => tell!("nothing to remove"),
        (false, true) => ids.iter().for_each(|id| tell!("would remove {id}")),
        (false, false) => remove(&Store::open_to_remove(dir)?, &ids)?,
    }
    Ok(())
}

fn passed(comparison: &report::RunComparison, limit: Difference) -> Exit {
    let worse = comparison.worse_than(limit);
    worse.iter().for_each(|cell| tell!("worse by more than {limit}: {cell}"));
    if worse.is_empty() { Exit::Done } else { Exit::NotReached }
}

pub(super) fn show(dir: &Path, id: &str, options: &report::Options) -> Result<(), Stop> {
    match options.format {
        // The result is printed while it is read.
        Format::Json => print_run(&Store::read(dir)?, id, options),
        Format::Table | Format::Markdown | Format::Csv => {
            print_report(&Store::reading(dir, |store| store.document(id))?, options)
        }
    }
}

fn options(format: Format) -> report::Options {
    report::Options { format, ..report::Options::default() }
}

fn compare(dir: &Path, [before, after]: [&str; 2], metric: Option<Metric>) -> Result<report::RunComparison, Stop> {
    let [first, second] = [before, after].map(|id| Store::reading(dir, |store| store.document(id)));
    let (first, second) = (first?, second?);
    if first.id == second.id {
        return Err(Stop::input(miette!(
            code = "same-run",
            "`{before}` and `{after}` are the same run, {}: give two runs; `vtax results list` lists all",
            first.id
        )));
    }
    let comparison = report::compare(&first, &second, metric);
    match comparison.nothing_in_common() {
        Some(why) => {
            let (one, other) = (&first.id, &second.id);
            Err(Stop::input(miette!(code = "not-comparable", "cannot compare {one} with {other}: {why}")))
        }
        None => Ok(comparison),
    }
}

fn list(dir: &Path, words: &str, json: bool) -> Result<Exit, Stop> {
    let mut runs = Store::reading(dir, Store::list)?;
    let is_empty = runs.is_empty();
    runs.retain(|run| run.has_words(words));
    answer(json, &runs, |runs| match runs.is_empty() {
        true if is_empty => "No results yet; start with `vtax demo`.\n".to_owned(),
        true => format!("No run with all of these words in its id, label or title: {words}\n"),
        false => table(runs),
    })
}

fn table(runs: &[RunSummary]) -> String {
    let row = |run: &RunSummary| {
        let quick = if run.quick { " (quick)" } else { "" };
        let failed = (run.failures > 0).then(|| format!("{} failed", run.failures));
        let study = format!("{}{quick}", run.heading());
        let brief = Some(run.brief.clone()).filter(|brief| !brief.is_empty());
        [
            run.id.clone(),
            run.state.to_string(),
            run.samples.to_string(),
            format!("{:.0}", run.wall_seconds),
            failed.into_iter().chain(brief).chain([study]).collect::<Vec<_>>().join(" · "),
        ]
    };
    let columns = [
        Column::left("RUN"),
        Column::left("STATE"),
        Column::right("SAMPLES"),
        Column::right("WALL s"),
        Column::wrapped("RESULT · STUDY"),
    ];
    lists::list(columns, runs.iter().map(row))
}
