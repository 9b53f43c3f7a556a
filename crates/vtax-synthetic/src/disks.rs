//! Synthetic study of disks: the host's own and a guest's with several attachments, with 2 to 20 threads.

use vtax_model::{
    cell::{Cell, CellTest, DiskCell, Instrument},
    disk::{BlockIdentity, DiskCpu, DiskIdentity, DiskReport, DiskTest, FilesystemIdentity, IoReport, WriteCache},
    run::{DiskPathRecord, Figures, PathRecord, Placement, Run},
    study::{Row, Study, StudyDisks, StudySubject},
};

use super::{noise, row, study, times, where_missing};

/// Rows, and their factors on the response time.
const ROWS: [(&str, f64); 5] = [
    ("native-disk", 1.0),
    ("virtio-blk", 1.31),
    ("virtio-blk:aio=io_uring,iothread", 1.04),
    ("vhost-user-blk", 1.02),
    ("ide", 3.4),
];

const THREADS: [u32; 6] = [2, 4, 8, 12, 16, 20];

/// Returns a complete run of all rows.
pub fn disks() -> Run {
    let tests = THREADS.map(|threads| format!("random:reads=60,block=8KiB,jobs={threads},range=64MiB"));
    let others = ["random:range=64MiB", "sequential:block=1MiB,range=64MiB"].map(str::to_owned);
    let tests: Vec<String> = tests.into_iter().chain(others).collect();
    let rows: Vec<Row> = ROWS.iter().map(|(name, _)| row(name)).collect();
    run("vdisk", "Virtual disk against bare metal", &tests, &rows)
}

/// Returns a run of two files, one of them in memory.
pub fn files() -> Run {
    let rows = ["disk:/srv/a.img", "disk:/dev/shm/b.img"].map(row);
    let mut run = run("measure", "random of /srv/a.img and /dev/shm/b.img", &["random".to_owned()], &rows);
    let memory = &mut run.header.disks[1].path;
    memory.filesystem = Some(FilesystemIdentity { kind: "tmpfs".into(), options: "rw".into() });
    memory.device = None;
    run
}

fn run(id: &str, title: &str, tests: &[String], rows: &[Row]) -> Run {
    let tests: Vec<DiskTest> = tests.iter().map(|text| text.parse().expect("a test of a disk")).collect();
    let cell = |(variant, disk): (usize, &DiskTest), row: Row| Cell {
        row,
        test: CellTest::Disk(DiskCell { disk: *disk }),
        variant: variant as u32,
        instrument: Instrument::System,
    };
    let cells = tests.iter().enumerate().flat_map(|test| rows.iter().map(move |row| cell(test, *row)));
    let study = Study {
        id: id.parse().expect("a name"),
        title: title.into(),
        question: "What does a disk cost in a guest?".into(),
        baseline: rows[0],
        rows: rows.to_vec(),
        cells: cells.collect(),
        subject: StudySubject::Disks(StudyDisks::default()),
        ..study("demo")
    };
    let mut run = where_missing(study, Vec::new());
    run.header.placement = Placement::default();
    run
}

/// Returns the record of each row's disk path.
pub(crate) fn records(study: &Study) -> Vec<DiskPathRecord> {
    if study.cells.iter().all(|cell| cell.disk().is_none()) {
        return Vec::new();
    }
    study.rows.iter().map(|row| record(*row)).collect()
}

fn record(row: Row) -> DiskPathRecord {
    let name = row.to_string();
    let (disk, is_file) = match name.strip_prefix("disk:") {
        Some(path) => (path.to_owned(), true),
        None if name == "native-disk" => ("/dev/sdz".to_owned(), false),
        None => ("/dev/vdb".to_owned(), false),
    };
    let device = BlockIdentity {
        name: if is_file { "sda" } else { &disk["/dev/".len()..] }.into(),
        driver: Some(if disk == "/dev/vdb" { "virtio_blk" } else { "sd" }.into()),
        model: Some("Synthetic".into()),
        scheduler: Some("none".into()),
        write_cache: Some(WriteCache::Back),
        ..BlockIdentity::default()
    };
    let filesystem = is_file.then(|| FilesystemIdentity { kind: "ext4".into(), options: "rw".into() });
    let path = DiskIdentity { path: disk.as_str().into(), direct: true, filesystem, device: Some(device), user: None };
    DiskPathRecord { method: row, disk: disk.as_str().into(), program: "fio-0.0-synthetic".into(), path }
}

/// Returns half a second of figures of a disk.
pub(crate) fn figures(test: &DiskTest, row: Row, jitter: f64, number: usize) -> Figures {
    let seconds = 0.5;
    let name = row.to_string();
    let slower = ROWS.iter().find(|(known, _)| *known == name).map_or(1.0, |(_, slower)| *slower) * jitter;
    let threads = f64::from(test.jobs.get());
    let bytes = test.block.get().0 as f64;
    // With more threads, each waits longer for the others.
    let mean_us = (55.0 + bytes / 1500.0) * slower * (1.0 + 0.06 * threads);
    let ios = (seconds * 1e6 / mean_us * threads * f64::from(test.depth.get())) as u64;
    let times = times(mean_us, number);
    let report = IoReport { ios, bytes: ios * bytes as u64, seconds, mean_ns: mean_us * 1e3, times };
    let cpu = DiskCpu { user: 2e-6 * ios as f64, system: (9.0 + noise(1, number)) * 1e-6 * ios as f64 };
    Figures::of_disk(&DiskReport { read: Some(report), write: None, cpu })
}

/// Returns the path of the baseline; only studies of networks have one.
pub(crate) fn paths(study: &Study, of: fn(Row, vtax_model::units::Mtu) -> PathRecord) -> Vec<PathRecord> {
    study.cells[0].mtu().map(|mtu| of(study.baseline, mtu)).into_iter().collect()
}
