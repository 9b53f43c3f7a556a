//! The uncompressed kernel, extracted from its bzImage.
//!
//! A bzImage unpacks itself, which under TCG is a third of a guest's time to its first process. QEMU can also start the
//! plain ELF file, at the entry of the PVH boot protocol (Xen's docs/misc/pvh.pandoc), so it is unpacked here once.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use flate2::read::GzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use vtax_sys::foreign_file;
use xxhash_rust::xxh3::xxh3_128;

use super::{elf::Elf, error::GuestError, image, kernel::Kernel};

/// A kernel has tens of MiB.
const LARGEST: u64 = 512 << 20;
/// Kernels are large: the current one and the previous one.
const KEPT: usize = 2;
/// `XEN_ELFNOTE_PHYS32_ENTRY`.
const PVH_ENTRY: u32 = 18;

impl Kernel {
    /// Image to pass to QEMU: the unpacked kernel, or the image if it can't be unpacked or has no entry for PVH.
    pub fn bootable(&self) -> Result<PathBuf, GuestError> {
        let packed = foreign_file::read(&self.image, LARGEST).map_err(GuestError::file("read", &self.image))?;
        let folder = image::cache()?.join("kernels");
        bootable(&packed, &folder).map(|unpacked| unpacked.unwrap_or_else(|| self.image.clone()))
    }
}

fn bootable(packed: &[u8], folder: &Path) -> Result<Option<PathBuf>, GuestError> {
    let name = format!("{:032x}.vmlinux", xxh3_128(packed));
    if let Some(path) = image::recall(folder, &name) {
        return Ok(Some(path));
    }
    match unpack(packed).filter(|kernel| has_pvh_entry(kernel)) {
        Some(kernel) => image::store(folder, &name, &kernel, KEPT).map(Some),
        None => Ok(None),
    }
}

/// The payload of a bzImage (Documentation/arch/x86/boot.rst, `payload_offset`, from the protected-mode part on).
fn unpack(image: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?));
    if number(0x202)? != u32::from_le_bytes(*b"HdrS") {
        return None;
    }
    // Zero set-up sectors mean four.
    let sectors = match usize::from(*image.get(0x1f1)?) {
        0 => 4,
        sectors => sectors,
    };
    let start = (sectors + 1) * 512 + usize::try_from(number(0x248)?).ok()?;
    let length = usize::try_from(number(0x24c)?).ok()?;
    read(image.get(start..start.checked_add(length)?)?).ok()
}

/// Unpacks the kernel according to its first bytes. The build appends the unpacked length to the packed data.
fn read(payload: &[u8]) -> io::Result<Vec<u8>> {
    let mut reader: Box<dyn Read + '_> = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(StreamingDecoder::new(payload).map_err(io::Error::other)?),
        [0x1f, 0x8b, ..] => Box::new(GzDecoder::new(payload)),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Box::new(XzReader::new(payload, false)),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let mut kernel = Vec::new();
    reader.by_ref().take(LARGEST).read_to_end(&mut kernel)?;
    Ok(kernel)
}

fn has_pvh_entry(kernel: &[u8]) -> bool {
    Elf::parse(kernel).is_some_and(|elf| elf.has_note(b"Xen", PVH_ENTRY))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use proptest::prelude::*;

    use super::*;
    use crate::elf::object;

    fn note(kind: u32) -> Vec<u8> {
        let header = [4u32, 8, kind].map(u32::to_le_bytes).concat();
        [header, b"Xen\0".to_vec(), vec![0; 8]].concat()
    }

    fn image(kernel: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        writer.write_all(kernel).expect("memory");
        let payload = writer.finish().expect("memory");
        let mut bytes = vec![0; 5 * 512 + 16];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        bytes[0x24c..0x250].copy_from_slice(&(payload.len() as u32 + 4).to_le_bytes());
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&(kernel.len() as u32).to_le_bytes());
        bytes
    }

    #[test]
    fn a_kernel_with_an_entry_for_pvh_is_unpacked_once() {
        let base = tempfile::tempdir().expect("a folder");
        let kernel = object(".notes", &[note(7), note(PVH_ENTRY)].concat());
        let path = bootable(&image(&kernel), base.path()).expect("written").expect("unpacked");
        assert_eq!(fs::read(&path).expect("there"), kernel);
        // A file of another length would be made again.
        let left = vec![b'x'; kernel.len()];
        fs::write(&path, &left).expect("ours");
        assert_eq!(bootable(&image(&kernel), base.path()).expect("there"), Some(path.clone()));
        assert_eq!(fs::read(&path).expect("there"), left);
    }

    #[test]
    fn other_kernels_are_booted_unchanged() {
        let base = tempfile::tempdir().expect("a folder");
        assert_eq!(bootable(&image(&object(".notes", &note(7))), base.path()).expect("read"), None);
        assert_eq!(bootable(&image(b"no kernel"), base.path()).expect("read"), None);
        assert_eq!(bootable(b"no image", base.path()).expect("read"), None);
    }

    proptest! {
        #[test]
        fn no_image_makes_unpacking_panic(at in 0usize..3000, value: u8, notes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = image(&object(".notes", &notes));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            let _ = unpack(&bytes).map(|kernel| has_pvh_entry(&kernel));
        }
    }

    /// Plain, compressed, or in a bzImage: the first byte selects the reader.
    #[test]
    fn fuzz_boot_files() {
        use crate::{kernel, modules};
        let info = object(".modinfo", b"depends=a,b\0softdep=pre: c\0");
        let notes = object(".notes", &[note(7), note(PVH_ENTRY)].concat());
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&info).expect("memory");
        let gzip = gzip.finish().expect("memory");
        let zstd = ruzstd::encoding::compress_to_vec(&info[..], ruzstd::encoding::CompressionLevel::Fastest);
        let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).expect("options");
        xz.write_all(&info).expect("memory");
        let xz = xz.finish().expect("memory");
        let of = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
        let seeds = [of(0, &image(&notes)), of(1, &info), of(1, &notes), of(2, &gzip), of(3, &xz), of(4, &zstd)];
        vtax_fuzz::fuzz("boot-files", &seeds, |input| {
            let (kind, bytes) = input.split_first()?;
            let unpacked = match kind % 5 {
                0 => {
                    kernel::parse_release(bytes);
                    unpack(bytes)?
                }
                1 => bytes.to_vec(),
                2 => modules::unpack(Path::new("a.ko.gz"), bytes).ok()?,
                3 => modules::unpack(Path::new("a.ko.xz"), bytes).ok()?,
                _ => modules::unpack(Path::new("a.ko.zst"), bytes).ok()?,
            };
            has_pvh_entry(&unpacked);
            let elf = Elf::parse(&unpacked)?;
            elf.needs_loader();
            modules::about(&unpacked);
            Some(())
        });
    }
}
