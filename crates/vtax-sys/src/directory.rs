//! Directories and files private to this user, whose contents can be trusted.
//!
//! A program that runs as root may be given another user's directory through HOME or an option. That user could put a
//! symbolic link where a file is about to be written. So nobody else may be able to change any directory on the path.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::{fs::Mode, process::umask};

use crate::error::{Result, SysError};

/// Mode of a file that only its owner may read.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE: u32 = 0o700;
/// Directories above a private one are searchable, whatever the umask.
const ABOVE: u32 = 0o755;
/// The kernel's own limit on symbolic links (path_resolution(7)).
const LINKS: usize = 40;

/// Preserves the owner's permissions on everything that this process and its children create. Call it first in a
/// program: an umask such as 777 takes all permissions from the owner, and no later command could open the locks and
/// directories of this one.
pub fn unmask_owner() {
    let given = umask(Mode::RWXG | Mode::RWXO);
    umask(given - Mode::RWXU);
}

/// Creates a directory that only this user can read and write, unless it exists. Parent directories are created as
/// well.
///
/// # Errors
/// [`SysError::NotPrivate`] if something else is there, or if others can write to it or change the path to it.
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

/// Creates a directory in a private one, and the missing ones above it, with access for this user only, whatever the
/// umask. An existing one stays as it is.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}

/// Creates an empty file in a private directory, readable only for its owner, whatever the umask. An existing one is
/// emptied.
///
/// # Errors
/// Those of [`open_private`].
pub fn create_private_file(path: &Path) -> io::Result<File> {
    open_private(path, OpenOptions::new().write(true).create(true).truncate(true))
}

/// Checks a directory that is only read and need not exist. It may also belong to root.
///
/// # Errors
/// [`SysError::NotPrivate`] if others can write to it or change the path to it.
pub fn check_readable(path: &Path) -> Result<()> {
    let path = &std::path::absolute(path).map_err(|e| SysError::os("find", path.display(), e))?;
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => check_way(path),
    }
}

/// Opens a file in a private directory without following a link, and makes it readable only for its owner, whatever the
/// umask and its previous mode. Creates it if `options` say so.
pub fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.mode(PRIVATE_FILE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !check_private(&file)? {
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?;
    }
    Ok(file)
}

/// Creates an empty file in a private directory like [`create_private_file`], or makes an existing one readable only
/// for its owner, without opening it: closing it would release all locks that this process has on it through other
/// descriptors (fcntl(2)).
///
/// # Errors
/// Those of [`open_private`].
pub fn make_private_file(path: &Path) -> io::Result<()> {
    match open_private(path, OpenOptions::new().write(true).create_new(true)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created.map(drop),
    }
    // Closing a descriptor with `O_PATH` releases no locks.
    let file = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
    if !check_private(&file)? {
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(name, Permissions::from_mode(PRIVATE_FILE))?;
    }
    Ok(())
}

/// Returns true if an open file has the mode of a private one. Fails if it isn't a regular file of this user.
fn check_private(file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.uid() != own_uid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    Ok(found.mode() & 0o777 == PRIVATE_FILE)
}

fn check(path: &Path) -> Result<()> {
    let found = look_at(path)?;
    match () {
        () if !found.is_dir() => Err(not_private(path, "is not a directory")),
        () if found.uid() != own_uid() => Err(not_private(path, "belongs to another user")),
        () if found.mode() & 0o022 != 0 => Err(not_private(path, "is writable by others")),
        () => Ok(()),
    }
}

/// Checks that only this user and root control where a path leads.
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
            return Err(not_private(&next, "belongs to another user"));
        }
        if found.is_symlink() {
            links += 1;
            let target = fs::read_link(&next).map_err(|e| SysError::os("access", next.display(), e))?;
            if links > LINKS {
                return Err(not_private(&next, "has too many symbolic links"));
            }
            if target.is_absolute() {
                way = PathBuf::from("/");
            }
            left.extend(pieces(&target));
            continue;
        }
        // In a sticky directory users can remove only their own files.
        if found.mode() & 0o002 != 0 && found.mode() & 0o1000 == 0 {
            return Err(not_private(&next, "is writable by others"));
        }
        way = next;
    }
    Ok(())
}

/// Returns the components of a path, the last one first.
fn pieces(path: &Path) -> Vec<PathBuf> {
    let named = |piece: &Component<'_>| matches!(piece, Component::Normal(_) | Component::ParentDir);
    path.components().rev().filter(named).map(|piece| PathBuf::from(piece.as_os_str())).collect()
}

fn look_at(path: &Path) -> Result<Metadata> {
    fs::symlink_metadata(path).map_err(|e| SysError::os("access", path.display(), e))
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
        assert_eq!(refused(&path), "is writable by others");
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| base.path().join(name));
        symlink(base.path(), &link).unwrap();
        fs::write(&file, "").unwrap();
        assert_eq!([refused(&link), refused(&file)], ["is not a directory"; 2]);
    }

    #[test]
    fn a_path_that_another_user_can_change_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let [home, link] = ["home", "link"].map(|name| base.path().join(name));
        fs::create_dir(&home).unwrap();
        symlink(&home, &link).unwrap();
        make_private(&link.join("state/vtax")).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refused(&link.join("state/vtax")), "is writable by others");
        fs::set_permissions(&home, Permissions::from_mode(0o1777)).unwrap();
        make_private(&home.join("vtax")).unwrap();
        // Only root can do that.
        if chown(&home, Some(12345), None).is_ok() {
            assert_eq!(refused(&home.join("vtax")), "belongs to another user");
            assert!(check_readable(&home.join("vtax")).is_err());
        }
        check_readable(&base.path().join("none")).unwrap();
    }

    #[test]
    fn a_private_file_is_private_whatever_its_previous_mode() {
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
        assert!(make_private_file(&link).is_err() && make_private_file(base.path()).is_err());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        fs::set_permissions(&target, Permissions::from_mode(0o666)).unwrap();
        fs::remove_file(&file).unwrap();
        for path in [&file, &target] {
            make_private_file(path).unwrap();
            assert_eq!(mode(path), 0o600, "{}", path.display());
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}
