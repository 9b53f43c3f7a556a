//! Directories and files of this user alone. What is in one need not be doubted as what a stranger may have put there.
//!
//! A program that runs as root may be given another user's directory by HOME or an option. That user could put a symbolic link
//! where a file is about to be written. So every directory of the way must be such that nobody else can change what is in it.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::error::{Result, SysError};

/// Only its owner may read it.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE: u32 = 0o700;
/// Directories above a private one may be looked through, whatever the umask.
const ABOVE: u32 = 0o755;
/// As many symbolic links as the kernel follows (path_resolution(7)).
const LINKS: usize = 40;

/// Makes a directory that only this user can read and write, unless it is there. Those above it are made, too.
///
/// # Errors
/// [`SysError::NotPrivate`] if something else is there, or if others can write it or change the way to it.
pub fn make_private(path: &Path) -> Result<()> {
    let fail = |e| SysError::os("create", path.display(), e);
    let path = &std::path::absolute(path).map_err(fail)?;
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(ABOVE).create(above).map_err(fail)?;
        check_way(above)?;
    }
    match DirBuilder::new().mode(PRIVATE).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(path),
        Err(error) => Err(fail(error)),
    }
}

/// Checks a directory that is only read, and that need not be there. It may belong to root as well.
///
/// # Errors
/// [`SysError::NotPrivate`] if others can write it or change the way to it.
pub fn check_readable(path: &Path) -> Result<()> {
    let path = &std::path::absolute(path).map_err(|e| SysError::os("find", path.display(), e))?;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => check_way(path),
    }
}

/// Opens a file in a private directory without following a link, and lets only its owner read it, whatever the umask and
/// whatever it was before. It is made if `options` say so.
pub fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.mode(PRIVATE_FILE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if found.uid() != own_uid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to somebody else"));
    }
    if found.mode() & 0o777 != PRIVATE_FILE {
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?;
    }
    Ok(file)
}

fn check(path: &Path) -> Result<()> {
    let found = look_at(path)?;
    match () {
        () if !found.is_dir() => Err(not_private(path, "is no directory")),
        () if found.uid() != own_uid() => Err(not_private(path, "belongs to somebody else")),
        () if found.mode() & 0o022 != 0 => Err(not_private(path, "can be written by others")),
        () => Ok(()),
    }
}

/// Checks that nobody but this user and root decides where a path leads.
fn check_way(path: &Path) -> Result<()> {
    let trusted = [own_uid(), 0, look_at(Path::new("/"))?.uid()];
    let mut left: Vec<PathBuf> = pieces(path);
    let (mut way, mut links) = (PathBuf::from("/"), 0);
    while let Some(piece) = left.pop() {
        if piece == Path::new("..") {
            way.pop();
            continue;
        }
        let next = way.join(&piece);
        let found = look_at(&next)?;
        if !trusted.contains(&found.uid()) {
            return Err(not_private(&next, "belongs to somebody else"));
        }
        if found.is_symlink() {
            links += 1;
            let target = fs::read_link(&next).map_err(|e| SysError::os("look at", next.display(), e))?;
            if links > LINKS {
                return Err(not_private(&next, "leads nowhere"));
            }
            if target.is_absolute() {
                way = PathBuf::from("/");
            }
            left.extend(pieces(&target));
            continue;
        }
        // In a sticky directory each user can remove only what is theirs.
        if found.mode() & 0o002 != 0 && found.mode() & 0o1000 == 0 {
            return Err(not_private(&next, "can be written by others"));
        }
        way = next;
    }
    Ok(())
}

/// The pieces of a path, the last one first.
fn pieces(path: &Path) -> Vec<PathBuf> {
    let named = |piece: &Component<'_>| matches!(piece, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|piece| PathBuf::from(piece.as_os_str())).collect()
}

fn look_at(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).map_err(|e| SysError::os("look at", path.display(), e))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn not_private(path: &Path, why: &'static str) -> SysError {
    SysError::NotPrivate { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    fn refused(path: &Path) -> &'static str {
        match make_private(path) {
            Err(SysError::NotPrivate { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("lib/vtax");
        make_private(&path).unwrap();
        make_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refused(&path), "can be written by others");
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| base.path().join(name));
        symlink(base.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!([refused(&link), refused(&file)], ["is no directory"; 2]);
    }

    #[test]
    fn what_another_user_can_change_on_the_way_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let [home, link] = ["home", "link"].map(|name| base.path().join(name));
        fs::create_dir(&home).unwrap();
        symlink(&home, &link).unwrap();
        make_private(&link.join("state/vtax")).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refused(&link.join("state/vtax")), "can be written by others");
        fs::set_permissions(&home, Permissions::from_mode(0o1777)).unwrap();
        make_private(&home.join("vtax")).unwrap();
        // Only root can do that.
        if chown(&home, Some(12345), None).is_ok() {
            assert_eq!(refused(&home.join("vtax")), "belongs to somebody else");
            assert!(check_readable(&home.join("vtax")).is_err());
        }
        check_readable(&base.path().join("none")).unwrap();
    }

    #[test]
    fn a_private_file_is_one_whatever_it_was() {
        let base = tempfile::tempdir().unwrap();
        let [file, link, target] = ["file", "link", "target"].map(|name| base.path().join(name));
        let open = |path: &Path| open_private(path, OpenOptions::new().write(true).create(true).truncate(true));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert_eq!(open(&file).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        assert_eq!(open(&link).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert!(open(base.path()).is_err());
    }
}
