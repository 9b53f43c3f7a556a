//! Studies of guests next to published figures: several concurrent guests, and paths between them.

use vtax_model::{
    measurement::IntervalRtt,
    run::{EndRecord, PairFigures, PairRecord, Parallel, RowEnds},
};

use super::*;

const PAIRS: u64 = 4;

/// Four clients, one of whose guests is slower than the others.
fn vmdq() -> Run {
    let mut run = built_in("vmdq");
    let end = |name: String| EndRecord { cpus: vec![0], ..EndRecord::named(name) };
    let pair = |row: &_, nth: u64| PairRecord {
        initiator: end(format!("host client-{nth}")),
        responder: end(format!("{row} {nth}")),
    };
    let ends = |row: &_| RowEnds { method: *row, mtu: None, pairs: (1..=PAIRS).map(|nth| pair(row, nth)).collect() };
    run.header.ends = run.header.study.rows.iter().map(ends).collect();
    for (index, sample) in run.samples.iter_mut().enumerate() {
        let figures = &mut sample.figures;
        let rtt = figures.rtt_ns.as_ref().expect("a round trip");
        let times = IntervalRtt { p50: rtt.p50, p90: rtt.p99, p99: rtt.p99, max: rtt.max };
        let pair = |nth: u64| PairFigures {
            seconds: figures.seconds,
            transactions: figures.transactions * (100 - 4 * nth) / 100,
            bytes: figures.bytes,
            lost: figures.lost.unwrap_or(0),
            rtt_ns: Some(times),
        };
        let pairs = (0..PAIRS).map(pair).collect();
        let skew_us = 80.0 + (index % 50) as f64;
        figures.parallel = Some(Parallel { skew_us, uncertainty_us: 0.0, pairs });
        figures.transactions *= PAIRS;
    }
    run
}

/// Every kind of run that is shown here.
pub(super) fn all() -> Vec<Run> {
    vec![vmdq(), built_in("ovm3-tuning")]
}

#[test]
fn queues_of_guests_as_bars_next_to_the_published() {
    let document = analyse(&vmdq());
    let text = render(&document, &TERMINAL);
    assert!(text.contains("4 concurrent clients"), "{text}");
    snapshot("vmdq", text);
    let narrow = render(&document, &Options { width: 80, ..TERMINAL });
    snapshot("vmdq_narrow", part(&narrow, "Round-trip overview"));
    let markdown = render(&document, &MARKDOWN);
    snapshot("vmdq_markdown", part(&markdown, "Round-trip overview"));
    snapshot("vmdq_pairs_markdown", part(&markdown, "Concurrent pairs"));
}

/// From a title to the next one.
fn part(text: &str, title: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines.iter().position(|line| line.trim_start_matches('#').trim() == title).expect("the section");
    let is_next =
        |line: &&str| line.starts_with("###") || line.starts_with("Host settings") || line.starts_with("CPU, ");
    let rest = lines[begin + 1..].iter().position(|line| is_next(line) || line.starts_with("Cost: against"));
    lines[begin..begin + 1 + rest.unwrap_or(lines.len() - begin - 1)].join("\n").trim_end().to_owned()
}

#[test]
fn every_pair_is_reported_on_demand() {
    let document = analyse(&vmdq());
    let text = render(&document, &Options { detail: true, ..TERMINAL });
    assert!(text.contains("4: host client-4 to queue-per-guest 4"), "{text}");
    assert!(!render(&document, &TERMINAL).contains("host client-4"));
}

#[test]
fn csv_has_the_skew_and_the_extremes_of_pairs() {
    let text = render(&analyse(&vmdq()), &Options { format: Format::Csv, ..TERMINAL });
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().expect("a head").clone();
    let line = reader.records().next().expect("a line").expect("well formed");
    let field = |name| {
        let column = head.iter().position(|known| known == name).expect("a column");
        line[column].parse::<f64>().unwrap_or_else(|_| panic!("{name}: {:?}", &line[column]))
    };
    assert_eq!((field("pairs"), field("published")), (4.0, 120.0));
    assert!(field("start_skew_us") <= field("start_skew_most_us"));
    assert!(field("fastest_pair") < field("slowest_pair"), "round trips");
}

#[test]
fn paths_next_to_the_published_of_two_machines() {
    let document = analyse(&built_in("ovm3-tuning"));
    let text = render(&document, &TERMINAL);
    assert_eq!(text, render(&document, &Options { published: Some(true), ..TERMINAL }), "both are known");
    snapshot("ovm3_published", text);
    let without = render(&document, &Options { published: Some(false), ..TERMINAL });
    assert!(!without.contains("large, tuned"), "{without}");
}

#[test]
fn sizes_that_are_swept_are_bars_too_without_a_source() {
    let run = of_text(
        r#"
        id = "sizes"
        title = "Sizes"
        baseline = "native"
        [matrix]
        methods = ["native", "bridge", "ipvlan"]
        mtu = [1500, 9000]
        transports = ["tcp"]
        tests = ["rr"]
        sizes = [1, 1024]
        [plan]
        samples = 6
        duration = "500ms"
        "#,
    );
    let text = render(&analyse(&run), &TERMINAL);
    assert!(text.contains("TCP RR, MTU 9000") && text.contains("not available"), "{text}");
    assert!(!part(&text, "Round-trip overview").contains("published"), "{text}");
}
