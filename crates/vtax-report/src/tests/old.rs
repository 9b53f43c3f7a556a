//! Documents of the first version remain readable: no field was removed or became mandatory.

use super::*;

const RUN: &str = include_str!("old/run.json");
const DOCUMENT: &str = include_str!("old/document.json");

#[test]
fn an_old_run_is_analysed_like_a_new_one() {
    let run: Run = serde_json::from_slice(RUN.as_bytes()).expect("an old run reads");
    let document = analyse(&run);
    assert_eq!((document.plan.rounds, document.cells.len(), document.failures.len()), (2, 4, 1));
    let rr = document.cells[0].summary.as_ref().and_then(|summary| summary.rtt_us.as_ref()).expect("measured");
    assert!((rr.mean.mean - 29.5).abs() < 1.5 && !rr.by_rate, "{rr:?}");
    let text = render(&document, &Options { explain: true, width: 1000, ..TERMINAL });
    assert!(text.contains("never halved: from the histogram."), "{text}");
    assert!(document.cpu_by_ticks && text.contains("CPU BY TICKS"), "{text}");
}

#[test]
fn an_old_document_is_rendered_in_every_form() {
    let document: ResultDocument = serde_json::from_slice(DOCUMENT.as_bytes()).expect("an old document reads");
    for format in [Format::Table, Format::Markdown, Format::Csv] {
        let text = render(&document, &Options { format, detail: true, ..TERMINAL });
        assert!(text.contains("bridge"), "{text}");
        let tells = matches!(format, Format::Table | Format::Markdown);
        assert_eq!(text.contains("CPU BY TICKS"), tells, "{text}");
    }
    let whole: ResultDocument<Vec<Sample>> = serde_json::from_slice(DOCUMENT.as_bytes()).expect("with its samples too");
    assert!(json(&whole).contains("bridge"));
    let new = of_text(
        r#"
        id = "two"
        title = "Two methods"
        question = "What does a bridge cost?"
        baseline = "native"
        [matrix]
        methods = ["native", "bridge"]
        mtu = [1500]
        transports = ["udp"]
        tests = ["rr", "stream"]
        [plan]
        samples = 2
        duration = "500ms"
        warmup = "10ms"
        "#,
    );
    let comparison = compare(&document, &analyse(&new), None);
    assert_eq!(comparison.cells.len(), 4, "the cells of both are the same");
}
