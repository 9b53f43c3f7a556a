//! Host memory used by a guest's RAM and, in addition, by QEMU, because of which fewer guests fit than their RAM
//! suggests.

use std::{fs, io};

use vtax_model::units::ByteSize;
use vtax_sys::{SysError, process::ProcessId};

use super::{error::GuestError, launch::Launch};

/// A mapping in `/proc/PID/smaps` (proc_pid_smaps(5)).
#[derive(Debug, Default, PartialEq, Eq)]
struct Mapping {
    /// True if the mapping is private, has no file, and is neither executable nor a guard.
    plain: bool,
    executable: bool,
    size: u64,
    /// Resident, or swapped out.
    used: u64,
    /// The resident part without a file, or detached from it.
    anonymous: u64,
}

/// QEMU's resident anonymous memory in addition to the guest's RAM: heap, stacks, and under TCG the translated code.
pub fn overhead(launch: &Launch, process: ProcessId) -> Result<ByteSize, GuestError> {
    Ok(ByteSize(beside_ram(&read(launch, process)?, launch.memory.0)))
}

/// The part of the guest's RAM used since its start. All of it, if pages are preallocated or the RAM isn't found.
pub fn used_ram(launch: &Launch, process: ProcessId) -> Result<ByteSize, GuestError> {
    // Huge pages aren't included in smaps.
    if launch.hugepages {
        return Ok(launch.memory);
    }
    Ok(ByteSize(ram(&read(launch, process)?, launch.memory.0)))
}

fn read(launch: &Launch, process: ProcessId) -> Result<Vec<Mapping>, GuestError> {
    let path = format!("/proc/{}/smaps", process.pid);
    let fail = |errno: io::Error| SysError::plain("read", &path, errno);
    let text = fs::read_to_string(&path).map_err(fail).map_err(GuestError::process(&launch.name))?;
    Ok(mappings(&text))
}

/// RAM may be a memory file. Translated code can be as large, and is executable.
fn ram(mappings: &[Mapping], size: u64) -> u64 {
    let likely = mappings.iter().filter(|mapping| !mapping.executable && mapping.size == size);
    likely.map(|mapping| mapping.used).max().unwrap_or(size).min(size)
}

/// RAM without a file is the mapping of exactly its size; if there are several, the one with the most resident memory.
fn beside_ram(mappings: &[Mapping], ram: u64) -> u64 {
    let all = mappings.iter().fold(0_u64, |sum, mapping| sum.saturating_add(mapping.anonymous));
    let likely = mappings.iter().filter(|mapping| mapping.plain && mapping.size == ram);
    all - likely.map(|mapping| mapping.anonymous).max().unwrap_or(0)
}

fn mappings(smaps: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match (first.strip_suffix(':'), mappings.last_mut()) {
            (Some("Size"), Some(mapping)) => mapping.size = kib(second),
            (Some("Anonymous"), Some(mapping)) => mapping.anonymous = kib(second),
            (Some("Rss" | "Swap"), Some(mapping)) => mapping.used = mapping.used.saturating_add(kib(second)),
            (Some(_), _) => {}
            (None, _) => {
                let (plain, executable) = (second == "rw-p" && is_of_no_file(line), second.contains('x'));
                mappings.push(Mapping { plain, executable, ..Mapping::default() });
            }
        }
    }
    mappings
}

/// The file's name follows address, permissions, offset, device and inode.
fn is_of_no_file(line: &str) -> bool {
    line.split_ascii_whitespace().nth(4) == Some("0")
}

fn kib(figure: &str) -> u64 {
    figure.parse::<u64>().unwrap_or(0).saturating_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMAPS: &str = "\
55d0c0a00000-55d0c1a00000 r-xp 00000000 fe:00 1234                       /usr/bin/qemu-system-x86_64
Size:              16384 kB
Rss:               10000 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
55d0c3000000-55d0c3400000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
Anonymous:          3000 kB
7f0000000000-7f0010000000 rw-p 00000000 00:00 0 
Size:             262144 kB
Rss:              100000 kB
Anonymous:        100000 kB
Swap:                 24 kB
7f0020000000-7f0030000000 rwxp 00000000 00:00 0 
Size:             262144 kB
Rss:              200000 kB
Anonymous:         20000 kB
";

    #[test]
    fn ram_is_the_mapping_of_its_size_and_not_translated_code() {
        let mappings = mappings(SMAPS);
        assert_eq!(mappings.len(), 4);
        assert_eq!(beside_ram(&mappings, 256 << 20), 23_000 << 10);
        // RAM backed by a file: nothing is subtracted.
        assert_eq!(beside_ram(&mappings, 512 << 20), 123_000 << 10);
    }

    #[test]
    fn used_ram_is_resident_or_swapped_out() {
        assert_eq!(ram(&mappings(SMAPS), 256 << 20), 100_024 << 10);
        assert_eq!(ram(&mappings(SMAPS), 512 << 20), 512 << 20, "it wasn't found");
        let of_file = SMAPS.replace("rw-p 00000000 00:00 0 \n", "rw-s 00000000 00:01 77 /memfd:ram (deleted)\n");
        assert_eq!(ram(&mappings(&of_file), 256 << 20), 100_024 << 10);
    }

    #[test]
    fn overflowing_figures_saturate() {
        let most = format!("Size: {0} kB\nAnonymous: {0} kB\n", u64::MAX);
        let text = format!("1-2 rw-p 0 0:0 0\n{most}").repeat(2);
        assert_eq!(beside_ram(&mappings(&text), 1), u64::MAX);
    }

    #[test]
    fn own_memory_is_read() {
        let text = fs::read_to_string("/proc/self/smaps").expect("ours");
        assert!(beside_ram(&mappings(&text), 1) > 4096, "{text}");
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "[0-9a-z :\nSizeAnonymous]{0,200}", ram in any::<u64>()) {
            let mappings = mappings(&text);
            beside_ram(&mappings, ram);
            assert!(super::ram(&mappings, ram) <= ram);
        }
    }
}
