//! `vtax lab`.

use std::{ffi::OsString, path::Path, process::Command};

use anyhow::{Context, anyhow, bail};
use clap::Subcommand;
use comfy_table::{Table, presets};
use jiff::Timestamp;
use vtax_journal::Owner;
use vtax_lab::{CleanReport, Endpoint, Facts, Lab, LabState, LabSummary, Lifetime, Need, World, clean, list};
use vtax_model::{
    located::Source,
    study::{Study, is_lab_file},
    topology::{Name, Topology},
};

use super::{print, print_json};
use crate::{
    exit::{Blamed, Exit, Stop},
    study,
};

#[derive(Debug, Subcommand)]
pub(crate) enum LabVerb {
    /// Build a lab and leave it there
    Up {
        /// A lab file, a study file or a built-in study
        #[arg(value_name = "FILE")]
        what: String,
        /// Print every step, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Print what was built as JSON; with --dry-run, the plan
        #[arg(long)]
        json: bool,
    },
    /// Remove a lab
    Down {
        /// Its name, or the file that it was made from
        #[arg(value_name = "LAB|FILE")]
        lab: String,
    },
    /// List the labs: who owns them, and whether the owner lives
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a host or zone of a lab
    Exec {
        /// The lab's name, or the file that it was made from
        #[arg(value_name = "LAB|FILE")]
        lab: String,
        /// A host or zone of it
        domain: Name,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Remove what killed vtaxes left: labs whose owner is dead, and nothing else
    Clean {
        /// Only this lab: its name, or the file that it was made from
        #[arg(value_name = "LAB|FILE")]
        lab: Option<String>,
    },
}

pub(crate) fn lab(verb: LabVerb) -> Result<Exit, Stop> {
    match verb {
        LabVerb::Up { what, dry_run, json } => up(&what, dry_run, json),
        LabVerb::Down { lab } => down(&lab),
        LabVerb::List { json } => show_list(json),
        LabVerb::Exec { lab, domain, command } => exec(&lab, &domain, &command),
        LabVerb::Clean { lab } => show_clean(lab.as_deref()),
    }
}

/// What holds an ordinary user's labs; see `vtax_lab::world`.
pub(crate) fn keeper() -> Result<Exit, Stop> {
    vtax_lab::keeper_main().or_infrastructure()?;
    Ok(Exit::Done)
}

fn up(what: &str, dry_run: bool, json: bool) -> Result<Exit, Stop> {
    let wanted = Wanted::read(what)?;
    let need = if dry_run { Need::Ephemeral } else { Need::Kept };
    let world = World::enter(need).or_infrastructure()?;
    let topology = wanted.topology(&Facts::gather(&world).or_infrastructure()?);
    match (dry_run, json) {
        (true, true) => print_json(&study::plan_here(&world, &topology)?)?,
        (true, false) => print(&study::plan_here(&world, &topology)?.to_string())?,
        (false, true) => print_json(study::build(&world, &topology, Lifetime::Kept)?.blueprint())?,
        (false, false) => print(&told(&study::build(&world, &topology, Lifetime::Kept)?))?,
    }
    Ok(Exit::Done)
}

/// What a lab is to be made of.
enum Wanted {
    Lab(Topology),
    Study(Box<Study>),
}

impl Wanted {
    /// A lab file, a study file or a built-in study.
    fn read(what: &str) -> Result<Wanted, Stop> {
        if let Some(study) = Study::built_in(what) {
            return Ok(Wanted::Study(Box::new(study)));
        }
        let text = std::fs::read_to_string(what)
            .with_context(|| format!("`{what}` is neither a built-in study nor a file that can be read"))
            .or_input()?;
        let source = Source { name: what, text: &text };
        match is_lab_file(&text) {
            true => Ok(Wanted::Lab(Topology::parse(source).or_input()?)),
            false => Ok(Wanted::Study(Box::new(Study::parse(source).or_input()?))),
        }
    }

    fn name(self) -> Name {
        match self {
            Wanted::Lab(topology) => topology.name,
            Wanted::Study(study) => study.id,
        }
    }

    /// Of a study, the lab that it would use here.
    fn topology(self, facts: &Facts) -> Topology {
        let study = match self {
            Wanted::Lab(topology) => return topology,
            Wanted::Study(study) => study,
        };
        let unavailable = study::unavailable(&study, facts);
        for row in &unavailable {
            eprintln!("left out: {}: {}", row.method, row.unsupported);
        }
        let rows = study::available(&study, &unavailable);
        study::arrange(&study, study.id.clone(), &rows).topology
    }
}

fn told(lab: &Lab) -> String {
    let mut table = table(["DOMAIN", "HOST", "METHOD", "WIRE", "ADDRESS"]);
    for endpoint in lab.endpoints() {
        table.add_row(endpoint_row(endpoint));
    }
    let name = &lab.blueprint().lab;
    format!("{}\n\nlab {name} is up; try: vtax lab exec {name} DOMAIN -- COMMAND\n", table.trim_fmt())
}

fn endpoint_row(endpoint: &Endpoint) -> [String; 5] {
    [
        endpoint.name.to_string(),
        endpoint.host.to_string(),
        endpoint.method.to_string(),
        endpoint.wire.to_string(),
        endpoint.address.to_string(),
    ]
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// The name of a lab, given as that or by its file.
fn lab_name(lab: &str) -> Result<Name, Stop> {
    match Path::new(lab).is_file() {
        true => Ok(Wanted::read(lab)?.name()),
        false => lab.parse().or_input(),
    }
}

fn down(lab: &str) -> Result<Exit, Stop> {
    let name = lab_name(lab)?;
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    study::open_lab(&world, &name)?.down().or_infrastructure()?;
    Ok(Exit::Done)
}

fn show_list(json: bool) -> Result<Exit, Stop> {
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let labs = list(&world).or_infrastructure()?;
    match (json, labs.is_empty()) {
        (true, _) => print_json(&labs)?,
        (false, true) => print("There are no labs.\n")?,
        (false, false) => print(&labs_table(&labs))?,
    }
    Ok(Exit::Done)
}

fn labs_table(labs: &[LabSummary]) -> String {
    let mut table = table(["LAB", "STATE", "HOSTS", "ZONES", "ADDRESSES", "SINCE", "MADE BY"]);
    for lab in labs {
        table.add_row([
            lab.name.to_string(),
            state(&lab.state).to_owned(),
            lab.hosts.len().to_string(),
            lab.zones.len().to_string(),
            lab.addresses.map_or("-".to_owned(), |net| net.to_string()),
            lab.owner.as_ref().map_or("-".to_owned(), since),
            lab.owner.as_ref().map_or("-".to_owned(), |owner| format!("{} (pid {})", owner.command, owner.pid)),
        ]);
    }
    format!("{}\n", table.trim_fmt())
}

fn since(owner: &Owner) -> String {
    let time = i64::try_from(owner.since).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or("-".to_owned(), |time| time.to_string())
}

fn state(state: &LabState) -> &'static str {
    match state {
        LabState::Alive => "alive",
        LabState::Kept => "kept",
        LabState::Abandoned => "abandoned",
        LabState::Damaged { .. } => "damaged",
    }
}

fn exec(lab: &str, domain: &Name, command: &[OsString]) -> Result<Exit, Stop> {
    let name = lab_name(lab)?;
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let lab = study::open_lab(&world, &name)?;
    let endpoint = find(&lab, domain).or_input()?;
    let (program, arguments) = command.split_first().expect("clap asks for a command");
    let mut run = Command::new(program);
    run.args(arguments);
    let status = lab.spawn(endpoint, run).or_infrastructure()?.wait().or_infrastructure()?;
    Ok(Exit::Child(child_code(status)))
}

fn find<'lab>(lab: &'lab Lab, domain: &Name) -> anyhow::Result<&'lab Endpoint> {
    let found = lab.endpoints().iter().find(|endpoint| endpoint.name == *domain);
    let Some(found) = found else {
        let mut names: Vec<&str> = lab.endpoints().iter().map(|endpoint| endpoint.name.as_str()).collect();
        names.dedup();
        bail!("the lab has no host or zone `{domain}`; it has {}", names.join(", "));
    };
    Ok(found)
}

/// As a shell tells how a command ended.
fn child_code(status: std::process::ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn show_clean(lab: Option<&str>) -> Result<Exit, Stop> {
    let only = lab.map(lab_name).transpose()?;
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let report = clean(&world, only.as_ref()).or_infrastructure()?;
    print(&cleaned(&report))?;
    match report.failures.is_empty() {
        true => Ok(Exit::Done),
        false => {
            let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
            Err(Stop::infrastructure(anyhow!("not everything could be removed: {}", failures.join("; "))))
        }
    }
}

fn cleaned(report: &CleanReport) -> String {
    let removed = report.removed.iter().map(|name| format!("removed {name}\n"));
    let left = report.left.iter().map(|lab| format!("left {} alone: it is {}\n", lab.name, state(&lab.state)));
    let told: String = removed.chain(left).collect();
    if told.is_empty() { "There is nothing to remove.\n".to_owned() } else { told }
}
