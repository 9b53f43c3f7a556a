//! Report of a guest on one of its disks: the driver, and users of the disk in the guest.
//!
//! A script queries the guest's kernel, with the guest's shell. Its output is untrusted: names are compared with the
//! requested one, and everything else is foreign text.

use vtax_model::{
    disk::{BlockIdentity, BlockSize, DiskTest, WriteCache},
    foreign::ForeignText,
    units::ByteSize,
};
use vtax_sys::block::{DeviceNumber, MountLine};

/// Unit of disk sizes in the kernel.
const SECTOR: u64 = 512;

/// Report of a guest's kernel on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDiskLook {
    /// Name of the disk in the guest's kernel, e.g. `vda`.
    name: String,
    size: Option<ByteSize>,
    read_only: bool,
    /// Driver in the guest.
    pub identity: BlockIdentity,
    used: Option<GuestDiskUse>,
}

/// User of a disk in a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GuestDiskUse {
    Mounted { device: String, at: String },
    Held { device: String, by: String },
    Swap { device: String },
    Claimed,
}

/// Reason why a guest's disk cannot be tested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum GuestDiskError {
    #[error("{disk} is in use in its guest: {device} is mounted on {at}; unmount it there first: umount {at}")]
    #[diagnostic(code("disk-in-use"))]
    Mounted { disk: String, device: ForeignText, at: ForeignText },
    #[error("{disk} is in use in its guest: {device} is part of {by}; dismantle that there first")]
    #[diagnostic(code("disk-in-use"))]
    Held { disk: String, device: ForeignText, by: ForeignText },
    #[error("{disk} is in use in its guest as swap ({device}); disable that there first: swapoff /dev/{device}")]
    #[diagnostic(code("disk-in-use"))]
    Swap { disk: String, device: ForeignText },
    #[error(
        "{disk} is in use in its guest: the kernel there reports that something holds /dev/{name} exclusively, perhaps in \
         a container; find it there with lsblk, and stop it first"
    )]
    #[diagnostic(code("disk-in-use"))]
    Claimed { disk: String, name: String },
    #[error("cannot write {disk}: it is read-only in its guest; a test writes each block before reading it")]
    #[diagnostic(code("disk-unusable"))]
    ReadOnly { disk: String },
    #[error("{disk} has {size} but the test uses {range}; set a range of at most {size}")]
    #[diagnostic(code("disk-too-small"))]
    TooSmall { disk: String, size: ByteSize, range: ByteSize },
    #[error(
        "{disk} is addressed in units of {sector}, and a block of {block} is not a multiple of that; use one, e.g. block={sector}"
    )]
    #[diagnostic(code("disk-sector"))]
    Sector { disk: String, sector: ByteSize, block: BlockSize },
}

impl GuestDiskLook {
    /// Each line of output begins with its topic. Rereading the partition table is refused for a device that is held
    /// exclusively, even in another mount namespace; it doesn't change the table on the disk.
    const SCRIPT: &str = r#"
d=$1 s=/sys/block/$1
for k in size ro queue/scheduler queue/nr_requests queue/rotational queue/logical_block_size queue/write_cache; do
  [ -r $s/$k ] && echo "$k $(cat $s/$k)"
done
l=$(readlink $s/device/driver) && echo "driver ${l##*/}"
q=0; for m in $s/mq/*; do [ -e $m ] && q=$((q + 1)); done; echo "queues $q"
for p in $s $s/$d*; do
  [ -r $p/dev ] || continue
  echo "part ${p##*/} $(cat $p/dev)"
  for h in $p/holders/*; do [ -e "$h" ] && echo "holder ${p##*/} ${h##*/}"; done
done
while read -r l; do echo "mount $l"; done </proc/1/mountinfo
[ -r /proc/swaps ] && while read -r l; do echo "swap $l"; done </proc/swaps
case "$(LC_ALL=C blockdev --rereadpt /dev/$d 2>&1)" in *[Bb]usy*) echo claimed;; esac
exit 0
"#;

    /// Returns the program with which a guest reports on a disk by its name in the kernel, e.g. `vda`.
    pub fn program(name: &str) -> Vec<String> {
        ["/bin/sh", "-c", GuestDiskLook::SCRIPT, "vtax", name].map(str::to_owned).to_vec()
    }

    /// Parses the output of the program; `None` if the guest has no such disk.
    pub fn read(name: &str, text: &str) -> Option<GuestDiskLook> {
        let of = |key: &'static str| text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '));
        let first = |key: &'static str| of(key).map(str::trim).find(|value| !value.is_empty());
        let number = |key: &'static str| first(key)?.parse::<u64>().ok();
        let parts: Vec<(&str, DeviceNumber)> = of("part")
            .filter_map(|line| line.trim().split_once(' '))
            .filter_map(|(part, number)| Some((part, DeviceNumber::parse(number)?)))
            .collect();
        // Without this line, the script has checked nothing.
        parts.iter().find(|(part, _)| *part == name)?;
        let identity = BlockIdentity {
            name: name.into(),
            driver: first("driver").map(ForeignText::from),
            scheduler: first("queue/scheduler").and_then(in_force).map(ForeignText::from),
            requests: number("queue/nr_requests").and_then(|requests| requests.try_into().ok()),
            queues: number("queues").and_then(|count| count.try_into().ok()).filter(|count| *count > 0),
            rotational: number("queue/rotational").map(|turns| turns == 1),
            sector: number("queue/logical_block_size").map(ByteSize),
            write_cache: match first("queue/write_cache") {
                Some("write back") => Some(WriteCache::Back),
                Some("write through") => Some(WriteCache::Through),
                _ => None,
            },
            ..BlockIdentity::default()
        };
        Some(GuestDiskLook {
            name: name.to_owned(),
            size: number("size").map(|sectors| ByteSize(sectors.saturating_mul(SECTOR))),
            read_only: number("ro") == Some(1),
            identity,
            used: mounted(&parts, of("mount"))
                .or_else(|| of("holder").find_map(held))
                .or_else(|| swapped(&parts, of("swap")))
                .or_else(|| text.lines().any(|line| line == "claimed").then_some(GuestDiskUse::Claimed)),
        })
    }

    /// Refuses a disk that is used in its guest, or that is too small for the test. `disk` is its name in messages.
    pub fn check(&self, disk: &str, test: &DiskTest) -> Result<(), GuestDiskError> {
        let (disk, range) = (disk.to_owned(), test.used());
        match &self.used {
            Some(GuestDiskUse::Mounted { device, at }) => {
                return Err(GuestDiskError::Mounted { disk, device: device.as_str().into(), at: at.as_str().into() });
            }
            Some(GuestDiskUse::Held { device, by }) => {
                return Err(GuestDiskError::Held { disk, device: device.as_str().into(), by: by.as_str().into() });
            }
            Some(GuestDiskUse::Swap { device }) => {
                return Err(GuestDiskError::Swap { disk, device: device.as_str().into() });
            }
            Some(GuestDiskUse::Claimed) => return Err(GuestDiskError::Claimed { disk, name: self.name.clone() }),
            None if self.read_only => return Err(GuestDiskError::ReadOnly { disk }),
            None => {}
        }
        match (self.size, self.identity.sector) {
            (Some(size), _) if size < range => Err(GuestDiskError::TooSmall { disk, size, range }),
            (_, Some(sector)) if sector.0 > 0 && test.direct && !test.block.get().0.is_multiple_of(sector.0) => {
                Err(GuestDiskError::Sector { disk, sector, block: test.block })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the mount of one of these partitions. It is identified by its device number, or by its name: btrfs has its
/// own device numbers.
fn mounted<'a>(parts: &[(&str, DeviceNumber)], lines: impl Iterator<Item = &'a str>) -> Option<GuestDiskUse> {
    lines.flat_map(MountLine::read_all).find_map(|mount| {
        let is_it = |(name, number): &&(&str, DeviceNumber)| {
            *number == mount.device || is_at(name, &mount.source.to_string_lossy())
        };
        let (device, _) = parts.iter().find(is_it)?;
        Some(GuestDiskUse::Mounted { device: (*device).to_owned(), at: mount.target.to_string_lossy().into_owned() })
    })
}

fn held(line: &str) -> Option<GuestDiskUse> {
    let (device, by) = line.trim().split_once(' ')?;
    Some(GuestDiskUse::Held { device: device.to_owned(), by: by.to_owned() })
}

fn swapped<'a>(parts: &[(&str, DeviceNumber)], lines: impl Iterator<Item = &'a str>) -> Option<GuestDiskUse> {
    let paths = lines.filter_map(|line| line.split_ascii_whitespace().next());
    let mut found = paths.filter_map(|path| parts.iter().find(|(name, _)| is_at(name, path)));
    found.next().map(|(device, _)| GuestDiskUse::Swap { device: (*device).to_owned() })
}

fn is_at(name: &str, path: &str) -> bool {
    path.strip_prefix("/dev/") == Some(name)
}

/// Returns the item in brackets, e.g. `none` of `[none] mq-deadline`.
fn in_force(list: &str) -> Option<&str> {
    let (_, after) = list.split_once('[')?;
    Some(after.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use vtax_fuzz::fuzz_text;

    use super::*;

    const SAID: &str = "size 16384\nro 0\nqueue/scheduler [none] mq-deadline\nqueue/nr_requests 256\nqueue/rotational 1\n\
        queue/logical_block_size 512\nqueue/write_cache write back\ndriver virtio_blk\nqueues 1\npart vda 254:0\n\
        part vda1 254:1\nmount 1 1 0:2 / / rw - rootfs none rw\nswap Filename Type Size Used Priority\n";

    fn look(more: &str) -> GuestDiskLook {
        GuestDiskLook::read("vda", &format!("{SAID}{more}")).expect("it tells of vda")
    }

    fn refused(look: &GuestDiskLook, test: &str) -> String {
        look.check("ldm:mars/data", &test.parse().expect("a test")).expect_err("it is refused").to_string()
    }

    const SMALL: &str = "random:range=1MiB";

    #[test]
    fn a_disk_of_a_guest_is_described() {
        let found = look("");
        assert_eq!(
            found.identity.to_string(),
            "vda (virtio_blk, scheduler none, queue of 256, rotational, write back)"
        );
        assert_eq!(found.check("ldm:mars/data", &SMALL.parse().expect("a test")), Ok(()));
        for other in ["", "size 5\n", "part vdb 254:16\n", "part vda x\n"] {
            assert_eq!(GuestDiskLook::read("vda", other), None, "{other}");
        }
    }

    #[test]
    fn a_disk_in_use_by_a_guest_is_refused() {
        for (line, text) in [
            ("mount 9 1 254:1 / /data rw - ext4 /dev/root rw\n", "vda1 is mounted on /data; unmount it there first"),
            ("mount 9 1 0:31 / /data rw - btrfs /dev/vda rw\n", "vda is mounted on /data"),
            ("holder vda1 dm-0\n", "vda1 is part of dm-0"),
            ("swap /dev/vda1 partition 100 0 -2\n", "as swap (vda1)"),
            ("claimed\n", "holds /dev/vda exclusively"),
        ] {
            let told = refused(&look(line), SMALL);
            assert!(told.starts_with("ldm:mars/data is in use") && told.contains(text), "{told}");
        }
        let read_only = GuestDiskLook::read("vda", &SAID.replace("ro 0", "ro 1")).expect("it tells of vda");
        assert!(refused(&read_only, SMALL).contains("read-only"));
        assert!(refused(&look(""), "random:range=9MiB").contains("has 8 MiB but the test uses 9 MiB"));
        let large = GuestDiskLook::read("vda", &SAID.replace("block_size 512", "block_size 4096")).expect("vda");
        assert!(refused(&large, "random:range=1MiB,block=512").contains("block=4 KiB"));
    }

    #[test]
    fn the_script_is_one_of_a_shell() {
        let [shell, rest @ ..] = &GuestDiskLook::program("no-such-disk")[..] else { panic!("there is a shell") };
        let output = Command::new(shell).args(rest).output().expect("a shell");
        let (said, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && complaints.is_empty(), "{complaints}");
        assert!(said.contains("\nmount ") && said.contains("queues 0"), "{said}");
        assert_eq!(GuestDiskLook::read("no-such-disk", &said), None);
    }

    #[test]
    fn fuzz_guest_disks() {
        let test: DiskTest = SMALL.parse().expect("a test");
        fuzz_text("guest-disks", &[SAID], move |text| {
            GuestDiskLook::read("vda", text).map(|look| drop(look.check("disk", &test)))
        });
    }
}
