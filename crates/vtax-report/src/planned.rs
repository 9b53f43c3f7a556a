//! View of a run before it begins: the planned measurements, their order and their duration.

use vtax_model::{
    analysis::analyse_readings,
    cell::{Cell, Instrument, Turn},
    result::ResultDocument,
    run::{RunHeader, RunReadings, UnavailableRow},
    study::Row,
};

use super::{
    blocks::distinct,
    heading,
    labels::Labels,
    modes,
    number::{counted, grouped},
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value, View},
    words,
};

/// Returns the view of a run without samples. `told` are the sentences with which the run begins; `lab` describes the
/// lab that it would build, if any.
pub fn planned(run: &RunReadings, told: &[String], lab: Option<String>) -> View {
    let (header, document) = (&run.header, analyse_readings(run));
    let said = std::iter::once("Dry run: nothing was built, measured or saved.".to_owned()).chain(told.iter().cloned());
    let mut facts = vec![
        ("cells", cells(header)),
        ("sampling", heading::plan(&document)),
        ("baseline", header.study.baseline.to_string()),
        ("endpoints", ends(&document, header)),
        ("lab", lab.unwrap_or_default()),
        ("order", order(header)),
    ];
    facts.retain(|(_, text)| !text.is_empty());
    View {
        title: document.heading(),
        answer: Some(Section::of("", said.map(SectionPart::Paragraph).collect())),
        facts,
        sections: first_round(&document, header).into_iter().chain(lacking(&header.unavailable)).collect(),
        ..View::default()
    }
}

fn cells(header: &RunHeader) -> String {
    let (rows, all) = (distinct(header.study.cells.iter().map(|cell| cell.row)).len(), header.study.cells.len());
    let samples: usize = (1..=header.rounds()).map(|round| header.turns(round).len()).sum();
    let lacking = |cell: &&Cell| header.unavailable.iter().any(|row| row.method == cell.row);
    let lacking = match header.study.cells.iter().filter(lacking).count() {
        0 => String::new(),
        lacking => format!(", {lacking} of them unavailable"),
    };
    format!(
        "{all} in {rows} rows{lacking}; {} samples in all rounds, including two per round of the baseline",
        grouped(samples as u64)
    )
}

/// Named endpoints are contacted only when a run begins.
fn ends(document: &ResultDocument, header: &RunHeader) -> String {
    match header.study.endpoints().len() {
        0 => heading::ends(document),
        1.. => {
            let ends = distinct(header.study.endpoints().iter().map(|endpoint| endpoint.control.to_string()));
            format!("existing endpoints, not contacted yet: {}", ends.join(", "))
        }
    }
}

fn order(header: &RunHeader) -> String {
    format!("random in each round; --seed {} repeats all of them", header.seed)
}

/// Cells in the order of the first round, which has all of them: a table for each measurement mode, with the position
/// of each block in the round.
fn first_round(document: &ResultDocument, header: &RunHeader) -> Vec<Section> {
    let cells = &header.study.cells;
    let turns = header.turns(1);
    let blocks = turns.chunk_by(|one, other| cells[one.cell].block() == cells[other.cell].block());
    let lines: Vec<Line> = (1..).zip(blocks).filter_map(|(place, turns)| Line::of(header, place, turns)).collect();
    let instruments = Instrument::ALL.map(|instrument| {
        let mine: Vec<&Line> = lines.iter().filter(|line| line.lead.instrument == instrument).collect();
        let rounds = counted(header.rounds_of(instrument), "round");
        let order = SectionPart::Paragraph(format!("Order of the first of {rounds}:"));
        let section = || Section::of(modes::title(document, instrument), vec![order, SectionPart::Table(table(&mine))]);
        (!mine.is_empty()).then(section)
    });
    instruments.into_iter().flatten().collect()
}

/// Block of the first round.
struct Line {
    place: usize,
    /// Cell of the baseline, or the first one.
    lead: Cell,
    rows: Vec<Row>,
}

impl Line {
    fn of(header: &RunHeader, place: usize, turns: &[Turn]) -> Option<Line> {
        let cells = || turns.iter().map(|turn| &header.study.cells[turn.cell]);
        let mut lead = *cells().min_by_key(|cell| cell.row != header.study.baseline)?;
        // The title of the table names it already.
        if let Some(net) = lead.net_mut() {
            net.options.socket.congestion = None;
        }
        Some(Line { place, lead, rows: cells().map(|cell| cell.row).collect() })
    }
}

fn table(lines: &[&Line]) -> Table {
    let labels = Labels::of(&lines.iter().map(|line| &line.lead).collect::<Vec<_>>());
    let row = |line: &&Line| {
        let rows = words::joined(line.rows.iter().map(Row::to_string), ", ");
        let labels = std::iter::once(line.place.to_string()).chain(labels.line(&line.lead)).collect();
        TableRow::new(labels, [Value::Text(rows)])
    };
    Table {
        labels: std::iter::once("no.".to_owned()).chain(labels.heads()).collect(),
        groups: vec![Group::untitled([Column::wrapped("rows")])],
        rows: lines.iter().map(row).collect(),
        ..Table::default()
    }
}

fn lacking(rows: &[UnavailableRow]) -> Option<Section> {
    let line =
        |UnavailableRow { method, unsupported }: &UnavailableRow| (format!("{method}:"), unsupported.to_string());
    let lines: Vec<(String, String)> = rows.iter().map(line).collect();
    (!lines.is_empty()).then(|| Section::of("Unavailable rows", vec![SectionPart::List(lines)]))
}
