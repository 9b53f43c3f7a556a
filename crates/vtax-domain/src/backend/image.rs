//! Header of a qcow2 image (docs/interop/qcow2.rst in QEMU), as far as it determines whether a domain can have the
//! image.

use std::{fs::File, io, os::unix::fs::FileExt};

/// First bytes of a qcow2 image.
const MAGIC: &[u8] = b"QFI\xfb";
/// Bit of the incompatible features for an image with its blocks in another file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// Contents of the header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageHeader {
    /// Not a qcow2 image.
    Other,
    /// Self-contained image, with its size as a disk.
    Qcow2 { size: u64 },
    /// Image that vtax doesn't use, and the reason.
    Refused(&'static str),
}

/// Reads the header.
pub(super) fn header(file: &File) -> io::Result<ImageHeader> {
    let mut bytes = [0; 80];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    Ok(parse(&bytes[..read]))
}

fn parse(bytes: &[u8]) -> ImageHeader {
    if !bytes.starts_with(MAGIC) {
        return ImageHeader::Other;
    }
    let Some(bytes) = bytes.first_chunk::<80>() else {
        return ImageHeader::Refused("is a damaged qcow2: its header is truncated; restore it");
    };
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let (version, base, encryption, size) = (word(4), long(8), word(32), long(24));
    let features = if version >= 3 { long(72) } else { 0 };
    match () {
        () if !(2..=3).contains(&version) => {
            ImageHeader::Refused("is a qcow2 of an unsupported version; convert it: qemu-img convert -O qcow2")
        }
        () if encryption != 0 => ImageHeader::Refused("is an encrypted qcow2; convert it: qemu-img convert -O qcow2"),
        () if base != 0 => {
            ImageHeader::Refused("is based on another image; make it self-contained: qemu-img rebase -b ''")
        }
        () if features & EXTERNAL_DATA != 0 => {
            ImageHeader::Refused("has its blocks in another file; convert it: qemu-img convert -O qcow2")
        }
        () => ImageHeader::Qcow2 { size },
    }
}

#[cfg(test)]
pub(super) fn made(version: u32, size: u64, base: u64, encryption: u32, features: u64) -> Vec<u8> {
    let mut image = MAGIC.to_vec();
    image.extend(version.to_be_bytes());
    image.extend(base.to_be_bytes());
    image.extend([0; 8]);
    image.extend(size.to_be_bytes());
    image.extend(encryption.to_be_bytes());
    image.resize(72, 0);
    image.extend(features.to_be_bytes());
    image.resize(512, 0);
    image
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_an_image_with_all_its_blocks_is_used() {
        assert_eq!(parse(&made(3, 1 << 30, 0, 0, 0)), ImageHeader::Qcow2 { size: 1 << 30 });
        assert_eq!(parse(&made(2, 5, 0, 0, u64::MAX)), ImageHeader::Qcow2 { size: 5 });
        assert_eq!(parse(b"KDMV"), ImageHeader::Other);
        let refused = [made(1, 5, 0, 0, 0), made(3, 5, 0, 1, 0), made(3, 5, 520, 0, 0), made(3, 5, 0, 0, 4)];
        let words = ["unsupported version", "encrypted", "based on", "another file"];
        for (image, word) in refused.iter().zip(words) {
            assert!(matches!(parse(image), ImageHeader::Refused(why) if why.contains(word)), "{word}");
        }
        assert!(matches!(parse(b"QFI\xfb"), ImageHeader::Refused(why) if why.contains("truncated")));
    }

    proptest! {
        #[test]
        fn no_header_makes_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
            bytes.splice(..0, MAGIC.iter().copied());
            let _ = parse(&bytes);
        }
    }
}
