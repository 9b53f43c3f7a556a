//! Level shifts on the start page.

use vtax_model::run::RttFigures;
use vtax_stats::histogram::{Histogram, SparseHistogram};

use super::*;

/// Stores a result of one day, with a figure in µs.
fn measured(dir: &Path, day: usize, mean_us: f64) {
    let started = format!("2026-{:02}-{:02}T00:00:00Z", 1 + day / 28, 1 + day % 28);
    let mut taken = sample(0, Arm::A, 1);
    let (mean, mut times) = (mean_us * 1e3, Histogram::new());
    let ns = mean as u64;
    times.record(ns);
    let hdr = SparseHistogram::of(&times);
    taken.figures.rtt_ns = Some(RttFigures { mean, by_rate: None, p50: ns, p99: ns, p999: ns, max: ns, hdr });
    let store = Store::open(dir).expect("it opens");
    let mut writer = store.create_run(&header(&format!("demo-{day}"), &started)).expect("a run");
    writer.samples(&[taken]).expect("kept");
    writer.finish(RunState::Complete, 1.0).expect("kept");
}

#[test]
fn the_start_page_reports_level_shifts_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let noise = |day: usize| (day * 37 % 11) as f64 / 100.0;
    (0..12).for_each(|day| measured(dir.path(), day, 50.0 + noise(day)));
    let served = Served::of(dir);
    assert!(!served.page("/").contains("Level shifts"));
    (12..24).for_each(|day| measured(served.dir.path(), day, 60.0 + noise(day)));
    let page = served.page("/");
    assert!(page.contains("<h2>Level shifts</h2>") && page.contains("<li>From 2026-01-13 on "), "{page}");
    assert!(page.contains("vtax results trend --study demo"), "{page}");
    let store = Store::open(served.dir.path()).expect("it opens");
    let _run = store.create_run(&header("demo-live", "2026-03-01T00:00:00Z")).expect("a run");
    assert!(served.page("/").contains("Level shifts"), "what is known is shown next to a run");
    // A result more would have to be read.
    measured(served.dir.path(), 24, 60.0);
    assert!(!served.page("/").contains("Level shifts"));
}
