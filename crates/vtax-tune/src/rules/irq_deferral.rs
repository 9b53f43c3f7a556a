//! Continued polling before the interrupt is enabled again.

use vtax_host::inspect::HostLink;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{DEFERRAL, LINKS},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "irq-deferral",
    title: "deferred interrupts",
    reads: "/sys/class/net/LINK/napi_defer_hard_irqs and gro_flush_timeout",
    needs: &[DEFERRAL, LINKS],
    good: "0, the kernel's default. With 32 or more busy queues, 10 rounds and 20 µs.",
    why: "With many queues, each receives few packets at a time, and each of them interrupts. A kernel that polls slightly \
          longer handles several at once. A long timeout delays packets without benefit.",
    risk: ChangeRisk::Medium,
    risks: "A packet may wait until the timeout.",
    goal: TuningGoal::Both,
    persists: "Lost when the link is removed. Use a udev rule; `--persist` writes one for a NIC.",
    source: "Linux: Documentation/networking/napi.rst, \"Software IRQ coalescing\"",
    check,
};

/// Nanoseconds that a packet may wait to be merged with others. The kernel's documentation uses 20,000 and 200,000.
const LONGEST_NS: u64 = 200_000;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let found: Vec<RuleOutcome> = case.links().filter_map(of_link).collect();
    match found.is_empty() {
        true => vec![RuleOutcome::Good("no link delays packets for more than 200 µs".to_owned())],
        false => found,
    }
}

fn of_link(link: &HostLink) -> Option<RuleOutcome> {
    let timeout = link.gro_flush_timeout.filter(|timeout| *timeout > LONGEST_NS)?;
    let seen = format!("packets are delayed by up to {} µs (gro_flush_timeout)", timeout / 1000);
    let finding = TuningFinding::new(link.name.clone(), seen, RULE.why).gain(ExpectedGain::Large);
    Some(
        finding.change([HostSetting::of_link(&link.name, "gro_flush_timeout", 20_000).instead_of(timeout.to_string())]),
    )
}
