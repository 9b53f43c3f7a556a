//! The file of a mesh: a header, and a line of JSON for each sample, in the order in which they were taken.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use jiff::{Timestamp, tz::TimeZone};
use miette::miette;
use serde::Serialize;
use vtax_fleet::{MeshHeader, MeshSample};
use vtax_sys::{
    directory,
    record::{self, RecordUse},
};

use crate::exit::{Blamed, Coded, Stop};

const EXTENSION: &str = "jsonl";
/// Samples of 20,000 hosts in 100 rounds fill a third of that.
const LARGEST: u64 = 1 << 30;

/// A file to which samples are appended.
pub(super) struct MeshFile {
    pub(super) path: PathBuf,
    file: File,
    /// The wave of the last sample.
    wave: u32,
}

/// The file of a mesh, what it asks for, and its samples.
pub(super) type StoredMesh = (MeshFile, MeshHeader, Vec<MeshSample>);

impl MeshFile {
    /// Creates the file with its header, as a whole, in the results directory.
    pub(super) fn create(state: &Path, header: &MeshHeader) -> Result<MeshFile, Stop> {
        let folder = folder(state);
        directory::make_private(&folder).or_infrastructure()?;
        let now = Timestamp::now().to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S");
        let path = folder.join(format!("mesh-{now}-{:08x}.{EXTENSION}", header.seed & 0xffff_ffff));
        record::replace(&path, line(header).as_bytes()).or_infrastructure()?;
        let file = MeshFile::open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Opens the file of an earlier mesh, to continue it. A line that was cut when vtax was killed is dropped.
    pub(super) fn resume(state: &Path, mesh: &str) -> Result<StoredMesh, Stop> {
        let file = MeshFile::open(find(state, mesh)?)?;
        file.lock()?;
        let bytes = record::read_open(&file.file, &file.path, LARGEST).or_input()?;
        let text = String::from_utf8_lossy(&bytes);
        let (header, samples) = parsed(&text, &file.path)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        file.done(file.file.set_len(whole as u64))?;
        Ok((file, header, samples))
    }

    fn open(path: PathBuf) -> Result<MeshFile, Stop> {
        let file = record::open(&path, RecordUse::Append).or_infrastructure()?;
        let gone = || Stop::input(miette!(code = "file", "{} does not exist", path.display()));
        Ok(MeshFile { file: file.ok_or_else(gone)?, path: path.clone(), wave: 0 })
    }

    /// Two processes must not measure the same mesh.
    fn lock(&self) -> Result<(), Stop> {
        let busy = || miette!(code = "run-in-use", "{}: another vtax is measuring this mesh", self.path.display());
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(Stop::input(busy())),
            Err(TryLockError::Error(error)) => self.done(Err(error)),
        }
    }

    /// Returns the name by which the mesh is resumed and shown.
    pub(super) fn name(&self) -> String {
        name(&self.path)
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

fn folder(state: &Path) -> PathBuf {
    state.join("fleet")
}

pub(super) fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the files of all meshes, the oldest first.
pub(super) fn all(state: &Path) -> Result<Vec<PathBuf>, Stop> {
    let folder = folder(state);
    [state, &folder].into_iter().try_for_each(directory::check_readable).or_input()?;
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.coded("file", || format!("reading {}", folder.display())).or_infrastructure()?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut meshes: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION)).collect();
    meshes.sort();
    Ok(meshes)
}

/// Finds a mesh: `last`, its name, a prefix of its name that no other has, or its file.
pub(super) fn find(state: &Path, mesh: &str) -> Result<PathBuf, Stop> {
    if mesh.contains('/') || mesh.ends_with(EXTENSION) {
        return Ok(PathBuf::from(mesh));
    }
    let all = all(state)?;
    let none = || {
        let message = format!("no mesh is named `{}`; see `vtax fleet list`", mesh.escape_debug());
        Stop::input(miette!(code = "no-such-run", "{message}"))
    };
    if mesh == "last" {
        return all.into_iter().next_back().ok_or_else(none);
    }
    let mut found: Vec<PathBuf> = all.into_iter().filter(|path| name(path).starts_with(mesh)).collect();
    match found.len() {
        0 => Err(none()),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<String> = found.iter().map(|path| name(path)).collect();
            Err(Stop::input(miette!(
                code = "ambiguous-run",
                "`{mesh}` matches {}; type more of the name",
                names.join(", ")
            )))
        }
    }
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
    if header.schema != MeshHeader::SCHEMA {
        return Err(damaged(1, &format!("its schema is not {}", MeshHeader::SCHEMA)));
    }
    let mut samples = Vec::new();
    for (line, number) in lines {
        let sample: MeshSample = serde_json::from_str(line).map_err(|error| damaged(number, &error))?;
        let named = [sample.pair.from, sample.pair.to].into_iter().chain(sample.lost.iter().copied());
        if { named }.any(|end| end.0 >= ends) {
            return Err(damaged(number, &"a sample of an endpoint that the first line does not list"));
        }
        samples.push(sample);
    }
    Ok((header, samples))
}

#[cfg(test)]
mod tests;
