//! Report of a disk sample.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use vtax_stats::histogram::Histogram;

/// One sample of a disk, over its measured time.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskReport {
    /// Reads; absent if none.
    pub read: Option<IoReport>,
    /// Writes; absent if none.
    pub write: Option<IoReport>,
    /// The CPU time of the jobs.
    pub cpu: DiskCpu,
}

/// The I/Os of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IoReport {
    /// I/Os completed in the measured time.
    pub ios: u64,
    /// Bytes that these I/Os transferred.
    pub bytes: u64,
    /// The measured time of this direction.
    pub seconds: f64,
    /// Mean response time, exact: it is computed from the times themselves, not from the histogram.
    pub mean_ns: f64,
    /// Response times: from when a job issued an I/O until it knew of its completion. fio has 64 bins for each
    /// doubling, so a percentile of this histogram is within [`IoReport::RESOLUTION`] of that of the times.
    pub times: Histogram,
}

/// CPU time of the threads that issued the I/Os, in seconds over all of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DiskCpu {
    /// In the program.
    pub user: f64,
    /// In the kernel on behalf of the program.
    pub system: f64,
}

impl IoReport {
    /// Maximum distance of fio's value for a bin, its middle, from any time in that bin (1/128), plus our histogram's
    /// own thousandth.
    pub const RESOLUTION: f64 = 1.0 / 128.0 + 1.0 / 1024.0;

    /// Returns the I/O operations completed per second.
    pub fn iops(&self) -> f64 {
        per_second(self.ios as f64, self.seconds)
    }

    /// Returns the bytes per second.
    pub fn rate(&self) -> f64 {
        per_second(self.bytes as f64, self.seconds)
    }
}

impl DiskReport {
    /// Both directions together; absent if no I/O completed. The measured time is the longer one: both begin and end
    /// together, within an I/O.
    pub fn both(&self) -> Option<IoReport> {
        let mut directions = [&self.read, &self.write].into_iter().flatten();
        let mut both = directions.next()?.clone();
        for other in directions {
            let ios = both.ios.saturating_add(other.ios);
            let weigh = |part: &IoReport| part.mean_ns * (part.ios as f64 / ios.max(1) as f64);
            both.mean_ns = weigh(&both) + weigh(other);
            both.ios = ios;
            both.bytes = both.bytes.saturating_add(other.bytes);
            both.seconds = both.seconds.max(other.seconds);
            both.times.merge(&other.times);
        }
        Some(both)
    }

    /// CPU seconds of the jobs per I/O: user, then system. Absent if no I/O completed.
    pub fn cpu_per_io(&self) -> Option<DiskCpu> {
        let ios = self.both()?.ios as f64;
        (ios > 0.0).then(|| DiskCpu { user: self.cpu.user / ios, system: self.cpu.system / ios })
    }
}

fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}
