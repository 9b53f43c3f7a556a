//! Packets waiting for a CPU.

use vtax_host::inspect::SoftnetCpu;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::SOFTNET,
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "backlog",
    title: "receive backlog and budget",
    reads: "/proc/net/softnet_stat, columns 2 and 3; net.core.netdev_max_backlog, netdev_budget",
    needs: &[SOFTNET, &["/proc/sys/net/core/netdev_max_backlog", "/proc/sys/net/core/netdev_budget"]],
    good: "The kernel's defaults, 1000 and 300. Larger only where the counters rise.",
    why: "A CPU that cannot keep up drops packets that exceed its backlog. A longer backlog absorbs a longer burst; it \
          does not make the CPU faster.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Throughput,
    persists: "A file in /etc/sysctl.d; `--persist` writes one.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"TCP Parameter Settings\": sets \
             net.core.netdev_max_backlog to 300000, without reference to drops",
    check,
};

/// The settings and the kernel's defaults (`net/core/dev.c`).
const BACKLOG: (&str, u64) = ("net.core.netdev_max_backlog", 1000);
const BUDGET: (&str, u64) = ("net.core.netdev_budget", 300);
/// Share of all packets that justifies a change.
const MANY: f64 = 1e-5;
/// Number of stops with work left per packet that justifies a change.
const OFTEN: f64 = 1e-3;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let counters = counters(case);
    let over = match case.observed {
        Some(observed) => format!("in {:.0} s", observed.seconds),
        None => "since boot".to_owned(),
    };
    let drops = (BACKLOG, counters.dropped, MANY, format!("{} packets dropped {over}", counters.dropped));
    let stops =
        (BUDGET, counters.squeezed, OFTEN, format!("stopped {} times with work left {over}", counters.squeezed));
    let mut outcomes = Vec::new();
    for ((name, own), count, limit, seen) in [drops, stops] {
        let is_much = count as f64 > limit * counters.processed.max(1) as f64;
        outcomes.extend(match number(case, name) {
            Some(now) if now < own => {
                Some(raised(case, name, now, own, format!("{now}; the kernel's default is {own}")))
            }
            Some(now) if is_much => Some(raised(case, name, now, now.saturating_mul(2), seen)),
            // The host is a zone's namespace.
            None if is_much => Some(RuleOutcome::Unknown(format!("{seen}; {name} is visible only outside the zone"))),
            _ => None,
        });
    }
    if outcomes.is_empty() {
        outcomes.push(RuleOutcome::Good(format!(
            "{} packets {over}, {} dropped, stopped {} times with work left",
            counters.processed, counters.dropped, counters.squeezed
        )));
    }
    outcomes
}

/// Sums over all CPUs. The counters of one CPU have 32 bits.
#[derive(Default)]
struct Sums {
    processed: u64,
    dropped: u64,
    squeezed: u64,
}

fn counters(case: &TuningCase<'_>) -> Sums {
    let rise = |cpu: &SoftnetCpu| case.observed.map_or(*cpu, |observed| observed.softnet(cpu));
    case.host.softnet.iter().map(rise).fold(Sums::default(), |sums, cpu| Sums {
        processed: sums.processed + u64::from(cpu.processed),
        dropped: sums.dropped + u64::from(cpu.dropped),
        squeezed: sums.squeezed + u64::from(cpu.squeezed),
    })
}

fn number(case: &TuningCase<'_>, name: &str) -> Option<u64> {
    case.host.sysctl(name)?.parse().ok()
}

fn raised(case: &TuningCase<'_>, name: &str, now: u64, to: u64, seen: String) -> RuleOutcome {
    let finding = TuningFinding::new(name, seen, RULE.why).gain(ExpectedGain::Medium).owner(case.owner_of(name));
    finding.change([HostSetting::sysctl(name, to).instead_of(now.to_string())])
}
