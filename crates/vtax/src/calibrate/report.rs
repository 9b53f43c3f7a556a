//! The calibration as text for a terminal.

use std::fmt::Write as _;

use vtax_model::metric::Metric;

use super::{Calibration, SelfComparison, TruthRecord};
use vtax_report::load;

pub(crate) fn render(calibration: &Calibration) -> String {
    let mut text = heading(calibration);
    if !calibration.truths.is_empty() {
        text += &truths(&calibration.truths);
    }
    if !calibration.floors.is_empty() {
        text += &floors(&calibration.floors);
    }
    text
}

fn heading(calibration: &Calibration) -> String {
    let (environment, clock) = (&calibration.environment, &calibration.clock);
    let pins = match calibration.cpus {
        Some([first, second]) => format!("initiator on CPU {first}, responder on CPU {second}"),
        None => "NOT PINNED: fewer than two CPUs; round-trip times may vary fourfold".to_owned(),
    };
    let caveat = environment.caveat().map(|caveat| format!("{caveat}\n")).unwrap_or_default();
    format!(
        "Accuracy of vtax on this machine\n\n\
         {caveat}\
         Linux {}, {}, governor {}\n{pins}\n\
         clock      {}: {:.0} ns per reading, steps of {} ns (the kernel reports {} ns)\n\
         recording  {:.1} ns per transaction\n\
         load       {}{}\n\n",
        environment.kernel,
        environment.cpu_model,
        environment.governor,
        clock.source,
        clock.reading_ns,
        clock.step_ns,
        clock.resolution_ns,
        clock.recording_ns,
        load(&calibration.load),
        if calibration.load.is_much() { ": BUSY HOST, calibrate again when the machine is idle" } else { "" }
    )
}

fn truths(truths: &[TruthRecord]) -> String {
    let mut text = "Reference cases\n".to_owned();
    let width = |words: fn(&TruthRecord) -> &str| truths.iter().map(|truth| words(truth).len()).max().unwrap_or(0);
    let (name, verdict) = (width(|truth| truth.name), width(|truth| truth.verdict.words()));
    let margin = " ".repeat(2 + name + 2 + verdict + 2);
    for truth in truths {
        let [least, most] = truth.accepted;
        let interval = truth.interval.map(|[low, high]| format!(" [{}, {}]", number(low), number(high)));
        let _ = writeln!(text, "  {:<name$}  {:<verdict$}  {}", truth.name, truth.verdict.words(), truth.made);
        let _ = writeln!(
            text,
            "{margin}expected {}, measured {}{} {} (accepted: {})",
            number(truth.expected),
            number(truth.measured),
            interval.unwrap_or_default(),
            truth.unit,
            if least == most {
                format!("exactly {}", number(least))
            } else {
                format!("{} to {}", number(least), number(most))
            }
        );
        for line in [Some(truth.detail.clone()), truth.why_not_judged()].into_iter().flatten() {
            let _ = writeln!(text, "{margin}{line}");
        }
    }
    text + "\n"
}

/// Formats a value with four digits; whole numbers without decimals.
fn number(value: f64) -> String {
    match value {
        whole if whole.fract() == 0.0 => format!("{whole}"),
        large if large.abs() >= 1000.0 => format!("{large:.0}"),
        middle if middle.abs() >= 10.0 => format!("{middle:.1}"),
        small => format!("{small:.3}"),
    }
}

fn floors(floors: &[SelfComparison]) -> String {
    let mut text = format!("Noise floor: each test against itself, {} rounds\n", floors[0].rounds);
    let samples = floors[0].smallest_shown.iter().map(|shown| format!("{:>9}", shown.samples)).collect::<String>();
    let _ = writeln!(
        text,
        "  {:<12} {:>14}  {:<24} {:>9}   detectable difference (80 % power) by number of samples",
        "", "mean", "one / other", "floor"
    );
    let _ = writeln!(text, "  {:<12} {:>14}  {:<24} {:>9} {samples}", "", "", "", "");
    for floor in floors {
        let unit = Metric::of(floor.test).unit(floor.test);
        let interval = format!("{:.3} [{:.3}, {:.3}]", floor.ratio, floor.low, floor.high);
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let shown =
            floor.smallest_shown.iter().map(|shown| format!("{:>9}", percent(shown.difference))).collect::<String>();
        let _ = writeln!(
            text,
            "  {:<12} {:>14}  {interval:<24} {:>9} {shown}",
            format!("{} {}", floor.transport, floor.test),
            format!("{} {unit}", number(floor.mean)),
            if floor.floor > 1.0 { "> 100 %".to_owned() } else { percent(Some(floor.floor)) },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::{SCHEMA, clock::ClockRecord, floors::ShownBySamples, truths::TruthVerdict};
    use vtax_model::{
        guest::Accelerator,
        result::Disturbance,
        run::{EmulatedServer, Environment},
        workload::{TestKind, Transport},
    };

    #[test]
    fn a_calibration_reads_well() {
        let load = Disturbance { other_programs: Some(0.312), stolen: Some(0.02), guests_waited: None };
        let truth = |name, expected, measured, accepted, verdict| TruthRecord {
            name,
            made: "a wire shaped to 100 Mb/s, full of TCP segments",
            unit: "Mb/s",
            expected,
            measured,
            interval: None,
            accepted,
            verdict,
            load,
            detail: "1448 bytes of payload in 1514 on the wire".into(),
        };
        let noisy = TruthRecord {
            made: "a responder that waits",
            unit: "µs",
            interval: Some([4.91, 6.52]),
            detail: "25 pairs".into(),
            ..truth("delay-5us", 5.0, 5.81, [4.5, 5.5], TruthVerdict::TooNoisy)
        };
        let floor = SelfComparison {
            transport: Transport::Tcp,
            test: TestKind::Rr,
            rounds: 11,
            mean: 91.234,
            ratio: 1.012,
            low: 0.97,
            high: 1.04,
            floor: 0.04,
            smallest_shown: vec![
                ShownBySamples { samples: 5, difference: None },
                ShownBySamples { samples: 11, difference: Some(0.071) },
                ShownBySamples { samples: 18, difference: Some(0.052) },
                ShownBySamples { samples: 30, difference: Some(0.045) },
            ],
        };
        let calibration = Calibration {
            schema: SCHEMA,
            environment: Environment {
                kernel: "6.12".into(),
                cpu_model: "M7".into(),
                governor: "none".into(),
                ..Environment::default()
            },
            cpus: Some([0, 1]),
            clock: ClockRecord {
                source: "tsc".into(),
                resolution_ns: 1,
                step_ns: 18,
                reading_ns: 17.6,
                recording_ns: 3.4,
            },
            load: Disturbance { other_programs: Some(0.012), stolen: Some(0.003), guests_waited: None },
            floors: vec![floor],
            truths: vec![
                truth("tcp-100m", 95.6407, 95.1, [94.7, 96.6], TruthVerdict::Holds),
                truth("loss", 4112.0, 4111.0, [4112.0, 4112.0], TruthVerdict::DoesNotHold),
                truth("tcp-1g", 956.407, 871.1, [946.8, 966.0], TruthVerdict::TooBusy),
                noisy,
            ],
        };
        insta::assert_snapshot!(render(&calibration));
        let server =
            EmulatedServer { spec: "emulated".into(), accel: Accelerator::Tcg, qemu: "10.0".into(), why_not_kvm: None };
        let environment = Environment { server: Some(server), ..calibration.environment.clone() };
        let there = render(&Calibration { environment, ..calibration });
        assert!(there.contains("on this machine\n\nemulated server: shows function, not speed\nLinux"), "{there}");
    }
}
