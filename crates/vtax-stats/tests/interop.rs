//! Interoperability of our histograms with an independent implementation, in both directions.
//!
//! The other implementation is the PyPI package `hdrhistogram`, the Python port of the Java library, in the environment
//! that `scripts/setup.sh test` creates.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use vtax_stats::histogram::Histogram;

/// Figures of a histogram from the other implementation.
#[derive(Debug, Deserialize)]
struct Read {
    count: u64,
    min: u64,
    max: u64,
    percentiles: [u64; 3],
    text: String,
}

#[test]
fn the_other_implementation_reads_ours_and_we_read_what_it_writes() {
    let ours = histograms();
    let texts: Vec<String> = ours.iter().map(Histogram::to_base64).collect();
    let theirs = read_by_the_other(&texts);
    assert_eq!(theirs.len(), ours.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((ours.count(), ours.min(), ours.max()), (theirs.count, theirs.min, theirs.max), "{ours:?}");
        assert_eq!([50.0, 99.0, 99.9].map(|percent| ours.percentile(percent)), theirs.percentiles, "{ours:?}");
        assert_ne!(ours.to_base64(), theirs.text, "it deflates");
        assert_eq!(Histogram::from_base64(&theirs.text).as_ref(), Ok(ours));
    }
}

/// Returns histograms for which 50, 99 and 99.9 % of the number of values are integers: between two values the other
/// implementation takes the nearer one, and ours the upper one.
fn histograms() -> Vec<Histogram> {
    let spread = |n: u64| 20_000 + n * n % 60_000;
    let with_tail = |n: u64| if n.is_multiple_of(250) { 7_000_000 + n * 1_000 } else { spread(n) };
    let mut many = Histogram::new();
    (0..12).for_each(|_| many.merge(&of((0..100_000).map(with_tail))));
    vec![
        of((0..1_000).map(spread)),
        of((0..20_000).map(with_tail)),
        of((0..1_000).map(|n| if n < 600 { 0 } else { n })),
        of((0..2_000).map(|n| 1 << (n % 36))),
        of((0..1_000).map(|n| 59_990_000_000 + n * 20_000)),
        of([]),
        many,
    ]
}

fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::new();
    values.into_iter().for_each(|ns| histogram.record(ns));
    histogram
}

fn read_by_the_other(texts: &[String]) -> Vec<Read> {
    let python = python();
    assert!(python.exists(), "there is no {}: run `sh scripts/setup.sh test`, which makes it", python.display());
    let mut child = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the environment's interpreter starts");
    // Standard input is closed at the end of this statement. The other side answers line by line, so the answers must
    // fit into a pipe.
    let lines = texts.join("\n");
    assert!(lines.len() < 60_000, "{} bytes of histograms don't fit a pipe", lines.len());
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "it failed, see above; `sh scripts/setup.sh test` makes its environment");
    let answers = String::from_utf8(output.stdout).expect("JSON is text");
    answers.lines().map(|line| serde_json::from_str(line).expect("a line of interop.py")).collect()
}

fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/interop-venv/bin/python3")
}
