//! Studies: a question with a matrix, a sampling plan and a baseline.
//!
//! A study is a TOML file; the classic ones are built in, in the same form (`data/studies/`).

mod disk_row;
mod disks;
mod matrix;
mod migration_row;
mod migrations;
mod network;
mod nic_label;
mod pods;
mod reader;
mod row;
mod sampling_plan;
mod step;
mod subject;
mod sweep;

pub use sweep::SweepPoint;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

pub use disk_row::{DiskLabel, DiskRow};
pub use disks::{RowDisks, StudyDisks};
pub use matrix::{MatrixPoint, NetMatrix};
pub use migration_row::{MigrationWay, MigrationWayError};
pub use migrations::{MigratedDomain, StudyMigrations};
pub use network::StudyNetwork;
pub use nic_label::{BadNicLabel, NicLabel};
pub use pods::{PodPath, StudyPods};
pub use row::{GuestPath, IpType, Queueing, Row, UnknownRow};
pub use sampling_plan::{SamplingPlan, SamplingPlanError, Slices};
pub use step::{BadStepName, StepName, StepRecord, TuningStep};
pub use subject::StudySubject;

use crate::{
    cell::{Cell, CellTest, Instrument, MigrationCell},
    foreign::ForeignText,
    guest::{Attach, GuestDefaults},
    located::{FileError, Source},
    method::DomainKind,
    topology::Name,
};

/// A study: its question and its sampling plan.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name; names the lab and the published figures too.
    pub id: Name,
    /// One line.
    pub title: ForeignText,
    /// The question that the study asks, in the words of its author.
    pub question: ForeignText,
    /// Rows of the tables, in order.
    pub rows: Vec<Row>,
    /// The row that the others are compared with.
    pub baseline: Row,
    /// The network, the disks or the migrations that it measures.
    #[serde(flatten)]
    pub subject: StudySubject,
    /// Defaults of its rows' guests.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub guest: GuestDefaults,
    /// Changes of the rows named after steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<TuningStep>,
    /// Every cell, row by row.
    pub cells: Vec<Cell>,
    /// The plan of the cells with host settings; the published one in a classic study.
    pub plan: SamplingPlan,
    /// The plan of `--quick` in place of `plan`.
    pub quick: SamplingPlan,
    /// The plan of the cells under controlled conditions, if the study has such cells.
    pub path: Option<SamplingPlan>,
    /// The plan of `--quick` in place of `path`.
    pub quick_path: Option<SamplingPlan>,
    /// Measurement mode that answers the question; by default controlled conditions, where they are measured.
    pub answer: Option<Instrument>,
    /// The part of the matrix measured by `--quick`, if not all.
    pub quick_matrix: Option<QuickMatrix>,
}

/// The part of a matrix that `--quick` measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuickMatrix {
    /// Rows to keep, the baseline among them; all of the study's unless the file names some.
    pub rows: Vec<Row>,
    /// Disk tests with these numbers of threads.
    pub threads: Vec<u32>,
    /// Guests that migrate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub migrations: Vec<MigrationCell>,
}

impl QuickMatrix {
    fn has(&self, cell: &Cell) -> bool {
        match &cell.test {
            CellTest::Disk(disk) => self.threads.contains(&disk.disk.jobs.get()),
            CellTest::Migration(migration) => self.migrations.contains(migration),
            CellTest::Net(_) => true,
        }
    }
}

impl Study {
    /// Returns true if some of its rows measure disks in guests.
    pub fn has_guests_disks(&self) -> bool {
        self.rows.iter().any(|row| matches!(row, Row::Disk(DiskRow::Guest(_))))
    }

    /// Returns a network study with defaults for everything else. The first row is the baseline, and `--quick` has the
    /// same plan.
    pub fn plain(id: Name, title: ForeignText, rows: Vec<Row>, cells: Vec<Cell>, plan: SamplingPlan) -> Study {
        Study {
            id,
            title,
            question: ForeignText::default(),
            baseline: rows.first().copied().unwrap_or(Row::AsIs),
            rows,
            subject: StudySubject::Network(StudyNetwork::default()),
            guest: GuestDefaults::default(),
            steps: Vec::new(),
            cells,
            plan,
            quick: plan,
            path: None,
            quick_path: None,
            answer: None,
            quick_matrix: None,
        }
    }

    /// Returns the mode that answers the study's question, among those of its cells.
    pub fn answering(&self) -> Instrument {
        let measured = |instrument: &Instrument| self.cells.iter().any(|cell| cell.instrument == *instrument);
        let chosen = self.answer.into_iter().chain(Instrument::ALL);
        { chosen }.find(measured).unwrap_or_default()
    }

    /// Returns the plan of the cells of a mode, short with `--quick`; none if the study has no such cells, or `--quick`
    /// omits them: controlled conditions, if they do not answer the question and have no short plan.
    pub fn plan_of(&self, instrument: Instrument, quick: bool) -> Option<SamplingPlan> {
        let answers = self.answering() == Instrument::Path;
        match (instrument, quick) {
            (Instrument::System, false) => Some(self.plan),
            (Instrument::System, true) => Some(self.quick),
            (Instrument::Path, false) => self.path,
            (Instrument::Path, true) => self.quick_path.or(self.path.filter(|_| answers)),
        }
    }

    /// The built-in studies, by name and text.
    pub const BUILT_IN: [(&'static str, &'static str); 9] = [
        ("demo", include_str!("../data/studies/demo.toml")),
        ("containers", include_str!("../data/studies/containers.toml")),
        ("pods", include_str!("../data/studies/pods.toml")),
        ("sparc-t7-1", include_str!("../data/studies/sparc-t7-1.toml")),
        ("ip-instances", include_str!("../data/studies/ip-instances.toml")),
        ("ovm3-tuning", include_str!("../data/studies/ovm3-tuning.toml")),
        ("vdisk", include_str!("../data/studies/vdisk.toml")),
        ("vmdq", include_str!("../data/studies/vmdq.toml")),
        ("migration", include_str!("../data/studies/migration.toml")),
    ];
    /// Maximum number of pairs: more clients are more processes than a host can start at once, and no source has as
    /// many.
    pub const MOST_PAIRS: u32 = 64;
    /// Maximum number of cells: two samples of each, one second long, take a working day. A few lists in a file
    /// multiply to far more.
    pub const MOST_CELLS: usize = 10_000;

    /// Returns the built-in study of this name; `None` if there is none.
    pub fn built_in(id: &str) -> Option<Study> {
        let (name, text) = Study::BUILT_IN.into_iter().find(|(name, _)| *name == id)?;
        let study = Study::parse(Source { name, text });
        Some(study.expect("a test reads every built-in study"))
    }

    /// Omits the parts that `--quick` doesn't measure; rows only if none were chosen.
    pub fn shorten(&mut self, rows_are_chosen: bool) {
        let Some(quick) = self.quick_matrix.take() else { return };
        self.cells.retain(|cell| quick.has(cell) && (rows_are_chosen || quick.rows.contains(&cell.row)));
        self.rows.retain(|row| rows_are_chosen || quick.rows.contains(row));
    }

    /// Returns the row to compare a row with: for a tuned path the same path untuned, otherwise the baseline.
    pub fn compared_with(&self, row: Row) -> Row {
        row.reference(self.baseline)
    }

    /// Returns the NIC of a row's guests; none if the row has no guests.
    pub fn attach(&self, row: Row) -> Option<Attach> {
        let either = row.method().is_some_and(|method| method.domains().contains(&DomainKind::Zone));
        let of_guests = self.network().is_none_or(|network| network.domains == DomainKind::Guest);
        self.guest.attach(row).filter(|_| of_guests || !either)
    }

    /// Reads a study file.
    pub fn parse(source: Source<'_>) -> Result<Study, FileError> {
        reader::read(source)
    }
}

/// Returns true if a text is a lab file rather than a study.
pub fn is_lab_file(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("lab") || table.contains_key("host"))
}

#[cfg(test)]
pub(crate) mod tests;
