//! `vtax results trend`.

use std::path::{Path, PathBuf};

use clap::Args;
use miette::miette;

use vtax_model::analysis::analyse_readings;
use vtax_report::{self as report, NoTrend, Plotter, RunTrend, Theme, TrendInput, TrendOptions};
use vtax_store::{Condition, RunSummary, Store};

use super::super::{
    metric::{ChosenMetric, METRICS},
    report::{charts_counted, file_name, made, write},
    run::{FormatArgs, terminal_width},
};
use crate::{
    exit::{Blamed, Stop},
    one_of::one_of,
    terminal::print_styled,
};

/// The number of names that an error lists.
const NAMED: usize = 12;
/// The maximum number of results in a trend, the newest ones. Level shifts are searched for among all pairs of them.
const MOST: usize = 500;
/// The maximum number of their samples, all of which are read.
const MOST_SAMPLES: usize = 250_000;

#[derive(Debug, Args)]
pub(crate) struct TrendArgs {
    /// Study to follow, e.g. demo: the id with which each run's id begins (`vtax results list`)
    #[arg(long, value_name = "STUDY")]
    study: String,
    /// Words that the names of cells must contain, e.g. "bridge TCP RR" [default: all cells]
    #[arg(long, value_name = "WORDS")]
    cell: Option<String>,
    /// Metric to follow, in tests that have it
    #[arg(long, value_parser = one_of(&METRICS), default_value = "figure")]
    metric: ChosenMetric,
    /// Host name of the machine, e.g. hv1 [default: that of the newest result]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Include the results of all machines
    #[arg(long, conflicts_with = "machine")]
    all_machines: bool,
    #[command(flatten)]
    format: FormatArgs,
    /// HTML page with charts to write, e.g. trend.html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory for the charts as SVG files, e.g. charts
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

pub(super) fn trend(dir: &Path, args: &TrendArgs) -> Result<(), Stop> {
    let found = followed(dir, args)?;
    if let Some(file) = &args.html {
        write("--html", file, found.page().or_infrastructure()?.as_bytes())?;
        tell!("wrote {}", file.display());
    }
    if let Some(folder) = &args.svg {
        pictures(&found, made(folder)?, &args.study)?;
    }
    if args.html.is_none() && args.svg.is_none() {
        let usual = report::Options::default();
        let width = terminal_width().unwrap_or(usual.width);
        print_styled(&found.render(&report::Options { format: args.format.chosen(), width, ..usual }))?;
    }
    Ok(())
}

fn followed(dir: &Path, args: &TrendArgs) -> Result<RunTrend, Stop> {
    let runs = of_machine(newest(dir, args)?, args)?;
    let options = TrendOptions { cell: args.cell.clone(), metric: args.metric.0 };
    report::trend(&runs, &options).map_err(|none| refused(none, args))
}

/// Returns the newest complete results of a study, the oldest first.
fn newest(dir: &Path, args: &TrendArgs) -> Result<Vec<TrendInput>, Stop> {
    let (all, study) = (Store::reading(dir, Store::list)?, args.study.as_str());
    let mut runs: Vec<&RunSummary> =
        all.iter().filter(|run| run.study == study && run.state == Condition::Complete).collect();
    if runs.is_empty() {
        return Err(no_result(&all, study));
    }
    // The clock may have been set back between two of them.
    runs.sort_by(|one, other| other.started.cmp(&one.started));
    let followed = most(&runs);
    if let older @ 1.. = runs.len() - followed {
        tell!("{older} older results omitted: a trend covers at most {MOST} results with {MOST_SAMPLES} samples");
    }
    let ids: Vec<String> = runs[..followed].iter().rev().map(|run| run.id.clone()).collect();
    let taken = |run| TrendInput::of(analyse_readings(&run), args.metric.0);
    Ok(Store::reading(dir, |store| store.each(&ids, taken))?)
}

/// Returns how many of these runs, the newest first, are included; at least one.
fn most(runs: &[&RunSummary]) -> usize {
    let mut samples = 0;
    let fits = |run: &&&RunSummary| {
        samples += run.samples as usize;
        samples <= MOST_SAMPLES
    };
    runs.iter().take(MOST).take_while(fits).count().max(1)
}

fn no_result(all: &[RunSummary], study: &str) -> Stop {
    let mut known: Vec<&str> = all.iter().map(|run| run.study.as_str()).collect();
    known.sort_unstable();
    known.dedup();
    let known =
        if known.is_empty() { "there are no runs".into() } else { format!("there are runs of {}", list(&known)) };
    Stop::input(miette!(
        code = "no-runs",
        "--study: \"{study}\" has no complete run; {known}. `vtax results list` lists all"
    ))
}

fn list(names: &[impl AsRef<str>]) -> String {
    let named: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(NAMED);
    if more > 0 { format!("{} and {more} more", named.join("; ")) } else { named.join("; ") }
}

/// Returns the results of the requested machine. An emulated server counts as a separate machine.
fn of_machine(runs: Vec<TrendInput>, args: &TrendArgs) -> Result<Vec<TrendInput>, Stop> {
    if args.all_machines {
        return Ok(runs);
    }
    let is_wanted = |run: &&TrendInput| args.machine.as_ref().is_none_or(|name| run.machine() == *name);
    let Some(newest) = runs.iter().rev().find(is_wanted).cloned() else {
        let mut names: Vec<String> = runs.iter().map(TrendInput::machine).collect();
        names.sort_unstable();
        names.dedup();
        let asked = args.machine.as_deref().unwrap_or_default();
        return Err(Stop::input(miette!(
            code = "no-runs",
            "--machine: no complete run of {} on the machine \"{asked}\"; there are runs on {}",
            args.study,
            list(&names)
        )));
    };
    let (kept, reasons) = TrendInput::continuing(runs, &newest);
    for (reason, count) in reasons {
        tell!("results omitted: {count} {reason}; use --all-machines, or --machine NAME");
    }
    Ok(kept)
}

fn refused(none: NoTrend, args: &TrendArgs) -> Stop {
    let study = &args.study;
    Stop::input(match none {
        NoTrend::NoCell(names) => miette!(
            code = "no-such-cell",
            "--cell: no cell of {study} has all of these words in its name: \"{}\"; available: {}",
            args.cell.as_deref().unwrap_or_default(),
            list(&names)
        ),
        NoTrend::TooFew { given, needed } => miette!(
            code = "too-few-results",
            "{study} has {given} complete results, and detecting a level shift requires {needed}: measure it more \
             often, or compare two of them with `vtax results compare`. With --cell, fewer cells require fewer results"
        ),
    })
}

fn pictures(found: &RunTrend, folder: &Path, study: &str) -> Result<(), Stop> {
    let plotter = Plotter::new().or_infrastructure()?;
    let charts = found.charts();
    for chart in &charts {
        let name = file_name(&format!("{study}-trend-{}", chart.heading().title));
        let picture = plotter.svg(chart).or_infrastructure()?.standalone(Theme::Light);
        write("--svg", &folder.join(format!("{name}.svg")), picture.as_str().as_bytes())?;
    }
    tell!("wrote {}", charts_counted(charts.len()));
    Ok(())
}
