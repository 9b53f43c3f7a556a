//! View of a run in progress: how many samples of each row are stored, and the interim results. Percentiles are omitted
//! because they take long to compute, and the machine is measuring.

use vtax_model::{
    analysis::analyse_readings,
    cell::{Block, Cell},
    foreign::ForeignText,
    metric::{Metric, SampleFigure},
    result::{CellRecord, ResultDocument},
    run::{RunProgress, RunReadings, SampleReading},
};

use super::{
    blocks::{BlockCells, Reported, distinct, rows_head},
    column_unit::{ColumnUnit, sized},
    labels,
    number::{counted, grouped, three_digits, waiting},
    tax::finding,
    view::{Column, Group, JudgedChange, Section, SectionPart, Table, TableRow, Value, View},
    words,
};

const REMARK: &str = "Interim taxes with their 95 % intervals. Wait for the end of the run before drawing conclusions: \
                      stopping early because a figure looks good inflates false positives.";

pub fn under_way(run: &RunReadings, progress: &RunProgress) -> View {
    let document = analyse_readings(run);
    let newest = run.samples.last().and_then(|sample| Some((run.header.study.cells.get(sample.cell)?, sample)));
    let next = progress.next.as_ref().map(|next| format!("Now: {next}."));
    let newest = newest.map(|(cell, sample)| last(&document, cell, sample));
    let said = words::joined([Some(how_far(run, progress)), newest, next].into_iter().flatten(), " ");
    let compares = document.cells.iter().any(|record| !record.taxes.is_empty());
    let remark = compares.then(|| SectionPart::Paragraph(REMARK.to_owned()));
    let so_far = SoFar { run, report: Reported::of(&document) };
    let parts = std::iter::once(SectionPart::Table(so_far.table())).chain(remark);
    View {
        title: document.heading(),
        answer: Some(Section::of("", vec![SectionPart::Paragraph(said)])),
        sections: vec![Section::of("", parts.collect())],
        ..View::default()
    }
    .with_caveat(document.caveat.as_ref().map(ForeignText::to_string).as_deref())
}

fn how_far(run: &RunReadings, RunProgress { done, total, round, left, .. }: &RunProgress) -> String {
    let taken = format!("{} of {} samples", grouped(*done as u64), grouped(*total as u64));
    let failed = run.failures.len() as u32;
    let failed = (failed > 0).then(|| format!("{} failed", counted(failed, "sample")));
    let left = left.map(|left| format!("about {} left", waiting(left.as_secs_f64())));
    let round = Some(format!("round {round} of {}", run.header.rounds()));
    words::joined([Some(taken), round, failed, left].into_iter().flatten(), ", ") + "."
}

/// Figure of the newest sample.
fn last(document: &ResultDocument, cell: &Cell, sample: &SampleReading) -> String {
    let test = cell.kind();
    let of = Metric::of(test);
    let rate = if test.is_transactions() {
        format!(", {}/s", three_digits(sample.value(SampleFigure::Rate)))
    } else {
        String::new()
    };
    let value = sized(sample.metric(of, test), of.figure(test).unit());
    format!("Last: {}: {value}{rate}.", labels::name(document, cell))
}

struct SoFar<'a> {
    run: &'a RunReadings,
    report: Reported<'a>,
}

impl SoFar<'_> {
    /// Table with rows down; across, the number of the row's samples, then figure and tax of each block, those of the
    /// mode that answers the question first.
    fn table(&self) -> Table {
        let records = || self.report.document.cells.iter().filter(|record| !record.is_unavailable());
        let instruments = self.report.document.instruments();
        let rank = |block: &Block| instruments.iter().position(|instrument| *instrument == block.instrument);
        let mut blocks = distinct(records().map(|record| record.cell.block()));
        blocks.sort_by_key(rank);
        let rows = distinct(records().map(|record| record.cell.row));
        let line = |row| {
            let mine: Vec<&CellRecord> = records().filter(|record| record.cell.row == row).collect();
            let of_block = |block: &Block| mine.iter().copied().find(|record| record.cell.block() == *block);
            let figures = blocks.iter().flat_map(|block| self.figures(of_block(block), *block));
            TableRow::new(vec![row.to_string()], self.taken(&mine).into_iter().chain(figures))
        };
        let group = |block: &Block| {
            let heads = [Column::right(self.unit(*block).text()), Column::left("tax")];
            let columns = heads.into_iter().take(if self.is_compared(*block) { 2 } else { 1 }).collect();
            Group { title: self.title(*block, instruments.len() > 1), columns }
        };
        let samples = Group::untitled([Column::right("samples"), Column::left("")]);
        Table {
            caption: "So far".into(),
            labels: vec![rows_head(&rows).into()],
            groups: std::iter::once(samples).chain(blocks.iter().map(group)).collect(),
            rows: rows.iter().map(|row| line(*row)).collect(),
            ..Table::default()
        }
    }

    /// Returns e.g. `RTT, TCP, MTU 1500, host settings`: MTU and mode where there are several.
    fn title(&self, block: Block, instruments: bool) -> String {
        let cells = self.report.blocks.iter().find(|cells| cells.is_of(&block));
        let columns = distinct(self.report.document.cells.iter().map(|record| record.cell.column())).len() > 1;
        let parts = [
            Some(block.kind().quantity().short.to_owned()),
            cells.map(BlockCells::title),
            columns.then(|| block.test.column().label()),
            instruments.then(|| words::of_instrument(block.instrument).to_owned()),
        ];
        words::joined(parts.into_iter().flatten(), ", ")
    }

    /// Returns `true` if anything of the block is compared with the baseline.
    fn is_compared(&self, block: Block) -> bool {
        let others = self.report.document.cells.iter().filter(|record| record.cell.block() == block);
        others.map(|record| record.cell.row).any(|row| row != self.report.document.baseline)
    }

    /// Number of samples of a row, in figures and as a bar.
    fn taken(&self, records: &[&CellRecord]) -> Vec<Value> {
        let header = &self.run.header;
        let taken: usize = records.iter().map(|record| record.samples.len()).sum();
        // The baseline is measured twice in each round.
        let twice = |record: &CellRecord| if record.cell.row == self.report.document.baseline { 2 } else { 1 };
        let planned = |record: &&CellRecord| header.rounds_of(record.cell.instrument) as usize * twice(record);
        let total: usize = records.iter().map(planned).sum();
        vec![format!("{taken}/{total}").into(), Value::Bar(taken as f64 / total.max(1) as f64)]
    }

    /// Unit of the levels of a block.
    fn unit(&self, block: Block) -> ColumnUnit {
        let records = self.report.document.cells.iter().filter(|record| record.cell.block() == block);
        ColumnUnit::of_metric(Metric::of(block.kind()), block.kind(), records.filter_map(level))
    }

    fn figures(&self, record: Option<&CellRecord>, block: Block) -> Vec<Value> {
        let of = Metric::of(block.kind());
        let tax = record
            .and_then(|record| record.tax_of(of))
            .map(|tax| JudgedChange { words: String::new(), ..finding(tax) });
        let is_baseline = record.is_some_and(|record| record.cell.row == self.report.document.baseline);
        let none = if is_baseline { Value::from("") } else { Value::Absent };
        let level = self.unit(block).optional(record.and_then(level));
        let figures = [level, tax.map_or(none, Value::Judged)];
        figures.into_iter().take(if self.is_compared(block) { 2 } else { 1 }).collect()
    }
}

/// Mean over the samples so far.
fn level(record: &CellRecord) -> Option<f64> {
    let test = record.cell.kind();
    let values: Vec<f64> = record.samples.iter().map(|sample| sample.metric(Metric::of(test), test)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use std::time::Duration;
    use vtax_model::run::{Failure, Run, RunState};

    /// Returns the first rounds of a run of the demo.
    fn begun(rounds: u32) -> RunReadings {
        let run = vtax_synthetic::killed_after(vtax_synthetic::built_in("demo"), rounds);
        let samples = run.samples.iter().map(SampleReading::of).collect();
        let Run { header, failures, wall_seconds, .. } = run;
        Run { header, state: RunState::Running, wall_seconds, samples, failures }
    }

    fn drawn(run: &RunReadings, progress: &RunProgress, width: usize) -> String {
        under_way(run, progress).draw(&Options { width, ..Options::default() }).plain()
    }

    #[test]
    fn a_run_that_continues_is_reported_from_its_first_sample() {
        let progress =
            RunProgress { total: 120, round: 1, next: Some("native TCP RR".into()), ..RunProgress::default() };
        let mut run = begun(1);
        run.samples.clear();
        insta::assert_snapshot!("no_sample_yet", drawn(&run, &progress, 100));
        let left = Some(Duration::from_secs(75));
        let progress = RunProgress { done: 48, round: 5, left, ..progress };
        let mut run = begun(5);
        run.fail(Failure { cell: 1, arm: vtax_model::cell::Arm::A, round: 6, error: "gone".into(), partial: None });
        insta::assert_snapshot!("after_five_rounds", drawn(&run, &progress, 100));
        insta::assert_snapshot!("on_sixty_columns", drawn(&run, &progress, 60));
    }

    #[test]
    fn a_narrow_terminal_has_no_longer_lines() {
        for width in [60, 80, 100] {
            let text = drawn(&begun(5), &RunProgress::default(), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
    }
}
