//! IOMMU mappings for the host's own devices.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::COMMAND_LINE,
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "iommu",
    title: "IOMMU mode",
    reads: "/proc/cmdline",
    needs: &[COMMAND_LINE],
    good: "iommu=pt where devices are assigned to guests: the host's own devices then access memory directly.",
    why: "With iommu.strict=1 each host buffer is mapped and unmapped, and each unmap waits for the IOMMU.",
    risk: ChangeRisk::High,
    risks: "Requires a reboot. Without strict mapping, a device may write to memory for slightly longer than it \
            should. Reports of the effect conflict: from +40 % to −20 %.",
    goal: TuningGoal::Throughput,
    persists: "Permanent: it is on the kernel command line.",
    source: "Linux: Documentation/admin-guide/kernel-parameters.txt, iommu.strict and iommu.passthrough",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let has = |words: &[&str]| case.host.command_line.iter().any(|word| words.contains(&word.raw()));
    if has(&["iommu.strict=1", "intel_iommu=strict", "iommu=strict"]) {
        let finding = TuningFinding::new("kernel command line", "strict mapping is requested", RULE.why);
        let advice = "measure with iommu=pt, or without strict, and keep the better: reports conflict";
        return vec![finding.gain(ExpectedGain::Medium).advice(advice)];
    }
    let mode = if has(&["iommu=pt", "iommu.passthrough=1"]) {
        "passthrough is requested"
    } else {
        "no strict mapping is requested"
    };
    vec![RuleOutcome::Good(mode.to_owned())]
}
