//! Checks of the user's disk image before a guest starts: that it can be read, that its format is one that
//! vtax boots, and that the images that it is based on are there too.
//!
//! QEMU would report some of this later, when a lab must be taken down again. With a file that is no disk at
//! all, vtax would only wait for the guest.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileExt, FileTypeExt},
    path::{Path, PathBuf},
};

use super::{
    error::{GuestError, MissingForGuests},
    launch::DiskFormat,
};

/// A sector. The magic numbers of all kinds of images lie in the first one.
const SECTOR: usize = 512;
/// The end of the first sector of a disk that a BIOS boots, and of one for UEFI (UEFI specification, 5.2.3).
const BOOT_RECORD: &[u8] = &[0x55, 0xaa];
/// The longest chain of images that are each based on the next. A longer one is most likely a circle.
const CHAIN: usize = 64;
/// The longest name of a file that a qcow2 is based on (docs/interop/qcow2.rst in QEMU).
const NAME: u32 = 1023;
const CONVERT: &str = "convert it: qemu-img convert -O qcow2 IMAGE disk.qcow2";
const UNPACK: &str = "unpack it";

/// Other kinds of files: the offset of the magic number, the number, what the file is, and the remedy.
const OTHERS: [(usize, &[u8], &str, &str); 13] = [
    (0, b"KDMV", "is of VMware's format (VMDK)", CONVERT),
    (0, b"# Disk DescriptorFile", "is of VMware's format (VMDK)", CONVERT),
    (0, b"vhdxfile", "is of Hyper-V's format (VHDX)", CONVERT),
    (0, b"conectix", "is of Virtual PC's format (VHD)", CONVERT),
    (0, b"QED\0", "is of the format QED", CONVERT),
    (0x40, b"\x7f\x10\xda\xbe", "is of VirtualBox's format (VDI)", CONVERT),
    (0, b"\xfd7zXZ\0", "is packed (xz)", UNPACK),
    (0, b"\x1f\x8b", "is packed (gzip)", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "is packed (zstd)", UNPACK),
    (0, b"BZh", "is packed (bzip2)", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "is packed (7z)", UNPACK),
    (0, b"PK\x03\x04", "is packed (zip)", UNPACK),
    (257, b"ustar", "is a tar archive", "unpack it, and name the image that is in it"),
];

/// The image by its absolute path, and its format.
pub fn inspect(image: &Path) -> Result<(PathBuf, DiskFormat), GuestError> {
    let bad = |problem| refuse(image, problem);
    let disk = fs::canonicalize(image).map_err(|error| bad(unreadable(&error)))?;
    let format = check(&disk).map_err(bad)?;
    if format == DiskFormat::Qcow2 {
        follow(&disk).map_err(bad)?;
    }
    Ok((disk, format))
}

/// The images that a qcow2 is based on, each on the next.
pub(super) fn bases(disk: &Path) -> Result<Vec<PathBuf>, GuestError> {
    follow(disk).map_err(|problem| refuse(disk, problem))
}

/// What is wrong, and what to do.
type Problem = (String, &'static str);

const NAME_ONE: &str = "name a qcow2 or raw image that can be read";

fn refuse(image: &Path, (why, remedy): Problem) -> GuestError {
    MissingForGuests::Disk { path: image.to_owned(), why, remedy }.into()
}

fn unreadable(error: &io::Error) -> Problem {
    (format!("can't be used: {error}"), NAME_ONE)
}

fn check(disk: &Path) -> Result<DiskFormat, Problem> {
    let sector = first_sector(disk).map_err(|error| unreadable(&error))?;
    if sector.starts_with(b"QFI\xfb") {
        return Ok(DiskFormat::Qcow2);
    }
    let at = |offset: usize, magic: &[u8]| sector.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if let Some((.., what, remedy)) = OTHERS.into_iter().find(|(offset, magic, ..)| at(*offset, magic)) {
        return Err((what.to_owned(), remedy));
    }
    match at(SECTOR - BOOT_RECORD.len(), BOOT_RECORD) {
        true => Ok(DiskFormat::Raw),
        false => Err((
            "is neither qcow2 nor a disk with a boot record".to_owned(),
            "name an image of a whole disk that boots",
        )),
    }
}

/// Opens only files and disks. Opening a pipe would wait for a writer.
fn first_sector(disk: &Path) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(disk)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::other("it is no file"));
    }
    let mut sector = Vec::new();
    File::open(disk)?.take(SECTOR as u64).read_to_end(&mut sector)?;
    Ok(sector)
}

/// Checks all images that a qcow2 is based on. One that isn't a file is QEMU's to open.
fn follow(disk: &Path) -> Result<Vec<PathBuf>, Problem> {
    let (mut image, mut bases) = (disk.to_owned(), Vec::new());
    for _ in 0..CHAIN {
        let based = base(&image).map_err(|why| (described(&image, disk, why), NAME_ONE))?;
        let Some(based) = based else { return Ok(bases) };
        let about = |error: io::Error| {
            let why = format!("is based on {}, which can't be used: {error}", based.display());
            (why, "put that back, or make the image one of its own: qemu-img rebase -b ''")
        };
        let sector = first_sector(&based).map_err(about)?;
        bases.push(based.clone());
        if !sector.starts_with(b"QFI\xfb") {
            return Ok(bases);
        }
        image = based;
    }
    Err((format!("is based on more than {CHAIN} images, each on the next"), CONVERT))
}

fn described(image: &Path, disk: &Path, why: String) -> String {
    if image == disk { why } else { format!("is based on {}, which {why}", image.display()) }
}

/// The file that a qcow2 is based on. QEMU checks other bases (`nbd:`, `json:`).
fn base(image: &Path) -> Result<Option<PathBuf>, String> {
    let damaged = |error: io::Error| format!("is a damaged qcow2: {error}");
    let file = File::open(image).map_err(damaged)?;
    let mut header = [0; 36];
    file.read_exact_at(&mut header, 0).map_err(damaged)?;
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (version, length, encryption) = (word(4), word(16), word(32));
    match (version, length, encryption) {
        (version, ..) if !(2..=3).contains(&version) => Err(format!("is qcow2 of version {version}, not 2 or 3")),
        (.., encryption) if encryption != 0 => Err("is encrypted".to_owned()),
        (_, 0, _) => Ok(None),
        (_, length, _) if length > NAME => Err("is a damaged qcow2: the name of its base is too long".to_owned()),
        _ => {
            let mut name = vec![0; length as usize];
            let offset = u64::from_be_bytes(header[8..16].try_into().expect("eight bytes"));
            file.read_exact_at(&mut name, offset).map_err(damaged)?;
            Ok(path_of(&String::from_utf8_lossy(&name), image))
        }
    }
}

/// QEMU's rules: text before a colon and no slash is a protocol; a relative path starts at the image's directory.
fn path_of(name: &str, image: &Path) -> Option<PathBuf> {
    let name = match name.split_once(':') {
        Some(("file", path)) => path,
        Some((protocol, _)) if !protocol.contains('/') => return None,
        _ => name,
    };
    Some(image.parent().unwrap_or(Path::new("/")).join(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn qcow2(version: u32, base: &str, encryption: u32) -> Vec<u8> {
        let mut image = b"QFI\xfb".to_vec();
        image.extend(version.to_be_bytes());
        image.extend(512_u64.to_be_bytes());
        image.extend(u32::try_from(base.len()).expect("short").to_be_bytes());
        image.extend([0; 12]);
        image.extend(encryption.to_be_bytes());
        image.resize(512, 0);
        image.extend(base.as_bytes());
        image
    }

    fn raw() -> Vec<u8> {
        let mut image = vec![0; 4096];
        image[510..512].copy_from_slice(BOOT_RECORD);
        image
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            Folder(tempfile::tempdir().expect("a folder"))
        }

        fn put(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, content).expect("ours");
            path
        }

        fn refused(&self, content: &[u8]) -> String {
            inspect(&self.put("disk", content)).expect_err("no disk for a guest").to_string()
        }
    }

    #[test]
    fn both_formats_are_known_by_their_content() {
        let folder = Folder::new();
        let disk = folder.put("a.img", &qcow2(3, "", 0));
        symlink("a.img", folder.0.path().join("link.raw")).expect("ours");
        let found = inspect(&folder.0.path().join("link.raw")).expect("a disk");
        assert_eq!(found, (fs::canonicalize(disk).expect("there"), DiskFormat::Qcow2));
        assert_eq!(inspect(&folder.put("b.qcow2", &raw())).expect("a disk").1, DiskFormat::Raw);
    }

    #[test]
    fn what_is_no_disk_is_refused_with_what_helps() {
        let folder = Folder::new();
        let refused = |content: &[u8]| folder.refused(content);
        assert!(refused(b"").contains("neither qcow2 nor a disk with a boot record"));
        assert!(refused(b"#!/bin/sh\n").contains("neither qcow2 nor a disk with a boot record"));
        let packed = refused(b"\xfd7zXZ\0 and more");
        assert!(packed.ends_with("disk is packed (xz); unpack it"), "{packed}");
        let foreign = refused(b"KDMV\x01");
        assert!(foreign.contains("VMware") && foreign.contains("qemu-img convert"), "{foreign}");
        assert!(refused(&qcow2(1, "", 0)).contains("version 1"));
        assert!(refused(&qcow2(3, "", 2)).contains("is encrypted"));
        assert!(refused(&qcow2(3, "", 0)[..20]).contains("damaged"));
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let refused = |path: &str| inspect(Path::new(path)).expect_err("no file").to_string();
        assert_eq!(
            refused("/no/such.qcow2"),
            "the disk image /no/such.qcow2 can't be used: No such file or directory (os error 2); \
             name a qcow2 or raw image that can be read"
        );
        assert!(refused("/").contains("is a directory"));
        assert!(refused("/dev/null").contains("it is no file"));
    }

    #[test]
    fn what_an_image_is_based_on_must_be_there() {
        let folder = Folder::new();
        let top = folder.put("top.qcow2", &qcow2(3, "middle.qcow2", 0));
        let refused = || inspect(&top).expect_err("a gap").to_string();
        assert!(refused().contains("is based on") && refused().contains("middle.qcow2, which can't be used: No such"));
        folder.put("middle.qcow2", &qcow2(2, "file:bottom.raw", 0));
        assert!(refused().contains("bottom.raw, which can't be used"), "{}", refused());
        folder.put("bottom.raw", b"anything");
        inspect(&top).expect("all is there");
        folder.put("middle.qcow2", &qcow2(3, "top.qcow2", 0));
        assert!(refused().contains("more than 64 images"), "{}", refused());
        folder.put("middle.qcow2", &qcow2(3, "nbd:10.0.0.1:10809", 0));
        inspect(&top).expect("QEMU has to tell");
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(mut content in proptest::collection::vec(any::<u8>(), 0..600), magic in any::<bool>()) {
            if magic && content.len() > 4 {
                content[..4].copy_from_slice(b"QFI\xfb");
            }
            let folder = Folder::new();
            let _ = inspect(&folder.put("disk", &content));
        }
    }

    /// The first sectors of what a user calls a disk, and the images that it says it is based on.
    #[test]
    fn fuzz_disks() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("base"), raw()).expect("written");
        let seeds = [qcow2(3, "", 0), qcow2(2, "base", 0), qcow2(3, "disk", 0), raw(), qcow2(3, "nbd:x", 0)];
        vtax_fuzz::fuzz("disks", &seeds, move |bytes| {
            let disk = folder.path().join("disk");
            fs::write(&disk, bytes).expect("written");
            let told = |error: &GuestError| assert!(error.to_string().contains("disk"), "{error}");
            let _ = inspect(&disk).inspect_err(told);
            bytes.starts_with(b"QFI\xfb").then_some(()).or(check(&disk).ok().map(|_| ()))
        });
    }
}
