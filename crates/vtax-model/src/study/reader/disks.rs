//! Files of disk studies: their rows are ways to attach a disk, their tests are disk tests.

use serde::Deserialize;
use toml::Spanned;

use super::{check_baseline, check_new, distinct, row, sampling::sampling_plan};
use crate::{
    cell::{Cell, CellTest, DiskCell, Instrument},
    disk::{DiskTest, JobCount, TargetCount},
    guest::{GuestDefaults, GuestOptions},
    located::{FileError, Source},
    study::{QuickMatrix, Row, SamplingPlan, Study, StudyDisks, StudySubject},
    topology::Name,
    units::Span,
    workload::Warmup,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskStudyFile {
    id: Name,
    title: String,
    #[serde(default)]
    question: String,
    baseline: Spanned<String>,
    guest: Option<Spanned<GuestOptions>>,
    matrix: DiskMatrix,
    disk_test: Vec<DiskTestTable>,
    plan: DiskPlan,
    quick: Option<QuickDiskPlan>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskMatrix {
    methods: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskTestTable {
    test: Spanned<DiskTest>,
    /// Numbers of threads with which the test is run.
    threads: Option<Spanned<Vec<JobCount>>>,
    /// Numbers of disks on which the test is run.
    disks: Option<Spanned<Vec<TargetCount>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskPlan {
    samples: Spanned<u32>,
    duration: Spanned<Span>,
    warmup: Spanned<Warmup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickDiskPlan {
    samples: Spanned<u32>,
    duration: Spanned<Span>,
    warmup: Spanned<Warmup>,
    limit: Option<Span>,
    /// The only rows; all if absent.
    methods: Option<Vec<Spanned<String>>>,
    /// The only numbers of threads; all if absent.
    threads: Option<Spanned<Vec<JobCount>>>,
}

/// Returns true if a file is of a disk study.
pub(super) fn are_tested(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("disk_test"))
}

pub(super) fn read(source: Source<'_>) -> Result<Study, FileError> {
    DiskReader { source, file: source.parse()? }.read()
}

struct DiskReader<'a> {
    source: Source<'a>,
    file: DiskStudyFile,
}

impl DiskReader<'_> {
    fn read(self) -> Result<Study, FileError> {
        let rows = self.rows()?;
        let baseline = row(self.source, &self.file.baseline)?;
        check_baseline(self.source, &rows, baseline, &self.file.baseline)?;
        let DiskPlan { samples, duration, warmup } = &self.file.plan;
        let (cells, guest, plan) = (self.cells(&rows)?, self.guest()?, self.plan(samples, duration, warmup)?);
        let quick = match &self.file.quick {
            Some(QuickDiskPlan { samples, duration, warmup, limit, .. }) => {
                SamplingPlan { limit: *limit, ..self.plan(samples, duration, warmup)? }
            }
            None => plan,
        };
        let quick_matrix = self.quick_matrix(&rows, baseline, &cells)?;
        let study = Study::plain(self.file.id, self.file.title.into(), rows, cells, plan);
        let question = self.file.question.into();
        let subject = StudySubject::Disks(StudyDisks::default());
        Ok(Study { question, baseline, guest, subject, quick, quick_matrix, ..study })
    }

    fn rows(&self) -> Result<Vec<Row>, FileError> {
        let mut rows: Vec<Row> = Vec::new();
        for written in &self.file.matrix.methods {
            let row = row(self.source, written)?;
            check_new(self.source, &rows, row, written)?;
            if !matches!(row, Row::Disk(disk) if !disk.is_named()) {
                let message = format!("`{row}` does not attach a disk, and this study has disk tests; use two studies");
                return Err(self.source.coded("options-clash", &written.span(), message));
            }
            rows.push(row);
        }
        Ok(rows)
    }

    fn cells(&self, rows: &[Row]) -> Result<Vec<Cell>, FileError> {
        let mut cells = Vec::new();
        for (variant, table) in (0..).zip(&self.file.disk_test) {
            for test in self.tests(table)? {
                let cell = |row: &Row| Cell {
                    row: *row,
                    test: CellTest::Disk(DiskCell { disk: test }),
                    variant,
                    instrument: Instrument::System,
                };
                cells.extend(rows.iter().map(cell));
                if cells.len() > Study::MOST_CELLS {
                    let most = Study::MOST_CELLS;
                    let message = format!("the methods, tests, threads and disks multiply to more than {most} cells");
                    return Err(self.source.coded("out-of-range", &table.test.span(), message));
                }
            }
        }
        match cells.is_empty() {
            true => Err(self.source.coded("empty-matrix", &self.file.baseline.span(), "no [[disk_test]] found")),
            false => Ok(cells),
        }
    }

    /// Returns a test for each number of disks and of threads.
    fn tests(&self, table: &DiskTestTable) -> Result<Vec<DiskTest>, FileError> {
        let (written, usual) = (*table.test.get_ref(), DiskTest::default());
        if (written.duration, written.ramp) != (usual.duration, usual.ramp) {
            let message = "the times of a test are set in [plan]; omit duration and ramp";
            return Err(self.source.coded("bad-disk-test", &table.test.span(), message));
        }
        let threads = table.threads.as_ref();
        let threads = threads.map_or(Ok(vec![written.jobs]), |list| distinct(self.source, "threads", list))?;
        let disks = table.disks.as_ref();
        let disks = disks.map_or(Ok(vec![written.targets]), |list| distinct(self.source, "disks", list))?;
        let mut tests = Vec::new();
        for (targets, jobs) in disks.iter().flat_map(|disks| threads.iter().map(move |threads| (*disks, *threads))) {
            let test = DiskTest { jobs, targets, ..written };
            test.check().map_err(|error| self.source.refuse(&table.test.span(), error))?;
            tests.push(test);
        }
        Ok(tests)
    }

    fn guest(&self) -> Result<GuestDefaults, FileError> {
        let Some(table) = &self.file.guest else { return Ok(GuestDefaults::default()) };
        let options = table.get_ref().options();
        let size = options.size();
        size.check().map_err(|error| self.source.refuse(&options.blamed(&error).unwrap_or(table.span()), error))?;
        Ok(GuestDefaults { size, ..GuestDefaults::default() })
    }

    fn quick_matrix(&self, rows: &[Row], baseline: Row, cells: &[Cell]) -> Result<Option<QuickMatrix>, FileError> {
        let Some(quick) = &self.file.quick else { return Ok(None) };
        let of_study = |written: &Spanned<String>| match row(self.source, written)? {
            row if rows.contains(&row) => Ok(row),
            row => {
                let message = format!("`{row}` of [quick] is not among the methods of [matrix]; add it there");
                Err(self.source.coded("not-in-study", &written.span(), message))
            }
        };
        let kept = match &quick.methods {
            Some(methods) => methods.iter().map(of_study).collect::<Result<Vec<Row>, FileError>>()?,
            None => rows.to_vec(),
        };
        let threads = match &quick.threads {
            Some(threads) => distinct(self.source, "threads", threads)?.into_iter().map(JobCount::get).collect(),
            None => threads_of(cells).collect::<Vec<u32>>(),
        };
        let message = match threads_of(cells).any(|known| threads.contains(&known)) {
            true if kept.contains(&baseline) => {
                return Ok(Some(QuickMatrix { rows: kept, threads, migrations: Vec::new() }));
            }
            true => format!("[quick] omits the baseline `{baseline}`; add it to its methods"),
            false => "[quick] has none of the thread counts of the tests; add some of them".to_owned(),
        };
        Err(self.source.coded("not-in-study", &quick.samples.span(), message))
    }

    /// fio can't detect a steady state.
    fn plan(
        &self,
        samples: &Spanned<u32>,
        duration: &Spanned<Span>,
        warmup: &Spanned<Warmup>,
    ) -> Result<SamplingPlan, FileError> {
        if !matches!(warmup.get_ref(), Warmup::For(_)) {
            let message = "fio cannot detect when a disk is steady; use a time, e.g. warmup = \"1s\"";
            return Err(self.source.coded("option-not-for-this", &warmup.span(), message));
        }
        sampling_plan(self.source, samples, duration, *warmup.get_ref())
    }
}

fn threads_of(cells: &[Cell]) -> impl Iterator<Item = u32> {
    cells.iter().filter_map(|cell| match cell.test {
        CellTest::Disk(disk) => Some(disk.disk.jobs.get()),
        CellTest::Net(_) | CellTest::Migration(_) => None,
    })
}
