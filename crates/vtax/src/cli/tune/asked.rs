//! What is asked about a host: options that `check` and `apply` share.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use vtax_change::NamespaceRef;
use vtax_host::inspect::{HostFacts, LiveNics, SystemRoot};
use vtax_lab::{Lifetime, World};
use vtax_model::{foreign::ForeignText, topology::Name, units::Span};
use vtax_run::labs;
use vtax_sys::{netns::NetNs, tree::FileTree};
use vtax_tune::{HostCheck, Observation, TuningCase, TuningGoal};

use crate::{
    exit::{Blamed, Stop},
    one_of::{Choice, one_of},
};

const GOALS: [Choice<TuningGoal>; 3] = [
    ("latency", "Round trips", TuningGoal::Latency),
    ("throughput", "Bandwidth", TuningGoal::Throughput),
    ("both", "Both: what helps one and harms the other is left alone", TuningGoal::Both),
];

#[derive(Debug, Args)]
pub(super) struct AskedArgs {
    /// What is to become better
    #[arg(long, value_parser = one_of(&GOALS), default_value = "both")]
    goal: TuningGoal,
    /// Look at this link only
    #[arg(long, value_name = "LINK")]
    link: Option<String>,
    /// The round trip of the path that matters, as it was measured. Buffers and idle states are judged by it
    #[arg(long, value_name = "TIME")]
    rtt: Option<Span>,
    /// Watch the counters of drops and of busy CPUs for this time. Without it, they count from the machine's start
    #[arg(long, value_name = "TIME")]
    observe: Option<Span>,
    /// Look at the links and network settings of a zone or host of a lab, and not at this machine's own
    #[arg(long = "in", value_name = "LAB/ZONE", value_parser = zone)]
    zone: Option<ZoneName>,
}

/// A zone or host of a lab.
#[derive(Debug, Clone)]
struct ZoneName {
    lab: Name,
    domain: Name,
}

fn zone(text: &str) -> Result<ZoneName, String> {
    let (lab, domain) = text.split_once('/').ok_or("write LAB/ZONE, as in rack/web")?;
    let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
    Ok(ZoneName { lab: name(lab)?, domain: name(domain)? })
}

/// What was looked at.
pub(super) struct LookedAt {
    pub(super) facts: HostFacts,
    pub(super) check: HostCheck,
    /// The network namespace whose settings were looked at, if it isn't this program's own.
    pub(super) namespace: Option<NamespaceRef>,
}

impl AskedArgs {
    pub(super) fn goal(&self) -> TuningGoal {
        self.goal
    }

    /// Reads the host, and asks all rules.
    pub(super) fn look(&self) -> Result<LookedAt, Stop> {
        let path = self.zone.as_ref().map(pinned).transpose()?;
        let namespace = path.as_deref().map(NamespaceRef::at).transpose().or_infrastructure()?;
        let place = path.as_deref().map(NetNs::open).transpose().or_infrastructure()?;
        let (facts, observed) = match &place {
            None => self.read(&SystemRoot::live())?,
            Some(inside) => {
                let sys = FileTree::sysfs_of(inside).or_infrastructure()?;
                let tree = SystemRoot::live_with_sys(&sys.path());
                inside.run(|| self.read(&tree)).or_infrastructure()??
            }
        };
        let case = TuningCase {
            host: &facts,
            observed: observed.as_ref(),
            goal: self.goal,
            rtt: self.rtt.map(|rtt| rtt.0),
            link: self.link.as_deref(),
        };
        let check = vtax_tune::check(&case);
        Ok(LookedAt { check, facts, namespace })
    }

    fn read(&self, tree: &SystemRoot) -> Result<(HostFacts, Option<Observation>), Stop> {
        let first = HostFacts::read(tree, &LiveNics);
        self.require_link(&first)?;
        Ok(match self.observe {
            None => (first, None),
            Some(time) => watch(tree, first, time.0),
        })
    }

    fn require_link(&self, facts: &HostFacts) -> Result<(), Stop> {
        let Some(wanted) = &self.link else { return Ok(()) };
        if facts.links.iter().any(|link| link.name == wanted.as_str()) {
            return Ok(());
        }
        let names: Vec<String> = facts.links.iter().map(|link| link.name.to_string()).collect();
        let (wanted, names) = (ForeignText::from(wanted.as_str()), names.join(", "));
        Err(Stop::input(miette::miette!(code = "no-such-link", "there is no link {wanted}; there is {names}")))
    }
}

fn watch(tree: &SystemRoot, before: HostFacts, time: Duration) -> (HostFacts, Option<Observation>) {
    let begun = Instant::now();
    thread::sleep(time);
    let facts = HostFacts::read(tree, &LiveNics);
    (facts, Some(Observation { before, seconds: begun.elapsed().as_secs_f64() }))
}

fn pinned(zone: &ZoneName) -> Result<PathBuf, Stop> {
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let lab = labs::open(&world, &zone.lab)?;
    let endpoint = crate::cli::lab::find(&lab, &zone.domain).or_input()?;
    Ok(lab.namespace_path(endpoint))
}
