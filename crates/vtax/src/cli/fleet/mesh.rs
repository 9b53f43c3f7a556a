//! `vtax fleet mesh`.

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use miette::miette;
use vtax_fleet::{
    Campaign, Detection, FleetName, HostList, MeshAim, MeshEvent, MeshHeader, MeshReport, MeshSample, MeshSchedule,
    MeshStage, PairTest, PairTestKind, Share,
};
use vtax_model::{
    located::Source,
    units::{Span, minutes},
};
use vtax_run::{EveryFewSeconds, Interrupt, MeshAgents, study::random_seed};

use super::{MeshForm, file::MeshFile};
use crate::{
    cli::{Locations, answer},
    exit::{Blamed, Coded, Exit, Stop},
    progress,
    whole_number::whole,
};

/// Maximum size of a list of hosts: `kubectl` writes 15 KB per node.
const LIST_MOST: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct MeshArgs {
    /// List of hosts, e.g. rack.toml, or - for standard input: a rack file, an Ansible inventory (INI, or the output of
    /// `ansible-inventory --list`), the output of `scontrol show nodes` or `kubectl get nodes -o json`, or names, one
    /// per line
    #[arg(long, value_name = "FILE", required_unless_present = "resume")]
    hosts: Option<PathBuf>,
    /// Stopped or killed mesh to resume: `last`, its name, a prefix of it, e.g. mesh-20260102, or its file
    #[arg(long, value_name = "MESH", conflicts_with_all = [
        "hosts", "within", "test", "show", "budget", "duration", "ports", "seed", "dry_run",
    ])]
    resume: Option<String>,
    /// Measure only this part of the fleet, e.g. rack7: a rack, uplink, rail or group of the list
    #[arg(long, value_name = "PART")]
    within: Option<FleetName>,
    /// Test of each pair, e.g. tcp-rr. Both directions are measured in sequence
    #[arg(long, value_enum, value_name = "TEST", default_value = "tcp-stream")]
    test: MeshTestName,
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

/// Names of the tests.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum MeshTestName {
    /// Rate of a TCP stream
    TcpStream,
    /// Round-trip time of 1-byte requests over TCP
    TcpRr,
    /// Round-trip time of 1-byte requests over UDP
    UdpRr,
}

impl From<MeshTestName> for PairTestKind {
    fn from(name: MeshTestName) -> PairTestKind {
        match name {
            MeshTestName::TcpStream => PairTestKind::TcpStream,
            MeshTestName::TcpRr => PairTestKind::TcpRr,
            MeshTestName::UdpRr => PairTestKind::UdpRr,
        }
    }
}

pub(super) fn mesh(args: &MeshArgs, places: &Locations) -> Result<Exit, Stop> {
    if let Some(name) = &args.resume {
        return resume(name, args.form, places);
    }
    let header = args.header()?;
    match args.dry_run {
        true => answer(args.form.json, &schedule(&header), MeshSchedule::summary),
        false => begin(&header, args.form, places),
    }
}

impl MeshArgs {
    /// Decides everything before a host is contacted.
    fn header(&self) -> Result<MeshHeader, Stop> {
        let test = self.test()?;
        let mut list = self.list()?;
        if let Some(part) = &self.within {
            list = list.within(part).or_input()?;
        }
        let ends = list.ends().or_input()?;
        let show = self.show.unwrap_or(Share::TENTH).slowness(test.kind);
        let budget = self.budget.map(|budget| budget.0);
        let aim = MeshAim { show, only_as_needed: self.show.is_some(), budget, wave: test.wave_time() };
        let seed = self.seed.map_or_else(random_seed, Ok).or_infrastructure()?;
        let plan = aim.plan(&ends, &list.limits, seed);
        let header = MeshHeader {
            schema: MeshHeader::SCHEMA.into(),
            test,
            excluded: list.excluded(),
            ends,
            limits: list.limits,
            rounds: plan.per_rail,
            all_rounds: plan.all_rounds,
            waves: None,
            show: show.get(),
            seed,
        };
        Ok(MeshHeader { waves: u32::try_from(header.waves_of_rounds()).ok(), ..header })
    }

    fn test(&self) -> Result<PairTest, Stop> {
        let (kind, duration, ports) = (self.test.into(), self.duration, self.ports);
        let least = Duration::from_millis(10);
        let fits = (1..=64).contains(&ports) && duration.0 / ports >= least && duration.0 <= Duration::from_secs(600);
        let wrong = || {
            let message =
                "--duration and --ports: use 1 to 64 source ports, at least 10 ms for each, and at most 10 minutes";
            Stop::input(miette!(code = "bad-option", "{message}"))
        };
        fits.then_some(PairTest { kind, duration, ports }).ok_or_else(wrong)
    }

    fn list(&self) -> Result<HostList, Stop> {
        let hosts = self.hosts.as_deref().expect("clap requires it unless a mesh is resumed");
        let is_input = hosts.as_os_str() == "-";
        let name = if is_input { "standard input".to_owned() } else { hosts.display().to_string() };
        let text = match is_input {
            true => bounded(io::stdin().lock()),
            false => File::open(hosts).and_then(bounded),
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

fn schedule(header: &MeshHeader) -> MeshSchedule {
    let show = Share::try_from(header.show).unwrap_or(Share::TENTH);
    MeshSchedule::of(header, Detection::of(header.ends.len(), header.rounds, show, None))
}

fn begin(header: &MeshHeader, form: MeshForm, places: &Locations) -> Result<Exit, Stop> {
    // The file is created once the hosts have answered.
    let interrupt = Interrupt::catch(&progress::terminal()).or_infrastructure()?;
    let agents = connect(header, places, &interrupt)?;
    let file = MeshFile::create(&places.state_dir()?, header)?;
    Measurement { header, agents, file, interrupt, form }.run(Vec::new())
}

fn resume(name: &str, form: MeshForm, places: &Locations) -> Result<Exit, Stop> {
    let (file, header, samples) = MeshFile::resume(&places.state_dir()?, name)?;
    let interrupt = Interrupt::catch(&progress::terminal()).or_infrastructure()?;
    let agents = connect(&header, places, &interrupt)?;
    Measurement { header: &header, agents, file, interrupt, form }.run(samples)
}

fn connect<'a>(header: &'a MeshHeader, places: &Locations, interrupt: &Interrupt) -> Result<MeshAgents<'a>, Stop> {
    let agents = MeshAgents::connect(&header.ends, &places.agent_program()?, header.test, interrupt.clone())?;
    for (end, why) in agents.unfit() {
        tell!("warning: {} cannot be measured: {why}", header.name(end));
    }
    Ok(agents)
}

/// A mesh whose hosts are connected.
struct Measurement<'a> {
    header: &'a MeshHeader,
    agents: MeshAgents<'a>,
    file: MeshFile,
    interrupt: Interrupt,
    form: MeshForm,
}

impl Measurement<'_> {
    fn run(mut self, stored: Vec<MeshSample>) -> Result<Exit, Stop> {
        let (header, file, interrupt) = (self.header, &mut self.file, &self.interrupt);
        let mut progress =
            MeshProgress { wave_time: header.test.wave_time(), waves: 0, lately: EveryFewSeconds::default() };
        let mut events = |event: MeshEvent<'_>| {
            progress.take(event);
            match event {
                MeshEvent::Sample(sample) => file.append(sample)?,
                MeshEvent::Stage { .. } | MeshEvent::Wave { .. } => {}
            }
            if interrupt.asked() { Err(Stop::interrupted()) } else { Ok(()) }
        };
        let measured = Campaign { header, tester: &mut self.agents, events: &mut events }.run(stored);
        self.file.finish()?;
        tell!("samples: {}", self.file.path.display());
        let (samples, exit) = match measured {
            // Tests that were already measured are worth a report.
            Err(_) if self.interrupt.asked() => {
                tell!("resume with: vtax fleet mesh --resume {}", self.file.name());
                (super::file::read(&self.file.path)?.1, Some(Exit::Interrupted))
            }
            measured => (measured?, None),
        };
        let printed = self.form.print(&MeshReport::of(header, &samples))?;
        Ok(exit.unwrap_or(printed))
    }
}

/// Progress on standard error.
struct MeshProgress {
    wave_time: Duration,
    /// Waves of the current stage.
    waves: usize,
    lately: EveryFewSeconds,
}

impl MeshProgress {
    fn take(&mut self, event: MeshEvent<'_>) {
        let left = |waves: usize| minutes(self.wave_time * u32::try_from(waves).unwrap_or(u32::MAX));
        match event {
            MeshEvent::Stage { stage, waves } => {
                let what = match stage {
                    MeshStage::Missed => "missed pairs: ",
                    MeshStage::Rounds => "",
                    MeshStage::Suspects | MeshStage::Controls | MeshStage::Pairs => "retests of suspects: ",
                };
                tell!("{what}{waves} waves, about {}", left(waves));
                self.waves = waves;
            }
            MeshEvent::Wave { number } if number > 0 && self.lately.is_due() => {
                tell!("wave {} of {}, about {} left", number + 1, self.waves, left(self.waves - number));
            }
            MeshEvent::Wave { .. } | MeshEvent::Sample(_) => {}
        }
    }
}
