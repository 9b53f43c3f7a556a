//! Tables of published figures, in the format of those of the built-in studies (docs/history.md).
//!
//! A table names the study of its figures, and the study defines the cells. A figure is a single value: each cell has
//! one sample whose count and time give this value.

use std::path::PathBuf;

use vtax_model::{
    cell::{Arm, Cell},
    foreign::ForeignText,
    located::Source,
    measurement::{EndReport, FileReport},
    published::{Published, PublishedFigure},
    run::{Environment, Run, RunState, Sample},
    study::Study,
};

use super::{ImportAs, ImportError, Imported, Imports, OutputPlace, joined, plan};

pub(super) const NAME: &str = "published figures";

/// Possible figures: from a nanosecond in µs, up to more than any wire in Mb/s.
const POSSIBLE: std::ops::RangeInclusive<f64> = 1e-3..=1e9;

/// Returns true if a line begins as in no other kind of file.
pub(super) fn is(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("testbed ") || line.starts_with("testbed="))
}

/// Returns a run for each machine of the table.
pub(super) fn imports(file: &PathBuf, text: &str, wanted: &ImportAs) -> Result<Imports, ImportError> {
    not_for_tables(wanted)?;
    let name = file.display().to_string();
    let published: Published = Source { name: &name, text }.parse()?;
    let refused =
        |why| ImportError::Refused { place: OutputPlace { file: file.clone(), line: None }, program: NAME, why };
    let study = study(&published, wanted).map_err(refused)?;
    let files = std::slice::from_ref(file);
    let run = |system| run(files, &published, &study, system, wanted).transpose();
    let runs: Vec<Run> = published.systems().iter().filter_map(run).collect::<Result<_, String>>().map_err(refused)?;
    if runs.is_empty() {
        return Err(refused(format!("none of its figures belongs to a cell of the study {}", study.id)));
    }
    let note = |row| format!("{}: the study {} has no cell for the figures of {row}", name, study.id);
    Ok(Imports { runs, notes: published.rows_without_cell(&study.cells).into_iter().map(note).collect() })
}

fn not_for_tables(wanted: &ImportAs) -> Result<(), ImportError> {
    let given =
        [("--method", wanted.row.is_some()), ("--mtu", wanted.mtu.is_some()), ("--size", wanted.size.is_some())];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(ImportError::Option { option, why: "a table of published figures contains this value" })
        }
        None => Ok(()),
    }
}

fn study(published: &Published, wanted: &ImportAs) -> Result<Study, String> {
    wanted.study.clone().or_else(|| Study::built_in(&published.id)).ok_or_else(|| {
        let known = Study::BUILT_IN.map(|(id, _)| id).join(", ");
        format!(
            "its id `{}` is not that of a built-in study ({known}): name the study with its rows and tests, e.g. \
             --study mine.toml",
            published.id
        )
    })
}

/// Returns the figures of one machine; None if none of them belongs to a cell.
fn run(
    files: &[PathBuf],
    published: &Published,
    study: &Study,
    system: &Option<ForeignText>,
    wanted: &ImportAs,
) -> Result<Option<Run>, String> {
    let mut study = Study { path: None, quick_path: None, ..study.clone() };
    let mut samples = Vec::new();
    let mut cells = Vec::new();
    for cell in &study.cells {
        let figure = published.figures(cell).into_iter().find(|figure| figure.system == *system);
        let (Some(figure), Some(net)) = (figure, cell.net()) else { continue };
        let figures = joined(net, &report(cell, &figure)?);
        samples.push(Sample { cell: cells.len(), arm: Arm::A, round: 1, at: String::new(), figures });
        cells.push(*cell);
    }
    if samples.is_empty() {
        return Ok(None);
    }
    let of_machine = system.as_ref().map(|system| format!(" ({system})")).unwrap_or_default();
    let title = format!("{}, {NAME}{of_machine}", published.title).into();
    study.rows.retain(|row| cells.iter().any(|cell| cell.row == *row));
    if let Some(network) = study.network_mut() {
        network.extra.clear();
    }
    let plan = plan(1, 0.0);
    let study = Study { id: "published".parse().expect("a name"), title, cells, plan, quick: plan, ..study };
    let imported = Imported {
        files,
        program: format!("the authors of \"{}\"", published.title),
        begun: None,
        study,
        environment: Environment { hostname: published.testbed.clone(), ..Environment::default() },
        label: wanted.label.clone(),
    };
    let (header, failures) = (imported.header(), Vec::new());
    Ok(Some(Run { header, state: RunState::Complete, wall_seconds: 0.0, samples, failures }))
}

/// Returns counts that give the figure exactly: of a million round trips, of a second of a stream, of a file.
fn report(cell: &Cell, figure: &PublishedFigure) -> Result<EndReport, String> {
    const ROUND_TRIPS: u64 = 1_000_000;
    let value = figure.value;
    if !POSSIBLE.contains(&value) {
        return Err(format!("{value} is not a possible figure of {} {}", cell.row, cell.kind()));
    }
    Ok(match cell.net().and_then(|net| net.workload.file()) {
        Some(size) => {
            let times = figure.user.zip(figure.sys).filter(|(user, sys)| *user >= 0.0 && *sys >= 0.0);
            let (user, sys) = times.ok_or_else(|| format!("the file of {} has no times `user` and `sys`", cell.row))?;
            let file = Some(FileReport { real: value, user, sys, ..FileReport::default() });
            EndReport { seconds: value, bytes: size.0, file, ..EndReport::default() }
        }
        None if cell.kind().is_transactions() => {
            EndReport { seconds: value, transactions: ROUND_TRIPS, ..EndReport::default() }
        }
        None => EndReport { seconds: 1.0, bytes: (value * 1e6 / 8.0).round() as u64, ..EndReport::default() },
    })
}
