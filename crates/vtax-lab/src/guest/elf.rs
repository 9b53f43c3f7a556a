//! The little that must be known of an ELF file (elf(5)), 64 bits and little-endian.

/// Program header of a dynamic loader's path.
const PT_INTERP: u32 = 3;
const EM_X86_64: u16 = 62;

/// A file of this machine's kind. Whatever it says of itself is checked against its length.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elf<'a> {
    bytes: &'a [u8],
}

impl<'a> Elf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Elf<'a>> {
        // ELF, 64 bits, little-endian.
        let elf = Elf { bytes };
        (bytes.get(..6)? == b"\x7fELF\x02\x01" && elf.u16(18)? == EM_X86_64).then_some(elf)
    }

    /// Whether it needs a loader, and so the libraries of a whole system.
    pub(super) fn needs_loader(self) -> bool {
        let headers = self.table(32, 54, 56).unwrap_or_default();
        headers.into_iter().any(|header| self.u32(header) == Some(PT_INTERP))
    }

    /// What a section holds.
    pub(super) fn section(self, name: &str) -> Option<&'a [u8]> {
        let headers = self.table(40, 58, 60)?;
        let names = self.content(*headers.get(usize::from(self.u16(62)?))?)?;
        let wanted = headers.iter().find(|header| self.section_name(names, **header) == Some(name.as_bytes()))?;
        self.content(*wanted)
    }

    fn section_name(self, names: &'a [u8], header: usize) -> Option<&'a [u8]> {
        let rest = names.get(usize::try_from(self.u32(header)?).ok()?..)?;
        rest.split(|byte| *byte == 0).next()
    }

    /// A section's bytes, by the offset of its header.
    fn content(self, header: usize) -> Option<&'a [u8]> {
        let start = self.offset(header.checked_add(24)?)?;
        let size = self.offset(header.checked_add(32)?)?;
        self.bytes.get(start..start.checked_add(size)?)
    }

    /// Offsets of a table's entries. `start`, `size` and `count` are where the file's header
    /// tells them.
    fn table(self, start: usize, size: usize, count: usize) -> Option<Vec<usize>> {
        let (start, size) = (self.offset(start)?, usize::from(self.u16(size)?));
        (0..usize::from(self.u16(count)?)).map(|index| start.checked_add(size * index)).collect()
    }

    fn offset(self, at: usize) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.array(at)?)).ok()
    }

    fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.array(at)?))
    }

    fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.array(at)?))
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }
}

/// An object of one section, for tests that need a kernel module.
#[cfg(test)]
pub(super) fn object(section: &str, content: &[u8]) -> Vec<u8> {
    const HEADER: usize = 64;
    let names = format!("\0{section}\0");
    let mut bytes = vec![0; HEADER];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&EM_X86_64.to_le_bytes());
    let (names_at, content_at) = (HEADER, HEADER + names.len());
    let table = content_at + content.len();
    bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
    bytes[58..60].copy_from_slice(&64u16.to_le_bytes());
    bytes[60..62].copy_from_slice(&2u16.to_le_bytes());
    bytes.extend_from_slice(names.as_bytes());
    bytes.extend_from_slice(content);
    for (name, at, size) in [(0u32, names_at, names.len()), (1, content_at, content.len())] {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
        bytes.extend_from_slice(&header);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_section_is_found_by_its_name() {
        let bytes = object(".modinfo", b"depends=a,b\0");
        let elf = Elf::parse(&bytes).expect("an object");
        assert_eq!(elf.section(".modinfo"), Some(&b"depends=a,b\0"[..]));
        assert_eq!(elf.section(".text"), None);
    }

    #[test]
    fn a_static_program_is_told_from_one_that_needs_a_loader() {
        let own = std::fs::read("/proc/self/exe").expect("this test");
        assert!(!Elf::parse(&own).expect("a program").needs_loader(), "everything here is linked statically");
        let shell = std::fs::read("/bin/sh").expect("a shell");
        assert!(Elf::parse(&shell).expect("a program").needs_loader());
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Elf::parse(b"#!/bin/sh").is_none());
        assert!(Elf::parse(b"").is_none());
    }

    proptest! {
        #[test]
        fn broken_objects_never_panic(
            content in proptest::collection::vec(any::<u8>(), 0..64),
            at in 0usize..300,
            value: u8,
        ) {
            let mut bytes = object(".modinfo", &content);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            if let Some(elf) = Elf::parse(&bytes) {
                let _ = (elf.section(".modinfo"), elf.needs_loader());
            }
        }
    }
}
