//! Access of single users to a file, in addition to its mode (POSIX access control lists, acl(5)).

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{XattrFlags, getxattr, setxattr},
    io::Errno,
    process::geteuid,
};

use crate::error::{Result, SysError};

const ATTRIBUTE: &str = "system.posix_acl_access";
/// Version of the attribute's format, its first four bytes.
const FORMAT: u32 = 2;
/// Upper bound on the attribute: a kernel has at most 64 KiB.
const MOST: usize = 64 << 10;
const READ_WRITE: u16 = 6;
/// Maximum wait for the lock of another vtax. A user with access could hold it forever.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// Read and write access of one user to a file, until this is dropped.
#[derive(Debug)]
pub struct GrantedAccess {
    path: PathBuf,
    user: u32,
}

impl GrantedAccess {
    /// Returns true if this process may grant access to the file: it exists, belongs to this process's user, and its
    /// file system has access control lists.
    pub fn is_possible(path: &Path) -> bool {
        let is_ours = fs::metadata(path).is_ok_and(|found| found.uid() == geteuid().as_raw());
        is_ours && read(path).is_ok()
    }

    /// Grants access to a user. Entries of other users for whom `is_stale` returns true are removed: they were left by
    /// a process that was killed.
    ///
    /// # Errors
    /// Only the owner of a file may change its list, and not every file system has lists.
    pub fn to(path: &Path, user: u32, is_stale: impl Fn(u32) -> bool) -> Result<GrantedAccess> {
        change(path, |list| {
            list.retain_users(|other| other != user && !is_stale(other));
            list.add_user(user);
        })
        .map_err(|error| SysError::os("grant access to", path.display(), error))?;
        Ok(GrantedAccess { path: path.to_owned(), user })
    }
}

impl Drop for GrantedAccess {
    fn drop(&mut self) {
        // If this fails, the next grant removes the entry once its user has no process.
        let _ = change(&self.path, |list| list.retain_users(|other| other != self.user));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    /// The user or group of a named entry.
    id: u32,
}

impl Entry {
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const OWNER_GROUP: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
    const OTHERS: u16 = 0x20;
    const UNNAMED: u32 = u32::MAX;

    fn unnamed(tag: u16, permissions: u32) -> Entry {
        Entry { tag, permissions: (permissions & 7) as u16, id: Entry::UNNAMED }
    }

    /// Returns true if the mask limits it.
    fn is_masked(self) -> bool {
        matches!(self.tag, Entry::USER | Entry::OWNER_GROUP | Entry::GROUP)
    }
}

/// The entries in the kernel's order: by tag.
#[derive(Debug, PartialEq, Eq)]
struct AccessList(Vec<Entry>);

impl AccessList {
    /// Returns the list that means the same as a mode.
    fn of_mode(mode: u32) -> AccessList {
        let entries = [(Entry::OWNER, mode >> 6), (Entry::OWNER_GROUP, mode >> 3), (Entry::OTHERS, mode)];
        AccessList(entries.map(|(tag, permissions)| Entry::unnamed(tag, permissions)).to_vec())
    }

    fn parse(bytes: &[u8]) -> Option<AccessList> {
        let entries = bytes.strip_prefix(&FORMAT.to_le_bytes())?.chunks(8).map(|entry| {
            let (tag, rest) = entry.split_first_chunk()?;
            let (permissions, id) = rest.split_first_chunk()?;
            let (tag, permissions) = (u16::from_le_bytes(*tag), u16::from_le_bytes(*permissions));
            Some(Entry { tag, permissions, id: u32::from_le_bytes(id.try_into().ok()?) })
        });
        entries.collect::<Option<Vec<_>>>().map(AccessList)
    }

    fn bytes(&self) -> Vec<u8> {
        let entries = self.0.iter().flat_map(|entry| {
            let tag = entry.tag.to_le_bytes().into_iter().chain(entry.permissions.to_le_bytes());
            tag.chain(entry.id.to_le_bytes())
        });
        FORMAT.to_le_bytes().into_iter().chain(entries).collect()
    }

    /// Keeps only these users' entries. Without a named entry, the list means the same as a mode.
    fn retain_users(&mut self, keeps: impl Fn(u32) -> bool) {
        self.0.retain(|entry| entry.tag != Entry::USER || keeps(entry.id));
        if !self.0.iter().any(|entry| matches!(entry.tag, Entry::USER | Entry::GROUP)) {
            self.apply_mask();
        }
    }

    fn add_user(&mut self, user: u32) {
        self.apply_mask();
        self.0.push(Entry { tag: Entry::USER, permissions: READ_WRITE, id: user });
        let most = self.0.iter().filter(|entry| entry.is_masked()).fold(0, |all, entry| all | entry.permissions);
        self.0.push(Entry::unnamed(Entry::MASK, most.into()));
        self.0.sort_by_key(|entry| (entry.tag, entry.id));
    }

    /// Removes the mask. Each entry keeps what the mask left to it.
    fn apply_mask(&mut self) {
        let Some(at) = self.0.iter().position(|entry| entry.tag == Entry::MASK) else { return };
        let mask = self.0.remove(at).permissions;
        self.0.iter_mut().filter(|entry| entry.is_masked()).for_each(|entry| entry.permissions &= mask);
    }
}

fn read(path: &Path) -> io::Result<AccessList> {
    let mut bytes = vec![0; MOST];
    match getxattr(path, ATTRIBUTE, &mut bytes[..]) {
        Ok(length) => AccessList::parse(&bytes[..length]).ok_or_else(|| io::Error::other("unknown format of its list")),
        Err(Errno::NODATA) => Ok(AccessList::of_mode(fs::metadata(path)?.permissions().mode())),
        Err(errno) => Err(errno.into()),
    }
}

/// Changes the list. Each vtax locks the file, so that none of their changes is lost.
fn change(path: &Path, change: impl FnOnce(&mut AccessList)) -> io::Result<()> {
    let file = File::open(path)?;
    let deadline = Instant::now() + PATIENCE;
    while let Err(TryLockError::WouldBlock) = file.try_lock()
        && Instant::now() < deadline
    {
        thread::sleep(PAUSE);
    }
    let mut list = read(path)?;
    change(&mut list);
    // A list that means the same as a mode becomes the mode.
    Ok(setxattr(path, ATTRIBUTE, &list.bytes(), XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    /// Users other than those of this machine.
    const USERS: [u32; 3] = [1_900_000_001, 1_900_000_002, 1_900_000_003];

    fn users(path: &Path) -> Vec<u32> {
        let list = read(path).expect("it has a list").0;
        list.iter().filter(|entry| entry.tag == Entry::USER).map(|entry| entry.id).collect()
    }

    #[test]
    fn access_ends_when_it_is_dropped_and_the_mode_is_as_before() {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
        let path = file.path();
        for before in [0o600, 0o640, 0o604] {
            fs::set_permissions(path, fs::Permissions::from_mode(before)).expect("ours");
            assert!(GrantedAccess::is_possible(path));
            let first = GrantedAccess::to(path, USERS[1], |_| false).expect("ours");
            let second = GrantedAccess::to(path, USERS[0], |_| false).expect("ours");
            assert_eq!(users(path), USERS[..2]);
            drop(first);
            assert_eq!(users(path), USERS[..1]);
            drop(second);
            assert_eq!((users(path), mode(path)), (Vec::new(), before));
        }
    }

    #[test]
    fn entries_that_killed_processes_left_are_removed_and_others_kept() {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
        let path = file.path();
        USERS[..2].iter().for_each(|user| {
            std::mem::forget(GrantedAccess::to(path, *user, |_| false).expect("ours"));
        });
        let third = GrantedAccess::to(path, USERS[2], |user| user == USERS[0]).expect("ours");
        assert_eq!(users(path), USERS[1..]);
        drop(third);
        assert_eq!(users(path), USERS[1..2]);
    }

    /// A new user doesn't restore what another program's mask denied.
    #[test]
    fn a_mask_keeps_its_meaning() {
        let entry = |tag, permissions, id| Entry { tag, permissions, id };
        let none = Entry::UNNAMED;
        let mut list = AccessList(vec![
            entry(Entry::OWNER, 6, none),
            entry(Entry::USER, 6, 5),
            entry(Entry::OWNER_GROUP, 6, none),
            entry(Entry::MASK, 4, none),
            entry(Entry::OTHERS, 0, none),
        ]);
        list.add_user(7);
        let users: Vec<(u32, u16)> =
            list.0.iter().filter(|entry| entry.tag == Entry::USER).map(|entry| (entry.id, entry.permissions)).collect();
        assert_eq!(users, [(5, 4), (7, READ_WRITE)]);
        assert!(list.0.contains(&entry(Entry::OWNER_GROUP, 4, none)) && list.0.contains(&entry(Entry::MASK, 6, none)));
        assert_eq!(AccessList::parse(&list.bytes()), Some(list));
        assert_eq!(AccessList::parse(b"\x02\0\0\0short"), None);
    }

    #[test]
    fn a_file_that_is_missing_cannot_be_shared() {
        assert!(!GrantedAccess::is_possible(Path::new("/no/such")));
        assert!(GrantedAccess::to(Path::new("/no/such"), USERS[0], |_| false).is_err());
    }
}
