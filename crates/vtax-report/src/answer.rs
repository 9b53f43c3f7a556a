//! Plain-language answer of a run: the rows ranked by cost.

use vtax_model::{
    cell::{ColumnKey, Instrument},
    foreign::ForeignText,
    metric::{FigureUnit, Metric},
    result::{CellRecord, ResultDocument, SummaryRecord, TaxRecord},
    study::Row,
    workload::TestKind,
};
use vtax_stats::Verdict;

use super::{
    added_latency,
    blocks::{BlockCells, Reported, distinct},
    column_unit::{sized, sized_estimate},
    labels, meaning,
    number::{bound, brief_change, brief_interval, three_digits},
    record::{is_of_disks, is_of_network, primary},
    tax::{at_most, most},
    view::{Section, SectionPart},
    words,
};

/// Maximum number of figures that the answer names for one test of a row; beyond it, only the smallest and the largest.
const EACH: usize = 3;
/// Maximum number of cells to list when there is nothing to compare.
const LEVELS: usize = 8;
/// Maximum number of differing costs at other MTUs that the answer lists; beyond it, the reader is referred to the
/// tables.
const EXCEPTIONS: usize = 3;
const UNCONFIRMED: &str = " not significant after Holm";
/// Stands for [`UNCONFIRMED`] if most lines would repeat it; the lead explains it.
const MARK: &str = "*";

/// Returns the answer in the measurement mode that answers the question; with `all`, in every mode.
pub(crate) fn section(report: &Reported<'_>, all: bool) -> Option<Section> {
    if let Row::Load(_) = report.document.baseline {
        return Section::new("", added_latency::answer(report.document));
    }
    let mut modes = report.modes();
    let several = modes.len() > 1;
    modes.truncate(if all { modes.len() } else { 1 });
    let of_mode = |(mode, blocks): &(Instrument, Vec<&BlockCells<'_>>)| {
        let name = several.then(|| words::of_instrument(*mode));
        Effects::of(report.document, blocks).map(|effects| effects.parts(name, all)).unwrap_or_default()
    };
    let parts: Vec<SectionPart> = modes.iter().flat_map(of_mode).collect();
    Section::new("", if parts.is_empty() { levels(report.document) } else { parts })
}

/// Returns the first MTU if the intervals of the costs at all other MTUs overlap with those at the first, or if the
/// answer names the few that don't.
pub(crate) fn column_that_tells_all(document: &ResultDocument, blocks: &[&BlockCells<'_>]) -> Option<ColumnKey> {
    // Scaling over threads is the question with disks, so every number of threads is reported.
    let effects = Effects::of(document, blocks).filter(|_| is_of_network(document))?;
    let twins = effects.twins();
    let apart = twins.iter().filter(|(one, other)| !overlap(one.tax, other.tax)).count();
    effects.columns.first().copied().filter(|_| apart <= EXCEPTIONS && !twins.is_empty())
}

/// Cost of a cell compared with the baseline's.
struct Effect<'a> {
    record: &'a CellRecord,
    tax: &'a TaxRecord,
    test: TestKind,
    column: ColumnKey,
    /// Block among those with the same test; empty if there is only one.
    block: String,
    /// Block with its column, if blocks begin with different columns.
    named: String,
    /// Set if this is the first column of its block.
    first: bool,
}

struct Effects<'a> {
    document: &'a ResultDocument,
    all: Vec<Effect<'a>>,
    columns: Vec<ColumnKey>,
    /// Suffix of the figures of a difference that is not significant after Holm.
    unconfirmed: &'static str,
}

impl<'a> Effects<'a> {
    /// Returns `None` if nothing was compared.
    fn of(document: &'a ResultDocument, blocks: &[&BlockCells<'a>]) -> Option<Effects<'a>> {
        let mut all = Vec::new();
        for test in distinct(blocks.iter().flat_map(|block| block.tests())) {
            let with_test: Vec<_> = blocks.iter().filter(|block| block.tests().contains(&test)).collect();
            let plain = apart(with_test.iter().map(|block| block.title()).collect());
            for ((block, plain), named) in with_test.iter().zip(plain).zip(apart(titles(&with_test, test))) {
                let first = block.columns().into_iter().find(|column| has(block, test, *column));
                let effect = |record: &'a CellRecord| {
                    let tax = record.tax_of(Metric::of(test))?;
                    let (column, block, named) = (record.cell.column(), plain.clone(), named.clone());
                    Some(Effect { record, tax, test, column, block, named, first: first == Some(column) })
                };
                all.extend(block.records().filter(|record| record.cell.kind() == test).filter_map(effect));
            }
        }
        let columns = distinct(all.iter().map(|effect| effect.column));
        let unconfirmed = if unconfirmed_in_most(&all) { MARK } else { UNCONFIRMED };
        (!all.is_empty()).then_some(Effects { document, all, columns, unconfirmed })
    }

    fn parts(&self, instrument: Option<&str>, all: bool) -> Vec<SectionPart> {
        let own = |row: Row| row.reference(self.document.baseline) == self.document.baseline;
        let mut parts = vec![SectionPart::Paragraph(self.lead(instrument)), SectionPart::bullets(self.of_rows(own))];
        let steps = self.of_rows(|row| !own(row));
        if !steps.is_empty() {
            parts.push(SectionPart::Paragraph("Each step compared with the same path without it:".to_owned()));
            parts.push(SectionPart::bullets(steps));
        }
        let others = [self.meaning(), self.of_other_columns(all)].into_iter().flatten();
        parts.into_iter().chain(others.map(SectionPart::Paragraph)).collect()
    }

    /// Meaning of the costs of the row that costs most.
    fn meaning(&self) -> Option<String> {
        let firsts = || self.all.iter().filter(|effect| effect.first);
        let of_row = |row: Row| firsts().filter(move |effect| effect.record.cell.row == row);
        let rank_of = |row: &Row| rank(of_row(*row).map(|effect| effect.tax));
        let rows = distinct(firsts().map(|effect| effect.record.cell.row)).into_iter();
        let worst = rows.max_by(|one, other| rank_of(one).total_cmp(&rank_of(other)))?;
        meaning::of_row(self.document, &of_row(worst).map(|effect| effect.record).collect::<Vec<_>>())
    }

    /// Returns e.g. `Compared with native at MTU 1500, with 95 % intervals:`.
    fn lead(&self, instrument: Option<&str>) -> String {
        let several = distinct(self.document.cells.iter().map(|record| record.cell.column())).len() > 1;
        let firsts = distinct(self.all.iter().filter(|effect| effect.first).map(|effect| effect.column));
        let column = match firsts.as_slice() {
            [column] if several => format!(" {}", ColumnKey::among(&[*column])),
            _ => String::new(),
        };
        let marked = if self.unconfirmed == MARK { format!(" ({MARK}{UNCONFIRMED})") } else { String::new() };
        let against = format!("compared with {}{column}, with 95 % intervals{marked}:", self.document.baseline);
        let caveat = self.document.caveat.as_ref().map(ForeignText::to_string);
        let mind: Vec<String> = caveat.into_iter().chain(instrument.map(str::to_owned)).collect();
        match mind.is_empty() {
            true => words::capital(&against),
            false => format!("{} ({})", words::capital(&against).trim_end_matches(':'), mind.join("; ")) + ":",
        }
    }

    /// Returns a line for each row, highest cost first; rows without a shown difference are merged at the end.
    fn of_rows(&self, wanted: impl Fn(Row) -> bool) -> Vec<String> {
        let of_first = |row| self.all.iter().filter(move |effect| effect.first && effect.record.cell.row == row);
        let rows = distinct(self.all.iter().map(|effect| effect.record.cell.row));
        let mut rows: Vec<(Row, Vec<&Effect<'_>>)> =
            rows.into_iter().map(|row| (row, of_first(row).collect())).collect();
        rows.retain(|(row, effects)| wanted(*row) && !effects.is_empty());
        rows.sort_by(|(_, one), (_, other)| size(other).total_cmp(&size(one)));
        let (quiet, told): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, effects)| effects.iter().all(is_quiet));
        let (noisy, told): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, effects)| effects.iter().all(is_noisy));
        let line = |row: &Row, effects: &[&Effect<'_>]| format!("{row}: {}", of_row(effects, self.unconfirmed));
        let mut lines: Vec<String> = told.iter().map(|(row, effects)| line(row, effects)).collect();
        lines.extend(of_quiet(&quiet));
        match &noisy[..] {
            [(row, effects)] => lines.push(line(row, effects)),
            several => lines.extend(
                words::list(several.iter().map(|(row, _)| row.to_string()), ", ")
                    .map(|rows| format!("{rows}: too noisy to tell")),
            ),
        }
        lines
    }

    /// Pairs each cost at another MTU with the one at the first MTU.
    fn twins(&self) -> Vec<(&Effect<'a>, &Effect<'a>)> {
        let twin = |effect: &Effect<'_>| self.all.iter().find(|known| known.first && of_row_and_test(known, effect));
        let others = self.all.iter().filter(|effect| !effect.first);
        others.filter_map(|effect| Some((effect, twin(effect)?))).collect()
    }

    /// Returns e.g. `bridge UDP bandwidth -20 % [-22, -18]`.
    fn told(&self, effect: &Effect<'_>) -> String {
        let Effect { record, tax, test, column, block, .. } = effect;
        let at = if self.columns.len() > 2 { format!(" {}", ColumnKey::among(&[*column])) } else { String::new() };
        let block = if block.is_empty() { String::new() } else { format!("{block} ") };
        format!("{} {block}{} {}{at}", record.cell.row, quantity(*test), said_with(tax, self.unconfirmed))
    }

    /// Compares the intervals at the other MTUs with those at the first. Unless all tables follow (`all`), the sentence
    /// names the option that shows them.
    fn of_other_columns(&self, all: bool) -> Option<String> {
        let compared = self.twins();
        let differing: Vec<String> = compared
            .iter()
            .filter(|(one, other)| !overlap(one.tax, other.tax))
            .map(|(one, _)| self.told(one))
            .collect();
        let others = distinct(compared.iter().map(|(one, _)| one.column));
        let columns = words::capital(&ColumnKey::among(Some(&others[..]).filter(|others| !others.is_empty())?));
        let told = if all || is_of_disks(self.document) { "" } else { " (--detail)" };
        let overlap = format!("{columns} the intervals of the costs overlap with these{told}");
        let noisy = |effect: &Effect<'_>| effect.tax.verdict == Verdict::TooNoisy;
        // Intervals that wide overlap with any other.
        let tells = compared.iter().any(|(one, other)| !noisy(one) && !noisy(other));
        tells.then(|| match differing.len() {
            0 => format!("{overlap}."),
            1..=EXCEPTIONS => format!("{overlap}, except for {}.", differing.join("; ")),
            some => {
                format!(
                    "{columns} {some} of {} costs have intervals that don't overlap: see the tables.",
                    compared.len()
                )
            }
        })
    }
}

/// Block titles, each with the reported column if blocks differ in it: blocks of disks have tests with different
/// numbers of threads.
fn titles(blocks: &[&&BlockCells<'_>], test: TestKind) -> Vec<String> {
    let first = |block: &BlockCells<'_>| block.columns().into_iter().find(|column| has(block, test, *column));
    let alike = distinct(blocks.iter().map(|block| first(block))).len() < 2;
    let title = |block: &&&BlockCells<'_>| match first(block).filter(|_| !alike) {
        Some(column) => format!("{}, {}", block.title(), column.label()),
        None => block.title(),
    };
    blocks.iter().map(title).collect()
}

fn has(block: &BlockCells<'_>, test: TestKind, column: ColumnKey) -> bool {
    block.records().any(|record| record.cell.kind() == test && record.cell.column() == column)
}

/// Strips the prefix that all titles share, e.g. to `TCP` and `UDP`, or `64 B` and `1 KiB`.
fn apart(titles: Vec<String>) -> Vec<String> {
    let parts: Vec<Vec<&str>> = titles.iter().map(|title| title.split(", ").collect()).collect();
    let shared =
        (0..).take_while(|at| parts.iter().all(|own| own.get(*at).is_some() && own.get(*at) == parts[0].get(*at)));
    let shared = shared.count();
    parts.iter().map(|own| own[shared..].join(", ")).collect()
}

fn of_row_and_test(one: &Effect<'_>, other: &Effect<'_>) -> bool {
    (one.record.cell.row, one.test, &one.block) == (other.record.cell.row, other.test, &other.block)
}

fn overlap(one: &TaxRecord, other: &TaxRecord) -> bool {
    one.low <= other.high && other.low <= one.high
}

fn size(effects: &[&Effect<'_>]) -> f64 {
    rank(effects.iter().map(|effect| effect.tax))
}

/// Sort key of a row: its largest shown cost. Rows without one are sorted after all others by their upper bound, so
/// shown costs get an offset larger than any bound.
pub(crate) fn rank<'a>(taxes: impl Iterator<Item = &'a TaxRecord>) -> f64 {
    let of = |tax: &TaxRecord| match tax.verdict {
        verdict if verdict.is_shown() => 1e3 + tax.of.cost_ratio(tax.ratio),
        _ => most(tax).min(1e2),
    };
    taxes.map(of).fold(f64::MIN, f64::max)
}

/// Returns true if the answer would repeat in most of its lines that a difference is not significant after Holm.
fn unconfirmed_in_most(all: &[Effect<'_>]) -> bool {
    let first = || all.iter().filter(|effect| effect.first);
    let rows = |wanted: &dyn Fn(&&Effect<'_>) -> bool| {
        distinct(first().filter(wanted).map(|effect| effect.record.cell.row)).len()
    };
    // Of many figures, only the range of those that are significant is reported.
    let alike = |one: &Effect<'_>| {
        first().filter(|other| (other.record.cell.row, other.test) == (one.record.cell.row, one.test)).count()
    };
    let is_unconfirmed = |effect: &&Effect<'_>| effect.tax.verdict == Verdict::NotConfirmed && alike(effect) <= EACH;
    // Quiet and noisy rows share a line.
    let told = rows(&|effect| !is_quiet(effect) && !is_noisy(effect));
    first().filter(is_unconfirmed).count() > 1 && 2 * rows(&is_unconfirmed) > told
}

fn is_quiet(effect: &&Effect<'_>) -> bool {
    effect.tax.verdict == Verdict::NoneLarger
}

fn is_noisy(effect: &&Effect<'_>) -> bool {
    effect.tax.verdict == Verdict::TooNoisy
}

/// Returns e.g. `RTT +27 % [+25, +29] (TCP), +37 % [+36, +38] (UDP); bandwidth …`.
fn of_row(effects: &[&Effect<'_>], unconfirmed: &str) -> String {
    let tests = distinct(effects.iter().map(|effect| effect.test));
    let of_test = |test: TestKind| {
        let mine: Vec<&&Effect<'_>> = effects.iter().filter(|effect| effect.test == test).collect();
        let figures = if mine.len() > EACH { range(&mine) } else { each(&mine, unconfirmed) };
        format!("{} {figures}", quantity(test))
    };
    tests.into_iter().map(of_test).collect::<Vec<_>>().join("; ")
}

/// Returns e.g. `+27 % [+25, +29] (TCP), +37 % [+36, +38] (UDP)`; a text that applies to several blocks appears once.
fn each(effects: &[&&Effect<'_>], unconfirmed: &str) -> String {
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for effect in effects {
        let text = said_with(effect.tax, unconfirmed);
        match told.iter_mut().find(|(known, _)| *known == text) {
            Some((_, blocks)) => blocks.push(&effect.named),
            None => told.push((text, vec![&effect.named])),
        }
    }
    let named = |(text, blocks): (String, Vec<&str>)| {
        // The name of a disk test contains commas.
        let between = if blocks.iter().any(|block| block.contains(", ")) { "; " } else { ", " };
        match blocks.join(between) {
            blocks if blocks.is_empty() => text,
            blocks => format!("{text} ({blocks})"),
        }
    };
    told.into_iter().map(named).collect::<Vec<_>>().join(", ")
}

/// Returns e.g. `from +2.1 % to +106 % (10 sizes), 2 of 10 not shown`.
fn range(effects: &[&&Effect<'_>]) -> String {
    let shown: Vec<f64> =
        effects.iter().filter(|effect| effect.tax.verdict.is_shown()).map(|effect| effect.tax.ratio).collect();
    let least = shown.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = shown.iter().copied().fold(0.0, f64::max);
    let (all, missing) = (effects.len(), effects.len() - shown.len());
    match (shown.len(), missing) {
        (0, _) => format!("no difference shown in any of {all} cases"),
        (_, 0) => format!("from {} to {} in {all} cases", brief_change(least), brief_change(largest)),
        (some, _) => {
            format!(
                "from {} to {} in {some} of {all} cases, no difference shown in the others",
                brief_change(least),
                brief_change(largest)
            )
        }
    }
}

/// Returns e.g. `+27 % [+25, +29]`, or the words for a difference that is not shown.
pub(crate) fn said(tax: &TaxRecord) -> String {
    said_with(tax, UNCONFIRMED)
}

/// As [`said`]; `unconfirmed` follows the figures of a difference that is not significant after Holm.
fn said_with(tax: &TaxRecord, unconfirmed: &str) -> String {
    let figures = || figures(tax);
    let noise = if tax.within_floor { ", within noise" } else { "" };
    match tax.verdict {
        Verdict::Slower | Verdict::Faster => format!("{}{noise}", figures()),
        Verdict::NotConfirmed => figures() + unconfirmed,
        Verdict::NoneLarger => format!("≤ {} worse", at_most(tax)),
        Verdict::NoneShown => "no difference shown".into(),
        Verdict::TooNoisy => "too noisy to tell".into(),
    }
}

/// Returns e.g. `+27 % [+25, +29]`, whatever the verdict.
pub(crate) fn figures(tax: &TaxRecord) -> String {
    format!("{} {}", brief_change(tax.ratio), brief_interval(tax.low, tax.high))
}

/// Returns e.g. `shared-ip, macvlan: no difference shown (RTT ≤ 0.6 % worse, bandwidth ≤ 4.2 % worse)`.
fn of_quiet(rows: &[(Row, Vec<&Effect<'_>>)]) -> Option<String> {
    let names = words::list(rows.iter().map(|(row, _)| row.to_string()), ", ")?;
    let all = || rows.iter().flat_map(|(_, effects)| effects);
    let of_test = |test: TestKind| {
        let largest = all().filter(|effect| effect.test == test).map(|effect| most(effect.tax)).fold(0.0, f64::max);
        format!("{1} ≤ {0} worse", bound(largest), quantity(test))
    };
    let tests = distinct(all().map(|effect| effect.test)).into_iter().map(of_test);
    Some(format!("{names}: no difference shown ({})", tests.collect::<Vec<_>>().join(", ")))
}

/// Name of a quantity within a sentence, e.g. `RTT` or `bandwidth`.
pub(crate) fn quantity(test: TestKind) -> String {
    let name = test.quantity().short;
    if name.chars().all(char::is_uppercase) { name.to_owned() } else { name.to_lowercase() }
}

/// Returns a figure with the head of its column, e.g. `12.3 trans/s` or `measured dirty rate 86.0 MB/s`.
fn with_head(mean: f64, head: &str) -> String {
    let mean = three_digits(mean);
    match head.split_once(" (").and_then(|(name, unit)| Some((name, unit.strip_suffix(')')?))) {
        Some((name, unit)) => format!("{name} {mean} {unit}"),
        None => format!("{mean} {head}"),
    }
}

/// Returns the measured levels where there is nothing to compare them with.
fn levels(document: &ResultDocument) -> Vec<SectionPart> {
    let level = |record: &CellRecord| {
        let estimate = primary(record)?;
        let ends = estimate.low.zip(estimate.high).map(<[f64; 2]>::from);
        let test = record.cell.kind();
        let p99 = record.summary.as_ref().and_then(SummaryRecord::times).map(|times| times.p99.value);
        let p99 = p99.map_or(String::new(), |p99| format!(", p99 {}", sized(p99, FigureUnit::Microseconds)));
        let figure = sized_estimate(estimate.mean, ends, Metric::of(test).figure(test).unit());
        let beside = Metric::of(test)
            .beside()
            .and_then(|(figure, head)| Some((record.summary.as_ref()?.estimate(figure)?, head)));
        let beside = beside.map_or(String::new(), |(estimate, head)| format!(", {}", with_head(estimate.mean, head)));
        let suspended = if test == TestKind::Migration { "suspended for " } else { "" };
        Some(format!("{}: {suspended}{figure}{p99}{beside}", labels::name(document, &record.cell)))
    };
    let lines: Vec<String> = document.cells.iter().filter_map(level).take(LEVELS + 1).collect();
    if lines.is_empty() || lines.len() > LEVELS { Vec::new() } else { vec![SectionPart::bullets(lines)] }
}
