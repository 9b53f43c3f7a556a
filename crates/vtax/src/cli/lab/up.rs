//! `vtax lab up`.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use miette::miette;
use serde::Serialize;
use vtax_guest::home;
use vtax_lab::{
    Facts, GuestNeeds, Lab, LabEndpoint, Lifetime, Plan, World,
    dependency::{self, GuestTies},
    facts::QemuFacts,
    plan,
};
use vtax_model::{
    guest::Accelerator,
    topology::{Name, Topology},
    units::Span,
};
use vtax_report::Column;
use vtax_run::{labs, server::is_here};
use vtax_sys::clock::boottime_ns;

use super::{
    guest::{self, BootedGuest},
    show,
    wanted::LabRequest,
};
use crate::{
    cli::{Locations, answer, lists},
    exit::{Blamed, Exit, Stop},
    progress,
};

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// Lab file, study file or built-in study, e.g. rack.toml
    #[arg(value_name = "FILE")]
    what: String,
    /// Kernel for guests: a bzImage, or the directory of an unpacked package, e.g. /boot/vmlinuz-6.12 [default:
    /// $VTAX_KERNEL, else the running kernel, else that of `make kernel`]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Time limit for the guests' agents to answer, e.g. 5m [default: 180s; 900s for guests with a disk image under
    /// TCG]
    #[arg(long, value_name = "TIME")]
    wait: Option<Span>,
    /// Print the steps, with QEMU's arguments, without running them
    #[arg(long)]
    dry_run: bool,
    /// Print the lab, or with --dry-run the plan, as JSON
    #[arg(long)]
    json: bool,
}

impl UpArgs {
    pub(super) fn is_dry(&self) -> bool {
        self.dry_run
    }
}

pub(super) fn up(args: &UpArgs, places: &Locations) -> Result<Exit, Stop> {
    let wanted = LabRequest::read(&args.what)?;
    let needs = wanted.needs(args.kernel.as_deref(), places)?;
    let lifetime = if args.dry_run { Lifetime::Ephemeral } else { Lifetime::Kept };
    let world = World::enter(lifetime).or_infrastructure()?;
    if !args.dry_run {
        labs::remove_abandoned(&world, wanted.name(), &progress::terminal())?;
    }
    let ground = LabSite::survey(&world, needs.as_ref())?;
    let topology = wanted.topology(&ground.facts);
    if args.dry_run {
        let plan = ground.plan(&topology)?;
        let ties = dependency::of_plan(&plan);
        let told = |_: &_| format!("{plan}{}{}", told_ties(&ties), accelerator(&ground.facts));
        return answer(args.json, &LabRecord { lab: &plan, ties: &ties, seconds: &[] }, told);
    }
    let Some(mut built) = ground.build(&world, &topology)?.up(args.wait)? else { return Ok(Exit::Interrupted) };
    built.lab.keep().or_infrastructure()?;
    let record = LabRecord { lab: built.lab.blueprint(), ties: &built.ties, seconds: &built.guests };
    let option = if is_here() { " --server emulated" } else { "" };
    answer(args.json, &record, |_| built.told(option))
}

/// Returns a table of what each guest depends on, and whether it could be migrated.
fn told_ties(ties: &[GuestTies]) -> String {
    let row = |of: &GuestTies| [of.guest.to_string(), show::depends_on(&of.ties), of.ties.migration.to_string()];
    let columns = [Column::left("GUEST"), Column::wrapped("DEPENDS ON"), Column::wrapped("LIVE MIGRATION")];
    lists::list(columns, ties.iter().map(row))
}

struct LabSite {
    facts: Facts,
    /// The duration of the survey, most of which is for the image that guests boot.
    looked: Duration,
    /// True if the user has named a kernel for guests that does not exist.
    names_no_kernel: bool,
}

impl LabSite {
    fn survey(world: &World, needs: Option<&GuestNeeds>) -> Result<LabSite, Stop> {
        let begun = Instant::now();
        let facts = Facts::gather(world).or_infrastructure()?;
        let facts = match needs {
            Some(needs) => facts.with_guests(world, needs),
            None => facts,
        };
        let names_no_kernel = needs.is_some_and(GuestNeeds::names_no_kernel);
        Ok(LabSite { facts, looked: begun.elapsed(), names_no_kernel })
    }

    fn plan(&self, topology: &Topology) -> Result<Plan, Stop> {
        plan(topology, &self.facts)
            .map_err(|error| if self.names_no_kernel { Stop::input(error) } else { error.into() })
    }

    fn build(mut self, world: &World, topology: &Topology) -> Result<BuiltLab, Stop> {
        let (mut begun, mut ties) = (None, Vec::new());
        let lab = labs::build_planned(world, topology, Lifetime::Kept, || {
            // The guests' requirements do not change if a range of addresses was taken.
            if begun.replace(boottime_ns()).is_some() {
                let guests = self.facts.guests.take();
                self.facts = Facts { guests, ..Facts::gather(world).or_infrastructure()? };
            }
            let plan = self.plan(topology)?;
            ties = dependency::of_plan(&plan);
            Ok(plan)
        })?;
        Ok(BuiltLab { lab, ties, begun: begun.unwrap_or_default(), guests: Vec::new(), ground: self })
    }
}

struct BuiltLab {
    lab: Lab,
    ties: Vec<GuestTies>,
    /// The time when the build began, by `CLOCK_BOOTTIME`.
    begun: u64,
    guests: Vec<GuestTimes>,
    ground: LabSite,
}

/// The seconds of each phase until a guest was up.
#[derive(Debug, Serialize)]
struct GuestTimes {
    guest: Name,
    /// Until the guests' image was created, and KVM was tried.
    image: f64,
    /// Until the guest's QEMU was started.
    qemu: f64,
    /// Until the guest's agent answered.
    agent: f64,
}

/// The lab that was or would be built, for programs.
#[derive(Serialize)]
struct LabRecord<'a, T> {
    #[serde(flatten)]
    lab: &'a T,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ties: &'a [GuestTies],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    seconds: &'a [GuestTimes],
}

impl BuiltLab {
    /// Waits for the guests, and removes the lab if one does not come up or if the user asks to stop, which gives None.
    fn up(mut self, patience: Option<Span>) -> Result<Option<BuiltLab>, Stop> {
        let tell = |arrival: &BootedGuest| {
            let seconds = seconds(arrival.started, arrival.answered);
            tell!("guest {} is up: its agent answered {seconds:.1} s after the start of QEMU", arrival.guest);
        };
        let arrivals = match guest::bring_up(&self.lab, patience.map(|patience| patience.0), tell) {
            Ok(Some(arrivals)) => arrivals,
            Ok(None) => return self.lab.down().map(|()| None).or_infrastructure(),
            Err(error) => return Err(Stop::infrastructure(abandon(self.lab, error))),
        };
        let times = |BootedGuest { guest, started, answered }| GuestTimes {
            guest,
            image: self.ground.looked.as_secs_f64(),
            qemu: seconds(self.begun, started),
            agent: seconds(started, answered),
        };
        self.guests = arrivals.into_iter().map(times).collect();
        Ok(Some(self))
    }

    /// `option` is the option with which a command reaches the lab.
    fn told(&self, option: &str) -> String {
        let columns = ["DOMAIN", "HOST", "METHOD", "WIRE", "ADDRESS"].map(Column::left);
        let domains = lists::list(columns, self.lab.endpoints().iter().map(endpoint_row));
        let name = &self.lab.blueprint().lab;
        let guests = if self.guests.is_empty() { String::new() } else { self.told_of_guests() };
        format!("{domains}{guests}\nlab {name} is up; try: vtax lab exec{option} {name} DOMAIN -- COMMAND\n")
    }

    fn told_of_guests(&self) -> String {
        let row = |times: &GuestTimes| {
            let [image, qemu, agent] = [times.image, times.qemu, times.agent].map(|seconds| format!("{seconds:.2}"));
            [times.guest.to_string(), image, qemu, agent]
        };
        let [image, qemu, agent] = ["IMAGE s", "QEMU s", "AGENT s"].map(Column::right);
        let table = lists::list([Column::left("GUEST"), image, qemu, agent], self.guests.iter().map(row));
        let meaning = "time until its image was created (IMAGE), QEMU was started and the agent answered";
        let weaknesses = weaknesses(&self.ground.facts);
        format!("\n{table}{meaning}\n{}{weaknesses}", accelerator(&self.ground.facts))
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    Duration::from_nanos(to.saturating_sub(from)).as_secs_f64()
}

fn abandon(lab: Lab, error: miette::Report) -> miette::Report {
    match lab.down() {
        Ok(()) => error.context("a guest did not come up; the lab was removed"),
        Err(left) => miette!(code = "not-removed", "{error:#}; the lab could not be removed: {left}"),
    }
}

fn endpoint_row(endpoint: &LabEndpoint) -> [String; 5] {
    let flavour = endpoint.flavour.map(|flavour| format!(":{flavour}")).unwrap_or_default();
    [
        endpoint.name.to_string(),
        endpoint.host.to_string(),
        format!("{}{flavour}", endpoint.method),
        endpoint.wire.to_string(),
        endpoint.address.to_string(),
    ]
}

/// Returns a line with the accelerator of the guests and the reason for it; nothing without guests.
pub(in crate::cli) fn accelerator(facts: &Facts) -> String {
    match facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok()) {
        Some(qemu) => format!("{}\n", told_of(qemu)),
        None => String::new(),
    }
}

/// Returns a line for each isolation of guests from the host that this machine lacks.
fn weaknesses(facts: &Facts) -> String {
    let qemu = facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok());
    let list = qemu.map(|qemu| home::weaknesses(&qemu.program)).unwrap_or_default();
    list.into_iter().map(|weakness| format!("note: {weakness}\n")).collect()
}

fn told_of(qemu: &QemuFacts) -> String {
    let version = qemu.program.version;
    match (qemu.accel, &qemu.no_kvm) {
        (Accelerator::Kvm, _) => format!("guests run under KVM (QEMU {version})"),
        (Accelerator::Tcg, why) => {
            let why = why.as_deref().unwrap_or("KVM was not tried");
            format!("guests run under TCG (QEMU {version}), a slow software emulation: {why}")
        }
    }
}
