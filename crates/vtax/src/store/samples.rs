//! The samples of a run, read where they are stored.

use std::cell::RefCell;

use rusqlite::{Connection, Row, Statement};
use serde::{
    Deserialize, Serialize, Serializer,
    ser::{Error as _, SerializeSeq as _},
};
use vtax_model::{
    cell::Arm,
    run::{Figures, Sample, SampleSource, SampleTimes},
};
use vtax_stats::histogram::{HistogramError, SparseHistogram};

use super::{StoreError, error::StoreLocation, from_json};

/// The samples of a run. Each is read when it is asked for.
pub(crate) struct StoredSamples<'a> {
    /// In a transaction, so that the samples are those of one moment.
    snapshot: &'a Connection,
    place: &'a StoreLocation,
    id: String,
    /// In the order in which they landed.
    rows: Vec<StoredRow>,
    /// Why [`Serialize`] failed, whose own errors are texts.
    failed: RefCell<Option<StoreError>>,
}

struct StoredRow {
    landed: i64,
    cell: usize,
}

/// What a [`Sample`] has beside its figures. The two are read apart: serde holds everything that is flattened into a
/// struct before it reads any of it, which takes three times as long.
#[derive(Deserialize)]
struct Turned {
    cell: usize,
    arm: Arm,
    round: u32,
    at: String,
}

/// The samples of one cell, to be written.
pub(super) struct CellSamples<'a> {
    samples: &'a StoredSamples<'a>,
    cell: usize,
}

const DOING: &str = "reading samples";

impl<'a> StoredSamples<'a> {
    pub(super) fn of(
        snapshot: &'a Connection,
        place: &'a StoreLocation,
        id: &str,
    ) -> Result<StoredSamples<'a>, StoreError> {
        let doing = place.doing(DOING);
        let rows = {
            // Only of the index. The rows themselves would be sorted with all that is in them.
            let mut statement =
                snapshot.prepare("SELECT landed, cell FROM sample WHERE run = ?1 ORDER BY landed").map_err(&doing)?;
            let row = |row: &Row<'_>| Ok(StoredRow { landed: row.get(0)?, cell: row.get::<_, u32>(1)? as usize });
            let rows = statement.query_map([id], row).map_err(&doing)?;
            rows.collect::<Result<_, _>>().map_err(&doing)?
        };
        Ok(StoredSamples { snapshot, place, id: id.to_owned(), rows, failed: RefCell::new(None) })
    }

    pub(super) fn of_cell(&'a self, cell: usize) -> CellSamples<'a> {
        CellSamples { samples: self, cell }
    }

    /// Why the samples could not be written, if that was because they could not be read.
    pub(super) fn failed(&self) -> Option<StoreError> {
        self.failed.borrow_mut().take()
    }

    fn statement(&self, columns: &str) -> Result<Statement<'_>, StoreError> {
        let query = format!("SELECT {columns} FROM sample WHERE landed = ?1");
        self.snapshot.prepare(&query).map_err(self.place.doing(DOING))
    }

    fn sample(&self, statement: &mut Statement<'_>, landed: i64) -> Result<Sample, StoreError> {
        let read = |row: &Row<'_>| {
            let times = self.stored_times(row.get_ref(1)?.as_bytes_or_null()?, row.get_ref(2)?.as_bytes_or_null()?);
            Ok(times.and_then(|times| {
                let body = row.get_ref(0).and_then(|body| Ok(body.as_str()?)).map_err(self.place.doing(DOING))?;
                let Turned { cell, arm, round, at } = from_json(body, &self.id, "sample")?;
                let mut figures: Figures = from_json(body, &self.id, "sample")?;
                figures.put_times(times);
                Ok(Sample { cell, arm, round, at, figures })
            }))
        };
        statement.query_row([landed], read).map_err(self.place.doing(DOING))?
    }

    fn stored_times(&self, rtt: Option<&[u8]>, from_send: Option<&[u8]>) -> Result<SampleTimes, StoreError> {
        let read = |bytes: Option<&[u8]>| bytes.map(SparseHistogram::from_bytes).transpose();
        let damaged = |source: HistogramError| StoreError::Histogram { id: self.id.clone(), source };
        Ok(SampleTimes { rtt: read(rtt).map_err(damaged)?, from_send: read(from_send).map_err(damaged)? })
    }

    fn write<S: Serializer>(&self, serializer: S, is_wanted: impl Fn(&StoredRow) -> bool) -> Result<S::Ok, S::Error> {
        let told = |error: StoreError| {
            let told = S::Error::custom(&error);
            *self.failed.borrow_mut() = Some(error);
            told
        };
        let mut statement = self.statement(WHOLE).map_err(told)?;
        let mut list = serializer.serialize_seq(None)?;
        for row in self.rows.iter().filter(|row| is_wanted(row)) {
            list.serialize_element(&self.sample(&mut statement, row.landed).map_err(told)?)?;
        }
        list.end()
    }
}

const WHOLE: &str = "body, rtt, rtt_from_send";

impl SampleSource for StoredSamples<'_> {
    type Error = StoreError;

    fn samples(&self, take: &mut dyn FnMut(&Sample)) -> Result<(), StoreError> {
        let mut statement = self.statement(WHOLE)?;
        for row in &self.rows {
            take(&self.sample(&mut statement, row.landed)?);
        }
        Ok(())
    }

    fn times(&self, take: &mut dyn FnMut(usize, u32, &SampleTimes)) -> Result<(), StoreError> {
        let mut statement = self.statement("round, rtt, rtt_from_send")?;
        let mut whole = self.statement(WHOLE)?;
        for StoredRow { landed, cell } in &self.rows {
            let read = |row: &Row<'_>| {
                let times = self.stored_times(row.get_ref(1)?.as_bytes_or_null()?, row.get_ref(2)?.as_bytes_or_null()?);
                Ok((row.get(0)?, times))
            };
            let (round, times) = statement.query_row([landed], read).map_err(self.place.doing(DOING))?;
            let times = match times? {
                // A sample without round trips, or one of version 1.
                SampleTimes { rtt: None, from_send: None } => self.sample(&mut whole, *landed)?.figures.take_times(),
                times => times,
            };
            take(*cell, round, &times);
        }
        Ok(())
    }
}

impl Serialize for StoredSamples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write(serializer, |_| true)
    }
}

impl Serialize for CellSamples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.samples.write(serializer, |row| row.cell == self.cell)
    }
}
