//! Trends in words and tables.

use vtax_stats::median;

use super::{CellTrend, RunTrend, TrendStep};
use crate::{
    Options,
    blocks::grouped,
    column_unit::ColumnUnit,
    heading::date,
    labels,
    number::{brief_interval, counted, percent},
    styled::StyledText,
    view::{Column, Group, JudgedChange, Section, SectionPart, Table, TableRow, Value, View},
    words,
};

/// Maximum number of cells in a sentence, and of lines in a list.
const NAMED: usize = 6;
const LINES: usize = 12;
/// Maximum number of characters of a sparkline in a table.
const LONGEST: usize = 16;

impl RunTrend {
    /// Renders the trend, ending in a line break.
    pub fn render(&self, options: &Options) -> StyledText {
        match options.format {
            crate::Format::Csv => self.csv().into(),
            crate::Format::Json => crate::json(self).into(),
            crate::Format::Table | crate::Format::Markdown => self.view().draw(options),
        }
    }

    pub(crate) fn view(&self) -> View {
        let (first, last) = (self.day(0), self.day(self.results.len().saturating_sub(1)));
        let days = if first == last { first } else { format!("{first} to {last}") };
        let results = counted(self.results.len() as u32, "complete result");
        let mut sections = self.tables();
        sections.extend(Section::bullets("Machine changes", self.machine_lines()));
        sections.extend(Section::bullets("Too few results", self.short_lines()));
        sections.push(reading());
        View {
            title: format!("{}: {days}", self.title),
            answer: self.answer(),
            warnings: self.warnings(),
            facts: vec![("study", format!("{}, {results}", self.study)), ("machine", self.machines_named())],
            sections,
        }
        .with_caveat(self.caveat.as_deref())
    }

    fn machines_named(&self) -> String {
        let named = |name: &String| if name.is_empty() { "not reported".to_owned() } else { name.clone() };
        self.machines.iter().map(named).collect::<Vec<_>>().join(", ")
    }

    fn day(&self, result: usize) -> String {
        self.results.get(result).map_or(String::new(), |run| date(&run.started).chars().take(10).collect())
    }

    /// Returns sentences for each position at which levels shifted, in chronological order.
    pub fn level_shifts(&self) -> Vec<String> {
        let steps = self.cells.iter().flat_map(|cell| cell.changes.iter().map(move |step| (cell, step)));
        let mut places = grouped(steps.map(|(cell, step)| ((step.first_after, step.last_before), (cell, step))));
        places.sort_by_key(|(place, _)| *place);
        places.iter().map(|((after, before), steps)| self.told(*before, *after, steps)).collect()
    }

    fn answer(&self) -> Option<Section> {
        let mut lines = self.level_shifts();
        let level = self.cells.iter().filter(|cell| cell.changes.is_empty()).count();
        let all = self.cells.len();
        lines.extend((level > 0).then(|| match level == all {
            true => format!(
                "No level shift shown: {} in {}.",
                counted(all as u32, "cell"),
                counted(self.results.len() as u32, "result")
            ),
            false => format!("No level shift shown in {level} of {all} cells."),
        }));
        Section::bullets("", lines)
    }

    fn told(&self, before: usize, after: usize, steps: &[(&CellTrend, &TrendStep)]) -> String {
        let mut steps = steps.to_vec();
        steps.sort_by(|(_, one), (_, other)| other.ratio.ln().abs().total_cmp(&one.ratio.ln().abs()));
        let more = steps.len().saturating_sub(NAMED);
        let named: Vec<String> = steps.iter().take(NAMED).map(|(cell, step)| change(cell, step)).collect();
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("From {} on {}{more}. {}", self.day(after), named.join("; "), self.cause(before, after))
    }

    /// Changes of the machine at the same position, or next to it: the position is accurate to about one result.
    fn cause(&self, before: usize, after: usize) -> String {
        let between = |first: usize, last: usize| {
            let mut known = self.machine_changes.iter().filter(|change| first < change.result && change.result <= last);
            known.next_back()
        };
        let pair = |first: usize, last: usize| format!("etween results {} and {}", first + 1, last + 1);
        let near = || {
            let [earlier, later] = [between(before.saturating_sub(1), before), between(after, after + 1)];
            earlier.or(later)
        };
        let place = format!("B{}", pair(before, after));
        match (between(before, after), near()) {
            (Some(change), _) => format!("{place}, this changed: {}.", change.told()),
            (None, Some(change)) => format!(
                "{place}, no known property of the machine changed, but b{} one did: {}.",
                pair(change.result - 1, change.result),
                change.told()
            ),
            (None, None) => format!("{place}, no known property of the machine changed."),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let caveat = self.caveat.iter().map(|caveat| format!("{}.", words::capital(caveat)));
        let doubtful: Vec<&CellTrend> = self.cells.iter().filter(|cell| cell.is_doubtful()).collect();
        let most = doubtful.iter().filter_map(|cell| cell.resemblance).fold(0.0, f64::max);
        let resembling = (!doubtful.is_empty()).then(|| {
            format!(
                "AUTOCORRELATED: in {} of {} cells, successive results are correlated (up to {most:.1}). More \
                 than one series in twenty then shows a level shift although nothing changed.",
                doubtful.len(),
                self.cells.len()
            )
        });
        let machines = (self.machines.len() > 1).then(|| {
            format!(
                "OTHER MACHINES: the results are of {} machines. A level shift may be a difference between machines.",
                self.machines.len()
            )
        });
        caveat.chain(resembling).chain(machines).collect()
    }

    /// A table for each test, since tests have different units.
    fn tables(&self) -> Vec<Section> {
        let key = |cell: &CellTrend| (cell.cell.instrument, cell.cell.medium(), cell.cell.kind());
        let several = self.cells.iter().any(|cell| cell.cell.instrument != self.cells[0].cell.instrument);
        let section = |((instrument, transport, test), cells): ((_, _, _), Vec<&CellTrend>)| {
            let by =
                if several { format!("{}, ", words::capital(words::of_instrument(instrument))) } else { String::new() };
            let unit = unit(&cells);
            let quantity = cells[0].of.quantity(cells[0].cell.kind(), unit.text());
            let columns = [
                Column::left("results"),
                Column::right("first"),
                Column::right("last"),
                Column::left("last shift [95 %], since"),
            ];
            let table = Table {
                labels: vec!["cell".into()],
                groups: vec![Group::untitled(columns)],
                rows: cells.into_iter().map(|cell| self.row(cell, labels::test(&cell.cell), unit)).collect(),
                ..Table::default()
            };
            Section::of(format!("{by}{transport} {test}: {quantity}"), vec![SectionPart::Table(table)])
        };
        grouped(self.cells.iter().map(|cell| (key(cell), cell))).into_iter().map(section).collect()
    }

    fn row(&self, cell: &CellTrend, test: String, unit: ColumnUnit) -> TableRow {
        let name = cell.name.replacen(&format!(", {test}"), "", 1);
        let values = cell.values();
        let starts = |step: &TrendStep| cell.figures.iter().position(|figure| figure.result == step.first_after);
        let first = cell.changes.first().and_then(starts).unwrap_or(values.len());
        let last = cell.changes.last().and_then(starts).unwrap_or(0);
        let figure = |value: f64| unit.figure(value);
        let change = cell.changes.last().map_or_else(
            || Value::Text("no shift shown".into()),
            |step| {
                let word = if step.verdict == vtax_stats::Verdict::Slower { "slower" } else { "faster" };
                Value::Judged(JudgedChange {
                    ratio: step.ratio,
                    ends: step.low.zip(step.high).map(<[f64; 2]>::from),
                    verdict: Some(step.verdict),
                    words: format!("{word} {}", self.day(step.first_after)),
                })
            },
        );
        let line = Value::Text(line(&values));
        TableRow::new(vec![name], [line, figure(median(&values[..first])), figure(median(&values[last..])), change])
    }

    fn machine_lines(&self) -> Vec<String> {
        let line = |change: &super::MachineChange| {
            format!("{}, before result {}: {}", self.day(change.result), change.result + 1, change.told())
        };
        let hidden = self.machine_changes.len().saturating_sub(LINES);
        let earlier = (hidden > 0).then(|| format!("{hidden} earlier changes: see --format json"));
        earlier.into_iter().chain(self.machine_changes.iter().skip(hidden).map(line)).collect()
    }

    fn short_lines(&self) -> Vec<String> {
        let line = |(name, results): &(String, usize)| {
            format!("{name}: {}, needs {}", counted(*results as u32, "result"), self.fewest)
        };
        self.too_few.iter().take(LINES).map(line).collect()
    }
}

/// Unit of cells with the same test.
pub(super) fn unit(cells: &[&CellTrend]) -> ColumnUnit {
    ColumnUnit::of_metric(cells[0].of, cells[0].cell.kind(), cells.iter().flat_map(|cell| cell.values()))
}

/// Returns e.g. `bridge TCP RR takes 12 % longer [+9, +15]`.
fn change(cell: &CellTrend, step: &TrendStep) -> String {
    let size = percent((step.ratio - 1.0).abs());
    let words = cell.of.changed(step.ratio, &size);
    let interval =
        step.low.zip(step.high).map_or(String::new(), |(low, high)| format!(" {}", brief_interval(low, high)));
    format!("{} {words}{interval}", cell.name.replacen(", ", " ", 1))
}

/// Sparkline from the lowest figure at the foot of a character to the highest at its top. In a long series each
/// character is the median of several results.
fn line(values: &[f64]) -> String {
    const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let several = values.len().div_ceil(LONGEST).max(1);
    let values: Vec<f64> = values.chunks(several).map(median).collect();
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let range = values.iter().copied().fold(f64::NEG_INFINITY, f64::max) - lowest;
    let share = |value: &f64| if range > 0.0 { (value - lowest) / range } else { 0.5 };
    values.iter().map(|value| SPARKS[((share(value) * 8.0) as usize).min(7)]).collect()
}

fn reading() -> Section {
    let text = "Result: one run, the median over its rounds. First, last: medians over the results of the first and of \
                the last level; the line spans the lowest to the highest result. Level shift: significant at 5 % for \
                all cells together (rank sums of segments, by permutations). Its position is accurate to about one \
                result. The interval takes the position as known, so it is slightly too far from zero where a shift is \
                just large enough to be shown. A shift must last about five results before it can be distinguished from \
                chance.";
    Section::of("Legend", vec![SectionPart::Paragraph(text.into())])
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_goes_from_the_lowest_to_the_highest() {
        assert_eq!(line(&[100.0, 101.0, 108.0]), "▁▂█");
        assert_eq!(line(&[5.0, 5.0]), "▅▅");
        assert_eq!(line(&(0..240).map(f64::from).collect::<Vec<_>>()).chars().count(), 16);
    }
}
