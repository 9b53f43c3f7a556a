//! Detection of existing content on a disk.
//!
//! Any byte that isn't zero counts as content; the table only provides names for common contents.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::Path,
};

/// Bytes read at the beginning and at the end, where every file system and volume manager stores something.
const EDGE: u64 = 1 << 20;
/// Number of samples in between, and the length of each.
const SAMPLES: u64 = 64;
const PIECE: u64 = 4096;

/// Magic numbers of contents, with their offsets (file(1)).
const SIGNATURES: [(usize, &[u8], &str); 23] = [
    (0x200, b"EFI PART", "a partition table (GPT)"),
    (0x1000, b"EFI PART", "a partition table (GPT)"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x18, b"LVM2 001", "an LVM physical volume"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a RAID array member (md)"),
    (0, b"\xfc\x4e\x2b\xa9", "a RAID array member (md)"),
    (0x438, b"\x53\xef", "a file system (ext2, ext3 or ext4)"),
    (0, b"XFSB", "a file system (XFS)"),
    (0x10040, b"_BHRfS_M", "a file system (btrfs)"),
    (0x400, b"\x10\x20\xf5\xf2", "a file system (F2FS)"),
    (0, b"hsqs", "a file system (SquashFS)"),
    (0x400, b"\xe2\xe1\xf5\xe0", "a file system (EROFS)"),
    (0x8001, b"CD001", "a file system (ISO 9660)"),
    (3, b"NTFS    ", "a file system (NTFS)"),
    (3, b"EXFAT   ", "a file system (exFAT)"),
    (0x52, b"FAT32   ", "a file system (FAT)"),
    (0x36, b"FAT1", "a file system (FAT)"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"bluestore block device", "a Ceph store"),
    (0, b"QFI\xfb", "a disk image (qcow2)"),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a cache (bcache)"),
    // The MBR is last, since bootable file systems have its signature too.
    (0x1fe, b"\x55\xaa", "a partition table or boot record (MBR)"),
];

/// Returns the content found; `None` if there is none, or no such file.
pub(super) fn look(path: &Path) -> io::Result<Option<String>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let length = file.seek(SeekFrom::End(0))?;
    let first = piece(&file, 0, EDGE.min(length))?;
    if let Some(name) = named(&first) {
        return Ok(Some(name.to_owned()));
    }
    if let Some(at) = first.iter().position(|byte| *byte != 0) {
        return Ok(Some(format!("data at byte {at}")));
    }
    anywhere(&file, length)
}

fn named(first: &[u8]) -> Option<&'static str> {
    let is = |(at, magic, _): &&(usize, &[u8], &str)| first.get(*at..).is_some_and(|rest| rest.starts_with(magic));
    SIGNATURES.iter().find(is).map(|(.., name)| *name)
}

/// Searches for data at the end and in between.
fn anywhere(file: &File, length: u64) -> io::Result<Option<String>> {
    let end = (length.saturating_sub(EDGE), EDGE.min(length));
    let room = length.saturating_sub(PIECE);
    // 128 bits, since the product exceeds 64 bits if a device has more than 2^58 bytes.
    let between = |number: u64| (u128::from(room) * u128::from(number) / u128::from(SAMPLES)) as u64;
    let between = (0..SAMPLES).map(|number| (between(number), PIECE.min(length)));
    for (at, size) in std::iter::once(end).chain(between) {
        if let Some(found) = piece(file, at, size)?.iter().position(|byte| *byte != 0) {
            return Ok(Some(format!("data at byte {}", at + found as u64)));
        }
    }
    Ok(None)
}

fn piece(file: &File, at: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; size as usize];
    file.read_exact_at(&mut piece, at)?;
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pieces: &[(u64, &[u8])]) -> Option<String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(64 << 20).expect("room");
        for (at, bytes) in pieces {
            file.as_file().write_all_at(bytes, *at).expect("written");
        }
        look(file.path()).expect("read")
    }

    #[test]
    fn each_signature_is_found_where_it_is() {
        for (at, magic, name) in SIGNATURES {
            assert_eq!(found(&[(at as u64, magic)]).as_deref(), Some(name));
        }
    }

    #[test]
    fn a_file_system_that_boots_is_called_by_its_name() {
        let fat = found(&[(0x52, b"FAT32   "), (0x1fe, b"\x55\xaa")]);
        assert_eq!(fat.as_deref(), Some("a file system (FAT)"));
    }

    #[test]
    fn other_data_is_found_at_the_edges_and_between() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(700, b"x")]).as_deref(), Some("data at byte 700"));
        assert_eq!(found(&[((64 << 20) - 1, b"x")]).as_deref(), Some("data at byte 67108863"));
        assert!(found(&[(20 << 20, &[7; 2 << 20])]).is_some_and(|what| what.starts_with("data at byte")));
        assert_eq!(look(Path::new("/no/such/file")).expect("nothing"), None);
    }
}
