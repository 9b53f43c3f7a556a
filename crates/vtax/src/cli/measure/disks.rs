//! `vtax measure --disk`.

use clap::Args;
use miette::miette;
use vtax_model::{
    disk::{DiskSet, DiskTest},
    endpoint::LabHost,
    study::SamplingPlan,
    units::Span,
    workload::Warmup,
};
use vtax_run::study::DiskRequest;

use super::{Sampling, distinct};
use crate::exit::Stop;

const QUICK_DURATION: Span = Span::from_millis(1000);
const QUICK_WARMUP: Span = Span::from_millis(300);
const DURATION: Span = Span::from_millis(5000);
const WARMUP: Span = Span::from_millis(1000);

/// The disks and their load.
#[derive(Debug, Args)]
#[command(next_help_heading = "Disks")]
pub(super) struct DiskArgs {
    /// Disk to measure with fio, instead of a network, e.g. /dev/vdb: the path of a block device or a file,
    /// ldm:DOMAIN/DISK (a virtual disk, from within its logical domain) or zone:NAME/PATH (from within a zone of a
    /// lab). A missing file is created, and removed at the end. Several disks, separated by commas, are measured
    /// simultaneously. If the option is repeated, the disks are interleaved in one run, and each is compared with the
    /// first
    #[arg(long, value_name = "DISK,…")]
    disk: Vec<DiskSet>,
    /// Test of --disk: random or sequential, and parameters, e.g. random:reads=60,block=8KiB,jobs=4,depth=16. The
    /// defaults are reads=100 (percent; the rest are writes), block=4KiB, depth=1 (I/Os in flight per job), jobs=1
    /// (threads), rate=max (or IOPS of all jobs together), range=1GiB (of each disk, from its start), engine=io_uring
    /// (or libaio, psync), direct=on (O_DIRECT) and verify=off (on: the range is written with checksums, then read and
    /// compared). If the option is repeated, the tests are run in turn [default: random]
    #[arg(long, value_name = "TEST", requires = "disk")]
    disk_test: Vec<DiskTest>,
    /// Allow the data on the disks of --disk to be overwritten. Without it, a disk or file that isn't empty is refused,
    /// and so is every disk of a domain, since vtax cannot see its contents
    #[arg(long, requires = "disk")]
    destroy_data: bool,
}

impl DiskArgs {
    /// Returns the job, if disks are to be measured.
    pub(super) fn asked(&self, sampling: &Sampling, within: Option<&LabHost>) -> Result<Option<DiskRequest>, Stop> {
        if self.disk.is_empty() {
            return Ok(None);
        }
        let (duration, warmup) = if sampling.quick { (QUICK_DURATION, QUICK_WARMUP) } else { (DURATION, WARMUP) };
        let warmup = sampling.warmup.unwrap_or(Warmup::For(warmup));
        if !matches!(warmup, Warmup::For(_)) {
            return Err(Stop::input(miette!(
                code = "option-not-for-this",
                "--warmup {warmup}: fio cannot detect when a disk is steady: give a time, e.g. --warmup 5s"
            )));
        }
        let usual = [DiskTest::default()];
        let tests = if self.disk_test.is_empty() { &usual[..] } else { &self.disk_test };
        Ok(Some(DiskRequest {
            rows: self.on_host(within)?,
            tests: distinct("disk-test", tests)?,
            rounds: sampling.chosen_rounds()?,
            sampling: SamplingPlan {
                samples: 0,
                duration: sampling.duration.unwrap_or(duration),
                warmup,
                slices: None,
                limit: None,
            },
            destroy_data: self.destroy_data,
        }))
    }

    /// Assigns the domains without a host to that of `--in`.
    fn on_host(&self, within: Option<&LabHost>) -> Result<Vec<DiskSet>, Stop> {
        let (mut rows, mut named) = (self.disk.clone(), false);
        let Some(host) = within else { return Ok(rows) };
        for place in rows.iter_mut().flat_map(|row| &mut row.0) {
            named |= place.place_in(host);
        }
        match named {
            true => Ok(rows),
            false => Err(Stop::input(miette!(
                code = "option-not-for-this",
                "--in {host}: no disk is of a logical domain of that host: give --disk ldm:DOMAIN/DISK, or omit --in"
            ))),
        }
    }
}
