//! `vtax fleet mesh`.

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use miette::miette;
use vtax_fleet::{
    Campaign, Detection, FleetName, HostExclusion, HostList, MeshAim, MeshEnd, MeshHeader, MeshPlan, MeshReport,
    MeshSample, MeshSchedule, Share,
};
use vtax_model::{located::Source, units::Span};
use vtax_run::{Interrupt, MeshAgents, MeshTest, study::random_seed};

use super::{
    MeshForm,
    file::{self, MeshFile},
};
use crate::{
    cli::{Locations, answer},
    exit::{Blamed, Coded, Exit, Stop},
    progress,
    whole_number::whole,
};

/// Largest list of hosts: `kubectl` writes 15 KB about each node.
const LIST_MOST: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct MeshArgs {
    /// List of hosts, e.g. rack.toml, or - for standard input: a rack file, an Ansible inventory (INI, or the output of
    /// `ansible-inventory --list`), the output of `scontrol show nodes` or `kubectl get nodes -o json`, or names, one
    /// per line
    #[arg(long, value_name = "FILE")]
    hosts: PathBuf,
    /// Measure only this part of the fleet, e.g. rack7: a rack, uplink, rail or group of the list
    #[arg(long, value_name = "PART")]
    within: Option<FleetName>,
    /// Slowness to detect, e.g. 5%; it determines the number of rounds [default: 10%, and all pairs of up to 64 hosts]
    #[arg(long, value_name = "SHARE")]
    show: Option<Share>,
    /// Time limit of the rounds, e.g. 5m, instead of --show
    #[arg(long, value_name = "TIME", conflicts_with = "show")]
    budget: Option<Span>,
    /// Measured time of each direction of a pair, e.g. 2s
    #[arg(long, value_name = "TIME", default_value = "1s")]
    duration: Span,
    /// Source ports of each direction of a pair, e.g. 8. They share the time of --duration
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole::<u32>)]
    ports: u32,
    /// Seed of the order of the hosts, e.g. 7, to repeat a plan [default: random]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Print the plan without measuring: hosts, rounds, waves, duration and detection limit
    #[arg(long, conflicts_with_all = ["csv", "openmetrics"])]
    dry_run: bool,
    #[command(flatten)]
    form: MeshForm,
}

/// Everything that is decided before a host is contacted.
struct PlannedMesh {
    list: HostList,
    ends: Vec<MeshEnd>,
    plan: MeshPlan,
    show: Share,
    test: MeshTest,
    seed: u64,
}

pub(super) fn mesh(args: &MeshArgs, places: &Locations) -> Result<Exit, Stop> {
    let planned = args.planned()?;
    if args.dry_run {
        return answer(args.form.json, &planned.schedule(), MeshSchedule::summary);
    }
    planned.measure(args.form, places)
}

impl MeshArgs {
    fn planned(&self) -> Result<PlannedMesh, Stop> {
        let test = self.test()?;
        let mut list = self.list()?;
        if let Some(part) = &self.within {
            list = list.within(part).or_input()?;
        }
        let ends = list.ends().or_input()?;
        let show = self.show.unwrap_or(Share::TENTH);
        let budget = self.budget.map(|budget| budget.0);
        let aim = MeshAim { show, only_as_needed: self.show.is_some(), budget, wave: test.wave_time() };
        let seed = self.seed.map_or_else(random_seed, Ok).or_infrastructure()?;
        let plan = aim.plan(&ends, &list.limits, seed);
        Ok(PlannedMesh { list, ends, plan, show, test, seed })
    }

    fn test(&self) -> Result<MeshTest, Stop> {
        let (duration, ports) = (self.duration, self.ports);
        let least = Duration::from_millis(10);
        let fits = (1..=64).contains(&ports) && duration.0 / ports >= least && duration.0 <= Duration::from_secs(600);
        let wrong = || {
            let message =
                "--duration and --ports: use 1 to 64 source ports, at least 10 ms for each, and at most 10 minutes";
            Stop::input(miette!(code = "bad-option", "{message}"))
        };
        fits.then_some(MeshTest { duration, ports }).ok_or_else(wrong)
    }

    fn list(&self) -> Result<HostList, Stop> {
        let is_input = self.hosts.as_os_str() == "-";
        let name = if is_input { "standard input".to_owned() } else { self.hosts.display().to_string() };
        let text = match is_input {
            true => bounded(io::stdin().lock()),
            false => File::open(&self.hosts).and_then(bounded),
        };
        let text = text.coded("file", || format!("--hosts: cannot read {name}")).or_input()?;
        HostList::parse(Source { name: &name, text: &text }).or_input()
    }
}

fn bounded(reader: impl Read) -> io::Result<String> {
    let mut text = String::new();
    reader.take(LIST_MOST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LIST_MOST {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 64 MiB")),
        false => Ok(text),
    }
}

impl PlannedMesh {
    fn schedule(&self) -> MeshSchedule {
        let detects = Detection::of(self.ends.len(), self.plan.per_rail, self.show, None);
        let (limits, excluded) = (&self.list.limits, HostExclusion::of(&self.list));
        MeshSchedule::of(&self.plan, &self.ends, limits, self.test.wave_time(), detects, excluded)
    }

    fn header(&self) -> MeshHeader {
        let text = |name: &FleetName| name.as_str().into();
        MeshHeader {
            schema: MeshHeader::SCHEMA.into(),
            ends: self.ends.iter().map(|end| end.name.as_str().into()).collect(),
            uplinks: self.ends.iter().map(|end| end.nic.uplink.as_ref().map(text)).collect(),
            rails: self.ends.iter().map(|end| end.nic.rail.as_ref().map(text)).collect(),
            rounds: self.plan.per_rail,
            all_rounds: self.plan.all_rounds,
            waves: u32::try_from(self.plan.waves(&self.ends, &self.list.limits)).ok(),
            show: self.show.get(),
            seed: self.seed,
        }
    }

    fn measure(&self, form: MeshForm, places: &Locations) -> Result<Exit, Stop> {
        let header = self.header();
        let interrupt = Interrupt::catch(&progress::terminal()).or_infrastructure()?;
        let mut agents = MeshAgents::connect(&self.ends, &places.agent_program()?, self.test, interrupt.clone())?;
        for (end, why) in agents.unfit() {
            tell!("warning: {} cannot be measured: {why}", header.name(end));
        }
        let mut file = MeshFile::create(&places.state_dir()?, &header)?;
        let waves = self.plan.waves(&self.ends, &self.list.limits);
        let mut keep = |sample: &MeshSample| {
            file.append(sample)?;
            if interrupt.asked() { Err(Stop::interrupted()) } else { Ok(()) }
        };
        tell!("{waves} waves, about {}", Span(Duration::from_secs((self.test.wave_time() * waves as u32).as_secs())));
        let (ends, limits) = (&self.ends, &self.list.limits);
        let measured = Campaign { header: &header, ends, limits, tester: &mut agents, keep: &mut keep }.run(&self.plan);
        file.finish()?;
        tell!("samples: {}", file.path.display());
        let (samples, exit) = match measured {
            // What was measured before is worth a report.
            Err(_) if interrupt.asked() => (file::read(&file.path)?.1, Some(Exit::Interrupted)),
            measured => (measured?, None),
        };
        let told = form.print(&MeshReport::of(&header, &samples, HostExclusion::of(&self.list)))?;
        Ok(exit.unwrap_or(told))
    }
}
