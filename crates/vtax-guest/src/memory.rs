//! The host's memory that QEMU takes in addition to a guest's RAM: because of it fewer guests fit than their RAM says.

use std::{fs, io};

use vtax_model::units::ByteSize;
use vtax_sys::{SysError, process::ProcessId};

use super::{error::GuestError, launch::Launch};

/// A mapping in `/proc/PID/smaps` (proc_pid_smaps(5)).
#[derive(Debug, Default, PartialEq, Eq)]
struct Mapping {
    /// The mapping is private, has no file, and is neither executable nor a guard.
    plain: bool,
    size: u64,
    /// The resident part that belongs to no file, or no longer to one.
    anonymous: u64,
}

/// QEMU's resident anonymous memory in addition to the guest's RAM: heap, stacks, and under TCG the translated code.
pub fn overhead(launch: &Launch, process: ProcessId) -> Result<ByteSize, GuestError> {
    let path = format!("/proc/{}/smaps", process.pid);
    let fail = |errno: io::Error| SysError::plain("read", &path, errno);
    let text = fs::read_to_string(&path).map_err(fail).map_err(GuestError::process(&launch.name))?;
    Ok(ByteSize(beside_ram(&mappings(&text), launch.memory.0)))
}

/// RAM that isn't a file is the mapping of exactly its size, of several the one with the most resident memory.
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
            (Some(_), _) => {}
            (None, _) => {
                mappings.push(Mapping { plain: second == "rw-p" && is_of_no_file(line), ..Mapping::default() })
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
7f0020000000-7f0030000000 rwxp 00000000 00:00 0 
Size:             262144 kB
Anonymous:         20000 kB
";

    #[test]
    fn ram_is_the_mapping_of_its_size_and_not_what_was_translated() {
        let mappings = mappings(SMAPS);
        assert_eq!(mappings.len(), 4);
        assert_eq!(beside_ram(&mappings, 256 << 20), 23_000 << 10);
        // RAM of a file: nothing is taken off.
        assert_eq!(beside_ram(&mappings, 512 << 20), 123_000 << 10);
    }

    #[test]
    fn figures_that_overflow_are_as_much_as_can_be_said() {
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
            beside_ram(&mappings(&text), ram);
        }
    }
}
