//! Idle states with a long exit latency.

use std::time::Duration;

use vtax_model::run::IdleState;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::IDLE,
    rule::{ChangeRisk, TuningRule},
    setting::{HostSetting, Proposal},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "c-states",
    title: "idle states and round trips",
    reads: "/sys/devices/system/cpu/cpuN/cpuidle/stateM/latency and disable",
    needs: &[IDLE],
    good: "The exit latency of the deepest enabled idle state is at most a tenth of a round trip.",
    why: "An idle CPU must wake up before it handles a packet. A round trip waits for this at each endpoint.",
    risk: ChangeRisk::Medium,
    risks: "Higher power consumption, and less turbo for the other CPUs.",
    goal: TuningGoal::Latency,
    persists: "Not persistent. Use intel_idle.max_cstate=N or processor.max_cstate=N on the kernel command line, \
               or a program that holds /dev/cpu_dma_latency open, such as TuneD's profile latency-performance.",
    source: "Linux: Documentation/admin-guide/pm/cpuidle.rst",
    check,
};

/// Share of a round trip that the exit latency may take.
const SHARE: f64 = 0.1;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let Some(idle) = case.host.idle.as_ref().filter(|idle| !idle.states.is_empty()) else {
        return vec![RuleOutcome::NotHere("the kernel reports no idle states".to_owned())];
    };
    let open = |state: &&IdleState| !state.disabled;
    let Some(deepest) = idle.states.iter().filter(open).max_by_key(|state| state.exit_latency_us) else {
        return vec![RuleOutcome::Good("all idle states are disabled".to_owned())];
    };
    let latency = Duration::from_micros(u64::from(deepest.exit_latency_us));
    let Some(rtt) = case.rtt else {
        return vec![unknown(case, deepest)];
    };
    let limit = rtt.time.mul_f64(SHARE);
    let seen =
        format!("the deepest idle state, {}, has an exit latency of {} µs", deepest.name, deepest.exit_latency_us);
    if latency <= limit {
        return vec![RuleOutcome::Good(format!("{seen}, less than a tenth of the round trip of {rtt}"))];
    }
    let because =
        format!("This is {:.0} % of the round trip of {rtt}, at each endpoint.", share(latency, rtt.time) * 100.0);
    let too_deep = |state: &IdleState| Duration::from_micros(u64::from(state.exit_latency_us)) > limit;
    let finding = TuningFinding::new("idle states", seen, because).gain(ExpectedGain::Large);
    vec![finding.change(disable(case, &idle.states, too_deep))]
}

/// Returns the result for an unknown round trip. It is undetermined, unless the exit latency is at most 1 µs and
/// latency is not the only goal.
fn unknown(case: &TuningCase<'_>, deepest: &IdleState) -> RuleOutcome {
    let text = format!(
        "the deepest idle state, {}, has an exit latency of {} µs; specify the path's round trip (--rtt, --rtt-to) to judge it",
        deepest.name, deepest.exit_latency_us
    );
    if case.goal.is_latency() || deepest.exit_latency_us > 1 {
        RuleOutcome::Unknown(text)
    } else {
        RuleOutcome::Good(text)
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

fn disable(case: &TuningCase<'_>, states: &[IdleState], too_deep: impl Fn(&IdleState) -> bool) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for cpu in case.host.topology.online.iter() {
        let deep = states.iter().enumerate().filter(|(_, state)| !state.disabled && too_deep(state));
        proposals.extend(deep.map(|(number, _)| {
            let path = format!("devices/system/cpu/cpu{cpu}/cpuidle/state{number}/disable");
            HostSetting::sysfs(path, 1).instead_of("0")
        }));
    }
    proposals
}
