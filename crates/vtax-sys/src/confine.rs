//! Programs without privilege: each has its own user, and no rights beyond those of that user.
//!
//! Between fork and exec the child itself drops everything, so the program never holds a right of ours. The user's
//! number is computed from the child's process id. The kernel never gives an id to two living processes, so no two such
//! programs have the same user, and no list is needed.

use std::ffi::CString;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, chownat, fchown};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getpid, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// Number of users in a range: one for each process id, of which the kernel has at most this many (`PID_MAX_LIMIT`).
const USERS: u32 = 1 << 22;
/// systemd documents these numbers as unused ("Users, Groups, UIDs and GIDs on systemd systems"). Above them are the
/// owners of foreign files (0x7FFE0000).
const UNUSED: Range<u32> = 0x7000_0000..0x7FC0_0000;
/// Upper bound on the kernel's capabilities: they are bits of a 64-bit number.
const CAPABILITIES: u32 = 64;

/// Range of numbers from which programs get their users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnUsers {
    first: u32,
}

impl OwnUsers {
    /// Returns the first range that contains no user or group of this machine (`/etc/passwd`, `/etc/subuid` and the
    /// same for groups) and that is mapped in this process's user namespace. None in a namespace with few users, such
    /// as that of an unprivileged user.
    pub fn find() -> Option<OwnUsers> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let single = ["/etc/passwd", "/etc/group"].into_iter().flat_map(|path| entries(&read(path)));
        let several = ["/etc/subuid", "/etc/subgid"].into_iter().flat_map(|path| ranges(&read(path)));
        let taken: Vec<Range<u64>> = single.chain(several).collect();
        let maps = ["/proc/self/uid_map", "/proc/self/gid_map"].map(|path| mapped(&read(path)));
        first_free(&taken, &maps)
    }

    /// Returns the user, and the group, of a program with this process id.
    pub fn of(self, pid: u32) -> u32 {
        self.first + pid % USERS
    }

    /// Returns whether [`OwnUsers::find`] may have given this user to a program, on this machine as it is or was.
    pub fn may_be(user: u32) -> bool {
        UNUSED.contains(&user)
    }
}

/// User, resources and limits of a confined program.
#[derive(Debug)]
pub struct Confinement {
    /// Source of the program's user and group. If none, it keeps those of this process, without their privilege.
    pub users: Option<OwnUsers>,
    /// Supplementary groups, if it gets its own user.
    pub groups: Vec<u32>,
    /// Working directory, which becomes owned by the program's user.
    pub directory: OwnedFd,
    /// Files that become owned by the program's user, such as device nodes.
    pub files: Vec<CString>,
    /// The open file `cgroup.procs` of the cgroup that it joins.
    pub cgroup: Option<OwnedFd>,
    /// Resource limits. Without the privilege to raise a limit that far, the hard limit applies.
    pub limits: Vec<(Resource, u64)>,
    /// True if it may read all files, which requires one capability.
    pub reads_all_files: bool,
}

impl Confinement {
    /// Applies the confinement to a command. Configure everything that requires privilege before, e.g. entering a
    /// namespace, and call [`die_with_parent`](crate::inherit::die_with_parent) after it: the kernel forgets that
    /// setting when the user changes.
    pub fn apply(self, command: &mut Command) {
        let groups: Vec<Gid> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        // SAFETY: between fork and exec the hook only makes system calls through rustix, which bypasses the C library;
        // it takes no lock and allocates nothing.
        unsafe { command.pre_exec(move || self.take_hold(&groups)) };
    }

    fn take_hold(&self, groups: &[Gid]) -> io::Result<()> {
        let user = self.users.map(|users| users.of(getpid().as_raw_nonzero().get().cast_unsigned()));
        if let Some(cgroup) = &self.cgroup {
            rustix::io::write(cgroup, b"0")?;
        }
        if let Some(user) = user {
            let (uid, gid) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(user)));
            fchown(&self.directory, uid, gid)?;
            for file in &self.files {
                chownat(CWD, file.as_c_str(), uid, gid, AtFlags::empty())?;
            }
        }
        rustix::process::fchdir(&self.directory)?;
        umask(Mode::RWXG | Mode::RWXO);
        self.limits.iter().try_for_each(|(resource, most)| limit(*resource, *most))?;
        let kept = match user {
            Some(_) if self.reads_all_files => CapabilitySet::DAC_READ_SEARCH,
            _ => CapabilitySet::empty(),
        };
        give_up_bounding_set(kept)?;
        if let Some(user) = user {
            set_keep_capabilities(!kept.is_empty())?;
            become_user(user, groups)?;
        }
        keep_only(kept)?;
        Ok(set_no_new_privs(true)?)
    }
}

fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let both = |most| Rlimit { current: Some(most), maximum: Some(most) };
    match rustix::process::setrlimit(resource, both(most)) {
        // Raising a limit requires CAP_SYS_RESOURCE.
        Err(Errno::PERM) => match rustix::process::getrlimit(resource).maximum {
            Some(hard) => rustix::process::setrlimit(resource, both(hard)),
            None => Ok(()),
        },
        set => set,
    }
}

/// Drops the bounding set. Otherwise a root program would regain its capabilities when it is executed
/// (capabilities(7)). Capabilities to keep must be made inheritable before, because later that is impossible.
fn give_up_bounding_set(kept: CapabilitySet) -> rustix::io::Result<()> {
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: kept, ..sets })?;
    for bit in 0..CAPABILITIES {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            // The kernel has no more capabilities.
            Err(Errno::INVAL) => break,
            removed => removed?,
        }
    }
    Ok(())
}

fn become_user(user: u32, groups: &[Gid]) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

fn keep_only(kept: CapabilitySet) -> rustix::io::Result<()> {
    match clear_ambient_capability_set() {
        // Ambient capabilities exist since Linux 4.3.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno),
    }
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    // Only ambient capabilities survive exec.
    if kept.is_empty() { Ok(()) } else { configure_capability_in_ambient_set(kept, true) }
}

/// Returns the numbers in a file such as `/etc/passwd`: the third field of each line.
fn entries(text: &str) -> Vec<Range<u64>> {
    let number = |line: &str| line.split(':').nth(2)?.parse::<u64>().ok();
    text.lines().filter_map(number).map(|number| number..number.saturating_add(1)).collect()
}

/// Returns the ranges in a file such as `/etc/subuid`: `NAME:FIRST:COUNT` (subuid(5)).
fn ranges(text: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let mut fields = line.split(':').skip(1).map(|field| field.trim().parse::<u64>().ok());
        let (first, count) = (fields.next()??, fields.next()??);
        Some(first..first.saturating_add(count))
    };
    text.lines().filter_map(range).collect()
}

/// Returns the numbers of a user namespace: lines with its first number, the first outside, and the count
/// (user_namespaces(7)).
fn mapped(text: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
        let (first, _, count) = (fields.next()??, fields.next()??, fields.next()??);
        Some(first..first.saturating_add(count))
    };
    text.lines().filter_map(range).collect()
}

fn first_free(taken: &[Range<u64>], maps: &[Vec<Range<u64>>]) -> Option<OwnUsers> {
    let mut firsts = UNUSED.step_by(USERS as usize);
    let fits = |first: &u32| {
        let (begin, end) = (u64::from(*first), u64::from(*first) + u64::from(USERS));
        let is_free = taken.iter().all(|range| range.end <= begin || range.start >= end);
        is_free && maps.iter().all(|map| map.iter().any(|range| range.start <= begin && end <= range.end))
    };
    firsts.find(fits).map(|first| OwnUsers { first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: &str = "         0          0 4294967295\n";

    fn found(passwd: &str, subuid: &str, maps: [&str; 2]) -> Option<u32> {
        let taken: Vec<_> = entries(passwd).into_iter().chain(ranges(subuid)).collect();
        first_free(&taken, &maps.map(mapped)).map(|users| users.first)
    }

    #[test]
    fn users_are_out_of_the_ranges_of_this_machine() {
        let usual = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n";
        assert_eq!(found(usual, "alice:100000:65536\n", [ALL, ALL]), Some(0x7000_0000));
        let inside = "odd:x:1879048200:1:::\n";
        assert_eq!(found(inside, "", [ALL, ALL]), Some(0x7040_0000));
        assert_eq!(found("", "a:1879000000:65536\nb:1883242496:1\n", [ALL, ALL]), Some(0x7080_0000));
        assert_eq!(found("", "a:0:4294967295\n", [ALL, ALL]), None);
    }

    #[test]
    fn a_namespace_with_few_users_has_none_to_give() {
        assert_eq!(found("", "", ["0 1000 1\n", "0 1000 1\n"]), None);
        assert_eq!(found("", "", [ALL, "0 100000 65536\n"]), None);
        assert_eq!(found("", "", ["", ""]), None);
    }

    #[test]
    fn each_process_has_a_unique_user_in_the_range() {
        let users = OwnUsers { first: UNUSED.start };
        assert_ne!(users.of(1), users.of(2));
        let last = OwnUsers { first: UNUSED.end - USERS }.of(USERS - 1);
        assert!(OwnUsers::may_be(users.of(0)) && OwnUsers::may_be(last));
        assert!(!OwnUsers::may_be(0) && !OwnUsers::may_be(1000) && !OwnUsers::may_be(last + 1));
    }

    proptest! {
        #[test]
        fn hostile_files_never_panic(text in "[0-9a-z: \n]{0,200}") {
            let taken: Vec<_> = entries(&text).into_iter().chain(ranges(&text)).collect();
            first_free(&taken, &[mapped(&text), mapped(ALL)]);
        }
    }
}
