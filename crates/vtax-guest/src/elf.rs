//! Facts about an ELF file (elf(5)): whether it needs a loader, a section, a note.

use object::{
    Architecture, LittleEndian, Object as _, ObjectSection as _,
    elf::PT_INTERP,
    read::elf::{ElfFile64, ProgramHeader as _, SectionHeader as _},
};

/// A file of this machine's kind. The library checks all offsets and sizes against the file's length.
pub(super) struct Elf<'a>(ElfFile64<'a, LittleEndian>);

impl<'a> Elf<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Elf<'a>> {
        let file = ElfFile64::parse(bytes).ok()?;
        (file.architecture() == Architecture::X86_64).then_some(Elf(file))
    }

    /// Returns whether it needs a loader, and so the libraries of a whole system.
    pub(super) fn needs_loader(&self) -> bool {
        self.0.elf_program_headers().iter().any(|header| header.p_type(LittleEndian) == PT_INTERP)
    }

    pub(super) fn section(&self, name: &str) -> Option<&'a [u8]> {
        self.0.section_by_name(name)?.data().ok()
    }

    pub(super) fn has_note(&self, owner: &[u8], kind: u32) -> bool {
        let sections = self.0.elf_section_table().iter();
        let notes = sections.filter_map(|section| section.notes(LittleEndian, self.0.data()).ok()?);
        // A damaged note list ends at its first damaged note.
        let mut notes = notes.flat_map(|mut notes| std::iter::from_fn(move || notes.next().ok()?));
        notes.any(|note| note.name() == owner && note.n_type(LittleEndian).0 == kind)
    }
}

/// An object with one section, for tests that need a kernel module or a kernel.
#[cfg(test)]
pub(super) fn object(section: &str, content: &[u8]) -> Vec<u8> {
    use object::elf::{EM_X86_64, SHT_NOTE, SHT_PROGBITS, SHT_STRTAB};
    const HEADER: usize = 64;
    let names = format!("\0{section}\0");
    let mut bytes = vec![0; HEADER];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[18..20].copy_from_slice(&EM_X86_64.0.to_le_bytes());
    let (names_at, content_at) = (HEADER, HEADER + names.len());
    let table = content_at + content.len();
    bytes[40..48].copy_from_slice(&(table as u64).to_le_bytes());
    // The size of a section header, the number of headers, and the index of the names.
    bytes[58..64].copy_from_slice(&[64, 0, 3, 0, 1, 0]);
    bytes.extend_from_slice(names.as_bytes());
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&[0; HEADER]);
    let kind = if section == ".notes" { SHT_NOTE } else { SHT_PROGBITS };
    for (name, kind, at, size) in [(0u32, SHT_STRTAB, names_at, names.len()), (1, kind, content_at, content.len())] {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&name.to_le_bytes());
        header[4..8].copy_from_slice(&kind.0.to_le_bytes());
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
    fn a_static_program_differs_from_one_that_needs_a_loader() {
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
                let _ = (elf.section(".modinfo"), elf.needs_loader(), elf.has_note(b"Xen", 18));
            }
        }
    }
}
