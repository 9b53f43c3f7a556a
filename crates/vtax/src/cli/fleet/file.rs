//! The file of a mesh: a header, and a line of JSON for each sample, in the order in which they were taken.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use jiff::{Timestamp, tz::TimeZone};
use miette::miette;
use serde::Serialize;
use vtax_fleet::{MeshHeader, MeshSample};
use vtax_sys::record::{self, RecordUse};

use crate::exit::{Blamed, Coded, Stop};

/// Samples of 20,000 hosts in 100 rounds fill a third of that.
const LARGEST: u64 = 1 << 30;

/// A file to which samples are appended.
pub(super) struct MeshFile {
    pub(super) path: PathBuf,
    file: File,
    /// The wave of the last sample.
    wave: u32,
}

impl MeshFile {
    /// Creates the file with its header, as a whole, in the results directory.
    pub(super) fn create(state: &Path, header: &MeshHeader) -> Result<MeshFile, Stop> {
        let folder = state.join("fleet");
        fs::create_dir_all(&folder).coded("file", || format!("creating {}", folder.display())).or_infrastructure()?;
        let now = Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
        let path = folder.join(format!("mesh-{now}-{:08x}.jsonl", header.seed & 0xffff_ffff));
        record::replace(&path, line(header).as_bytes()).or_infrastructure()?;
        let file = record::open(&path, RecordUse::Append).or_infrastructure()?;
        let gone = || Stop::infrastructure(miette!(code = "file", "{} was removed", path.display()));
        Ok(MeshFile { file: file.ok_or_else(gone)?, path: path.clone(), wave: 0 })
    }

    /// Appends a sample. All samples of a wave are on disk before the next wave is stored.
    pub(super) fn append(&mut self, sample: &MeshSample) -> Result<(), Stop> {
        let finished = if sample.wave == self.wave { Ok(()) } else { self.file.sync_data() };
        self.wave = sample.wave;
        let written = finished.and_then(|()| self.file.write_all(line(sample).as_bytes()));
        self.done(written)
    }

    pub(super) fn finish(&self) -> Result<(), Stop> {
        self.done(self.file.sync_data())
    }

    fn done(&self, written: io::Result<()>) -> Result<(), Stop> {
        written.coded("file", || format!("writing {}", self.path.display())).or_infrastructure()
    }
}

fn line(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("plain data") + "\n"
}

/// Reads a file. The last line may be incomplete, if vtax was killed while it wrote it.
pub(super) fn read(path: &Path) -> Result<(MeshHeader, Vec<MeshSample>), Stop> {
    let missing = || Stop::input(miette!(code = "file", "{} does not exist", path.display()));
    let bytes = record::read(path, LARGEST).or_input()?.ok_or_else(missing)?;
    parsed(&String::from_utf8_lossy(&bytes), path)
}

fn parsed(text: &str, path: &Path) -> Result<(MeshHeader, Vec<MeshSample>), Stop> {
    let damaged = |number: usize, why: &dyn std::fmt::Display| {
        Stop::input(miette!(code = "damaged-record", "{}:{number}: {why}", path.display()))
    };
    let mut lines = text.split_inclusive('\n').zip(1..).filter(|(line, _)| line.ends_with('\n'));
    let (first, _) = lines.next().ok_or_else(|| damaged(1, &"not a file of `vtax fleet mesh`"))?;
    let header: MeshHeader = serde_json::from_str(first).map_err(|error| damaged(1, &error))?;
    let ends = header.ends.len();
    if header.schema != MeshHeader::SCHEMA || header.uplinks.len() != ends || header.rails.len() != ends {
        return Err(damaged(1, &format!("its schema is not {}", MeshHeader::SCHEMA)));
    }
    let mut samples = Vec::new();
    for (line, number) in lines {
        let sample: MeshSample = serde_json::from_str(line).map_err(|error| damaged(number, &error))?;
        let named = [sample.pair.from, sample.pair.to].into_iter().chain(sample.lost.iter().copied());
        if { named }.any(|end| end.0 >= ends) {
            return Err(damaged(number, &"a sample of an end that the first line doesn't list"));
        }
        samples.push(sample);
    }
    Ok((header, samples))
}

#[cfg(test)]
mod tests;
