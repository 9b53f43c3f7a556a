//! `vtax tune`, killed before each call that changes something. `vtax tune revert` then restores every value.
//!
//! `make test` tries a sample of the calls, `make crash` all of them.

use std::{collections::BTreeMap, fs};

use super::{
    Bench,
    crash::{Ending, kill_at},
    crashes::step,
    labs::Up,
    tuning::{SMALL, WMEM, bench, inside, mtu, spoil, sysctl},
};

const LAB: &str = "t-tune-crash";
const ZONE: &str = "zone:t-tune-crash/web-1";
const APPLY: [&str; 7] = ["tune", "apply", "mtu", "rps", "tcp-buffers", "--host", ZONE];
const REVERT: [&str; 2] = ["tune", "revert"];
/// Number of calls per command in a sample.
const SAMPLE: usize = 12;

/// Returns the values that the rules change.
fn values(bench: &Bench) -> [String; 3] {
    let steer = "mount -t sysfs none /sys && cat /sys/class/net/eth0/queues/rx-0/rps_cpus";
    let rps = inside(bench, LAB, &["unshare", "--mount", "sh", "-c", steer]);
    [mtu(bench, LAB), sysctl(bench, LAB, WMEM), rps.trim().trim_start_matches(['0', ',']).to_owned()]
}

/// Kills the command at each call, or at a sample of calls, and reverts everything.
fn sweep(bench: &Bench, prepare: &dyn Fn(&Bench), verb: &[&str]) {
    let spoilt = values(bench);
    assert_eq!(spoilt, ["600", SMALL, "1"]);
    let killed = |at| {
        prepare(bench);
        kill_at(&bench.command(verb), at)
    };
    let Ending::Itself { calls, code: 0 } = killed(usize::MAX) else { panic!("{verb:?} doesn't end well") };
    bench.vtax(&REVERT);
    let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
    let step = step().unwrap_or(calls.div_ceil(SAMPLE));
    for at in (1..).step_by(step) {
        let Ending::Killed { call } = killed(at) else { break };
        *kills.entry(call).or_default() += 1;
        let when = format!("{verb:?}, killed before its call {at} ({call})");
        let told = bench.vtax(&REVERT);
        // If nothing had been changed yet, there is nothing to restore.
        assert!(matches!(told.status.code(), Some(0 | 2)), "{when}: {told:?}");
        assert_eq!(values(bench), spoilt, "{when}: {told:?}");
        let left = fs::read_dir(bench.state().join("tuning")).into_iter().flatten().flatten();
        let names: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != ".lock").collect();
        assert!(names.is_empty(), "{when}: {names:?} is left");
    }
    bench.vtax(&REVERT);
    let total: usize = kills.values().sum();
    println!("{verb:?}: {total} kills at {calls} calls: {kills:?}");
    assert!(2 * total * step >= calls, "{total} kills of {calls}");
}

#[test]
fn crashes_of_tune_leave_nothing_that_revert_does_not_bring_back() {
    let bench = bench(LAB);
    let _up = Up::new(&bench, LAB);
    spoil(&bench, LAB);
    sweep(&bench, &|_| (), &APPLY);
    let applied = |bench: &Bench| drop(bench.printed(&APPLY));
    sweep(&bench, &applied, &REVERT);
}
