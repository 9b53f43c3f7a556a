//! Warm-up before the measured time: whether the figures were steady when it ended, and whether TCP was still in slow
//! start.

use vtax_model::result::{CellRecord, ResultDocument, WarmupSummary};

use super::{labels, number::three_digits, words};

fn summaries(document: &ResultDocument) -> impl Iterator<Item = (&CellRecord, WarmupSummary)> {
    document.cells.iter().filter_map(|record| Some((record, record.summary.as_ref()?.warmup?)))
}

/// Returns e.g. `steady after 0.31 s (0.20 to 0.52 s); slow start excluded`; empty if nothing is known.
pub(crate) fn fact(document: &ResultDocument) -> String {
    let all: Vec<WarmupSummary> = summaries(document).map(|(_, warmup)| warmup).collect();
    let watched = || all.iter().filter(|warmup| warmup.watched > 0);
    let seconds: Vec<f64> = watched().map(|warmup| warmup.seconds.mean).collect();
    let steady = !seconds.is_empty() && watched().all(|warmup| warmup.unsteady == 0);
    let known = all.iter().any(|warmup| warmup.slow_start_known > 0);
    let excluded = known && all.iter().all(|warmup| warmup.in_slow_start == 0);
    let steady = steady.then(|| format!("steady after {}", range(&seconds)));
    words::joined(steady.into_iter().chain(excluded.then(|| "slow start excluded".to_owned())), "; ")
}

/// Means of the cells' samples.
fn range(seconds: &[f64]) -> String {
    let lowest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = seconds.iter().copied().fold(0.0, f64::max);
    match (three_digits(lowest), three_digits(highest)) {
        (low, high) if low == high => format!("{low} s"),
        (low, high) => format!("{low} to {high} s, by cell"),
    }
}

/// A prominent warning, because such a figure shows the start of a flow and not its steady state.
pub(crate) fn warnings(document: &ResultDocument) -> Vec<String> {
    let unsteady = cells(document, |warmup| (warmup.unsteady, warmup.watched)).map(|cells| {
        format!(
            "NOT STEADY: figures still changed at the end of the longest warm-up in {cells}. Use a longer warm-up, or \
             find what disturbs the machine."
        )
    });
    let slow = cells(document, |warmup| (warmup.in_slow_start, warmup.slow_start_known)).map(|cells| {
        format!(
            "SLOW START: TCP was still in slow start when the measured time began in {cells}, so the goodput is too \
             low. Use a longer warm-up."
        )
    });
    unsteady.into_iter().chain(slow).collect()
}

/// First cells whose count is above 0, e.g. `TCP stream (2 of 8 samples)`.
fn cells(document: &ResultDocument, counts: fn(&WarmupSummary) -> (u32, u32)) -> Option<String> {
    const MOST: usize = 4;
    let counted = summaries(document).map(|(record, warmup)| (record, counts(&warmup)));
    let some: Vec<_> = counted.filter(|(_, (count, _))| *count > 0).collect();
    let more = some.len().saturating_sub(MOST);
    let told = |(record, (count, all)): (&CellRecord, (u32, u32))| {
        format!("{} ({count} of {all} samples)", labels::name(document, &record.cell))
    };
    let cells = some.into_iter().take(MOST).map(told);
    words::list(cells.chain((more > 0).then(|| format!("and {more} more"))), "; ")
}
