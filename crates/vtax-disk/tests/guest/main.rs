//! fio in guests without a network: shared by the host, started by the agent, with its output parsed here. Other tests
//! use disks with known figures: null_blk, which only a guest's kernel provides, and disks that QEMU limits.
//!
//! These tests require root, QEMU, a kernel for guests (`make kernel`, or `VTAX_KERNEL`), the agent (`make agent`, or
//! `VTAX_AGENT`), fio and busybox; without them they fail. The guests are translated (TCG), so time limits allow for
//! translation.

#[path = "../../../vtax-guest/tests/shared/agent.rs"]
mod agent;
mod machine;
mod monitor;

use std::path::Path;

use machine::Machine;
use vtax_disk::{
    job::FioJob,
    output::{self, FioOutputError},
};
use vtax_model::disk::{DiskReport, DiskTest, IoReport};

fn test(text: &str) -> DiskTest {
    text.parse().expect("a test")
}

impl Machine {
    /// Takes a sample in the guest.
    fn sample(&self, disk: &str, test: &str, fill: bool) -> Result<DiskReport, FioOutputError> {
        let job = FioJob::new(self::test(test), &[disk.into()], fill, 1).expect("a job");
        let ran = self.fio(&job.arguments());
        output::read(ran.stdout.raw().as_bytes(), ran.stderr.raw().as_bytes())
    }

    fn reads(&self, disk: &str, test: &str) -> IoReport {
        self.sample(disk, test, false).expect("a sample").read.expect("reads")
    }
}

#[test]
fn fio_runs_in_a_guest_on_a_disk_that_is_a_file_of_the_host() {
    let machine = Machine::start();
    let file = machine.file("disk.img", 64 << 20);
    machine.monitor().plug_file(&file, None);
    let disk = machine.wait_disk("vda");
    let filled = machine.sample(&disk, "random:range=8MiB,engine=libaio", true).expect("it is filled");
    assert_eq!(filled.write.expect("writes").bytes, 8 << 20);
    let text = "random:reads=60,block=8KiB,depth=4,range=8MiB,duration=2s,ramp=500ms";
    let report = machine.sample(&disk, text, false).expect("a sample");
    let (read, write) = (report.read.as_ref().expect("reads"), report.write.as_ref().expect("writes"));
    assert!(read.seconds > 1.9 && read.ios > 20 && write.ios > 20, "{report:?}");
    assert!(read.times.count() == read.ios && read.ios.abs_diff(read.bytes / 8192) <= 4, "{read:?}");
    let written = std::fs::read(&file).expect("the host's file");
    assert!(written[..8 << 20].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "the guest wrote it");
    let good = machine.sample(&disk, "random:range=4MiB,verify=on,depth=4", false).expect("the disk is good");
    assert_eq!(good.read.expect("reads").bytes, 4 << 20);
    let error = machine.sample("/dev/no-such-disk", text, false).expect_err("there is none").to_string();
    assert!(error.contains("did no I/O"), "{error}");
}

/// The clock of this guest counts instructions, so the figures are the same on a busy machine. In addition to a disk's
/// known time, the kernel and fio take about 10,000 instructions for each I/O, the same for both disks. That is 1 % of
/// a millisecond, but 5 % of the shorter time.
#[test]
fn a_disk_with_a_known_time_is_found_to_have_it() {
    let machine = Machine::start_counted();
    let read = |ns: u32| {
        let disk = machine.null_disk("timed", &[("irqmode", "2"), ("completion_nsec", &ns.to_string())]);
        machine.reads(&disk, "random:range=64MiB,duration=1s,ramp=300ms,engine=psync")
    };
    let [slow, fast] = [1_000_000, 200_000].map(read);
    println!("200 µs: {:.0} ns, 1 ms: {:.0} ns", fast.mean_ns, slow.mean_ns);
    let median = slow.times.percentile(50.0) as f64;
    assert!((1.0..1.02).contains(&(slow.mean_ns / 1e6)) && (0.99..1.02).contains(&(median / 1e6)), "{slow:?}");
    let own = slow.mean_ns - 1e6;
    let off = (fast.mean_ns - own) / 2e5 - 1.0;
    assert!(off.abs() < 0.02 && (0.0..20_000.0).contains(&own), "{fast:?}, {own} for all but the disk");
}

/// null_blk's own limit: this many whole blocks of 4 KiB in each fiftieth of a second (`TICKS_PER_SEC` in its source).
#[test]
fn a_disk_with_a_limit_of_bytes_gives_its_limit() {
    let machine = Machine::start_counted();
    let disk = machine.null_disk("limited", &[("irqmode", "0"), ("mbps", "20")]);
    let read = machine.reads(&disk, "sequential:block=4KiB,range=64MiB,depth=8,duration=5s,ramp=1s");
    println!("20 MiB a second: {:.0}", read.rate());
    assert!((read.rate() / f64::from(20 << 20) - 1.0).abs() < 0.01, "{}", read.rate());
}

/// QEMU's IOPS limit, by the clock of the host. A host that doesn't run the guest in time loses I/Os that the limit
/// would have permitted, so one of several samples must reach it. Two things can put more I/Os into a sample than the
/// limit permits in its time: after a gap QEMU makes up for up to a tenth of a second (`throttle_compute_wait` in its
/// source), and fio may count its whole queue that the disk completed while the guest didn't run, before the sample.
#[test]
fn a_disk_with_a_limit_of_ios_gives_its_limit() {
    const LIMIT: u32 = 400;
    const DEPTH: u32 = 32;
    const SECONDS: f64 = 4.0;
    const SAMPLES: usize = 20;
    let machine = Machine::start();
    let file = machine.file("limited.img", 64 << 20);
    machine.monitor().plug_file(&file, Some(LIMIT.into()));
    let disk = machine.wait_disk("vda");
    machine.sample(&disk, "random:range=1MiB", true).expect("it is filled");
    let extra = (0.1 * f64::from(LIMIT) + f64::from(DEPTH)) / (f64::from(LIMIT) * SECONDS);
    let rate = || {
        let read = machine.reads(&disk, &format!("random:range=1MiB,depth={DEPTH},duration={SECONDS}s,ramp=1s"));
        let rate = read.iops() / f64::from(LIMIT);
        println!("of {LIMIT} IOPS: {rate:.4}");
        assert!(rate < 1.01 + extra, "{rate}");
        rate
    };
    assert!((0..SAMPLES).any(|_| (rate() - 1.0).abs() < 0.01), "none of {SAMPLES} samples gave the limit");
}

/// The disk completes some I/Os with an error, so the sample is invalid.
#[test]
fn a_disk_that_returns_errors_gives_no_sample() {
    let machine = Machine::start();
    let disk = machine.null_disk("bad", &[("irqmode", "0"), ("badblocks", "+4096-8191")]);
    let error = machine.sample(&disk, "random:range=64MiB,duration=5s,ramp=0s", false).expect_err("bad blocks");
    assert!(matches!(error, FioOutputError::Failed { errno: 5, .. }), "{error}");
    assert!(error.to_string().contains("Input/output error"), "{error}");
}

/// All ways have the same blocks: each reads the blocks that it and the previous one have written.
#[test]
fn every_way_to_attach_a_disk_has_the_blocks_of_one_file() {
    let ways = [
        "virtio-blk",
        "virtio-blk:aio=native,iothread,queues=4",
        "virtio-blk:aio=io_uring",
        "virtio-scsi:aio=io_uring,iothread,queues=2",
        "vhost-user-blk:queues=2",
        "vhost-user-blk:aio=io_uring",
        "nbd",
        "nbd:aio=native,iothread,queues=2",
        "nvme:aio=native",
        "ahci",
        "ide",
    ];
    let attached = ways.map(|way| way.parse().expect("a way"));
    let machine = Machine::start_attached(&attached);
    let disks: Vec<String> = (0..ways.len()).map(|number| machine.attached(number)).collect();
    for (number, (way, disk)) in ways.iter().zip(&disks).enumerate() {
        let before = &disks[number.checked_sub(1).unwrap_or(ways.len() - 1)];
        let sum = |disk: &str| machine.shell(&format!("dd if={disk} bs=1M count=4 iflag=direct 2>/dev/null | md5sum"));
        let good = machine.sample(disk, "random:range=4MiB,verify=on,depth=4", false);
        let good = good.unwrap_or_else(|error| panic!("{way} ({disk}): {error}"));
        assert_eq!(good.read.expect("reads").bytes, 4 << 20, "{way}");
        machine.shell(&format!("echo {way} | dd of={disk} bs=512 seek=8 conv=sync oflag=direct 2>/dev/null"));
        assert_eq!(sum(disk), sum(before), "{way}");
        let read = machine.shell(&format!("dd if={before} bs=512 skip=8 count=1 iflag=direct 2>/dev/null"));
        assert!(read.starts_with(way), "{way}: {read}");
    }
    let queues = |number: usize| {
        let name = disks[number].trim_start_matches("/dev/");
        machine.shell(&format!("ls /sys/block/{name}/mq")).split_ascii_whitespace().count()
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(queues), [1, 4, 1, 2, 2, 1, 1, 2]);
    assert_eq!(machine.iothreads(), ["io1", "io3", "io7"]);
    let threads = machine.disk_threads();
    assert_eq!(threads.iothreads.keys().collect::<Vec<_>>(), [&1, &3, &7]);
    assert_eq!(threads.daemons.keys().collect::<Vec<_>>(), [&4, &5, &6, &7]);
    assert!(threads.daemons.values().all(|threads| !threads.is_empty()), "{threads:?}");
    let log = std::fs::read_to_string(machine.qemu().launch().stderr_log()).expect("QEMU's messages");
    assert!(!log.contains("Unable to use") && !log.contains("falling back"), "{log}");
}

/// Returns the path of the directory shared with the agent.
fn lent() -> &'static Path {
    Path::new(vtax_wire::guest::LENT)
}
