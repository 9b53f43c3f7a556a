//! Options that `check` and `apply` share.

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
    ("both", "Both: settings that help one and harm the other are left alone", TuningGoal::Both),
];

#[derive(Debug, Args)]
pub(super) struct AskedArgs {
    /// Optimization goal
    #[arg(long, value_parser = one_of(&GOALS), default_value = "both")]
    goal: TuningGoal,
    /// Check only this path: a NIC or another link, a guest with its tap, bridge, NIC and threads (its name or QEMU's
    /// PID), or the host side of a lab's zone or guest (LAB/NAME)
    #[arg(long, value_name = "LINK|GUEST|LAB/NAME")]
    path: Option<PathName>,
    #[command(flatten)]
    rtt: RttArgs,
    /// Watch drop counters and busy CPUs for this time, e.g. 5s [default: counters since boot]
    #[arg(long, value_name = "TIME")]
    observe: Option<Span>,
    #[command(flatten)]
    on: HostArgs,
}

/// The host's facts and their check.
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

    /// Returns the requested host.
    pub(super) fn on(&self) -> &HostArgs {
        &self.on
    }

    /// Reads the host and evaluates all rules.
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
