//! fio with everything that it requires, for a guest without a network, libraries and fio.
//!
//! A distribution's fio requires dozens of libraries, since it also supports network storage. Only the loader knows
//! which ones, and where they are, so it lists them (`--list` of ld.so(8)); for that it maps them, but runs none of
//! their code. They are copied to one directory, next to the loader. A guest sees that directory read-only over 9p, and
//! starts the loader with it as the only library path.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use object::{
    LittleEndian,
    elf::FileHeader64,
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use vtax_model::foreign::ForeignText;
use vtax_sys::deadline::output_within;
use xxhash_rust::xxh3::xxh3_128;

/// Name of the loader in the directory.
const LOADER: &str = "ld.so";
/// Name of the program in it.
const PROGRAM: &str = "fio";
/// Name of the directory of libraries in it.
const LIBRARIES: &str = "lib";
/// Time limit for the loader's list, for which it reads a hundred files.
const SOON: Duration = Duration::from_secs(20);
/// Maximum size of a program, larger than any of a distribution. It is read as a whole.
const PROGRAM_MOST: u64 = 256 << 20;
/// Maximum number of directories kept: each version of the program or of one of its libraries has its own.
const KEPT: usize = 3;

/// Reason why a program cannot be carried.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum CarryError {
    #[error("fio was not found in PATH; install it, e.g. apt-get install fio")]
    #[diagnostic(code("no-fio"))]
    NoProgram,
    #[error("cannot copy {} into a guest: {why}", path.display())]
    #[diagnostic(code("not-carried"))]
    Program { path: PathBuf, why: String },
    #[error("cannot copy {} into a guest: {} needs the missing library {library}; install it", path.display(), path.display())]
    #[diagnostic(code("not-carried"))]
    NoLibrary { path: PathBuf, library: ForeignText },
    #[error("cannot {what} {}: {source}", path.display())]
    #[diagnostic(code("file"))]
    File { what: &'static str, path: PathBuf, source: io::Error },
}

impl CarryError {
    fn file(what: &'static str, path: &Path) -> impl Fn(io::Error) -> CarryError {
        move |source| CarryError::File { what, path: path.to_owned(), source }
    }
}

/// Directory of this machine with a program and everything that it requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedProgram {
    /// Path of the directory, which guests see.
    pub folder: PathBuf,
}

impl CarriedProgram {
    /// Copies fio from the PATH to a directory in `carried`, unless it is already there.
    pub fn fio(carried: &Path) -> Result<CarriedProgram, CarryError> {
        let program = in_path("fio").ok_or(CarryError::NoProgram)?;
        let parts = Parts::of(&program)?;
        let folder = carried.join(parts.name());
        if !folder.is_dir() {
            parts.copy_to(&folder)?;
            forget_old(carried, &folder);
        }
        Ok(CarriedProgram { folder })
    }

    /// Returns the command for a directory mounted at `mounted`, without fio's own arguments.
    pub fn command(mounted: &Path) -> Vec<String> {
        let at = |name: &str| mounted.join(name).display().to_string();
        vec![at(LOADER), "--library-path".to_owned(), at(LIBRARIES), at(PROGRAM)]
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Files of this machine to copy.
#[derive(Debug)]
struct Parts {
    program: PathBuf,
    loader: PathBuf,
    /// Libraries by the name with which the program requests them.
    libraries: BTreeMap<String, PathBuf>,
}

impl Parts {
    fn of(program: &Path) -> Result<Parts, CarryError> {
        let no = |why: String| CarryError::Program { path: program.to_owned(), why };
        let length = fs::metadata(program).map_err(CarryError::file("access", program))?.len();
        if length > PROGRAM_MOST {
            return Err(no(format!("{length} bytes is too large for a program")));
        }
        let bytes = fs::read(program).map_err(CarryError::file("read", program))?;
        let loader = loader_of(&bytes).map_err(no)?;
        let mut command = Command::new(&loader);
        command.arg("--list").arg(program).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let no = |why: String| CarryError::Program { path: program.to_owned(), why };
        let output = output_within(&mut command, SOON).map_err(|error| no(format!("its loader fails: {error}")))?;
        if !output.status.success() {
            return Err(no(format!("its loader printed: {}", ForeignText::from(text(&output.stderr)))));
        }
        let libraries = listed(&text(&output.stdout));
        let missing = |library: String| CarryError::NoLibrary { path: program.to_owned(), library: library.into() };
        Ok(Parts { program: program.to_owned(), loader, libraries: libraries.map_err(missing)? })
    }

    /// Returns a name that changes if one of the files changes.
    fn name(&self) -> String {
        let files = [&self.program, &self.loader].into_iter().chain(self.libraries.values());
        let seen = |path: &PathBuf| {
            let about = fs::metadata(path).and_then(|file| Ok((file.len(), file.modified()?)));
            (path.clone(), about.ok())
        };
        let seen: Vec<(PathBuf, Option<(u64, SystemTime)>)> = files.map(seen).collect();
        format!("{PROGRAM}-{:032x}", xxh3_128(format!("{seen:?}").as_bytes()))
    }

    /// Creates the directory atomically, so that it is either complete or missing.
    fn copy_to(&self, folder: &Path) -> Result<(), CarryError> {
        let partial = folder.with_extension(format!("{}.part", std::process::id()));
        let libraries = partial.join(LIBRARIES);
        fs::create_dir_all(&libraries).map_err(CarryError::file("make", &libraries))?;
        for folder in [&partial, &libraries] {
            // QEMU runs as a separate user, who must be able to read it.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(CarryError::file("open", folder))?;
        }
        copy(&self.program, &partial.join(PROGRAM))?;
        copy(&self.loader, &partial.join(LOADER))?;
        self.libraries.iter().try_for_each(|(name, path)| copy(path, &libraries.join(name)))?;
        match fs::rename(&partial, folder) {
            // Another vtax has just created the same directory.
            Err(_) if folder.is_dir() => fs::remove_dir_all(&partial).map_err(CarryError::file("remove", &partial)),
            moved => moved.map_err(CarryError::file("make", folder)),
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), CarryError> {
    fs::copy(from, to).map_err(CarryError::file("copy", from))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).map_err(CarryError::file("open", to))
}

/// Removes the oldest directories. Files that a guest has open remain readable until it closes them.
fn forget_old(carried: &Path, newest: &Path) {
    let entries = fs::read_dir(carried).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<(SystemTime, PathBuf)> = entries
        .filter(|path| path != newest && is_carried(path))
        .filter_map(|path| Some((fs::metadata(&path).and_then(|folder| folder.modified()).ok()?, path)))
        .collect();
    others.sort();
    others.reverse();
    for (_, old) in others.into_iter().skip(KEPT - 1) {
        // This is a cache: a failed removal is retried the next time.
        let _ = fs::remove_dir_all(old);
    }
}

/// Returns `true` if vtax created this directory. Nothing else is removed.
fn is_carried(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("{PROGRAM}-")))
}

/// Returns the loader that a program requests.
fn loader_of(program: &[u8]) -> Result<PathBuf, String> {
    let no = |why: &str| why.to_owned();
    let header =
        FileHeader64::<LittleEndian>::parse(program).and_then(|header| header.program_headers(LittleEndian, program));
    let headers = header.map_err(|_| no("it is not a program for this machine"))?.iter();
    let interpreter = headers.filter_map(|header| header.interpreter(LittleEndian, program).ok()?).next();
    let interpreter = interpreter.ok_or_else(|| no("it is statically linked and needs no loader"))?;
    let text = std::str::from_utf8(interpreter).map_err(|_| no("the name of its loader is not UTF-8"))?;
    let loader = PathBuf::from(text);
    if loader.is_absolute() { Ok(loader) } else { Err(no("the path of its loader is not absolute")) }
}

/// Parses lines such as `libm.so.6 => /lib/libm.so.6 (0x…)`. The error is the name of a missing library. Lines without
/// an arrow concern the kernel's own library and the loader.
fn listed(text: &str) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut libraries = BTreeMap::new();
    for (name, place) in text.lines().filter_map(|line| line.trim().split_once(" => ")) {
        let path = place.rsplit_once(" (0x").map_or(place, |(path, _)| path);
        // A name with a slash is a fixed path, for which no copy can be substituted.
        if !path.starts_with('/') || name.contains('/') {
            return Err(name.to_owned());
        }
        libraries.insert(name.to_owned(), PathBuf::from(path));
    }
    Ok(libraries)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use vtax_fuzz::fuzz;

    use super::*;

    #[test]
    fn a_loaders_list_is_read() {
        let list = "\tlinux-vdso.so.1 (0x00007fff)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = listed(list).expect("nothing is missing");
        assert_eq!(found, BTreeMap::from([("libm.so.6".into(), "/lib/x86_64-linux-gnu/libm.so.6".into())]));
        assert_eq!(listed("\tlibrbd.so.1 => not found\n"), Err("librbd.so.1".to_owned()));
    }

    #[test]
    fn a_programs_loader_is_known() {
        let shell = fs::read("/bin/sh").expect("a shell");
        assert!(loader_of(&shell).expect("it has one").is_file());
        assert!(loader_of(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn a_program_runs_from_its_directory_alone() {
        let cache = tempfile::tempdir().expect("a folder");
        // Copying fio takes too long for each test, and any program will do.
        let parts = Parts::of(Path::new("/bin/ls")).expect("it can be carried");
        let folder = cache.path().join("carried").join(parts.name());
        parts.copy_to(&folder).expect("room");
        parts.copy_to(&folder).expect("it is there already");
        let [loader, rest @ ..] = &CarriedProgram::command(&folder)[..] else { panic!("there is a loader") };
        let output = Command::new(loader).args(rest).arg("--version").env_clear().output().expect("it starts");
        assert!(output.status.success() && text(&output.stdout).starts_with("ls "), "{output:?}");
        assert_eq!(fs::read_dir(cache.path().join("carried")).expect("a folder").count(), 1);
    }

    #[test]
    fn only_the_youngest_directories_are_kept() {
        let cache = tempfile::tempdir().expect("a folder");
        let names = ["fio-1", "fio-2", "fio-3", "fio-4", "fio-5", "other"].map(|name| cache.path().join(name));
        for (name, age) in names.iter().zip([50, 40, 30, 20, 10, 60]) {
            fs::create_dir(name).expect("made");
            let time = SystemTime::now() - Duration::from_secs(age);
            fs::File::open(name).and_then(|folder| folder.set_modified(time)).expect("ours");
        }
        forget_old(cache.path(), &names[0]);
        assert_eq!(names.map(|name| name.exists()), [true, false, false, true, true, true]);
    }

    #[test]
    fn fuzz_carried_programs() {
        // Headers of a program with a loader.
        let mut shell = fs::read("/bin/sh").expect("a shell");
        shell.truncate(2048);
        fuzz("carried-programs", &[shell], |bytes| loader_of(bytes).ok().map(drop));
    }
}
