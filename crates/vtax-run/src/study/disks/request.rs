//! `vtax measure --disk` as a study: its rows are disks, its matrix is the tests.

use miette::{bail, miette};
use serde::{Deserialize, Serialize};
use vtax_model::{
    cell::{Cell, CellTest, DiskCell, Instrument},
    disk::{DiskPlace, DiskSet, DiskTest, TargetCount},
    study::{DiskLabel, DiskRow, Row, RowDisks, SamplingPlan, Study, StudyDisks, StudySubject},
};

use crate::{
    stop::{Blamed, Stop},
    study::{
        chosen_rounds::ChosenRounds,
        measure::rounds_for,
        options::{ChangedStudy, blaming},
    },
};

/// Disks to measure, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiskRequest {
    /// The rows. The first is the baseline.
    pub rows: Vec<DiskSet>,
    /// Tests, in order; the plan has their times.
    pub tests: Vec<DiskTest>,
    /// Number and order of the rounds.
    pub rounds: ChosenRounds,
    /// The plan without the number of samples.
    pub sampling: SamplingPlan,
    /// True if the contents of the disks may be lost.
    pub destroy_data: bool,
}

impl DiskRequest {
    pub(crate) fn wanted(&self) -> Result<ChangedStudy, Stop> {
        let study = self.study().or_input()?;
        Ok(ChangedStudy { plan: study.plan, path_plan: None, study, rounds: self.rounds })
    }

    fn study(&self) -> miette::Result<Study> {
        let targets = self.targets()?;
        let rows = self.row_disks()?;
        let cells: Vec<Cell> = { 0.. }
            .zip(&self.tests)
            .map(|(variant, test)| self.test(*test, targets).map(|test| (variant, test)))
            .collect::<miette::Result<Vec<(u32, DiskTest)>>>()?
            .into_iter()
            .flat_map(|(variant, disk)| rows.iter().map(move |row| cell(row.row, variant, disk)))
            .collect();
        let comparisons = cells.len() - self.tests.len();
        let samples = self.rounds.samples.unwrap_or_else(|| rounds_for(comparisons));
        let plan = SamplingPlan { samples, ..self.sampling };
        plan.check().map_err(blaming)?;
        let names = rows.iter().map(|row| row.row).collect();
        let study = Study::plain("measure".parse().expect("a name"), self.title().into(), names, cells, plan);
        let disks = StudyDisks { rows, destroy_data: self.destroy_data, ..StudyDisks::default() };
        Ok(Study { subject: StudySubject::Disks(disks), ..study })
    }

    /// Returns the number of disks in each row.
    fn targets(&self) -> miette::Result<TargetCount> {
        let Some((first, others)) = self.rows.split_first() else {
            bail!(code = "bad-disk-name", "no disk named; name one, e.g. --disk /dev/vdb");
        };
        if let Some(other) = others.iter().find(|other| other.0.len() != first.0.len()) {
            bail!(
                code = "bad-disk-name",
                "--disk {first} has {} disks and --disk {other} has {}: rows are compared, so each needs the same \
                 number",
                first.0.len(),
                other.0.len()
            );
        }
        let count = u32::try_from(first.0.len()).unwrap_or(u32::MAX);
        TargetCount::try_from(count).map_err(|error| miette::Report::new(error).wrap_err("--disk"))
    }

    fn test(&self, test: DiskTest, targets: TargetCount) -> miette::Result<DiskTest> {
        let usual = DiskTest::default();
        if (test.duration, test.ramp) != (usual.duration, usual.ramp) {
            bail!(
                code = "bad-disk-test",
                "--disk-test {test}: all tests of a run have the same duration; omit duration and ramp, and use \
                 --duration and \
                 --warmup"
            );
        }
        if test.targets != TargetCount::ONE && test.targets != targets {
            let given = targets.get();
            bail!(code = "bad-disk-test", "--disk-test {test}: {given} disks are named; omit targets");
        }
        Ok(DiskTest { targets, ..test })
    }

    fn row_disks(&self) -> miette::Result<Vec<RowDisks>> {
        let mut rows: Vec<RowDisks> = Vec::new();
        for disks in &self.rows {
            let row = Row::Disk(DiskRow::Named(DiskLabel::of(&label(disks))));
            if let Some(other) = rows.iter().find(|other| other.row == row) {
                return Err(match other.disks == *disks {
                    true => miette!(code = "named-twice", "--disk {disks} appears twice; name each disk once"),
                    false => miette!(
                        code = "bad-disk-name",
                        "--disk {} and --disk {disks} would both be called {row}; name one by a symbolic link",
                        other.disks
                    ),
                });
            }
            rows.push(RowDisks { row, disks: disks.clone() });
        }
        Ok(rows)
    }

    fn title(&self) -> String {
        let tests = match &self.tests[..] {
            [test] => test.to_string(),
            tests => format!("{} tests", tests.len()),
        };
        let rows: Vec<String> = self.rows.iter().map(DiskSet::to_string).collect();
        format!("{tests} of {}", rows.join(" and "))
    }
}

fn cell(row: Row, variant: u32, disk: DiskTest) -> Cell {
    Cell { row, test: CellTest::Disk(DiskCell { disk }), variant, instrument: Instrument::default() }
}

/// Returns the label of a row: its first disk, and the number of others.
fn label(disks: &DiskSet) -> String {
    let name = match disks.0.first() {
        Some(DiskPlace::Here(path)) => path.to_string_lossy().into_owned(),
        Some(DiskPlace::Zone { zone, path, .. }) => format!("{zone}{}", path.display()),
        Some(DiskPlace::Domain { domain, disk, .. }) => format!("{domain}/{disk}"),
        None => String::new(),
    };
    let more = if disks.0.len() > 1 { format!("-and-{}", disks.0.len() - 1) } else { String::new() };
    format!("{}{more}", name.trim_start_matches("/dev/"))
}
