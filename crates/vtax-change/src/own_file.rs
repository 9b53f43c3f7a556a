//! vtax's own files in `/etc`, which are applied at each boot.
//!
//! A file is only ever replaced as a whole, so a reader sees the old or the new one, even after a crash.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_sys::SysError;

use crate::host::HostAccess;

/// First line of each file. A file without it belongs to someone else.
pub(crate) const HEADER: &str = "# Written by `vtax tune apply --persist`; `vtax tune revert` removes its lines.";
/// Maximum length of our files.
const LONGEST: u64 = 1 << 20;

/// A file of vtax's.
///
/// For settings of links, systemd's `.link` files would be an alternative. But only the first such file that matches a
/// link counts (systemd.link(5)): ours would disable another one's settings, such as the link's name. The rules of
/// udev, in contrast, all apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnFile {
    /// The file read by systemd-sysctl(8) or sysctl(8).
    Sysctl,
    /// The file read by udev(7). It comes after the rule that applies `.link` files (80).
    Udev,
}

impl OwnFile {
    const ALL: [OwnFile; 2] = [OwnFile::Sysctl, OwnFile::Udev];

    /// Returns the absolute path, in `/etc`.
    pub fn path(self) -> &'static str {
        match self {
            OwnFile::Sysctl => "/etc/sysctl.d/90-vtax.conf",
            OwnFile::Udev => "/etc/udev/rules.d/90-vtax.rules",
        }
    }

    /// Returns the reason why nothing can be written there, if any.
    pub fn obstacle(self, host: &HostAccess) -> Result<Option<String>, SysError> {
        let place = host.place(self.path());
        if !place.parent().is_some_and(Path::is_dir) {
            let folder = Path::new(self.path()).parent().unwrap_or(Path::new("/")).display();
            return Ok(Some(format!("this host has no {folder}, so nothing would read it")));
        }
        match self.read(host)? {
            Some(text) if text.lines().next() != Some(HEADER) => {
                Ok(Some(format!("{} already exists and was not written by vtax: its first line differs", self.path())))
            }
            _ => Ok(None),
        }
    }

    /// Reads the file. None if there is no such file.
    pub(crate) fn read(self, host: &HostAccess) -> Result<Option<String>, SysError> {
        let place = host.place(self.path());
        let fail = |error| SysError::plain("read", self.path(), error);
        let odd = |why| SysError::Invalid { what: "file of vtax's", value: self.path().to_owned(), why };
        let found = match fs::symlink_metadata(&place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(fail)?,
        };
        if !found.is_file() {
            return Err(odd("it is a link or a directory"));
        }
        let mut text = String::new();
        match File::open(&place).and_then(|file| file.take(LONGEST).read_to_string(&mut text)).map_err(fail)? as u64 {
            LONGEST => Err(odd("it is too long")),
            _ => Ok(Some(text)),
        }
    }

    /// Replaces the file, or removes it if there is no text.
    pub(crate) fn replace(self, host: &HostAccess, text: Option<&str>) -> Result<(), SysError> {
        let place = host.place(self.path());
        let replaced = match text {
            Some(text) => write(&place, text),
            None => fs::remove_file(&place),
        };
        let synced = replaced.and_then(|()| File::open(place.parent().unwrap_or(&place))?.sync_all());
        synced.map_err(|error| SysError::plain("write", self.path(), error))
    }

    /// Removes the files that have vtax's header, whoever wrote their other lines. Returns these lines, each with its
    /// file.
    pub(crate) fn remove_all(host: &HostAccess) -> Result<Vec<String>, SysError> {
        let mut removed = Vec::new();
        for file in OwnFile::ALL {
            let Some(text) = file.read(host)?.filter(|text| text.lines().next() == Some(HEADER)) else { continue };
            removed.extend(text.lines().skip(1).map(|line| format!("{}: {line}", file.path())));
            file.replace(host, None)?;
        }
        OwnFile::tidy(host);
        Ok(removed)
    }

    /// Removes drafts that a killed vtax has left next to the files. No other program reads them, because their names
    /// have another ending.
    pub(crate) fn tidy(host: &HostAccess) {
        for file in OwnFile::ALL {
            let _ = fs::remove_file(draft(&host.place(file.path())));
        }
    }
}

fn write(place: &Path, text: &str) -> io::Result<()> {
    let draft = draft(place);
    let written = write_draft(&draft, text).and_then(|()| fs::rename(&draft, place));
    written.inspect_err(|_| drop(fs::remove_file(&draft)))
}

fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(draft)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn draft(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.new"))
}
