//! `vtax advise`.

mod evidence;
mod inventory;
mod machine;
mod measure;
mod required;

use std::path::PathBuf;

use clap::Args;
use miette::miette;
use serde::Serialize;

use vtax_model::{
    advice::{AdviceReport, AdviceVerdict, RequirementOptions, Requirements},
    located::Source,
    topology::Cable,
    units::{Mtu, Span},
};
use vtax_report as report;
use vtax_run::study::read_bounded;

use super::{Locations, print_json, report::write, run::terminal_width};
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    terminal::print_styled,
};
use machine::AdvisedMachine;
use required::RequiredArgs;

const SCHEMA: &str = "vtax.advice/v1";

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    required: RequiredArgs,
    /// TOML file of the requirements, e.g. required.toml: each key is the name of an option
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// MTU of the guests' network
    #[arg(long, value_name = "MTU", default_value_t = Mtu::ETHERNET)]
    mtu: Mtu,
    /// Real cable for measuring the methods of PCI devices: the two NICs of this machine that it connects, e.g.
    /// eno3,eno4
    #[arg(long, value_name = "NIC,NIC")]
    cable: Option<Cable>,
    /// Measure open requirements, one run after another, then answer
    #[arg(long)]
    measure: bool,
    /// With --measure: time limit of all runs together, e.g. 20m; runs that do not fit are omitted
    #[arg(long, value_name = "TIME", requires = "measure")]
    budget: Option<Span>,
    /// With --measure: print the commands without running them
    #[arg(long, requires = "measure", conflicts_with_all = ["json", "html"])]
    dry_run: bool,
    /// HTML page to write, e.g. advice.html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the answer as JSON (vtax.advice/v1)
    #[arg(long)]
    json: bool,
}

/// Answer for programs.
#[derive(Serialize)]
struct AdviceDocument<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a AdviceReport,
    /// Remarks that apply to all methods.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
}

pub(crate) fn advise(args: &AdviseArgs, places: &Locations) -> Result<Exit, Stop> {
    let requirements = requirements(args)?;
    let machine = AdvisedMachine::survey(&requirements, args, places)?;
    let (mut report, mut notes) = machine.advise(&requirements, args, places)?;
    if args.measure {
        let commands = measure::commands(&report);
        if args.dry_run {
            return measure::print_commands(&commands, args.budget);
        }
        if let Some(stopped) = measure::carry_out(&commands, args.budget, &machine, places)? {
            return Ok(stopped);
        }
        (report, notes) = machine.advise(&requirements, args, places)?;
    }
    show(&report, &notes, args)?;
    ending(&report)
}

fn requirements(args: &AdviseArgs) -> Result<Requirements, Stop> {
    let requirements = match &args.file {
        Some(file) => {
            let text = read_bounded(&file.to_string_lossy());
            let text = text.coded("file", || format!("--file: reading {}", file.display())).or_input()?;
            Requirements::parse(Source { name: &file.to_string_lossy(), text: &text }).or_input()?
        }
        None => Requirements::new(args.required.options()).or_input()?,
    };
    if *requirements.options() == RequirementOptions::default() {
        let why = "nothing is required; name at least one requirement, e.g. --guests 12 or --p99 150us";
        return Err(Stop::input(miette!(code = "no-requirements", "{why}")));
    }
    Ok(requirements)
}

fn show(report: &AdviceReport, notes: &[String], args: &AdviseArgs) -> Result<(), Stop> {
    if let Some(file) = &args.html {
        write("--html", file, report::advice_page(report).or_infrastructure()?.as_bytes())?;
        tell!("wrote {}", file.display());
    }
    if args.json {
        return print_json(&AdviceDocument { schema: SCHEMA, report, notes });
    }
    if args.html.is_none() {
        let usual = report::Options::default();
        let width = terminal_width().unwrap_or(usual.width);
        print_styled(&report::advice(report).draw(&report::Options { width, ..usual }))?;
    }
    notes.iter().for_each(|note| tell!("note: {note}"));
    Ok(())
}

/// Status 0 if any method meets all requirements, 1 if none is shown to.
fn ending(report: &AdviceReport) -> Result<Exit, Stop> {
    let has = |of: fn(&AdviceVerdict) -> bool| report.rows.iter().any(|row| of(&row.verdict));
    if has(|verdict| matches!(verdict, AdviceVerdict::Meets)) {
        return Ok(Exit::Done);
    }
    let is_open = has(|verdict| matches!(verdict, AdviceVerdict::Undecided { .. } | AdviceVerdict::NotMeasured { .. }));
    let is_measured = report.rows.iter().any(|row| row.figures.iter().any(Option::is_some));
    match is_open && !is_measured && !report.targets.is_empty() {
        true => Err(Stop::infrastructure(miette!(
            code = "no-evidence",
            "no run on this machine has a figure to compare with a target; run the commands under \"To decide\", or add \
             --measure"
        ))),
        false => Ok(Exit::NotReached),
    }
}

#[cfg(test)]
mod tests;
