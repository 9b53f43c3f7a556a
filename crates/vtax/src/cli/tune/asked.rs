//! What is asked about a host: options that `check` and `apply` share.

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
    /// Judge only what lies on this path: a NIC or another link, a guest with its tap, bridge, NIC and threads (its name
    /// or QEMU's pid), or what is under a zone or guest of a lab on its host (LAB/NAME)
    #[arg(long, value_name = "LINK|GUEST|LAB/NAME")]
    path: Option<PathName>,
    #[command(flatten)]
    rtt: RttArgs,
    /// Watch the counters of drops and of busy CPUs for this time. Without it, they count from the machine's start
    #[arg(long, value_name = "TIME")]
    observe: Option<Span>,
    #[command(flatten)]
    on: HostArgs,
}

/// What was looked at.
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

    /// The host that was asked for.
    pub(super) fn on(&self) -> &HostArgs {
        &self.on
    }

    /// Reads the host, and asks all rules.
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
