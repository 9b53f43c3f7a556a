//! Next step after a result: what would show the differences that it could not show.

use vtax_model::{
    analysis::noise,
    cell::Instrument,
    foreign::ForeignText,
    metric::Metric,
    result::{CellRecord, ResultDocument, TaxRecord},
    run::RunState,
    study::Row,
};
use vtax_stats::{
    Verdict,
    planning::{RoundNoise, rounds_to_show},
};

use super::{answer, blocks::Reported, finding, number::waiting};

/// Words that determine the number of rounds, with which a command cannot have `--samples` too. `vtax tune prove` chooses
/// it by its budget.
const ROUNDS: [&str; 7] = ["--samples", "--show", "--budget", "--confidence", "--resume", "--quick", "prove"];

/// A difference that is not shown, and the number of rounds that would show it.
struct Unshown<'a> {
    record: &'a CellRecord,
    tax: &'a TaxRecord,
    rounds: u32,
}

/// Returns the next step after a run; `None` if everything that was compared is shown, or nothing is known to help.
pub(crate) fn sentence(report: &Reported<'_>) -> Option<String> {
    let document = report.document;
    if document.imported.is_some() || matches!(document.baseline, Row::Load(_)) {
        return None;
    }
    match document.state {
        RunState::Running => None,
        RunState::Stopped if !document.is_resumable() => None,
        RunState::Stopped => Some(format!(
            "Next: complete this run, of which {} of {} rounds are there: vtax run --resume {}",
            document.plan.rounds,
            document.plan.longest(),
            document.id
        )),
        RunState::Complete => more_rounds(report),
    }
}

/// Returns the number of rounds, the time and the command that show the difference that needs the fewest rounds.
fn more_rounds(report: &Reported<'_>) -> Option<String> {
    let (document, compared) = (report.document, compared(report));
    let unshown = compared.into_iter().filter_map(|one| unshown(one, document));
    let Unshown { record, tax, rounds } = unshown.min_by_key(|one| one.rounds)?;
    let is = if tax.verdict == Verdict::NotConfirmed { "not significant after Holm" } else { "not shown" };
    let subject = format!("{} with {}", finding::subject(record, tax.of), record.cell.row);
    let difference = format!("Next: the difference in {subject} is {is}: {}.", answer::figures(tax));
    if document.plan.quick {
        let command = of_words(command(document).into_iter().filter(|word| *word != "--quick"))?;
        return Some(format!("{difference} This was a quick plan; the whole one is: {command}"));
    }
    let time = waiting(seconds(document, record.cell.instrument, f64::from(rounds) / tax.pairs as f64));
    let command = with_rounds(command(document), rounds).map_or(String::new(), |command| format!(": {command}"));
    Some(format!(
        "{difference} About {rounds} rounds instead of {} show a difference of this size in four of five runs, in about \
         {time}{}{command}",
        tax.pairs,
        less_noise(document, record)
    ))
}

/// Returns the duration of a run with this many times the rounds of a mode; those of the other mode stay the same.
fn seconds(document: &ResultDocument, instrument: Instrument, times: f64) -> f64 {
    let measured = |wanted: &dyn Fn(Instrument) -> bool| {
        let cells = document.cells.iter().filter(|record| wanted(record.cell.instrument));
        cells.flat_map(|record| &record.samples).map(|sample| sample.seconds).sum::<f64>()
    };
    let (own, all) = (measured(&|of| of == instrument), measured(&|_| true));
    let share = if all > 0.0 { own / all } else { 1.0 };
    document.wall_seconds * (1.0 + share * (times - 1.0))
}

/// Returns the cells that the answer is about, with their comparisons.
fn compared<'a>(report: &Reported<'a>) -> Vec<(&'a CellRecord, &'a TaxRecord)> {
    let Some((_, blocks)) = report.modes().into_iter().next() else { return Vec::new() };
    let cells = blocks.into_iter().flat_map(|block| {
        let first = block.columns().into_iter().next();
        block.records().filter(move |record| Some(record.cell.column()) == first)
    });
    cells.filter_map(|record| Some((record, record.tax_of(Metric::of(record.cell.kind()))?))).collect()
}

/// Returns a difference that is not shown, with the rounds for one of the size that was found. `None` if it is shown,
/// or if too few rounds are known or too many needed.
fn unshown<'a>((record, tax): (&'a CellRecord, &'a TaxRecord), document: &ResultDocument) -> Option<Unshown<'a>> {
    let comparisons = judged_with(tax, document);
    let noise = RoundNoise::of_interval(tax.low, tax.high, tax.pairs)?.of_another_run();
    let rounds = rounds_to_show(tax.ratio.ln().abs(), noise, comparisons)?;
    // If more rounds showed it, the report would call it within noise.
    let is_within_floor = tax.floor.is_some_and(|floor| tax.ratio.ln().abs() <= floor.ln_1p());
    let is_open = !tax.verdict.is_shown() && rounds as usize > tax.pairs && !is_within_floor;
    is_open.then_some(Unshown { record, tax, rounds })
}

/// Returns the number of comparisons that share the level of significance with this one: those of its mode and family of
/// metrics, also in cells that the answer isn't about.
fn judged_with(tax: &TaxRecord, document: &ResultDocument) -> usize {
    let all = document.cells.iter().flat_map(|record| match &record.taxes[..] {
        // In documents of older versions.
        [] => record.tax.as_slice(),
        taxes => taxes,
    });
    all.filter(|other| (other.instrument, other.of.family()) == (tax.instrument, tax.of.family())).count()
}

/// Returns the cause of the noise in a cell, if the result shows one, with the remedy.
fn less_noise(document: &ResultDocument, record: &CellRecord) -> String {
    let cause = noise::causes(document, record).into_iter().next();
    let cause = cause.map(|cause| format!(", or fewer with less noise: {} (remedy: {})", cause.why(), cause.remedy()));
    cause.unwrap_or_default()
}

/// Returns the words of the command that repeats the run, without its seed: another run has another order.
fn command(document: &ResultDocument) -> Vec<&str> {
    let words: Vec<&str> = document.command.raw().split(' ').collect();
    let is_seed = |at: usize| words[at].split('=').next() == Some("--seed") || at > 0 && words[at - 1] == "--seed";
    (0..words.len()).filter(|at| !is_seed(*at)).map(|at| words[at]).collect()
}

/// Returns the command with this number of rounds; `None` if it determines the number in another way.
fn with_rounds(words: Vec<&str>, rounds: u32) -> Option<String> {
    let decides = |word: &&str| ROUNDS.iter().any(|option| word.split('=').next() == Some(option));
    let is_free = !words.iter().any(decides);
    of_words(words.into_iter()).filter(|_| is_free).map(|command| format!("{command} --samples {rounds}"))
}

fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let text = ForeignText::from(words.collect::<Vec<_>>().join(" "));
    (!text.is_empty()).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_synthetic::{analyse, built_in, killed_after};

    fn told(document: &ResultDocument) -> Option<String> {
        sentence(&Reported::of(document))
    }

    /// The demo with fewer rounds, which shows less.
    fn short(rounds: u32, command: &str) -> ResultDocument {
        let mut run = killed_after(built_in("demo"), rounds);
        run.state = RunState::Complete;
        run.header.command = command.into();
        analyse(&run)
    }

    #[test]
    fn the_next_step_names_rounds_time_and_command() {
        let of = |command| told(&short(8, command)).expect("not all is shown");
        let told = of("vtax run demo --seed 7 --pin none");
        assert_eq!(of("vtax run demo --seed=7 --pin none"), told);
        insta::assert_snapshot!(told);
    }

    #[test]
    fn a_command_with_its_own_rounds_is_not_extended() {
        let others = ["", "vtax run --resume last", "vtax tune prove --to zone:rack/web"];
        for command in ["vtax run demo --samples 8", "vtax run demo --show=2%"].into_iter().chain(others) {
            let told = told(&short(8, command)).expect("not all is shown");
            assert!(told.contains("rounds instead of") && !told.contains("vtax "), "{told}");
        }
    }

    #[test]
    fn a_quick_plan_is_followed_by_the_whole_one() {
        let mut document = short(8, "vtax run demo --quick --pin none");
        document.plan.quick = true;
        assert!(told(&document).is_some_and(|told| told.ends_with("the whole one is: vtax run demo --pin none")));
    }

    #[test]
    fn a_stopped_run_is_resumed() {
        let mut document = short(8, "vtax run demo");
        document.state = RunState::Stopped;
        let told = told(&document).expect("it is stopped");
        assert!(told.ends_with(&format!("vtax run --resume {}", document.id)), "{told}");
        document.baseline = "host-network".parse().expect("a row");
        assert_eq!(sentence(&Reported::of(&document)), None, "its pods were removed");
    }

    #[test]
    fn nothing_is_next_if_everything_is_shown() {
        let mut document = short(8, "vtax run demo");
        document.cells.iter_mut().flat_map(|record| &mut record.taxes).for_each(|tax| {
            tax.verdict = Verdict::Slower;
        });
        assert_eq!(told(&document), None);
    }
}
