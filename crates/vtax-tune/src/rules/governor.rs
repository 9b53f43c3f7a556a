//! CPU frequency selection.

use vtax_host::inspect::FrequencyPolicy;
use vtax_model::cpus::CpuSet;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{FREQUENCIES, LINKS, SPEEDS},
    rule::{ChangeRisk, TuningRule},
    setting::{HostSetting, Proposal},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "governor",
    title: "CPU frequency governor",
    reads: "/sys/devices/system/cpu/cpuN/cpufreq/scaling_governor and energy_performance_preference",
    needs: &[FREQUENCIES, SPEEDS, LINKS],
    good: "performance, if a NIC has 40 Gb/s or more, or if latency is the goal.",
    why: "Packets arrive in bursts. A CPU that has lowered its frequency during a pause handles the first ones slowly.",
    risk: ChangeRisk::Medium,
    risks: "Higher power consumption.",
    goal: TuningGoal::Both,
    persists: "cpupower.service, or a TuneD profile.",
    source: "Linux: Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst",
    check,
};

/// NIC speed in Mbit/s that a CPU at a low frequency cannot serve.
const FAST: u32 = 40_000;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    if case.host.frequencies.is_empty() {
        return vec![RuleOutcome::NotHere("the kernel does not control the CPU frequency".to_owned())];
    }
    let fast = case.ports().find(|link| link.speed_mbps.is_some_and(|speed| speed >= FAST));
    let slow: Vec<(u32, &FrequencyPolicy)> = case
        .host
        .frequencies
        .iter()
        .filter(|(_, policy)| !is_fast(policy))
        .map(|(cpu, policy)| (*cpu, policy))
        .collect();
    let Some((_, first)) = slow.first() else {
        return vec![RuleOutcome::Good("all CPUs are set to performance".to_owned())];
    };
    let cpus: CpuSet = slow.iter().map(|(cpu, _)| *cpu).collect();
    let seen = format!("CPUs {cpus} use {}", told(first));
    let because = match fast {
        Some(link) => format!("{} has {} Gb/s.", link.name, link.speed_mbps.unwrap_or(0) / 1000),
        None if case.goal.is_latency() => RULE.why.to_owned(),
        None => {
            return vec![RuleOutcome::Good(format!("{seen}; no NIC has 40 Gb/s, and latency is not the only goal"))];
        }
    };
    let finding = TuningFinding::new("CPU frequency", seen, because).gain(ExpectedGain::Medium);
    let owner = case.host.owners.tuned_profile.as_ref().map(|profile| format!("TuneD, profile {profile}"));
    vec![finding.owner(owner).change(slow.iter().flat_map(|(cpu, policy)| proposals(*cpu, policy)))]
}

/// Returns true if the policy is set to performance. With a preference, the hardware controls the frequency, and the
/// governor that allows this is called `powersave`.
fn is_fast(policy: &FrequencyPolicy) -> bool {
    policy.governor == "performance" || policy.preference.as_ref().is_some_and(|wish| *wish == "performance")
}

fn told(policy: &FrequencyPolicy) -> String {
    match &policy.preference {
        Some(preference) => format!("governor {} with preference {preference}", policy.governor),
        None => format!("governor {}", policy.governor),
    }
}

fn proposals(cpu: u32, policy: &FrequencyPolicy) -> Vec<Proposal> {
    let path = format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    // The governor `performance` of intel_pstate and amd_pstate also sets the preference, and refuses others.
    vec![HostSetting::sysfs(path, "performance").instead_of(policy.governor.clone())]
}
