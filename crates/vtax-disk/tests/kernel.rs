//! Tests with real disks and a real fio. They require root, loop devices, fio and e2fsprogs; without them they fail.

#[path = "shared/loops.rs"]
mod loops;

use std::{
    env,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use loops::{LoopDevice, folder, ran};
use vtax_disk::{
    carried::CarriedProgram,
    job::FioJob,
    output::FioOutputError,
    path::identify,
    prepare::{BlocksWritten, prepare},
    run::{FioError, FioProgram},
    target::{DiskTarget, TargetError, check},
    written::{Written, look},
};
use vtax_model::{disk::DiskTest, units::ByteSize};

const SEED: u64 = 42;

fn test(text: &str) -> DiskTest {
    text.parse().expect("a test")
}

fn job(test: DiskTest, path: &Path, fill: bool) -> FioJob {
    let targets = vec![path.to_owned(); test.targets.get() as usize];
    FioJob::new(test, &targets, fill, SEED).expect("a job")
}

fn fio() -> FioProgram {
    FioProgram::user()
}

#[test]
fn a_sample_of_a_file_has_totals_over_its_time() {
    let folder = folder();
    let path = folder.path().join("with: colon");
    let test = test("random:reads=60,block=8KiB,jobs=2,depth=4,range=64MiB,duration=1s,ramp=300ms");
    check(std::slice::from_ref(&path), &test, false).expect("a new file");
    assert_eq!(look(&path, test.range).expect_err("nothing was made").kind(), ErrorKind::NotFound);
    let prepare = || prepare(&fio(), test, std::slice::from_ref(&path), SEED).expect("it is filled");
    assert_eq!((prepare(), prepare()), (BlocksWritten::Now, BlocksWritten::Before));
    assert_eq!(look(&path, test.range).expect("readable"), Written::Whole);

    let report = fio().run(&job(test, &path, false)).expect("a sample");
    let (read, write) = (report.read.as_ref().expect("reads"), report.write.as_ref().expect("writes"));
    let both = report.both().expect("both");
    let share = read.ios as f64 / both.ios as f64;
    assert!((share - 0.6).abs() < 0.03, "{share}");
    for part in [read, write] {
        // fio may count the bytes, but not the latency, of an I/O that completes at the end of the time.
        assert!(part.times.count() == part.ios && part.ios.abs_diff(part.bytes / 8192) <= 8, "{part:?}");
        assert!((part.seconds - 1.0).abs() < 0.2, "{}", part.seconds);
        let middle = part.times.percentile(50.0) as f64;
        assert!(middle < part.times.percentile(99.9) as f64 && part.mean_ns > 0.0);
    }
    // Little's law: 2 jobs with 4 in flight each. Those in flight at the end count with their whole time.
    let in_flight = both.iops() * both.mean_ns / 1e9;
    let longest = read.times.max().max(write.times.max()) as f64 / 1e9;
    assert!((6.5..8.2 * (1.0 + longest)).contains(&in_flight), "{in_flight}, longest {longest} s");
    let cpu = report.cpu.user + report.cpu.system;
    assert!((0.001..2.0).contains(&cpu), "{cpu}");
}

/// A read test of a missing file doesn't create it.
#[test]
fn a_wrong_name_makes_no_file() {
    let folder = folder();
    let path = folder.path().join("none");
    let error = fio().run(&job(test("random:range=1MiB,duration=1s"), &path, false)).expect_err("there is none");
    assert!(!path.exists(), "{error}");
    assert!(error.to_string().contains("file creation disallowed"), "{error}");
}

#[test]
fn checksums_hold_on_a_good_disk_and_are_missed_on_a_bad_one() {
    let folder = folder();
    let path = folder.path().join("disk");
    let test = test("random:block=4KiB,jobs=2,range=32MiB,verify=on,depth=4");
    let report = fio().run(&job(test, &path, false)).expect("the disk is good");
    let (read, write) = (report.read.expect("reads"), report.write.expect("writes"));
    assert_eq!((write.bytes, read.bytes), (32 << 20, 32 << 20));

    let done = AtomicBool::new(false);
    let disk = File::options().write(true).open(&path).expect("it is there");
    let error = thread::scope(|scope| {
        let spoil = || {
            while !done.load(Ordering::Relaxed) {
                disk.write_all_at(&[7; 512], 1 << 20).expect("written");
            }
        };
        let spoiler = thread::Builder::new().spawn_scoped(scope, spoil).expect("a thread");
        let error = fio().run(&job(test, &path, false)).expect_err("the disk is bad");
        done.store(true, Ordering::Relaxed);
        spoiler.join().expect("no panic");
        error
    });
    assert!(matches!(error, FioError::Output(FioOutputError::Corrupted { .. })), "{error}");
    assert!(error.to_string().contains("verify"), "fio's words: {error}");
}

#[test]
fn a_file_system_that_fills_is_reported_before_or_by_the_kernel() {
    let mut disk = LoopDevice::new(64 << 20, &[]);
    let path = disk.mount().join("disk");
    let test = test("random:range=128MiB,duration=1s");
    let error = check(std::slice::from_ref(&path), &test, false).expect_err("there is no room");
    assert!(matches!(error, TargetError::NoRoom { .. }), "{error}");
    let error = fio().run(&job(test, &path, true)).expect_err("it fills");
    assert!(error.to_string().contains("No space left"), "{error}");
}

#[test]
fn a_disk_in_use_is_refused_with_its_user() {
    let test = test("random:range=16MiB");
    let refused = |path: &Path, destroy| check(&[path.to_owned()], &test, destroy).expect_err("in use");
    let mut disk = LoopDevice::new(64 << 20, &[]);
    assert_eq!(check(std::slice::from_ref(&disk.path), &test, false).expect("nothing is on it").len(), 1);
    assert!(matches!(refused(&disk.image(), true), TargetError::Loop { .. }));

    let at = disk.mount().to_owned();
    let error = refused(&disk.path, true);
    assert!(
        matches!(&error, TargetError::Mounted { .. }) && error.to_string().contains(at.to_str().expect("text")),
        "{error}"
    );
    let link = disk.folder.path().join("link");
    std::os::unix::fs::symlink(&disk.path, &link).expect("made");
    assert!(matches!(refused(&link, true), TargetError::Mounted { .. }), "by another name");
    assert!(matches!(refused(&at, true), TargetError::NoDisk { what: "a directory", .. }));
    assert!(matches!(refused(Path::new("/dev/null"), true), TargetError::NoDisk { .. }));
    let missing = refused(Path::new("/dev/no-such-disk"), true);
    assert!(matches!(missing, TargetError::Unusable { .. }), "no file is made in /dev: {missing}");
    // It is below /dev, but on another file system.
    let memory = PathBuf::from(format!("/dev/shm/vtax-disk-{}", std::process::id()));
    check(&[memory], &self::test("random:range=16MiB,direct=off"), false).expect("a new file");
}

/// Mounts in another mount namespace are not in this one's list.
#[test]
fn a_mount_of_another_namespace_is_seen_by_the_kernel() {
    let disk = LoopDevice::new(64 << 20, &[]);
    ran("mkfs.ext4", &["-q", "-F", disk.text()]);
    let script = format!("mount {} /mnt && echo mounted && exec sleep 60", disk.text());
    let mut other = Command::new("unshare");
    other.args(["--mount", "sh", "-c", &script]).stdout(Stdio::piped());
    let mut other = other.spawn().expect("it starts");
    let mut word = [0; 8];
    std::io::Read::read_exact(other.stdout.as_mut().expect("a pipe"), &mut word).expect("it is mounted");
    let found = check(std::slice::from_ref(&disk.path), &test("random:range=16MiB"), true);
    other.kill().and_then(|()| other.wait()).expect("it ends");
    assert!(matches!(found, Err(TargetError::Busy { .. })), "{found:?}");
}

#[test]
fn a_measured_device_is_held_exclusively() {
    let device = LoopDevice::new(32 << 20, &[]);
    let found = check(std::slice::from_ref(&device.path), &test("random:range=16MiB"), true).expect("it is free");
    let held = found[0].hold().expect("it is free").expect("a device");
    let format = || Command::new("mkfs.ext4").args(["-q", "-F", device.text()]).output().expect("it runs");
    assert!(!format().status.success(), "mkfs takes a device for itself");
    assert!(matches!(found[0].hold(), Err(TargetError::Busy { .. })));
    File::open(&device.path).expect("others may open it");
    drop(held);
    assert!(format().status.success());
}

#[test]
fn data_on_a_disk_is_kept_unless_it_may_be_destroyed() {
    let disk = LoopDevice::new(64 << 20, &[]);
    ran("mkfs.ext4", &["-q", "-F", disk.text()]);
    let paths = std::slice::from_ref(&disk.path);
    let test = test("random:range=16MiB");
    let error = check(paths, &test, false).expect_err("a file system").to_string();
    assert!(error.contains("a file system (ext2, ext3 or ext4)") && error.contains("--destroy-data"), "{error}");
    check(paths, &test, true).expect("it may be destroyed");
    let file = disk.folder.path().join("data");
    fs::write(&file, "letters").expect("written");
    let error = check(&[file], &test, false).expect_err("data").to_string();
    assert!(error.contains("data at byte 0"), "{error}");
}

#[test]
fn disks_that_the_test_does_not_fit_are_refused() {
    let disk = LoopDevice::new(64 << 20, &["--sector-size", "4096"]);
    let refused = |path: &Path, text: &str| check(&[path.to_owned()], &test(text), true).expect_err(text);
    assert!(matches!(refused(&disk.path, "random:range=1GiB"), TargetError::TooSmall { .. }));
    assert!(matches!(refused(&disk.path, "random:range=1MiB,block=512"), TargetError::Sector { .. }));
    let closed = LoopDevice::new(64 << 20, &["-r"]);
    assert!(matches!(refused(&closed.path, "random:range=1MiB"), TargetError::ReadOnly { .. }));
    let twice = check(&[disk.path.clone(), disk.path.clone()], &test("random:range=1MiB,targets=2"), true);
    assert!(matches!(twice, Err(TargetError::Twice { .. })), "{twice:?}");
    // procfs has files, but doesn't support O_DIRECT.
    let comm = Path::new("/proc/self/comm");
    let error = refused(comm, "random:range=1MiB");
    assert!(matches!(error, TargetError::NoDirect { .. } | TargetError::Unusable { .. }), "{error}");
}

#[test]
fn the_path_of_a_loop_device_names_its_file_and_its_cache() {
    let mut disk = LoopDevice::new(64 << 20, &["--direct-io=off"]);
    let device = identify(&DiskTarget { path: disk.path.clone(), is_device: true }, true).expect("read");
    assert!(device.to_string().contains("CACHED: the page cache behind a loop device"), "{device}");
    let file = disk.mount().join("disk");
    let identity = identify(&DiskTarget { path: file, is_device: false }, false).expect("read");
    let text = identity.to_string();
    for part in ["on ext4 on loop", "file /var/tmp/", "not O_DIRECT, CACHED: the page cache of this machine"] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
}

/// A frozen file system makes its writers wait in the kernel, where no signal reaches them.
#[test]
fn a_disk_that_hangs_ends_as_a_failure() {
    let mut disk = LoopDevice::new(64 << 20, &[]);
    let at = disk.mount().to_str().expect("text").to_owned();
    let path = PathBuf::from(&at).join("disk");
    let test = test("random:reads=0,range=16MiB,duration=20s,engine=psync");
    fio().run(&job(test, &path, true)).expect("it is filled");
    ran("fsfreeze", &["--freeze", &at]);
    let error = fio().run_within(&job(test, &path, false), Duration::from_secs(2)).expect_err("it hangs");
    ran("fsfreeze", &["--unfreeze", &at]);
    let FioError::Stuck { pid, .. } = error else { panic!("{error}") };
    let told = error.to_string();
    assert!(told.contains("cannot be killed") && told.contains(&pid.to_string()), "{told}");
    // The pending signal takes effect now that the disk responds.
    let until = Instant::now() + Duration::from_secs(300);
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(Instant::now() < until, "{}", state());
        thread::sleep(Duration::from_millis(20));
    }
}

const CHILD: &str = "VTAX_DISK_TEST_CHILD";

/// Process that the next test kills.
#[test]
fn child_that_runs_fio() {
    let Some(path) = env::var_os(CHILD) else { return };
    let _ = fio().run(&job(test("random:range=16MiB,duration=60s"), Path::new(&path), false));
}

#[test]
fn nothing_is_left_of_fio_when_its_parent_is_killed() {
    let folder = folder();
    let path = folder.path().join("disk");
    fio().run(&job(test("random:range=16MiB"), &path, true)).expect("it is filled");
    let mut child = Command::new(env::current_exe().expect("this test"));
    child.args(["--exact", "child_that_runs_fio"]).env(CHILD, &path).stdout(Stdio::null());
    let mut child = child.spawn().expect("it starts");
    let until = Instant::now() + Duration::from_secs(300);
    let wait = |there: bool| {
        while is_named(&path) != there {
            assert!(Instant::now() < until, "fio runs: {}", !there);
            thread::sleep(Duration::from_millis(10));
        }
    };
    wait(true);
    child.kill().and_then(|()| child.wait()).expect("it ends");
    wait(false);
}

/// Returns `true` if a program has this path among its arguments.
fn is_named(path: &Path) -> bool {
    let wanted = format!("--filename={}", path.display());
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| String::from_utf8_lossy(&line).split('\0').any(|argument| argument == wanted))
}

#[test]
fn fio_runs_with_nothing_but_its_directory() {
    let cache = folder();
    let carried = CarriedProgram::fio(cache.path()).expect("fio is installed");
    assert_eq!(CarriedProgram::fio(cache.path()).expect("it is there"), carried);
    let [loader, rest @ ..] = &CarriedProgram::command(&carried.folder)[..] else { panic!("there is a loader") };
    let disk = cache.path().join("disk");
    let job = job(test("random:range=1MiB,duration=1s,ramp=0s"), &disk, true);
    let output = Command::new(loader).args(rest).args(job.arguments()).env_clear().output().expect("it starts");
    let report = vtax_disk::output::read(&output.stdout, &output.stderr).expect("a report");
    assert_eq!(report.write.expect("writes").bytes, 1 << 20);
    assert_eq!(look(&disk, ByteSize(1 << 20)).expect("readable"), Written::Whole);
    assert!(fio().version().expect("fio").raw().starts_with("fio-"));
}
