//! Controlled conditions next to host settings, and figures that are too noisy to tell.

use vtax_model::{
    cell::{Cell, Instrument},
    measurement::ThreadPriority,
    metric::{Metric, SampleFigure},
    study::{SamplingPlan, Slices},
    units::Span,
    workload::{Transport, Warmup},
};

use super::*;

/// The demo's round trips in both measurement modes, and its streams under controlled conditions.
fn both() -> Run {
    let mut study = study("demo");
    let mut of_path: Vec<Cell> = study.cells.clone();
    of_path.iter_mut().for_each(Cell::hold_still);
    study.cells.retain(|cell| cell.kind() == TestKind::Rr);
    study.cells.extend(of_path);
    let slices = Some(Slices { passes: 4, stream: Span::from_millis(10) });
    let warmup = Warmup::For(Span::from_millis(10));
    study.path = Some(SamplingPlan { samples: 50, duration: Span::from_millis(5), warmup, slices, limit: None });
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
        if cell.net().expect("of a network").transport == Transport::Tcp && cell.kind() == TestKind::Stream {
            take(sample, [0.3, 1.0, 3.1, 0.5, 2.2, 0.9][index * index % 6]);
            sample.figures.retransmits = sample.figures.retransmits.map(|some| some + 700);
        }
    }
    run
}

/// Every kind of run that is shown here.
pub(super) fn all() -> Vec<Run> {
    vec![both(), noisy()]
}

#[test]
fn the_path_s_own_cost_next_to_the_machine_as_it_runs() {
    let document = analyse(&both());
    snapshot("instruments_80", render(&document, &Options { width: 80, ..TERMINAL }));
    snapshot("instruments_120", render(&document, &Options { width: 120, ..TERMINAL }));
    snapshot("instruments_markdown", render(&document, &MARKDOWN));
    let detail = render(&document, &Options { detail: true, ..TERMINAL });
    assert!(
        detail.contains("TCP RTT (controlled conditions)") && detail.contains("TCP RTT (host settings)"),
        "{detail}"
    );
}

/// An unprivileged user cannot disable idle states. The run continues, and the figures must not be mislabelled.
#[test]
fn idle_states_that_were_not_disabled_are_reported() {
    let mut run = both();
    for sample in &mut run.samples {
        if run.header.study.cells[sample.cell].instrument == Instrument::Path {
            sample.figures.ends.responder.idle_not_held = Some("/dev/cpu_dma_latency: permission denied".into());
        }
    }
    run.header.placement.path = Some(3);
    let text = render(&analyse(&run), &Options { width: 1000, ..TERMINAL });
    assert!(text.contains("IDLE STATES ON") && text.contains("cpu_dma_latency: permission denied"), "{text}");
    assert!(text.contains("Controlled conditions: CPU idle states on, TCP cubic"), "{text}");
    assert!(text.contains("both endpoints on CPU 3"), "{text}");
}

#[test]
fn the_priority_of_threads_is_a_condition_of_round_trips() {
    let told = |priorities: [ThreadPriority; 2]| {
        let mut run = both();
        for sample in &mut run.samples {
            let is_of_path = run.header.study.cells[sample.cell].instrument == Instrument::Path;
            let [initiator, responder] = if is_of_path { priorities } else { [ThreadPriority::Normal; 2] };
            sample.figures.ends.initiator.priority = Some(initiator);
            sample.figures.ends.responder.priority = Some(responder);
        }
        render(&analyse(&run), &Options { width: 1000, ..TERMINAL })
    };
    let first = told([ThreadPriority::RealTime; 2]);
    assert!(first.contains("Controlled conditions: CPU idle states off, round trips at real-time priority"), "{first}");
    assert!(first.contains("\nHost settings: TCP cubic"), "the usual priority is not worth a word: {first}");
    // The agent of one end may lack CAP_SYS_NICE.
    let mixed = told([ThreadPriority::RealTime, ThreadPriority::Normal]);
    assert!(mixed.contains("CPU idle states off, round trips at normal priority, TCP cubic"), "{mixed}");
}

/// `sparc-t7-1` is answered in the mode of its source; controlled conditions are a further block.
#[test]
fn the_instrument_that_answers_has_the_answer_and_the_first_tables() {
    let mut run = both();
    run.header.study.answer = Some(Instrument::System);
    let document = analyse(&run);
    assert_eq!(document.plan.answer, Some(Instrument::System));
    let text = render(&document, &Options { width: 1000, ..TERMINAL });
    let system = text.find("\nHost settings: TCP cubic\n").expect("a section");
    let path = text.find("\nControlled conditions: CPU idle states off").expect("a section");
    let answer = text.find("with 95 % intervals (host settings):").expect("the answer");
    assert!(answer < system && system < path, "{text}");
    assert!(text[path..].contains("noise ± "), "it has costs of its own: {text}");
    assert!(!text.contains("with 95 % intervals (controlled conditions)"), "{text}");
    let plan = "host settings: 11 rounds of 150 ms after 10 ms of warm-up; controlled conditions: 50 rounds";
    assert!(render(&document, &Options { width: 1000, detail: true, ..TERMINAL }).contains(plan));
}

/// Figures of two measurement modes answer two questions.
#[test]
fn no_table_has_figures_of_two_instruments() {
    let text = render(&analyse(&both()), &Options { width: 1000, ..TERMINAL });
    let path = text.find("\nControlled conditions: CPU idle states off, TCP cubic\n").expect("a section");
    let system = text.find("Host settings: TCP cubic").expect("a section");
    assert!(path < system, "{text}");
    let native = |part: &str| {
        let line = part.lines().find(|line| line.starts_with("native")).expect("a row").to_owned();
        let levels = line.split("noise").filter_map(|part| part.split_whitespace().last()?.parse().ok());
        let levels: Vec<f64> = levels.collect();
        assert!(levels.len() >= 2, "{line}");
        levels
    };
    assert!(native(&text[path..system]).iter().all(|rtt| *rtt < 13.0), "{text}");
    assert!(native(&text[system..]).iter().all(|rtt| *rtt > 29.0), "{text}");
}

#[test]
fn a_noisy_comparison_has_a_cause_and_a_remedy() {
    let document = analyse(&noisy());
    let text = render(&document, &Options { width: 80, ..TERMINAL });
    snapshot("noisy_80", text.clone());
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("BBR paces the stream by its own estimate of the path's rate"), "{text}");
    assert!(joined.contains("(--congestion cubic)") && joined.contains("too noisy to tell"), "{text}");
    assert!(joined.contains("! RETRANSMITS: TCP retransmitted over links that lose nothing (native;"), "{text}");
}

/// The same on a shared host, where a round trip takes a third of the time or three times it.
fn hidden() -> Run {
    let mut run = both();
    let cells = run.header.study.cells.clone();
    run.header.environment.deepest_idle_us = Some(133);
    for (index, sample) in run.samples.iter_mut().enumerate() {
        if cells[sample.cell].instrument == Instrument::System {
            take(sample, [0.3, 1.0, 3.1, 0.5, 2.2, 0.9][index * index % 6]);
        }
    }
    run
}

#[test]
fn a_block_that_shows_nothing_is_one_line() {
    let document = analyse(&hidden());
    let text = render(&document, &Options { width: 80, ..TERMINAL });
    snapshot("hidden_80", text.clone());
    let hidden = text.lines().skip_while(|line| !line.starts_with("Host settings")).collect::<Vec<_>>().join(" ");
    assert!(
        hidden.contains("no difference shown; native differs from itself by") && !hidden.contains("tax ["),
        "{text}"
    );
    let detail = render(&document, &Options { detail: true, ..TERMINAL });
    assert!(!detail.contains("differs from itself by a") && detail.matches("noise ±").count() > 4, "{detail}");
}

/// UX item 4: "could show ≥ 260 %", "noise floor 577451 %" and "233 [-160, 625]" were printed.
#[test]
fn nothing_impossible_is_printed() {
    for document in DOCUMENTS.iter() {
        for options in [TERMINAL, MARKDOWN, Options { detail: true, ..TERMINAL }] {
            let text = render(document, &options);
            assert!(!text.contains("[-160"), "{text}");
            let losses = text.match_indices("bandwidth ≤ ").filter_map(|(at, _)| {
                text[at + "bandwidth ≤ ".len()..].split(' ').next().and_then(|number| number.parse::<f64>().ok())
            });
            assert!(losses.clone().all(|percent| percent <= 100.0), "{text}");
        }
        for record in document.cells.iter() {
            let figures = [SampleFigure::Goodput, SampleFigure::Rate, SampleFigure::TimePerKb];
            let estimates = record.summary.iter().flat_map(|s| figures.map(|figure| s.estimate(figure)));
            assert!(estimates.flatten().all(|estimate| estimate.low.is_none_or(|low| low > 0.0)));
            let loss = record.tax_of(Metric::Goodput).and_then(|tax| tax.at_most);
            assert!(loss.is_none_or(|loss| loss < 1.0));
        }
    }
}

/// The answer precedes all tables, with the row of the highest cost first.
#[test]
fn the_answer_is_first() {
    let document = analyse(&built_in("demo"));
    for options in [TERMINAL, MARKDOWN] {
        let text = render(&document, &options);
        let answer = text.find("- vxlan: RTT +108 % [+105, +111] (TCP)").expect("an answer");
        assert!(answer < text.find("- bridge: RTT +26 %").expect("the next"), "{text}");
        assert!(answer < text.find("synthetic").expect("the machine"), "{text}");
        assert!(
            text.contains("- shared-ip: no difference shown (RTT ≤ 1.2 % worse, bandwidth ≤ 2.5 % worse)"),
            "{text}"
        );
    }
}

/// A study with 24 rows that were all too noisy once printed 24 such lines.
#[test]
fn rows_that_are_too_noisy_share_a_line() {
    let mut document = analyse(&built_in("demo"));
    for record in
        document.cells.iter_mut().filter(|record| ["bridge", "macvlan"].contains(&&*record.cell.row.to_string()))
    {
        record.taxes.iter_mut().for_each(|tax| tax.verdict = vtax_stats::Verdict::TooNoisy);
    }
    let text = render(&document, &TERMINAL);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("- ") && line.contains("too noisy")).collect();
    assert_eq!(lines, ["- bridge, macvlan: too noisy to tell"]);
}

/// It once printed 127 lines at 100 columns, of which one in five had figures.
#[test]
fn the_demo_is_short_and_fits_into_80_columns() {
    let document = analyse(&built_in("demo"));
    let lines = |width: usize| render(&document, &Options { width, ..TERMINAL }).lines().count();
    assert!(lines(80) <= 75 && lines(100) <= 50, "{} and {} lines", lines(80), lines(100));
}

/// Costs whose intervals overlap at all MTUs are reported once.
#[test]
fn an_mtu_with_the_same_costs_is_left_to_detail() {
    let document = analyse(&built_in("demo"));
    let short = render(&document, &TERMINAL);
    assert!(short.contains("At MTU 9000 the intervals of the costs overlap with these (--detail)."), "{short}");
    assert!(!short.contains("TCP, MTU 9000"), "{short}");
    assert!(render(&document, &Options { detail: true, ..TERMINAL }).contains("TCP, MTU 9000"));
    let mut apart = built_in("demo");
    for sample in &mut apart.samples {
        let cell = &apart.header.study.cells[sample.cell];
        let kind = cell.kind();
        if cell.row == row("veth") && cell.net().expect("of a network").mtu.get() == 9000 && kind == TestKind::Stream {
            sample.figures.bytes /= 2;
        }
    }
    let short = render(&analyse(&apart), &Options { width: 1000, ..TERMINAL });
    assert!(short.contains("(--detail), except for veth TCP bandwidth -5"), "{short}");
    for sample in &mut apart.samples {
        let cell = &apart.header.study.cells[sample.cell];
        if cell.row != row("native") && cell.net().expect("of a network").mtu.get() == 9000 {
            sample.figures.bytes /= 2;
        }
    }
    let short = render(&analyse(&apart), &Options { width: 1000, ..TERMINAL });
    assert!(short.contains("that don't overlap: see the tables") && short.contains("TCP, MTU 9000"), "{short}");
}

/// Only the mode that answers the question has sentences: those of the other would repeat its tables.
#[test]
fn repetitions_are_left_to_detail() {
    let document = analyse(&both());
    let short = render(&document, &TERMINAL);
    let detail = render(&document, &Options { detail: true, ..TERMINAL });
    for text in ["CPU of both endpoints' threads", "with 95 % intervals (host settings):", "µs [95 %]", "\nplan "] {
        assert!(detail.contains(text) && !short.contains(text), "{text}: {short}");
    }
    assert!(short.contains("with 95 % intervals (controlled conditions):"), "{short}");
}

/// The legend was once printed below each report.
#[test]
fn words_are_explained_on_demand() {
    let document = analyse(&both());
    let explained = render(&document, &Options { explain: true, width: 1000, ..TERMINAL });
    for text in ["Legend", "Holm's correction", "Noise ± x %", "RTT: mean round-trip time"] {
        assert!(explained.contains(text) && !render(&document, &TERMINAL).contains(text), "{text}");
    }
}
