//! Options shared by `check` and `apply`.

use clap::Args;
use vtax_host::inspect::HostFacts;
use vtax_model::units::Span;
use vtax_run::{Locations, TuningHost};
use vtax_tune::{HostCheck, PathRtt, TuningCase, TuningGoal};

use super::{
    on_host::HostArgs,
    path_name::{self, PathName},
    rtt::RttArgs,
};
use crate::{
    exit::Stop,
    one_of::{Choice, one_of},
    progress,
};

/// Returns the help of `--path`: what the command does with it, and the syntax.
pub(super) fn path_help(what: &str) -> String {
    format!(
        "{what}, e.g. eno1 or rack/web: a NIC or another link, a guest with its tap, bridge, NIC and threads (its name \
         or QEMU's pid), or the path of a lab's zone or guest on its host (LAB/NAME)"
    )
}

const GOALS: [Choice<TuningGoal>; 3] = [
    ("latency", "Round trips", TuningGoal::Latency),
    ("throughput", "Bandwidth", TuningGoal::Throughput),
    ("both", "Both; settings that help one and harm the other are unchanged", TuningGoal::Both),
];

#[derive(Debug, Args)]
pub(super) struct AskedArgs {
    /// Optimization goal
    #[arg(long, value_parser = one_of(&GOALS), default_value = "both")]
    goal: TuningGoal,
    /// The path to check, in the words of [`path_help`].
    #[arg(long, value_name = "LINK|GUEST|LAB/NAME", help = path_help("Path to check instead of the whole host"))]
    path: Option<PathName>,
    #[command(flatten)]
    rtt: RttArgs,
    /// Observation time for drop counters and CPU load, e.g. 10s [default: since boot]
    #[arg(long, value_name = "TIME")]
    observe: Option<Span>,
    #[command(flatten)]
    on: HostArgs,
}

/// A checked host.
pub(super) struct LookedAt {
    pub(super) host: TuningHost,
    pub(super) facts: HostFacts,
    pub(super) check: HostCheck,
    pub(super) rtt: Option<PathRtt>,
}

impl AskedArgs {
    pub(super) fn goal(&self) -> TuningGoal {
        self.goal
    }

    /// The requested host.
    pub(super) fn on(&self) -> &HostArgs {
        &self.on
    }

    /// Reads the host, and runs all rules.
    pub(super) fn look(&self, places: &Locations) -> Result<LookedAt, Stop> {
        let (control, named) = path_name::locate(self.path.as_ref(), &self.on)?;
        let by_agents = self.rtt.by_agents(&control, places)?;
        let host = TuningHost::reach(&control, places, &progress::terminal())?;
        let rtt = by_agents.map_or_else(|| self.rtt.by_host(&host), |rtt| Ok(Some(rtt)))?;
        let first = host.facts()?;
        let path = named.find(&first)?;
        let (facts, observed) = match self.observe {
            None => (first, None),
            Some(time) => host.observe(first, time.0).map(|(facts, observed)| (facts, Some(observed)))?,
        };
        let case = TuningCase {
            host: &facts,
            observed: observed.as_ref(),
            goal: self.goal,
            rtt: rtt.as_ref(),
            path: path.as_ref(),
        };
        let check = vtax_tune::check(&case);
        Ok(LookedAt { check, facts, host, rtt })
    }
}
