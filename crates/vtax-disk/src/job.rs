//! Test of a disk, converted to fio's arguments (fio(1)).
//!
//! The same test of the same disks with the same seed gives the same arguments, so that a plan can show them.

use std::path::{Path, PathBuf};

use strum::Display;
use vtax_model::{
    disk::{AccessPattern, DiskEngine, DiskTest, DiskTestError, ReadShare},
    units::Span,
};

/// Purpose of a fio run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "lowercase")]
pub enum FioPass {
    /// Writes each block of the range once, because a block that was never written can be read without accessing the
    /// disk.
    Fill,
    /// Takes the measurement, with the reads and writes of the test.
    Measure,
    /// Writes each block of the range once with a checksum, then reads and compares all of them.
    Verify,
}

/// Run of fio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FioJob {
    test: DiskTest,
    targets: Vec<PathBuf>,
    pass: FioPass,
    seed: u64,
}

/// Reason why such a run is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum FioJobError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Test(#[from] DiskTestError),
    #[error("the test needs {wanted} disks, {given} given; name exactly {wanted}")]
    #[diagnostic(code("bad-disk-test"))]
    Targets { wanted: u32, given: usize },
    #[error("cannot pass `{}` to fio: {why}; give the disk another name, e.g. with a symbolic link", path.display())]
    #[diagnostic(code("bad-disk-name"))]
    Name { path: PathBuf, why: &'static str },
}

/// Block size for filling the range: large, since the speed of filling is not measured.
const FILL_BLOCK: u64 = 1 << 20;
/// Number of these blocks in flight.
const FILL_DEPTH: u32 = 16;

impl FioJob {
    /// Creates the run of a test on these disks, which have absolute paths. The pass is [`FioPass::Fill`] if `fill` is
    /// set, otherwise that of the test.
    pub fn new(test: DiskTest, targets: &[PathBuf], fill: bool, seed: u64) -> Result<FioJob, FioJobError> {
        test.check()?;
        let wanted = test.targets.get();
        if targets.len() != wanted as usize {
            return Err(FioJobError::Targets { wanted, given: targets.len() });
        }
        targets.iter().try_for_each(|path| check_name(path))?;
        let pass = match (fill, test.verify) {
            (true, _) => FioPass::Fill,
            (false, true) => FioPass::Verify,
            (false, false) => FioPass::Measure,
        };
        Ok(FioJob { test, targets: targets.to_vec(), pass, seed })
    }

    /// Returns the pass: filling the range, measuring or verifying.
    pub fn pass(&self) -> FioPass {
        self.pass
    }

    /// Returns the test as it was requested, even if this pass only fills or verifies.
    pub fn test(&self) -> &DiskTest {
        &self.test
    }

    /// Returns the duration by fio's own clock; `None` if fio ends when its work is done.
    pub fn timed(&self) -> Option<Span> {
        (self.pass == FioPass::Measure).then_some(Span(self.test.ramp.0 + self.test.duration.0))
    }

    /// Returns the maximum number of bytes that it writes and reads, if it ends when its work is done.
    pub fn bytes(&self) -> u64 {
        let once = self.test.used().0.saturating_mul(self.test.targets.get().into());
        if self.pass == FioPass::Verify { once.saturating_mul(2) } else { once }
    }

    pub fn arguments(&self) -> Vec<String> {
        let own = match self.pass {
            FioPass::Fill => self.fill(),
            FioPass::Measure => self.measure(),
            FioPass::Verify => self.verify(),
        };
        self.always().into_iter().chain(own).map(|(name, value)| format!("--{name}={value}")).collect()
    }

    /// Returns the arguments that all runs share.
    fn always(&self) -> Vec<(&'static str, String)> {
        let targets: Vec<String> = self.targets.iter().map(|path| escaped(path)).collect();
        vec![
            ("name", format!("vtax-{}", self.pass)),
            ("filename", targets.join(":")),
            ("output-format", "json+".into()),
            ("eta", "never".into()),
            // All jobs are threads of one process, so that none survives if it is killed.
            ("thread", "1".into()),
            ("group_reporting", "1".into()),
            ("invalidate", "1".into()),
            ("randseed", self.seed.to_string()),
            // The latency from an I/O's creation to its completion, not only from its submission.
            ("lat_percentiles", "1".into()),
            ("clat_percentiles", "0".into()),
            ("slat_percentiles", "0".into()),
        ]
    }

    fn fill(&self) -> Vec<(&'static str, String)> {
        // A large block must not leave the end of the range unfilled.
        let block = if self.test.used().0.is_multiple_of(FILL_BLOCK) { FILL_BLOCK } else { self.test.block.get().0 };
        // The test's engine is used because others may be missing here; the speed of filling doesn't matter.
        let (engine, depth) = match self.test.engine {
            DiskEngine::Psync => (DiskEngine::Psync, 1),
            other => (other, FILL_DEPTH),
        };
        let size = self.test.used().0.saturating_mul(self.test.targets.get().into());
        vec![
            ("rw", "write".into()),
            ("bs", block.to_string()),
            ("size", size.to_string()),
            ("ioengine", engine.to_string()),
            ("iodepth", depth.to_string()),
            ("numjobs", "1".into()),
            ("direct", number(self.test.direct)),
            ("end_fsync", "1".into()),
        ]
    }

    fn measure(&self) -> Vec<(&'static str, String)> {
        let mut list = self.load();
        list.extend(direction(&self.test));
        list.extend(rate(&self.test));
        list.extend([
            ("time_based", "1".into()),
            ("runtime", milliseconds(self.test.duration)),
            ("ramp_time", milliseconds(self.test.ramp)),
            // Each block is equally likely, even if it was accessed recently.
            ("norandommap", "1".into()),
            // The range already exists. If a name is wrong, nothing is created.
            ("allow_file_create", "0".into()),
        ]);
        list
    }

    fn verify(&self) -> Vec<(&'static str, String)> {
        let mut list = self.load();
        let order = match self.test.access {
            AccessPattern::Random => "randwrite",
            AccessPattern::Sequential => "write",
        };
        list.extend([
            ("rw", order.into()),
            ("verify", "crc32c".into()),
            ("do_verify", "1".into()),
            ("verify_fatal", "1".into()),
            ("verify_state_save", "0".into()),
            // Written data must have been sent to the disk before it is read back.
            ("end_fsync", "1".into()),
        ]);
        list
    }

    /// Returns the block size, queue depth and threads of the test.
    fn load(&self) -> Vec<(&'static str, String)> {
        let test = &self.test;
        let size = test.part().0.saturating_mul(test.targets.get().into());
        let mut list = vec![
            ("bs", test.block.get().0.to_string()),
            ("size", size.to_string()),
            ("ioengine", test.engine.to_string()),
            ("iodepth", test.depth.to_string()),
            ("numjobs", test.jobs.to_string()),
            ("direct", number(test.direct)),
        ];
        if test.has_parts() {
            list.push(("offset_increment", test.part().0.to_string()));
        }
        if test.access == AccessPattern::Random && test.targets.get() > 1 {
            // Otherwise all jobs would begin with the first disk, then move to the second together.
            list.push(("file_service_type", "random".into()));
        }
        list
    }
}

/// Returns the I/O pattern and the share of reads.
fn direction(test: &DiskTest) -> Vec<(&'static str, String)> {
    let order = match (test.access, test.reads) {
        (AccessPattern::Random, ReadShare::ALL) => "randread",
        (AccessPattern::Random, ReadShare::NONE) => "randwrite",
        (AccessPattern::Random, _) => "randrw",
        (AccessPattern::Sequential, ReadShare::ALL) => "read",
        (AccessPattern::Sequential, ReadShare::NONE) => "write",
        (AccessPattern::Sequential, _) => "rw",
    };
    let mut list = vec![("rw", order.to_owned())];
    if order.ends_with("rw") {
        list.push(("rwmixread", test.reads.to_string()));
    }
    list
}

/// Returns the limit of each job, and in it that of reads and writes, which fio limits separately.
fn rate(test: &DiskTest) -> Option<(&'static str, String)> {
    let each = test.rate?.get() / test.jobs.get();
    let reads = (f64::from(each) * f64::from(test.reads.get()) / 100.0).round() as u32;
    // 0 would mean unlimited.
    let [reads, writes] = [reads, each.saturating_sub(reads)].map(|limit| limit.max(1));
    Some(("rate_iops", format!("{reads},{writes}")))
}

fn number(on: bool) -> String {
    u8::from(on).to_string()
}

fn milliseconds(span: Span) -> String {
    format!("{}ms", span.0.as_millis())
}

/// Escapes colons, which end a name unless a backslash precedes them.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(':', "\\:")
}

fn check_name(path: &Path) -> Result<(), FioJobError> {
    let wrong = |why| Err(FioJobError::Name { path: path.to_owned(), why });
    match path.to_str() {
        None => wrong("its name is not UTF-8"),
        Some(_) if !path.is_absolute() => wrong("it is not an absolute path"),
        Some(text) if text.contains('\\') => wrong("its name contains a backslash"),
        // fio expands `$jobnum` and similar keywords in names.
        Some(text) if text.contains('$') => wrong("its name contains a dollar sign"),
        Some(text) if text.chars().any(char::is_control) => wrong("its name contains a control character"),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arguments(test: &str, fill: bool) -> String {
        let test: DiskTest = test.parse().expect("a test");
        let targets: Vec<PathBuf> = (0..test.targets.get()).map(|number| format!("/dev/disk{number}").into()).collect();
        let job = FioJob::new(test, &targets, fill, 7).expect("a job");
        assert!(job.arguments().iter().all(|argument| !argument.contains("server")));
        job.arguments().join(" ")
    }

    const ALWAYS: &str = "--output-format=json+ --eta=never --thread=1 --group_reporting=1 --invalidate=1 --randseed=7 \
                          --lat_percentiles=1 --clat_percentiles=0 --slat_percentiles=0";

    #[test]
    fn the_articles_load_uses_all_disks() {
        let load = arguments("random:reads=60,block=8KiB,jobs=20,targets=2,range=64MiB", false);
        let own = "--bs=8192 --size=134217728 --ioengine=io_uring --iodepth=1 --numjobs=20 --direct=1 \
                   --file_service_type=random --rw=randrw --rwmixread=60 --time_based=1 --runtime=10000ms \
                   --ramp_time=1000ms --norandommap=1 --allow_file_create=0";
        assert_eq!(load, format!("--name=vtax-measure --filename=/dev/disk0:/dev/disk1 {ALWAYS} {own}"));
    }

    #[test]
    fn sequential_jobs_begin_in_separate_parts() {
        let load = arguments("sequential:reads=0,block=1MiB,jobs=4,range=10MiB,engine=psync", false);
        assert!(load.contains("--bs=1048576 --size=2097152 --ioengine=psync --iodepth=1 --numjobs=4"), "{load}");
        assert!(load.contains("--offset_increment=2097152 --rw=write --time_based"), "{load}");
    }

    #[test]
    fn a_rate_is_divided_among_jobs_reads_and_writes() {
        let mixed = arguments("random:reads=60,jobs=4,rate=20000", false);
        assert!(mixed.contains("--rwmixread=60 --rate_iops=3000,2000 --time_based=1"), "{mixed}");
        assert!(arguments("random:rate=500", false).contains("--rw=randread --rate_iops=500,1 "));
        assert!(!arguments("random:rate=500", true).contains("rate_iops"));
    }

    #[test]
    fn the_range_is_filled_once_in_large_blocks() {
        let load = arguments("random:jobs=4,range=10MiB,targets=2,depth=32", true);
        let own = "--rw=write --bs=1048576 --size=20971520 --ioengine=io_uring --iodepth=16 --numjobs=1 --direct=1 \
                   --end_fsync=1";
        assert_eq!(load, format!("--name=vtax-fill --filename=/dev/disk0:/dev/disk1 {ALWAYS} {own}"));
        let odd = arguments("random:range=10MiB,block=1536", true);
        assert!(odd.contains("--bs=1536 --size=10484736"), "{odd}");
    }

    #[test]
    fn checksums_are_written_and_read() {
        let load = arguments("random:reads=60,jobs=2,range=1MiB,verify=on", false);
        assert!(load.contains("--size=524288") && load.contains("--offset_increment=524288 --rw=randwrite"), "{load}");
        assert!(load.contains("--verify=crc32c --do_verify=1") && !load.contains("time_based"), "{load}");
    }

    #[test]
    fn names_that_fio_would_read_otherwise_are_escaped_or_refused() {
        assert_eq!(escaped(Path::new("/dev/disk/by-path/pci-0000:00:01.0")), "/dev/disk/by-path/pci-0000\\:00\\:01.0");
        for (name, why) in [("disk", "absolute"), ("/a\\b", "backslash"), ("/a$jobnum", "dollar"), ("/a\nb", "control")]
        {
            let error = FioJob::new(DiskTest::default(), &[name.into()], false, 1).expect_err(name).to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = FioJob::new(DiskTest::default(), &[], false, 1).expect_err("no disk").to_string();
        assert_eq!(error, "the test needs 1 disks, 0 given; name exactly 1");
    }

    proptest! {
        #[test]
        fn no_name_becomes_another_option(name in "/[ -~]{0,20}") {
            if let Ok(job) = FioJob::new(DiskTest::default(), &[PathBuf::from(&name)], false, 1) {
                let arguments = job.arguments();
                prop_assert!(arguments.iter().all(|argument| argument.starts_with("--")));
                prop_assert_eq!(arguments.iter().filter(|argument| argument.starts_with("--filename=/")).count(), 1);
            }
        }
    }
}
