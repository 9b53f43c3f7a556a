//! The CPU time of a test, compared with known bounds.

use std::time::{Duration, Instant};

use vtax_model::{
    measurement::{EndReport, ThreadCpu},
    workload::{TestSpec, Transport},
};

use crate::pair::*;

/// The machine's account is in ticks.
const SLACK: f64 = 0.05;

/// Returns the time that is in the window of one end but not in the other's.
fn apart([one, other]: [&EndReport; 2]) -> f64 {
    let begun = one.started_ns.abs_diff(other.started_ns) as f64 / 1e9;
    2.0 * begun + (one.seconds - other.seconds).abs()
}

fn threads(report: &EndReport) -> f64 {
    let used = |thread: &ThreadCpu| thread.user + thread.system;
    report.threads.iter().map(used).sum()
}

/// Both ends are on this machine, so it has worked for the threads of both.
fn check(spec: &TestSpec) {
    let begun = Instant::now();
    let [initiator, responder] = both(spec, &setup());
    let most = begun.elapsed().as_secs_f64();
    let used = threads(&initiator) + threads(&responder);
    let apart = apart([&initiator, &responder]);
    for report in [&initiator, &responder] {
        let machine = report.machine;
        let case =
            format!("{} {} {:?}: {machine:?}, threads {used}", spec.options.engine, spec.transport, spec.workload);
        let busy = machine.busy.expect("a machine's work is known");
        assert!(!machine.raised, "{case}");
        assert!(busy >= used * 0.97 - SLACK - apart - machine.steal, "{case}");
        assert!(busy <= f64::from(machine.cpus) * (most + SLACK), "{case}");
    }
}

#[test]
fn the_machine_used_no_less_cpu_time_than_the_threads_of_both_ends() {
    let _alone = alone();
    for engine in ENGINES {
        for transport in [Transport::Tcp, Transport::Udp] {
            for workload in [rr(1, 1), stream(1_400)] {
                check(&lasting(on(engine, spec(transport, workload, 1)), 700));
            }
        }
    }
}

#[test]
fn cpu_time_of_threads_matches_the_scheduler() {
    let _alone = alone();
    let spec = lasting(on(vtax_model::options::Engine::BusyPoll, spec(Transport::Tcp, rr(1, 1), 1)), 60);
    let [initiator, _] = both(&spec, &setup());
    assert!(threads(&initiator) > 0.0 && threads(&initiator) <= initiator.seconds + SLACK, "{initiator:?}");
    assert!(initiator.seconds >= Duration::from_millis(20).as_secs_f64());
}
