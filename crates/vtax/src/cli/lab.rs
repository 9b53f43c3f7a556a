//! `vtax lab`.

mod console;
mod guest;
mod show;
mod up;
mod wanted;

use std::{ffi::OsString, process::Command};

use clap::Subcommand;
use miette::{bail, miette};
use vtax_lab::{CleanReport, Lab, LabEndpoint, Lifetime, LiveHolding, World, clean, list};
use vtax_model::topology::Name;

use self::wanted::lab_name;
pub(super) use self::{show::servers, up::accelerator};
use super::{Locations, answer, io, ldm};
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    terminal::print,
};
use vtax_run::{labs, server::Stay};

#[derive(Debug, Subcommand)]
pub(crate) enum LabVerb {
    /// Build a lab, boot its guests and keep both running
    Up(up::UpArgs),
    /// Remove a lab
    Down {
        /// Lab: its name, or the file that it was built from, e.g. rack or rack.toml
        #[arg(value_name = "LAB|FILE")]
        lab: String,
    },
    /// List labs and their guests, with the process that created them and its state
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a host, zone or guest of a lab
    ///
    /// In a guest and in an emulated server, the command gets standard input unless it is a terminal: vtax reads it to
    /// its end first, at most 512 KiB.
    Exec {
        /// Lab: its name, or the file that it was built from, e.g. rack or rack.toml
        #[arg(value_name = "LAB|FILE")]
        lab: String,
        /// Host, zone or guest of the lab
        domain: Name,
        /// Command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Connect the terminal to a guest's console (press Ctrl-] to leave)
    Console {
        /// Lab: its name, or the file that it was built from, e.g. rack or rack.toml
        #[arg(value_name = "LAB|FILE")]
        lab: String,
        /// Guest of the lab
        guest: Name,
    },
    /// Remove only labs whose vtax was killed
    Clean {
        /// Lab to remove: its name, or the file that it was built from, e.g. rack [default: all]
        #[arg(value_name = "LAB|FILE")]
        lab: Option<String>,
    },
}

impl LabVerb {
    /// Returns how long the command needs the emulated server that carries it out.
    pub(super) fn stay(&self) -> Stay {
        match self {
            LabVerb::Up(args) if args.is_dry() => Stay::Command,
            LabVerb::Up(_) => Stay::Kept,
            _ => Stay::Found,
        }
    }
}

pub(crate) fn lab(verb: LabVerb, places: &Locations) -> Result<Exit, Stop> {
    match verb {
        LabVerb::Up(args) => up::up(&args, places),
        LabVerb::Down { lab } => down(&lab, places),
        LabVerb::List { json } => show_list(json),
        LabVerb::Exec { lab, domain, command } => exec(&lab, &domain, &command),
        LabVerb::Console { lab, guest } => console(&lab, &guest),
        LabVerb::Clean { lab } => show_clean(lab.as_deref()),
    }
}

/// Holds an unprivileged user's labs; see `vtax_lab::world`.
pub(crate) fn keeper() -> Result<Exit, Stop> {
    vtax_lab::keeper_main().or_infrastructure()?;
    Ok(Exit::Done)
}

fn down(lab: &str, places: &Locations) -> Result<Exit, Stop> {
    let name = lab_name(lab)?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    if let Some(functions) = labs::find(&world, &name)?.functions() {
        return io::destroy_record(functions.device);
    }
    ldm::release_hosts(&world, &name, places)?;
    LiveHolding::open(&world, &name).and_then(LiveHolding::down).or_infrastructure()?;
    Ok(Exit::Done)
}

fn show_list(json: bool) -> Result<Exit, Stop> {
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let labs = list(&world).or_infrastructure()?;
    answer(json, &labs, |labs| match labs.is_empty() {
        true => "There are no labs.\n".to_owned(),
        false => show::labs(labs),
    })
}

fn exec(lab: &str, domain: &Name, command: &[OsString]) -> Result<Exit, Stop> {
    let (_world, lab) = open(lab)?;
    if let Some(guest) = guest::find(&lab, domain) {
        return guest::exec(&lab, guest, command);
    }
    let endpoint = find(&lab, domain).or_input()?;
    let (program, arguments) = command.split_first().expect("clap asks for a command");
    let mut run = Command::new(program);
    run.args(arguments);
    let mut child = lab.spawn(endpoint, run).or_infrastructure()?;
    let status = child.wait().coded("kernel", || "waiting for the command").or_infrastructure()?;
    Ok(Exit::Child(child_code(status)))
}

fn open(lab: &str) -> Result<(World, Lab), Stop> {
    let name = lab_name(lab)?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let lab = labs::open(&world, &name)?;
    Ok((world, lab))
}

pub(super) fn find<'lab>(lab: &'lab Lab, domain: &Name) -> miette::Result<&'lab LabEndpoint> {
    let found = lab.endpoints().iter().find(|endpoint| endpoint.name == *domain);
    let Some(found) = found else {
        let mut names: Vec<&str> = lab.endpoints().iter().map(|endpoint| endpoint.name.as_str()).collect();
        names.dedup();
        bail!(code = "no-such-domain", "no host, zone or guest `{domain}` in the lab; available: {}", names.join(", "));
    };
    Ok(found)
}

/// Returns the exit status that a shell would report.
fn child_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn console(lab: &str, guest: &Name) -> Result<Exit, Stop> {
    let (_world, lab) = open(lab)?;
    match guest::find(&lab, guest) {
        Some(guest) => console::console(&lab, guest),
        None => Err(Stop::input(guest::none(&lab, guest))),
    }
}

fn show_clean(lab: Option<&str>) -> Result<Exit, Stop> {
    let only = lab.map(lab_name).transpose()?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let report = clean(&world, only.as_ref()).or_infrastructure()?;
    print(&cleaned(&report))?;
    report.notes.iter().for_each(|note| tell!("{note}"));
    if report.failures.is_empty() {
        return Ok(Exit::Done);
    }
    let failures = report.failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Err(Stop::infrastructure(miette!(code = "not-removed", "not everything could be removed: {failures}")))
}

fn cleaned(report: &CleanReport) -> String {
    let removed = report.removed.iter().map(|name| format!("removed {name}\n"));
    let left = report.left.iter().map(|lab| format!("skipped {}: it is {}\n", lab.name, show::state(&lab.state)));
    let told: String = removed.chain(left).collect();
    if told.is_empty() { "Nothing to remove.\n".to_owned() } else { told }
}
