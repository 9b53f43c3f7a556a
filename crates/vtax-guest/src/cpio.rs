//! An initramfs: an archive in cpio's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).

/// Type bits of a mode, inode(7).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;
const SYMLINK: u32 = 0o120_000;

#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

#[derive(Default)]
struct Entry<'a> {
    name: &'a str,
    mode: u32,
    data: &'a [u8],
    device: (u32, u32),
}

impl Archive {
    /// Adds a world-readable directory. Its parent must exist already.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(&Entry { name, mode: DIRECTORY | 0o755, ..Entry::default() });
    }

    pub(super) fn program(&mut self, name: &str, data: &[u8]) {
        self.entry(&Entry { name, mode: REGULAR | 0o755, data, ..Entry::default() });
    }

    pub(super) fn file(&mut self, name: &str, data: &[u8]) {
        self.entry(&Entry { name, mode: REGULAR | 0o644, data, ..Entry::default() });
    }

    pub(super) fn symlink(&mut self, name: &str, target: &str) {
        self.entry(&Entry { name, mode: SYMLINK | 0o777, data: target.as_bytes(), ..Entry::default() });
    }

    pub(super) fn character_device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(&Entry { name, mode: CHARACTER | 0o600, device: (major, minor), ..Entry::default() });
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(&Entry { name: "TRAILER!!!", ..Entry::default() });
        self.bytes
    }

    /// The same content gives the same bytes: there are no times, and inode numbers are consecutive.
    fn entry(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        let size = u32::try_from(entry.data.len()).expect("nothing of 4 GiB goes into an initramfs");
        let name_size = u32::try_from(entry.name.len() + 1).expect("names are short");
        let (ino, mode, links) = (self.entries, entry.mode, 1);
        let (user, group, time, major, minor, check) = (0, 0, 0, 0, 0, 0);
        let (device_major, device_minor) = entry.device;
        self.bytes.extend_from_slice(b"070701");
        for field in
            [ino, mode, user, group, links, time, size, major, minor, device_major, device_minor, name_size, check]
        {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(entry.name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(entry.data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_110_bytes_of_text_then_name_then_data_each_aligned() {
        let mut archive = Archive::default();
        archive.file("a", b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("07070100000001000081a4"), "{text}");
        assert_eq!(&bytes[54..62], b"00000005", "the size");
        assert_eq!(&bytes[94..102], b"00000002", "the name's size with its zero");
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..120], b"hello\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(text.trim_end_matches('\0').ends_with("TRAILER!!!"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn a_device_carries_its_numbers() {
        let mut archive = Archive::default();
        archive.character_device("dev/console", 5, 1);
        let bytes = archive.finish();
        assert_eq!(&bytes[14..22], b"00002180");
        assert_eq!(&bytes[78..94], b"0000000500000001");
    }
}
