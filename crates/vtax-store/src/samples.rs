//! Samples of a run, read from the database.

use std::{
    cell::RefCell,
    iter, panic,
    sync::{Mutex, PoisonError},
    thread::{self, Builder},
};

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

use crate::{StoreError, error::StoreLocation, from_json};

/// Samples of a run, each of which is read when requested.
pub(crate) struct StoredSamples<'a> {
    /// Transaction, so that the samples are consistent.
    snapshot: &'a Connection,
    place: &'a StoreLocation,
    id: String,
    /// Rows in the order in which they were stored.
    rows: Vec<StoredRow>,
    /// Read error during [`Serialize`], whose own errors are only texts.
    failed: RefCell<Option<StoreError>>,
}

struct StoredRow {
    landed: i64,
    cell: usize,
}

/// Sample as stored.
struct StoredSample {
    cell: usize,
    round: u32,
    body: String,
    rtt: Option<Vec<u8>>,
    from_send: Option<Vec<u8>>,
}

/// Fields of a [`Sample`] other than its figures. The two are parsed separately: serde buffers all fields that are
/// flattened into a struct before it parses any of them, which takes three times as long.
#[derive(Deserialize)]
struct Turned {
    cell: usize,
    arm: Arm,
    round: u32,
    at: String,
}

/// Samples of one cell, to be written.
pub(crate) struct CellSamples<'a> {
    samples: &'a StoredSamples<'a>,
    cell: usize,
}

const DOING: &str = "reading samples";

impl<'a> StoredSamples<'a> {
    pub(crate) fn of(
        snapshot: &'a Connection,
        place: &'a StoreLocation,
        id: &str,
    ) -> Result<StoredSamples<'a>, StoreError> {
        StoredSamples::after(snapshot, place, id, i64::MIN, usize::MAX)
    }

    /// Reads the first `most` samples stored after `landed`.
    pub(crate) fn after(
        snapshot: &'a Connection,
        place: &'a StoreLocation,
        id: &str,
        landed: i64,
        most: usize,
    ) -> Result<StoredSamples<'a>, StoreError> {
        let doing = place.doing(DOING);
        let rows = {
            // Sorts by the index only. Sorting the rows themselves would include all of their contents.
            let mut statement = snapshot
                .prepare("SELECT landed, cell FROM sample WHERE run = ?1 AND landed > ?2 ORDER BY landed LIMIT ?3")
                .map_err(&doing)?;
            let row = |row: &Row<'_>| Ok(StoredRow { landed: row.get(0)?, cell: row.get::<_, u32>(1)? as usize });
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let rows = statement.query_map((id, landed, most), row).map_err(&doing)?;
            rows.collect::<Result<_, _>>().map_err(&doing)?
        };
        Ok(StoredSamples { snapshot, place, id: id.to_owned(), rows, failed: RefCell::new(None) })
    }

    /// Returns the position of the last sample.
    pub(crate) fn last_landed(&self) -> Option<i64> {
        self.rows.last().map(|row| row.landed)
    }

    pub(crate) fn of_cell(&'a self, cell: usize) -> CellSamples<'a> {
        CellSamples { samples: self, cell }
    }

    /// Returns the read error that prevented the samples from being written, if there was one.
    pub(crate) fn failed(&self) -> Option<StoreError> {
        self.failed.borrow_mut().take()
    }

    fn write<S: Serializer>(&self, serializer: S, is_wanted: impl Fn(&StoredRow) -> bool) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut unwritten = Ok(());
        let read = self.each(is_wanted, StoredSample::sample, |sample| {
            if unwritten.is_ok() {
                unwritten = list.serialize_element(&sample);
            }
        });
        unwritten?;
        read.map_err(|error| {
            let told = S::Error::custom(&error);
            *self.failed.borrow_mut() = Some(error);
            told
        })?;
        list.end()
    }

    /// Decodes samples on all CPUs while it reads the next ones, and passes them to `take` in the order in which they
    /// were stored.
    fn each<T: Send>(
        &self,
        is_wanted: impl Fn(&StoredRow) -> bool,
        decode: impl Fn(&StoredSample, &str) -> Result<T, StoreError> + Sync,
        mut take: impl FnMut(T),
    ) -> Result<(), StoreError> {
        let doing = self.place.doing(DOING);
        let mut statement = self.snapshot.prepare(SAMPLE).map_err(&doing)?;
        let id = self.id.as_str();
        let wanted: Vec<&StoredRow> = self.rows.iter().filter(|row| is_wanted(row)).collect();
        let mut parts = wanted.chunks(DECODED_TOGETHER);
        let mut read_on = || {
            let rows = parts.next()?.iter();
            Some(rows.map(|row| row.read(&mut statement)).collect::<Result<Vec<_>, _>>().map_err(&doing))
        };
        let mut next = read_on();
        while let Some(stored) = next {
            let (decoded, following) = on_all_cpus(&stored?, |stored| decode(stored, id), &mut read_on);
            decoded.into_iter().try_for_each(|sample| sample.map(&mut take))?;
            next = following;
        }
        Ok(())
    }
}

/// Maximum number of samples in memory at the same time; each has several KiB.
const DECODED_TOGETHER: usize = 128;
/// Number of samples that a thread takes at once.
const PIECE: usize = 16;

const SAMPLE: &str = "SELECT round, body, rtt, rtt_from_send FROM sample WHERE landed = ?1";

/// Returns the results in the order of the items, and the result of `meanwhile`, which this thread runs before it helps
/// the others.
fn on_all_cpus<T: Sync, U: Send, V>(
    items: &[T],
    work: impl Fn(&T) -> U + Sync,
    meanwhile: impl FnOnce() -> V,
) -> (Vec<U>, V) {
    let pieces = &Mutex::new(items.chunks(PIECE).enumerate());
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worked = &|| {
        let work_off = |(nth, piece): (usize, &[T])| (nth, piece.iter().map(&work).collect::<Vec<U>>());
        iter::from_fn(next).map(work_off).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let others = thread::available_parallelism().map_or(1, usize::from) - 1;
        // If no thread can be started, this one does all the work.
        let start = |_| Builder::new().name("reader".into()).spawn_scoped(scope, worked).ok();
        let started: Vec<_> = (0..others).filter_map(start).collect();
        let found = meanwhile();
        let mut all = worked();
        for thread in started {
            all.extend(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
        all.sort_unstable_by_key(|(nth, _)| *nth);
        (all.into_iter().flat_map(|(_, piece)| piece).collect(), found)
    })
}

impl StoredRow {
    fn read(&self, statement: &mut Statement<'_>) -> rusqlite::Result<StoredSample> {
        statement.query_row([self.landed], |row| {
            let (round, body, rtt, from_send) = row.try_into()?;
            Ok(StoredSample { cell: self.cell, round, body, rtt, from_send })
        })
    }
}

impl StoredSample {
    fn sample(&self, id: &str) -> Result<Sample, StoreError> {
        let Turned { cell, arm, round, at } = from_json(&self.body, id, "sample")?;
        let mut figures: Figures = from_json(&self.body, id, "sample")?;
        figures.put_times(self.decoded_times(id)?);
        Ok(Sample { cell, arm, round, at, figures })
    }

    fn times(&self, id: &str) -> Result<(usize, u32, SampleTimes), StoreError> {
        let times = match (&self.rtt, &self.from_send) {
            // Sample without round trips, or stored by schema version 1.
            (None, None) => self.sample(id)?.figures.take_times(),
            _ => self.decoded_times(id)?,
        };
        Ok((self.cell, self.round, times))
    }

    fn decoded_times(&self, id: &str) -> Result<SampleTimes, StoreError> {
        let read = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(SparseHistogram::from_bytes).transpose();
        let damaged = |source: HistogramError| StoreError::Histogram { id: id.to_owned(), source };
        Ok(SampleTimes { rtt: read(&self.rtt).map_err(damaged)?, from_send: read(&self.from_send).map_err(damaged)? })
    }
}

impl SampleSource for StoredSamples<'_> {
    type Error = StoreError;

    fn samples(&self, take: &mut dyn FnMut(&Sample)) -> Result<(), StoreError> {
        self.each(|_| true, StoredSample::sample, |sample| take(&sample))
    }

    fn times(&self, take: &mut dyn FnMut(usize, u32, &SampleTimes)) -> Result<(), StoreError> {
        self.each(|_| true, StoredSample::times, |(cell, round, times)| take(cell, round, &times))
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
