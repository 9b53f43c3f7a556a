//! What went before the measured times: whether the figures were steady when they began, and
//! whether TCP still probed for its rate.

use vtax_model::result::{CellRecord, ResultDocument, WarmupSummary};

use super::{labels, number::three_digits};

fn summaries(document: &ResultDocument) -> impl Iterator<Item = (String, WarmupSummary)> {
    let of = |record: &CellRecord| Some((labels::name(document, &record.cell), record.summary.as_ref()?.warmup?));
    document.cells.iter().filter_map(of)
}

/// `steady after 0.31 s (0.20 to 0.52 s); slow start excluded`; empty if nothing is known.
pub(super) fn fact(document: &ResultDocument) -> String {
    let all: Vec<WarmupSummary> = summaries(document).map(|(_, warmup)| warmup).collect();
    let watched = || all.iter().filter(|warmup| warmup.watched > 0);
    let seconds: Vec<f64> = watched().map(|warmup| warmup.seconds.mean).collect();
    let steady = !seconds.is_empty() && watched().all(|warmup| warmup.unsteady == 0);
    let known = all.iter().any(|warmup| warmup.slow_start_known > 0);
    let excluded = known && all.iter().all(|warmup| warmup.in_slow_start == 0);
    let texts = [
        steady.then(|| format!("steady after {}", range(&seconds))),
        excluded.then(|| "slow start excluded".to_owned()),
    ];
    texts.into_iter().flatten().collect::<Vec<_>>().join("; ")
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

/// Loud, for such a figure is of a beginning and not of a state.
pub(super) fn warnings(document: &ResultDocument) -> Vec<String> {
    let unsteady = cells(document, |warmup| (warmup.unsteady, warmup.watched));
    let slow = cells(document, |warmup| (warmup.in_slow_start, warmup.slow_start_known));
    let loud = |cells: Vec<String>, before: &str, after: &str| {
        (!cells.is_empty()).then(|| format!("{before}{}{after}", shortened(cells)))
    };
    let texts = [
        loud(
            unsteady,
            "NOT STEADY: when the longest warm-up was over the figures still moved, in ",
            ". Warm up for longer, or see what disturbs the machine.",
        ),
        loud(
            slow,
            "SLOW START: TCP still probed for its rate when the measured time began, in ",
            ". Such a goodput is too low; warm up for longer.",
        ),
    ];
    texts.into_iter().flatten().collect()
}

/// `TCP stream (2 of 8 samples)`, where there are any.
fn cells(document: &ResultDocument, counts: fn(&WarmupSummary) -> (u32, u32)) -> Vec<String> {
    let counted = summaries(document).map(|(name, warmup)| (name, counts(&warmup)));
    let some = counted.filter(|(_, (count, _))| *count > 0);
    some.map(|(name, (count, all))| format!("{name} ({count} of {all} samples)")).collect()
}

fn shortened(mut cells: Vec<String>) -> String {
    const MOST: usize = 4;
    let more = cells.len().saturating_sub(MOST);
    cells.truncate(MOST);
    let text = cells.join("; ");
    if more > 0 { format!("{text}; and {more} more") } else { text }
}
