//! The account of the machine's CPUs against work of a known size.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use vtax_sys::cpu::{MachineMeter, MachineSpan, thread_times};

const PERIOD: Duration = Duration::from_millis(1);

/// Works and sleeps in turn, half a millisecond each, which no tick sees much of; returns what the
/// scheduler charged for it.
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

/// Others work on this machine too, so there is no upper bound but that of time itself.
#[test]
fn work_of_a_known_size_is_in_the_machines_account() {
    let (span, used) = measure(Duration::from_secs(2));
    // 3 % of a CPU, and what the hypervisor has taken: to the thread's clock that is work as well.
    let least = used.saturating_sub(span.wall.mul_f64(0.03) + span.times.steal);
    eprintln!("busy {:?}, spinner {used:?}, {span:?}", span.busy());
    assert!(span.busy() >= least, "{:?} for {used:?}: {span:?}", span.busy());
    assert!(span.busy() + span.idle() + span.times.steal <= span.wall * span.cpus + span.times.steal, "{span:?}");
}
