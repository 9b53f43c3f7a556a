use proptest::prelude::*;
use vtax_stats::histogram::Histogram;

use super::*;

fn test(text: &str) -> Result<DiskTest, String> {
    text.parse::<DiskTest>().map_err(|error| error.to_string())
}

#[test]
fn omitted_parameters_have_defaults() {
    assert_eq!(test("random"), Ok(DiskTest::default()));
    assert_eq!(test("random:"), Ok(DiskTest::default()));
    let article = test("random:reads=60,block=8KiB,jobs=20,targets=28").expect("it can be run");
    assert_eq!((article.reads.get(), article.block.get().0, article.jobs.get()), (60, 8192, 20));
    assert_eq!(article.to_string(), "random:reads=60,block=8KiB,jobs=20,targets=28");
    let limited = test("random:jobs=4,rate=20000").expect("it can be run");
    assert_eq!(
        (limited.rate.map(DiskRate::get), limited.to_string().as_str()),
        (Some(20_000), "random:jobs=4,rate=20000")
    );
    assert_eq!(test("random:rate=max"), Ok(DiskTest::default()));
    let long =
        test("sequential: block=1MiB, direct=off, duration=90s, verify=on, engine=psync").expect("it can be run");
    assert_eq!(long.to_string(), "sequential:block=1MiB,engine=psync,direct=off,duration=1m30s,verify=on");
    assert_eq!(DiskTest::default().to_string(), "random");
}

#[test]
fn an_impossible_test_is_named() {
    for (text, named) in [
        ("rondom", "did you mean `random`?"),
        ("random:bs=4k", "unknown setting `bs` of a disk test; available: reads, block,"),
        ("random:blok=4KiB", "did you mean `block`?"),
        ("random:reads=101", "the share of reads (percent) cannot be `101`: must be 0 to 100"),
        ("random:reads=60%", "cannot be `60%`"),
        ("random:block=100", "invalid block size 100 B: must be a multiple of 512 bytes"),
        ("random:block=0", "whole sectors"),
        ("random:block=128MiB", "512 B to 64 MiB"),
        ("random:depth=0", "the queue depth cannot be `0`: must be 1 to 4096"),
        ("random:depth=2,engine=psync", "the engine `psync` waits for each I/O, so a job has 1 in flight, not 2"),
        ("random:engine=sync", "did you mean `psync`?"),
        ("random:rate=0", "the rate (IOPS) cannot be `0`: must be 1 to 100000000"),
        ("random:rate=20k", "cannot be `20k`"),
        ("random:rate=3,jobs=4", "3 IOPS are fewer than one for each of 4 jobs"),
        ("random:range=4KiB,jobs=2", "4 KiB of a disk is too small for 2 jobs with 4 KiB blocks"),
        ("random:duration=0s", "a duration of 0 measures nothing"),
        ("random:duration=13h", "13h is too long for a disk test"),
        ("random:direct=yes", "direct = `yes`: must be on or off"),
        ("random:direct=on,direct=off", "`direct` is set twice"),
        ("random:verify", "unknown setting `verify`"),
    ] {
        let error = test(text).expect_err(text);
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn jobs_that_would_meet_have_their_own_parts() {
    let parts = |text: &str| {
        let test = test(text).expect("it can be run");
        (test.has_parts(), test.part().0, test.used().0)
    };
    assert_eq!(parts("random:range=40KiB,jobs=4"), (false, 40 << 10, 40 << 10));
    assert_eq!(parts("sequential:range=40KiB,jobs=1"), (false, 40 << 10, 40 << 10));
    assert_eq!(parts("sequential:range=40KiB,jobs=4"), (true, 8 << 10, 32 << 10));
    assert_eq!(parts("random:range=40KiB,jobs=4,verify=on"), (true, 8 << 10, 32 << 10));
}

fn direction(ios: u64, seconds: f64, mean_ns: f64) -> IoReport {
    let mut times = Histogram::new();
    times.record_many(mean_ns as u64, ios);
    IoReport { ios, bytes: ios * 8192, seconds, mean_ns, times }
}

#[test]
fn figures_are_totals_over_the_measured_time() {
    let report = DiskReport {
        read: Some(direction(600, 2.0, 1e6)),
        write: Some(direction(400, 1.999, 2e6)),
        cpu: DiskCpu { user: 0.01, system: 0.02 },
    };
    let both = report.both().expect("there were I/Os");
    assert_eq!((both.ios, both.bytes, both.iops(), both.rate()), (1000, 8_192_000, 500.0, 4_096_000.0));
    assert!((both.mean_ns - 1.4e6).abs() < 1e-3, "{}", both.mean_ns);
    assert_eq!((both.times.count(), both.times.percentile(50.0) / 1000), (1000, 1000));
    assert_eq!(report.cpu_per_io(), Some(DiskCpu { user: 1e-5, system: 2e-5 }));
    let json = serde_json::to_string(&report).expect("it can be written");
    assert_eq!(serde_json::from_str::<DiskReport>(&json).expect("it can be read"), report);
}

#[test]
fn nothing_done_is_not_a_figure() {
    assert_eq!(DiskReport::default().both(), None);
    assert_eq!(DiskReport::default().cpu_per_io(), None);
    assert_eq!(direction(0, 0.0, 0.0).iops(), 0.0);
}

fn identity(kind: &str, direct: bool, backing_cached: Option<bool>) -> DiskIdentity {
    DiskIdentity {
        path: "/data/disk".into(),
        direct,
        filesystem: Some(FilesystemIdentity { kind: kind.into(), options: "rw".into() }),
        device: Some(BlockIdentity {
            name: "loop0".into(),
            scheduler: Some("none".into()),
            requests: Some(128),
            write_cache: Some(WriteCache::Back),
            backing_cached,
            ..BlockIdentity::default()
        }),
        user: None,
    }
}

#[test]
fn a_cached_path_is_named() {
    assert!(!identity("ext4", true, None).is_cached());
    assert_eq!(identity("ext4", false, Some(true)).caches(), [DiskCache::Page, DiskCache::Loop]);
    assert_eq!(identity("tmpfs", true, Some(false)).caches(), [DiskCache::Memory]);
    assert_eq!(
        identity("ext4", false, None).to_string(),
        "/data/disk on ext4 on loop0 (scheduler none, queue of 128, write back), not O_DIRECT, \
         CACHED: the page cache of this machine"
    );
    let json = serde_json::to_string(&identity("ext4", false, Some(true))).expect("it can be written");
    assert_eq!(
        serde_json::from_str::<DiskIdentity>(&json).expect("it can be read"),
        identity("ext4", false, Some(true))
    );
}

fn any_test() -> impl Strategy<Value = DiskTest> {
    let kinds = (0usize..2, 0usize..3, any::<[bool; 3]>());
    let amounts = (0u32..=100, 1u64..=128, 1u32..=4096, 1u32..=64, 1u32..=256, 1u64..1 << 30);
    (kinds, amounts, 1u64..=43_200_000, 0u64..=43_200_000).prop_map(
        |(
            (access, engine, [direct, verify, limited]),
            (reads, sectors, depth, jobs, targets, more),
            duration,
            ramp,
        )| {
            let engine = DiskEngine::ALL[engine];
            let depth = if engine.is_blocking() { 1 } else { depth };
            let block = ByteSize(sectors * 512);
            DiskTest {
                access: AccessPattern::ALL[access],
                reads: reads.try_into().expect("a share"),
                block: block.try_into().expect("whole sectors"),
                depth: depth.try_into().expect("a depth"),
                jobs: jobs.try_into().expect("jobs"),
                targets: targets.try_into().expect("targets"),
                rate: limited.then(|| (jobs * depth).try_into().expect("a rate")),
                range: ByteSize(block.0 * u64::from(jobs) + more),
                engine,
                direct,
                duration: Span::from_millis(duration),
                ramp: Span::from_millis(ramp),
                verify,
            }
        },
    )
}

proptest! {
    #[test]
    fn written_values_are_read_back(test in any_test()) {
        prop_assert_eq!(test.to_string().parse(), Ok(test));
        let json = serde_json::to_string(&test).expect("it can be written");
        prop_assert_eq!(serde_json::from_str::<DiskTest>(&json).expect("it can be read"), test);
    }

    #[test]
    fn parts_are_whole_blocks_within_the_range(test in any_test()) {
        prop_assert!(test.part().0 > 0 && test.used() <= test.range);
        prop_assert!(test.part().0.is_multiple_of(test.block.get().0));
    }

    #[test]
    fn no_text_is_too_odd(text in "(random|sequential):?[a-z=,:0-9KMiB ]{0,32}") {
        let _ = text.parse::<DiskTest>();
    }
}
