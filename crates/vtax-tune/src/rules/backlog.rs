//! Packets that wait for a CPU.

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
    title: "backlog and budget of received packets",
    reads: "/proc/net/softnet_stat, columns 2 and 3; net.core.netdev_max_backlog, netdev_budget",
    needs: &[SOFTNET, &["/proc/sys/net/core/netdev_max_backlog", "/proc/sys/net/core/netdev_budget"]],
    good: "The kernel's own 1000 and 300. More only where the counters rise.",
    why: "A CPU that can't keep up drops what doesn't fit into its backlog. A longer backlog holds a longer burst; it \
          doesn't make the CPU faster.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Throughput,
    persists: "A file in /etc/sysctl.d keeps it; `--persist` writes one.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015) sets 300000 without a symptom. Others measured +40 % \
             from 1000 to 2000 where packets were dropped, and less at 2500.",
    check,
};

const BACKLOG: &str = "net.core.netdev_max_backlog";
const BUDGET: &str = "net.core.netdev_budget";
/// The kernel's own (`net/core/dev.c`).
const OWN: [(&str, u64); 2] = [(BACKLOG, 1000), (BUDGET, 300)];
/// A part of all packets that is worth a change.
const MANY: f64 = 1e-5;
/// How often a CPU stops with work left, for each packet, that is worth a change.
const OFTEN: f64 = 1e-3;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let mut outcomes: Vec<RuleOutcome> = OWN.iter().filter_map(|(name, own)| too_small(case, name, *own)).collect();
    let counters = counters(case);
    let over = match case.observed {
        Some(observed) => format!("in {:.0} s", observed.seconds),
        None => "since the machine was started".to_owned(),
    };
    let drops = (BACKLOG, counters.dropped, MANY, format!("{} packets dropped {over}", counters.dropped));
    let stops =
        (BUDGET, counters.squeezed, OFTEN, format!("{} times stopped with work left {over}", counters.squeezed));
    for (name, count, limit, seen) in [drops, stops] {
        if count as f64 > limit * counters.processed.max(1) as f64 {
            outcomes.extend(twice(case, name, &seen));
        }
    }
    if outcomes.is_empty() {
        outcomes.push(RuleOutcome::Good(format!(
            "{} packets {over}, {} dropped, {} times stopped with work left",
            counters.processed, counters.dropped, counters.squeezed
        )));
    }
    outcomes
}

/// Sums over all CPUs. Those of one CPU have 32 bits.
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

fn too_small(case: &TuningCase<'_>, name: &str, own: u64) -> Option<RuleOutcome> {
    let now = number(case, name).filter(|now| *now < own)?;
    let seen = format!("{now}; the kernel's own is {own}");
    let finding = TuningFinding::new(name, seen, RULE.why).gain(ExpectedGain::Medium).owner(case.owner_of(name));
    Some(finding.change([HostSetting::sysctl(name, own).instead_of(now.to_string())]))
}

fn twice(case: &TuningCase<'_>, name: &str, seen: &str) -> Option<RuleOutcome> {
    let now = number(case, name)?;
    let finding = TuningFinding::new(name, seen, RULE.why).gain(ExpectedGain::Medium).owner(case.owner_of(name));
    let twice = now.saturating_mul(2).max(2);
    Some(finding.change([HostSetting::sysctl(name, twice).instead_of(now.to_string())]))
}
