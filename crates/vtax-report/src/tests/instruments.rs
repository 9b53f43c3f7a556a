//! The path's own cost beside the machine as it runs, and figures that are too noisy to tell.

use vtax_model::{
    cell::{Cell, Instrument},
    result::Metric,
    study::{SamplingPlan, Slices},
    units::Span,
    workload::{Transport, Warmup},
};

use super::*;

/// The demo's round trips by both instruments, and its streams by the path's.
fn both() -> Run {
    let mut study = study("demo");
    let mut of_path: Vec<Cell> = study.cells.clone();
    of_path.iter_mut().for_each(Cell::hold_still);
    study.cells.retain(|cell| cell.workload.kind() == TestKind::Rr);
    study.cells.extend(of_path);
    let slices = Some(Slices { passes: 4, stream: Span::from_millis(10) });
    let warmup = Warmup::For(Span::from_millis(10));
    study.path = Some(SamplingPlan { samples: 50, duration: Span::from_millis(5), warmup, slices });
    vtax_synthetic::of(study)
}

/// TCP under BBR on a busy machine: its streams take a third of the time or three times it.
fn noisy() -> Run {
    let mut run = built_in("demo");
    run.header.environment.congestion_control = "bbr".into();
    let cells = run.header.study.cells.clone();
    for (index, sample) in run.samples.iter_mut().enumerate() {
        let cell = &cells[sample.cell];
        sample.figures.cpu.initiator.machine.user += 0.1;
        if cell.transport == Transport::Tcp && cell.workload.kind() == TestKind::Stream {
            take(sample, [0.3, 1.0, 3.1, 0.5, 2.2, 0.9][index * index % 6]);
            sample.figures.retransmits += 700;
        }
    }
    run
}

/// Every kind of run that is shown here.
pub(super) fn all() -> Vec<Run> {
    vec![both(), noisy()]
}

#[test]
fn the_path_s_own_cost_beside_the_machine_as_it_runs() {
    let document = analyse(&both());
    snapshot("instruments_80", render(&document, &Options { width: 80, ..TERMINAL }));
    snapshot("instruments_120", render(&document, &Options { width: 120, ..TERMINAL }));
    snapshot("instruments_markdown", render(&document, &MARKDOWN));
    let detail = render(&document, &Options { detail: true, ..TERMINAL });
    assert!(detail.contains("TCP RTT (path)") && detail.contains("TCP RTT (system)"), "{detail}");
}

/// An ordinary user may not keep CPUs awake. The run goes on, and the figures must not be called what they aren't.
#[test]
fn idle_states_that_were_not_held_off_are_told() {
    let mut run = both();
    for sample in &mut run.samples {
        if run.header.study.cells[sample.cell].instrument == Instrument::Path {
            sample.figures.ends.responder.idle_not_held = Some("/dev/cpu_dma_latency: permission denied".into());
        }
    }
    run.header.placement.path = Some(3);
    let text = render(&analyse(&run), &Options { width: 1000, ..TERMINAL });
    assert!(text.contains("IDLE NOT HELD OFF") && text.contains("cpu_dma_latency: permission denied"), "{text}");
    assert!(text.contains("The path's own cost: idle NOT held off, TCP cubic"), "{text}");
    assert!(text.contains("both ends on CPU 3"), "{text}");
}

/// `sparc-t7-1` is answered as its source has it; what the path costs is a further block.
#[test]
fn the_instrument_that_answers_has_the_first_tables_and_the_last_word() {
    let mut run = both();
    run.header.study.answer = Some(Instrument::System);
    let document = analyse(&run);
    assert_eq!(document.plan.answer, Some(Instrument::System));
    let text = render(&document, &Options { width: 1000, ..TERMINAL });
    let plan = "plan     as the machine runs: 11 rounds of 150ms after 10ms of warm-up; the path's own cost: 50 rounds";
    assert!(text.contains(plan), "{text}");
    let system = text.find("\nAs the machine runs: TCP cubic\n").expect("a section");
    let path = text.find("\nThe path's own cost: idle held off").expect("a section");
    let answer = text.find("\nAnswer").expect("the last section");
    assert!(system < path && path < answer, "{text}");
    assert!(text[path..answer].contains("native's ± its noise floor"), "it has costs of its own: {text}");
    let last = text.rfind("- UDP round trips, MTU 9000").expect("a sentence");
    assert!(text[last..].contains("+7.4 µs") && !text[last..].contains("+3.01 µs"), "{text}");
}

/// Figures of two instruments answer two questions.
#[test]
fn no_table_has_figures_of_two_instruments() {
    let text = render(&analyse(&both()), &Options { width: 1000, ..TERMINAL });
    let path = text.find("\nThe path's own cost: idle held off, TCP cubic\n").expect("a section");
    let system = text.find("As the machine runs: TCP cubic").expect("a section");
    let answer = text.find("Answer").expect("the last section");
    assert!(path < system && system < answer, "{text}");
    let native = |part: &str| {
        let line = part.lines().find(|line| line.starts_with("native")).expect("a row").to_owned();
        let levels = line.split(" ± ").filter_map(|part| part.split_whitespace().last()?.parse().ok());
        let levels: Vec<f64> = levels.collect();
        assert_eq!(levels.len(), 4, "{line}");
        levels
    };
    assert!(native(&text[path..system]).iter().all(|rtt| *rtt < 13.0), "{text}");
    assert!(native(&text[system..answer]).iter().all(|rtt| *rtt > 29.0), "{text}");
}

#[test]
fn what_is_too_noisy_says_why_and_what_would_help() {
    let document = analyse(&noisy());
    let text = render(&document, &Options { width: 80, ..TERMINAL });
    snapshot("noisy_80", text.clone());
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("BBR paces the stream by its own guess of the path's rate"), "{text}");
    assert!(joined.contains("(--congestion cubic)") && joined.contains("too noisy to tell"), "{text}");
    assert!(joined.contains("! SENT AGAIN: TCP retransmitted over links that lose nothing (native;"), "{text}");
}

/// UX item 4: "could show ≥ 260 %", "noise floor 577451 %" and "233 [-160, 625]" were printed.
#[test]
fn nothing_impossible_is_printed() {
    for document in DOCUMENTS.iter() {
        for options in [TERMINAL, MARKDOWN, Options { detail: true, ..TERMINAL }] {
            let text = render(document, &options);
            assert!(!text.contains("[-160"), "{text}");
            let losses = text.match_indices("≤ ").filter_map(|(at, _)| {
                text[at + "≤ ".len()..].split(' ').next().and_then(|number| number.parse::<f64>().ok())
            });
            assert!(losses.clone().all(|percent| percent <= 100.0), "{text}");
        }
        for record in document.cells.iter() {
            let estimates = record.summary.iter().flat_map(|s| [s.goodput_mbps, s.transactions_per_s, s.ns_per_kb]);
            assert!(estimates.flatten().all(|estimate| estimate.low.is_none_or(|low| low > 0.0)));
            let loss = record.tax_of(Metric::Goodput).and_then(|tax| tax.at_most);
            assert!(loss.is_none_or(|loss| loss < 1.0));
        }
    }
}

/// The answer is what stays in sight on a terminal, and what a page begins with.
#[test]
fn the_answer_is_last_on_a_terminal_and_first_in_markdown() {
    let document = analyse(&built_in("demo"));
    let text = render(&document, &TERMINAL);
    let answer = text.find("Answer: what it costs against native").expect("an answer");
    assert!(!text[answer..].contains('─'), "no table follows: {text}");
    let first = "- TCP round trips, MTU 1500: vxlan costs +33 µs (+108 %), bridge +7.9 µs (+26 %)";
    assert!(text[answer..].contains(first), "the dearest first: {text}");
    let page = render(&document, &MARKDOWN);
    assert!(page.find("### Answer").expect("an answer") < page.find("**run**").expect("facts"), "{page}");
    let noisy = render(&analyse(&noisy()), &TERMINAL);
    let joined = noisy[noisy.find("Answer").expect("an answer")..].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("too noisy to tell: BBR paces the stream"), "{noisy}");
}

/// It printed 127 lines at 100 columns, and of the figures one in five.
#[test]
fn the_demo_is_short_and_fits_into_80_columns() {
    let document = analyse(&built_in("demo"));
    let lines = |width: usize| render(&document, &Options { width, ..TERMINAL }).lines().count();
    let text = render(&document, &TERMINAL);
    let beside = text.lines().filter(|line| line.matches("MTU").count() == 4).count();
    assert_eq!(beside, 2, "round trips and streams: {text}");
    assert!(lines(80) <= 105 && lines(100) <= 75, "{} and {} lines: {text}", lines(80), lines(100));
}

/// What both ends on one CPU spend is what the round trips and streams say; of the instrument that doesn't answer
/// the sentences repeat its tables.
#[test]
fn what_is_said_twice_is_left_to_detail() {
    let mut run = both();
    run.header.placement.path = Some(1);
    let document = analyse(&run);
    let short = render(&document, &TERMINAL);
    let detail = render(&document, &Options { detail: true, ..TERMINAL });
    for text in
        ["CPU of both ends' threads", "As the machine runs:\n\n- TCP round trips", "cost against native in ns/KB"]
    {
        assert!(detail.contains(text) && !short.contains(text), "{text}: {short}");
    }
    assert!(short.contains("\nAnswer (the path's own cost): what it costs against native\n"), "{short}");
}

/// "vxlan costs at most 45 %, macvlan 26 %, bridge 44 %" was printed: they were sorted by their estimates.
#[test]
fn what_rows_cost_at_most_is_ranked() {
    let mut lists = 0;
    for document in DOCUMENTS.iter() {
        let text = render(document, &Options { width: 1000, ..TERMINAL });
        for list in
            text.lines().filter(|line| line.starts_with("- ")).filter_map(|line| line.split_once("costs at most "))
        {
            let list = list.1.split(';').next().unwrap_or_default();
            let bounds: Vec<f64> = list.split(' ').filter_map(|word| word.parse().ok()).collect();
            assert!(bounds.windows(2).all(|pair| pair[0] >= pair[1]), "{list}");
            lists += usize::from(bounds.len() > 1);
        }
    }
    assert!(lists > 10, "{lists}");
}
