//! The comparison as a table, with a note on each difference of definition.

use std::fmt::Write as _;

use vtax_model::options::Idle;
use vtax_report::load;
use vtax_stats::Preference;

use super::{ContestRecord, Crosscheck, LeftOut, Other, Ratio, mean};

pub(crate) fn render(crosscheck: &Crosscheck) -> String {
    let mut text = heading(crosscheck);
    let mut notes: Vec<String> = Vec::new();
    for contest in &crosscheck.contests {
        text += &block(contest, &mut notes);
    }
    text += "Ratios are vtax / tool, from the pairs of figures of each round, with 95 % confidence intervals.\n";
    for (number, note) in notes.iter().enumerate() {
        let _ = writeln!(text, "[{}] {note}", number + 1);
    }
    text
}

fn heading(crosscheck: &Crosscheck) -> String {
    let caveat = crosscheck.environment.caveat().map(|caveat| format!("{caveat}\n")).unwrap_or_default();
    let mut text = format!(
        "vtax compared with other tools: {} rounds of {} per tool, seed {}\n{}Linux {}, {}\n",
        crosscheck.rounds,
        crosscheck.duration,
        crosscheck.seed,
        caveat,
        crosscheck.environment.kernel,
        crosscheck.environment.cpu_model
    );
    text += &match crosscheck.cpus {
        Some([first, second]) => {
            format!("all tools pinned: initiator on CPU {first}, responder on CPU {second}\n")
        }
        None => "NOT PINNED: fewer than two CPUs; round-trip times may vary fourfold\n".to_owned(),
    };
    text += &held(crosscheck);
    for tool in &crosscheck.tools {
        let _ = match (&tool.version, &tool.missing[..]) {
            (Some(version), _) => writeln!(text, "{:<9} {version}", tool.name),
            (None, []) => writeln!(text, "{:<9} (version unknown)", tool.name),
            (None, missing) => writeln!(text, "{:<9} not installed: no {} in the PATH", tool.name, missing.join(", ")),
        };
    }
    text + "\n"
}

fn held(crosscheck: &Crosscheck) -> String {
    let idle = match (&crosscheck.idle_not_held, crosscheck.held.idle) {
        (Some(why), _) => format!("CPU IDLE STATES ON: {why}"),
        (None, Idle::Poll) => "CPU idle states off during the whole comparison".to_owned(),
        (None, Idle::System) => "CPU idle states as set on the host".to_owned(),
    };
    let congestion = match crosscheck.held.congestion {
        Some(name) => format!("TCP {name} for all tools"),
        None => format!("TCP {}, the machine's own", crosscheck.environment.congestion_control),
    };
    format!("{idle}; {congestion}\n")
}

fn block(contest: &ContestRecord, notes: &mut Vec<String>) -> String {
    let metric = contest.contest.metric();
    let what = metric.described();
    let better = match metric.direction() {
        Preference::HigherIsBetter => "higher is better",
        Preference::LowerIsBetter => "lower is better",
    };
    let mut text = format!("{} ({what}, {}, {better})\n", contest.name, contest.unit);
    let disturbed = if contest.load.is_much() { ": BUSY HOST, compare again when the machine is idle" } else { "" };
    let _ = writeln!(text, "  load: {}{disturbed}", load(&contest.load));
    let _ = writeln!(text, "  {:<9} {:>9}", "vtax", figure(&contest.ours));
    for other in &contest.others {
        let _ = writeln!(
            text,
            "  {:<9} {:>9}  {} [{}]",
            other.tool,
            figure(&other.figures),
            verdict(other),
            note(other, notes)
        );
    }
    for LeftOut { tool, why } in &contest.left_out {
        let _ = writeln!(text, "  {tool:<9} {:>9}  omitted: {why}", "-");
    }
    text + "\n"
}

fn verdict(other: &Other) -> String {
    let ratio = other.ratio.map_or_else(|| "too few rounds for a ratio".to_owned(), ratio);
    match &other.failed {
        Some(why) => format!("{ratio}; FAILED {why}"),
        None => ratio,
    }
}

fn ratio(ratio: Ratio) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.ratio, ratio.low, ratio.high)
}

/// Returns the number of the note on the tool's difference.
fn note(other: &Other, notes: &mut Vec<String>) -> usize {
    let text = format!("{}: {}", other.tool, other.difference);
    match notes.iter().position(|note| *note == text) {
        Some(index) => index + 1,
        None => {
            notes.push(text);
            notes.len()
        }
    }
}

fn figure(figures: &[f64]) -> String {
    match mean(figures) {
        Some(mean) if mean >= 1000.0 => format!("{mean:.0}"),
        Some(mean) => format!("{mean:.1}"),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crosscheck::{Contest, Held, SCHEMA, ToolRecord};
    use vtax_model::{result::Disturbance, run::Environment, units::Span};

    fn other(tool: &'static str, figures: Vec<f64>, failed: Option<&str>) -> Other {
        let ratio = (figures.len() > 1).then_some(Ratio { ratio: 0.981, low: 0.93, high: 1.02, p: 0.2 });
        Other {
            tool,
            figures,
            ratio,
            difference: "prints half a round trip, doubled here.",
            failed: failed.map(str::to_owned),
        }
    }

    #[test]
    fn a_comparison_reads_well() {
        let contests = Contest::all(Span::from_millis(1000), 2);
        let record = |index: usize, others, left_out| {
            let contest: Contest = contests[index];
            let (name, unit, ours) = (contest.to_string(), contest.unit(), vec![90.0, 92.0]);
            let load = Disturbance { other_programs: Some(0.312), stolen: Some(0.02), guests_waited: None };
            ContestRecord { name, unit, contest, ours, load, others, left_out }
        };
        let tool =
            |name, version: Option<&str>, missing| ToolRecord { name, version: version.map(str::to_owned), missing };
        let left_out = LeftOut { tool: "neper", why: "it measures whole seconds only" };
        let crosscheck = Crosscheck {
            schema: SCHEMA,
            rounds: 2,
            seed: 7,
            environment: Environment { kernel: "6.12".into(), cpu_model: "M7".into(), ..Environment::default() },
            duration: Span::from_millis(1000),
            held: Held { idle: Idle::Poll, congestion: "cubic".parse().ok() },
            idle_not_held: None,
            cpus: Some([0, 1]),
            tools: vec![
                tool("sockperf", Some("sockperf, version 3.7"), vec![]),
                tool("netperf", None, vec!["netserver"]),
            ],
            contests: vec![
                record(0, vec![other("sockperf", vec![92.0, 93.5], None)], vec![]),
                record(2, vec![other("qperf", vec![], Some("in round 1: no end within 17s"))], vec![left_out]),
            ],
        };
        insta::assert_snapshot!(render(&crosscheck));
    }
}
