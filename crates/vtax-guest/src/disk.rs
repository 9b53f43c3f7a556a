//! Opens a guest's boot image and its backing files.
//!
//! vtax opens them with its own privilege, often root's, and passes descriptors to QEMU. An image names its backing
//! files, and whoever wrote it must not gain access to a host file in this way. So a backing file is opened only if it
//! is next to the image that names it, and every user or the image's owner may read it. Names other than those of files
//! are refused, and so are images with an external data file. A chain of external snapshots is a chain of backing
//! files.
//!
//! Images are also opened before a lab is built, to check them: QEMU would report a wrong format later, when the lab
//! must be removed again. With a file that isn't a disk, vtax would only wait for the guest.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use vtax_model::foreign::ForeignText;
use vtax_sys::foreign_file;

use super::{
    error::{GuestError, MissingForGuests},
    launch::DiskFormat,
};

/// Magic number of qcow2 files.
const MAGIC: &[u8] = b"QFI\xfb";
/// Incompatible feature bit of an external data file.
const EXTERNAL_DATA: u64 = 1 << 2;
/// The header extension with the name of the backing file's format.
const BASE_FORMAT: u32 = 0xe279_2aca;
/// QEMU writes about five header extensions.
const EXTENSIONS: usize = 64;
/// Every user may read the file.
const READABLE: u32 = 0o004;
/// A sector. The magic numbers of all image formats are in the first one.
const SECTOR: usize = 512;
/// The end of the first sector of a disk that a BIOS boots, and of one for UEFI (UEFI specification, 5.2.3).
const BOOT_RECORD: &[u8] = &[0x55, 0xaa];
/// The longest chain of backing files. A longer one is most likely a cycle.
const CHAIN: usize = 64;
/// The longest backing file name in a qcow2 (docs/interop/qcow2.rst in QEMU).
const NAME: u32 = 1023;
const CONVERT: &str = "convert it: qemu-img convert -O qcow2 IMAGE disk.qcow2";
const BESIDE: &str =
    "put the base next to the image, or make the image standalone: qemu-img convert -O qcow2 IMAGE disk.qcow2";
const UNPACK: &str = "unpack it";

/// Other file formats: the offset of the magic number, the number, the format's name, and the remedy.
const OTHERS: [(usize, &[u8], &str, &str); 13] = [
    (0, b"KDMV", "is in VMware's format (VMDK)", CONVERT),
    (0, b"# Disk DescriptorFile", "is in VMware's format (VMDK)", CONVERT),
    (0, b"vhdxfile", "is in Hyper-V's format (VHDX)", CONVERT),
    (0, b"conectix", "is in Virtual PC's format (VHD)", CONVERT),
    (0, b"QED\0", "is in the QED format", CONVERT),
    (0x40, b"\x7f\x10\xda\xbe", "is in VirtualBox's format (VDI)", CONVERT),
    (0, b"\xfd7zXZ\0", "is compressed (xz)", UNPACK),
    (0, b"\x1f\x8b", "is compressed (gzip)", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "is compressed (zstd)", UNPACK),
    (0, b"BZh", "is compressed (bzip2)", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "is compressed (7z)", UNPACK),
    (0, b"PK\x03\x04", "is compressed (zip)", UNPACK),
    (257, b"ustar", "is a tar archive", "unpack it and name the image in it"),
];

/// An image, and the metadata that determine who may read it.
#[derive(Debug)]
pub(super) struct DiskImage {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) format: DiskFormat,
    found: Metadata,
}

impl DiskImage {
    pub(super) fn is_device(&self) -> bool {
        self.found.file_type().is_block_device()
    }
}

/// The image by its absolute path, and its format.
pub fn inspect(image: &Path) -> Result<(PathBuf, DiskFormat), GuestError> {
    let top = open_chain(image, None).map_err(|problem| refuse(image, problem))?.swap_remove(0);
    Ok((top.path, top.format))
}

/// Opens an image of this format, followed by its chain of backing files. All are opened for reading. A raw image stays
/// raw, whatever its guest has written to it since.
pub(super) fn open(image: &Path, format: DiskFormat) -> Result<Vec<DiskImage>, GuestError> {
    open_chain(image, Some(format)).map_err(|problem| refuse(image, problem))
}

/// The problem and the fix.
type Problem = (String, &'static str);

const NAME_ONE: &str = "name a readable qcow2 or raw image";

fn refuse(image: &Path, (why, remedy): Problem) -> GuestError {
    MissingForGuests::Disk { path: image.to_owned(), why, remedy }.into()
}

fn unreadable(error: &io::Error) -> Problem {
    (format!("cannot be used: {error}"), NAME_ONE)
}

fn open_chain(disk: &Path, format: Option<DiskFormat>) -> Result<Vec<DiskImage>, Problem> {
    let top = open_one(disk).map_err(|error| unreadable(&error))?;
    let format = match format {
        Some(format) => format,
        None => check(&top.file).map_err(|error| unreadable(&error))??,
    };
    let mut chain = vec![DiskImage { format, ..top }];
    while let Some(image) = chain.last().filter(|image| image.format == DiskFormat::Qcow2) {
        let header = Qcow2::read(&image.file).map_err(|why| (described(image, &chain, why), NAME_ONE))?;
        let Some(name) = header.base else { return Ok(chain) };
        if image.path.extension().is_none_or(|extension| extension != "qcow2") {
            let why = "has a backing file but is not named *.qcow2: a guest may have written that".to_owned();
            return Err((described(image, &chain, why), "rename it to *.qcow2 if you created it"));
        }
        let base = open_base(image, &name, header.format)?;
        chain.push(base);
        if chain.len() > CHAIN {
            return Err((format!("has a backing chain of more than {CHAIN} images"), CONVERT));
        }
    }
    Ok(chain)
}

/// Opens a file or block device of unknown format.
fn open_one(path: &Path) -> io::Result<DiskImage> {
    let path = fs::canonicalize(path)?;
    let file = foreign_file::open_disk(&path)?;
    let found = file.metadata()?;
    Ok(DiskImage { path, file, format: DiskFormat::Raw, found })
}

/// Opens a backing file if whoever wrote the image may read it.
fn open_base(image: &DiskImage, name: &[u8], format: Option<Vec<u8>>) -> Result<DiskImage, Problem> {
    const BASE: &str = "restore the base, or make the image standalone: qemu-img rebase -b ''";
    let told = ForeignText::from(String::from_utf8_lossy(name));
    let refused = |why: &str| (format!("is based on {told}, which {why}"), BESIDE);
    let path = path_of(name, &image.path).ok_or_else(|| refused("is not a file"))?;
    let about = |error: io::Error| (format!("is based on {told}, which cannot be used: {error}"), BASE);
    let base = open_one(&path).map_err(about)?;
    if base.path.parent() != image.path.parent() || base.is_device() {
        return Err(refused("is not a file next to it"));
    }
    if base.found.mode() & READABLE == 0 && base.found.uid() != image.found.uid() {
        return Err(refused("is readable neither by every user nor by the owner of the image"));
    }
    let sector = first_sector(&base.file).map_err(about)?;
    let format = match (format.as_deref(), kind(&sector)) {
        (Some(b"raw"), _) | (None, Kind::BootDisk | Kind::Unknown) => DiskFormat::Raw,
        (None | Some(b"qcow2"), Kind::Qcow2) => DiskFormat::Qcow2,
        _ => return Err(refused("is neither qcow2 nor raw")),
    };
    Ok(DiskImage { format, ..base })
}

/// Contents of the first sector.
enum Kind {
    Qcow2,
    /// A disk with a boot record.
    BootDisk,
    Other(&'static str, &'static str),
    Unknown,
}

fn kind(sector: &[u8]) -> Kind {
    let at = |offset: usize, magic: &[u8]| sector.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    let other = OTHERS.into_iter().find(|(offset, magic, ..)| at(*offset, magic));
    match other {
        _ if at(0, MAGIC) => Kind::Qcow2,
        Some((.., what, remedy)) => Kind::Other(what, remedy),
        None if at(SECTOR - BOOT_RECORD.len(), BOOT_RECORD) => Kind::BootDisk,
        None => Kind::Unknown,
    }
}

/// The format of a boot image.
fn check(disk: &File) -> io::Result<Result<DiskFormat, Problem>> {
    Ok(match kind(&first_sector(disk)?) {
        Kind::Qcow2 => Ok(DiskFormat::Qcow2),
        Kind::BootDisk => Ok(DiskFormat::Raw),
        Kind::Other(what, remedy) => Err((what.to_owned(), remedy)),
        Kind::Unknown => {
            Err(("is neither qcow2 nor a disk with a boot record".to_owned(), "name a bootable image of a whole disk"))
        }
    })
}

fn first_sector(disk: &File) -> io::Result<Vec<u8>> {
    let (mut sector, mut read) = (vec![0; SECTOR], 0);
    while read < SECTOR {
        match disk.read_at(&mut sector[read..], read as u64)? {
            0 => break,
            count => read += count,
        }
    }
    sector.truncate(read);
    Ok(sector)
}

fn described(image: &DiskImage, chain: &[DiskImage], why: String) -> String {
    match chain.len() {
        1 => why,
        _ => format!("is based on {}, which {why}", ForeignText::from(image.path.to_string_lossy())),
    }
}

/// References to other files in a qcow2 (docs/interop/qcow2.rst in QEMU).
#[derive(Default)]
struct Qcow2 {
    /// The name of the backing file.
    base: Option<Vec<u8>>,
    format: Option<Vec<u8>>,
}

impl Qcow2 {
    fn read(file: &File) -> Result<Qcow2, String> {
        let damaged = |error: io::Error| format!("is a damaged qcow2: {error}");
        let mut header = [0; 104];
        file.read_exact_at(&mut header[..72], 0).map_err(damaged)?;
        let word = |header: &[u8], at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let long = |header: &[u8], at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (version, offset, length, encryption) =
            (word(&header, 4), long(&header, 8), word(&header, 16), word(&header, 32));
        let mut end = 72;
        if version == 3 {
            file.read_exact_at(&mut header, 0).map_err(damaged)?;
            end = u64::from(word(&header, 100));
        }
        match () {
            () if !(2..=3).contains(&version) => return Err(format!("is qcow2 version {version}, not 2 or 3")),
            () if encryption != 0 => return Err("is encrypted".to_owned()),
            () if version == 3 && long(&header, 72) & EXTERNAL_DATA != 0 => {
                return Err("stores its data in another file".to_owned());
            }
            () if length > NAME => {
                return Err("is a damaged qcow2: the name of its backing file is too long".to_owned());
            }
            () if offset == 0 || length == 0 => return Ok(Qcow2::default()),
            () => {}
        }
        let mut name = vec![0; length as usize];
        file.read_exact_at(&mut name, offset).map_err(damaged)?;
        Ok(Qcow2 { base: Some(name), format: base_format(file, end).map_err(damaged)? })
    }
}

/// The backing file's format, among the extensions that begin at `at`.
fn base_format(file: &File, mut at: u64) -> io::Result<Option<Vec<u8>>> {
    for _ in 0..EXTENSIONS {
        let mut head = [0; 8];
        file.read_exact_at(&mut head, at)?;
        let [kind, length] = [0, 4].map(|at| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes")));
        match kind {
            0 => return Ok(None),
            BASE_FORMAT if length <= NAME => {
                let mut format = vec![0; length as usize];
                file.read_exact_at(&mut format, at + 8)?;
                return Ok(Some(format));
            }
            _ => at = at.saturating_add(8 + u64::from(length).next_multiple_of(8)),
        }
    }
    Ok(None)
}

/// QEMU's rules: text before a colon and no slash is a protocol; a relative path starts at the image's directory. None if it
/// isn't the name of a file (`nbd:`, `json:`).
fn path_of(name: &[u8], image: &Path) -> Option<PathBuf> {
    let name = match name.iter().position(|byte| *byte == b':') {
        Some(colon) if &name[..colon] == b"file" => &name[colon + 1..],
        Some(colon) if !name[..colon].contains(&b'/') => return None,
        _ => name,
    };
    Some(image.parent().unwrap_or(Path::new("/")).join(OsStr::from_bytes(name)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

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
    fn files_that_are_not_disks_are_refused_with_a_remedy() {
        let folder = Folder::new();
        let refused = |content: &[u8]| folder.refused(content);
        assert!(refused(b"").contains("neither qcow2 nor a disk with a boot record"));
        assert!(refused(b"#!/bin/sh\n").contains("neither qcow2 nor a disk with a boot record"));
        let packed = refused(b"\xfd7zXZ\0 and more");
        assert!(packed.ends_with("disk is compressed (xz); unpack it"), "{packed}");
        let foreign = refused(b"KDMV\x01");
        assert!(foreign.contains("VMware") && foreign.contains("qemu-img convert"), "{foreign}");
        assert!(refused(&qcow2(1, "", 0)).contains("version 1"));
        assert!(refused(&qcow2(3, "", 2)).contains("is encrypted"));
        assert!(refused(&qcow2(3, "", 0)[..20]).contains("damaged"));
    }

    #[test]
    fn unreadable_images_are_named() {
        let refused = |path: &str| inspect(Path::new(path)).expect_err("no file").to_string();
        assert_eq!(
            refused("/no/such.qcow2"),
            "the disk image /no/such.qcow2 cannot be used: No such file or directory (os error 2); \
             name a readable qcow2 or raw image"
        );
        assert!(refused("/").contains("is a directory"));
        assert!(refused("/dev/null").contains("not a regular file"));
    }

    #[test]
    fn backing_files_must_exist() {
        let folder = Folder::new();
        let top = folder.put("top.qcow2", &qcow2(3, "middle.qcow2", 0));
        let refused = || inspect(&top).expect_err("a gap").to_string();
        assert!(refused().contains("is based on middle.qcow2, which cannot be used: No such"), "{}", refused());
        folder.put("middle.qcow2", &qcow2(2, "file:bottom.raw", 0));
        assert!(refused().contains("bottom.raw, which cannot be used"), "{}", refused());
        folder.put("bottom.raw", b"anything");
        let formats =
            open(&top, DiskFormat::Qcow2).expect("all is there").iter().map(|image| image.format).collect::<Vec<_>>();
        assert_eq!(formats, [DiskFormat::Qcow2, DiskFormat::Qcow2, DiskFormat::Raw]);
        folder.put("middle.qcow2", &qcow2(3, "top.qcow2", 0));
        assert!(refused().contains("more than 64 images"), "{}", refused());
    }

    #[test]
    fn an_image_opens_no_other_file_of_the_host() {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        let secret = elsewhere.put("secret", &raw());
        symlink(&secret, folder.0.path().join("link")).expect("ours");
        fs::create_dir(folder.0.path().join("below")).expect("ours");
        fs::copy(&secret, folder.0.path().join("below/base")).expect("ours");
        let path = secret.to_str().expect("text").to_owned();
        let json = format!("json:{{\"driver\":\"raw\",\"file\":{{\"driver\":\"file\",\"filename\":\"{path}\"}}}}");
        for (base, why) in [
            (path.as_str(), "is not a file next to it"),
            (&format!("file:{path}"), "is not a file next to it"),
            ("link", "is not a file next to it"),
            ("below/base", "is not a file next to it"),
            ("./../../../../../../../etc/hostname", "is not a file next to it"),
            ("/dev/null", "not a regular file"),
            (&json, "is not a file"),
            ("nbd:10.0.0.1:10809", "is not a file"),
            ("nbd+unix:///x?socket=/run/x", "is not a file"),
            ("http://192.0.2.1/x", "is not a file"),
        ] {
            let told = inspect(&folder.put("top.qcow2", &qcow2(3, base, 0))).expect_err(base).to_string();
            assert!(told.contains(why), "{base}: {told}");
        }
        let mut external = qcow2(3, "", 0);
        external[79] = 4;
        assert!(folder.refused(&external).contains("stores its data in another file"));
        let forged = folder.refused(&qcow2(3, "a\nvtax: all is well", 0));
        assert!(!forged.contains('\n'), "{forged}");
        fs::write(folder.0.path().join("base"), raw()).expect("ours");
        assert!(folder.refused(&qcow2(3, "base", 0)).contains("a guest may have written that"));
    }

    #[test]
    fn a_backing_file_that_the_images_owner_may_not_read_is_refused() {
        let folder = Folder::new();
        let (top, base) = (folder.put("top.qcow2", &qcow2(3, "base", 0)), folder.put("base", &raw()));
        let mode = |mode| fs::set_permissions(&base, fs::Permissions::from_mode(mode)).expect("ours");
        mode(0o600);
        inspect(&top).expect("both have one owner");
        // Only root can change a file's owner.
        if chown(&top, Some(12345), None).is_ok() {
            let told = inspect(&top).expect_err("a secret of root's").to_string();
            assert!(told.contains("is readable neither by every user nor by the owner of the image"), "{told}");
            mode(0o644);
            inspect(&top).expect("everybody may read it");
        }
    }

    #[test]
    fn a_backing_file_has_the_format_named_by_the_image() {
        let folder = Folder::new();
        let mut top = qcow2(3, "base", 0);
        // A header of 104 bytes, followed by one extension.
        top[100..104].copy_from_slice(&104_u32.to_be_bytes());
        top[104..108].copy_from_slice(&BASE_FORMAT.to_be_bytes());
        top[108..112].copy_from_slice(&3_u32.to_be_bytes());
        top[112..115].copy_from_slice(b"raw");
        let top = folder.put("top.qcow2", &top);
        // A guest may have written that to its raw disk.
        folder.put("base", &qcow2(3, "/etc/hostname", 0));
        let formats =
            open(&top, DiskFormat::Qcow2).expect("it is raw").iter().map(|image| image.format).collect::<Vec<_>>();
        assert_eq!(formats, [DiskFormat::Qcow2, DiskFormat::Raw]);
    }

    proptest! {
        #[test]
        fn no_image_makes_the_reader_panic(mut content in proptest::collection::vec(any::<u8>(), 0..600), magic in any::<bool>()) {
            if magic && content.len() > 4 {
                content[..4].copy_from_slice(b"QFI\xfb");
            }
            let folder = Folder::new();
            let _ = inspect(&folder.put("disk", &content));
        }
    }

    /// The first sectors of a file that a user gives as a disk, and the backing files that it names.
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
            bytes.starts_with(b"QFI\xfb").then_some(()).or(check(&File::open(&disk).ok()?).ok()?.ok().map(drop))
        });
    }
}
