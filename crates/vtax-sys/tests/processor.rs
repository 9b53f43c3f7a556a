//! Compares the account of the machine's CPUs with work of a known size.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use vtax_sys::cpu::{MachineMeter, MachineSpan, thread_times};

const PERIOD: Duration = Duration::from_millis(1);

/// Works and sleeps alternately, half a millisecond each, so ticks miss most of it. Returns the CPU time that the
/// scheduler counted.
fn spin_half(time: Duration) -> Duration {
    let (before, begun) = (thread_times(), Instant::now());
    while begun.elapsed() < time {
        let turn = Instant::now();
        while turn.elapsed() < PERIOD / 2 {
            black_box(0);
        }
        thread::sleep(PERIOD / 2);
    }
    thread_times().since(before).total
}

fn measure(time: Duration) -> (MachineSpan, Duration) {
    let meter = MachineMeter::open().unwrap();
    let opened = meter.read().unwrap();
    let used = thread::spawn(move || spin_half(time)).join().unwrap();
    (meter.read().unwrap().since(&opened), used)
}

/// Other programs also work on this machine, so the only upper bound is the elapsed time.
#[test]
fn work_of_a_known_size_is_in_the_machines_account() {
    let (span, used) = measure(Duration::from_secs(2));
    // 3 % of a CPU, and the steal time, which the thread's clock counts as work.
    let least = used.saturating_sub(span.wall.mul_f64(0.03) + span.times.steal);
    eprintln!("busy {:?}, spinner {used:?}, {span:?}", span.busy());
    assert!(span.busy() >= least, "{:?} for {used:?}: {span:?}", span.busy());
    assert!(span.busy() + span.idle() + span.times.steal <= span.wall * span.cpus + span.times.steal, "{span:?}");
}
