//! Files of migration studies: their rows are ways to migrate, their tests are guests.

use serde::Deserialize;
use toml::Spanned;

use super::{check_baseline, check_new, distinct, row, sampling::sampling_plan};
use crate::{
    cell::{Cell, CellTest, Instrument, MigrationCell},
    guest::{GuestDefaults, GuestOptions},
    located::{FileError, Source},
    study::{QuickMatrix, Row, SamplingPlan, Study, StudyMigrations, StudySubject},
    topology::Name,
    units::{ByteSize, Span},
    workload::Warmup,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrationStudyFile {
    id: Name,
    title: String,
    #[serde(default)]
    question: String,
    baseline: Spanned<String>,
    guest: Option<Spanned<GuestOptions>>,
    matrix: MigrationMatrix,
    migration_test: MigrationTestTable,
    plan: MigrationPlan,
    quick: Option<QuickMigrationPlan>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrationMatrix {
    methods: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrationTestTable {
    memory: Spanned<Vec<ByteSize>>,
    /// In MB/s.
    dirty_rates: Spanned<Vec<u32>>,
    max_suspend: Option<Spanned<Span>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MigrationPlan {
    samples: Spanned<u32>,
    /// A migration that takes longer is cancelled.
    timeout: Spanned<Span>,
    /// Duration of the load before a migration.
    warmup: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickMigrationPlan {
    samples: Spanned<u32>,
    timeout: Spanned<Span>,
    warmup: Span,
    limit: Option<Span>,
    /// The only rows; all if absent.
    methods: Option<Vec<Spanned<String>>>,
    /// The only sizes of guests; all if absent.
    memory: Option<Spanned<Vec<ByteSize>>>,
    /// The only dirty rates; all if absent.
    dirty_rates: Option<Spanned<Vec<u32>>>,
}

/// Returns true if a file is of a migration study.
pub(super) fn are_tested(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("migration_test"))
}

pub(super) fn read(source: Source<'_>) -> Result<Study, FileError> {
    MigrationReader { source, file: source.parse()? }.read()
}

struct MigrationReader<'a> {
    source: Source<'a>,
    file: MigrationStudyFile,
}

impl MigrationReader<'_> {
    fn read(self) -> Result<Study, FileError> {
        let rows = self.rows()?;
        let baseline = row(self.source, &self.file.baseline)?;
        check_baseline(self.source, &rows, baseline, &self.file.baseline)?;
        let MigrationPlan { samples, timeout, warmup } = &self.file.plan;
        let (cells, guest) = (self.cells(&rows)?, self.guest()?);
        let plan = sampling_plan(self.source, samples, timeout, Warmup::For(*warmup))?;
        let quick = match &self.file.quick {
            Some(QuickMigrationPlan { samples, timeout, warmup, limit, .. }) => {
                let plan = sampling_plan(self.source, samples, timeout, Warmup::For(*warmup))?;
                SamplingPlan { limit: *limit, ..plan }
            }
            None => plan,
        };
        let quick_matrix = self.quick_matrix(&rows, baseline, &cells)?;
        let max_suspend = self.file.migration_test.max_suspend.as_ref().map(|span| *span.get_ref());
        let study = Study::plain(self.file.id, self.file.title.into(), rows, cells, plan);
        let question = self.file.question.into();
        let usual = StudyMigrations::default();
        let migrations = StudyMigrations { max_suspend: max_suspend.unwrap_or(usual.max_suspend), ..usual };
        let subject = StudySubject::Migrations(migrations);
        Ok(Study { question, baseline, guest, subject, quick, quick_matrix, ..study })
    }

    fn rows(&self) -> Result<Vec<Row>, FileError> {
        let mut rows: Vec<Row> = Vec::new();
        for written in &self.file.matrix.methods {
            let row = row(self.source, written)?;
            check_new(self.source, &rows, row, written)?;
            if !matches!(row, Row::Migration(_)) {
                let message =
                    format!("`{row}` does not migrate a guest, and this study has migration tests; use two studies");
                return Err(self.source.coded("options-clash", &written.span(), message));
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// Returns guests of each size, with each dirty rate.
    fn cells(&self, rows: &[Row]) -> Result<Vec<Cell>, FileError> {
        let MigrationTestTable { memory, dirty_rates, .. } = &self.file.migration_test;
        let (sizes, rates) =
            (distinct(self.source, "memory", memory)?, distinct(self.source, "dirty_rates", dirty_rates)?);
        if let Some(small) = sizes.iter().find(|size| **size < MigrationCell::MEMORY_LEAST) {
            let message =
                format!("memory {small} is too small for a guest; use at least {}", MigrationCell::MEMORY_LEAST);
            return Err(self.source.coded("out-of-range", &memory.span(), message));
        }
        let tests = sizes.iter().flat_map(|memory| {
            rates.iter().map(|dirty_rate| MigrationCell { memory: *memory, dirty_rate: Some(*dirty_rate) })
        });
        let cells: Vec<Cell> = (0..)
            .zip(tests)
            .flat_map(|(variant, test)| {
                let test = CellTest::Migration(test);
                rows.iter().map(move |row| Cell { row: *row, test, variant, instrument: Instrument::System })
            })
            .collect();
        if cells.len() > Study::MOST_CELLS {
            let message =
                format!("the methods, memory and dirty rates multiply to more than {} cells", Study::MOST_CELLS);
            return Err(self.source.coded("out-of-range", &memory.span(), message));
        }
        Ok(cells)
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
        let refuse = |message: String| Err(self.source.coded("not-in-study", &quick.samples.span(), message));
        let kept = match &quick.methods {
            Some(methods) => {
                methods.iter().map(|written| row(self.source, written)).collect::<Result<Vec<Row>, _>>()?
            }
            None => rows.to_vec(),
        };
        if let Some(row) = kept.iter().find(|row| !rows.contains(row)) {
            return refuse(format!("`{row}` of [quick] is not among the methods of [matrix]; add it there"));
        }
        if !kept.contains(&baseline) {
            return refuse(format!("[quick] omits the baseline `{baseline}`; add it to its methods"));
        }
        let memory = quick.memory.as_ref().map(|memory| distinct(self.source, "memory", memory)).transpose()?;
        let rates = quick.dirty_rates.as_ref().map(|rates| distinct(self.source, "dirty_rates", rates)).transpose()?;
        let is_kept = |test: &MigrationCell| {
            memory.as_ref().is_none_or(|memory| memory.contains(&test.memory))
                && rates.as_ref().is_none_or(|rates| test.dirty_rate.is_some_and(|rate| rates.contains(&rate)))
        };
        let mut migrations: Vec<MigrationCell> = cells.iter().filter_map(Cell::migration).copied().collect();
        migrations.dedup();
        migrations.retain(is_kept);
        if migrations.is_empty() {
            return refuse("[quick] has none of the study's memory and dirty rates; add some of them".to_owned());
        }
        Ok(Some(QuickMatrix { rows: kept, threads: Vec::new(), migrations }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        id = "mine"
        title = "Mine"
        baseline = "migrate:plain"
        [matrix]
        methods = ["migrate:plain", "migrate:tls,cores=1"]
        [migration_test]
        memory = ["256 MiB", "1 GiB"]
        dirty_rates = [0, 100]
        [plan]
        samples = 3
        timeout = "60s"
        warmup = "1s"
        [quick]
        samples = 1
        timeout = "10s"
        warmup = "100ms"
        memory = ["256 MiB"]
    "#;

    fn read(text: &str) -> Result<Study, String> {
        super::read(Source { name: "mine.toml", text }).map_err(|error| error.to_string())
    }

    #[test]
    fn each_way_is_measured_with_each_memory_and_dirty_rate() {
        let mut study = read(FILE).expect("a study");
        assert_eq!(study.cells.len(), 8);
        study.shorten(false);
        assert!(study.cells.iter().all(|cell| cell.migration().is_some_and(|test| test.memory.0 == 256 << 20)));
        assert_eq!((study.cells.len(), study.rows.len()), (4, 2));
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, told) in [
            ("\"migrate:tls,cores=1\"", "\"bridge\"", "does not migrate a guest"),
            ("\"256 MiB\", \"1 GiB\"", "\"16 MiB\"", "too small for a guest"),
            ("[0, 100]", "[]", "is empty"),
            ("memory = [\"256 MiB\"]", "memory = [\"2 GiB\"]", "none of the study's memory"),
            ("memory = [\"256 MiB\"]", "methods = [\"migrate:tls,cores=1\"]", "omits the baseline"),
        ] {
            let error = read(&FILE.replace(from, to)).expect_err(told);
            assert!(error.contains(told), "{error}");
        }
    }
}
