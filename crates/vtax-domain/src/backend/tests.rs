use std::{fs, path::Path};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use vtax_model::domain::{Volume, VolumeFormat, VolumeOption};

use super::{BackendError, DiskBackend, find_format, image::made};

fn volume(path: &Path, options: &[VolumeOption], slice: Option<&str>, format: VolumeFormat) -> Volume {
    Volume {
        backend: path.display().to_string(),
        format,
        options: options.iter().copied().collect(),
        slice: slice.map(|slice| slice.parse().expect("a slice")),
        mpgroup: None,
    }
}

fn raw(path: &Path, slice: Option<&str>) -> Volume {
    volume(path, &[], slice, VolumeFormat::Raw)
}

fn refused(volume: &Volume) -> String {
    DiskBackend::look(volume).expect_err("refused").to_string()
}

#[test]
fn a_file_is_as_large_as_its_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    assert!(refused(&raw(&path, None)).contains("No such file"));
    fs::write(&path, b"").expect("ours");
    assert!(refused(&raw(&path, None)).contains("is empty"));
    fs::write(&path, [0; 1000]).expect("ours");
    assert!(refused(&raw(&path, None)).contains("whole number of 512-byte sectors"));
    fs::write(&path, [0; 4096]).expect("ours");
    assert_eq!(DiskBackend::look(&raw(&path, None)).expect("a disk").size.0, 4096);
    assert_eq!(DiskBackend::look(&raw(&path, Some("512+1K"))).expect("a disk").size.0, 1024);
    assert!(refused(&raw(&path, Some("4K+512"))).contains("ends at 4 KiB, before the end of slice=4K+512"));
    assert!(refused(&volume(&path, &[VolumeOption::Slice], None, VolumeFormat::Raw)).contains("is not a partition"));
    assert!(refused(&raw(folder.path(), None)).contains("neither a file nor a block device"));
    assert!(refused(&raw("/dev/null".as_ref(), None)).contains("neither a file nor a block device"));
}

#[test]
fn a_raw_disk_stays_raw_whatever_a_domain_writes() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("ours");
        path.display().to_string()
    };
    let image = made(3, 1 << 20, 0, 0, 0);
    let format = |path: &str| find_format(path).map_err(|error| error.to_string());
    assert_eq!(format(&put("a.qcow2", &image)), Ok(VolumeFormat::Qcow2));
    assert_eq!(format(&put("a.img", &[0; 512])), Ok(VolumeFormat::Raw));
    assert_eq!(format("/no/such.qcow2"), Ok(VolumeFormat::Qcow2), "for one that isn't there yet");
    assert_eq!(format("/no/such"), Ok(VolumeFormat::Raw));
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room");
    assert_eq!(format(&fifo.display().to_string()), Ok(VolumeFormat::Raw), "nobody is waited for");
    assert!(refused(&raw(&fifo, None)).contains("neither a file nor a block device"));
    let told = format(&put("b.img", &image)).expect_err("it may be hostile");
    assert!(told.contains("use format=qcow2 or format=raw"), "{told}");
    assert!(format(&put("b.qcow2", &[0; 512])).expect_err("none").contains("is not a qcow2 image"));

    let path = folder.path().join("a.qcow2");
    let of = |format| DiskBackend::look(&volume(&path, &[], None, format)).expect("a disk").size.0;
    assert_eq!((of(VolumeFormat::Qcow2), of(VolumeFormat::Raw)), (1 << 20, 512));
}

#[test]
fn a_file_that_cannot_be_filled_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let check = |volume: &Volume| DiskBackend::look(volume).expect("a disk").check_free(volume, false);
    file.as_file().set_len(1 << 20).expect("a small file");
    check(&raw(file.path(), None)).expect("there is room for it");
    file.as_file().set_len(8 << 40).expect("a file with a hole");
    let error = check(&raw(file.path(), None)).expect_err("no disk is as large");
    assert!(matches!(error, BackendError::NoRoom { .. }), "{error}");
    check(&volume(file.path(), &[VolumeOption::Ro], None, VolumeFormat::Raw)).expect("nobody fills it");
}
