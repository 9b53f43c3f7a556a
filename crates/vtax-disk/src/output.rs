//! Conversion of fio's output (`--output-format=json+`) to a report.
//!
//! The text may come from a guest, so its length is limited, and each figure is checked before it is used. Figures are
//! totals over the measured time, because fio's `iops_mean` is a mean over intervals of half a second, the last of
//! which is truncated. I/Os are those that completed in that time, whose latencies fio reports: its `total_ios`, and
//! hence its `iops`, omit those in flight when the ramp ended, although the time continues until the last ones in
//! flight complete. With 64 in flight on a disk with 200 IOPS, that is 4 % too few.

mod bins;

use std::collections::BTreeMap;

use serde::Deserialize;
use vtax_model::{
    disk::{DiskCpu, DiskReport, IoReport},
    foreign::ForeignText,
};

/// Maximum length of the output. The bins of all directions together take a twentieth of it.
pub const OUTPUT_MOST: usize = 4 << 20;
/// Maximum length of fio's own message in an error.
const WORDS_MOST: usize = 600;
/// Exit status of fio if a checksum is wrong: EILSEQ, errno(3).
const WRONG_CHECKSUM: i64 = 84;
/// Maximum number of I/Os (2^40), more than the fastest disks complete in a day.
const IOS_MOST: u64 = 1 << 40;

/// Reason why fio's output is not a report.
#[derive(Debug, Clone, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum FioOutputError {
    #[error("fio printed {length} bytes, more than the limit of {OUTPUT_MOST}: not the output of a single test")]
    #[diagnostic(code("fio-output"))]
    TooLong { length: usize },
    #[error("cannot read fio's output: {why}{}", after(words))]
    #[diagnostic(code("fio-output"))]
    Unreadable { why: String, words: ForeignText },
    #[error("fio did no I/O{}", after(words))]
    #[diagnostic(code("fio-output"))]
    Nothing { words: ForeignText },
    #[error("fio's output contradicts itself: {why}")]
    #[diagnostic(code("fio-output"))]
    Odd { why: &'static str },
    #[error("the disk returned data that differs from what was written: fio found a checksum mismatch{}", after(words))]
    #[diagnostic(code("disk-corrupted"))]
    Corrupted { words: ForeignText },
    #[error("an I/O failed: {}{}", std::io::Error::from_raw_os_error(*errno as i32), after(words))]
    #[diagnostic(code("disk-io-failed"))]
    Failed { errno: i64, words: ForeignText },
}

fn after(words: &ForeignText) -> String {
    if words.is_empty() { String::new() } else { format!("; fio printed: {words}") }
}

/// Parses fio's standard output; `errors` is its standard error output.
pub fn read(output: &[u8], errors: &[u8]) -> Result<DiskReport, FioOutputError> {
    if output.len() > OUTPUT_MOST {
        return Err(FioOutputError::TooLong { length: output.len() });
    }
    // fio may print messages before the JSON.
    let begin = begin_of_json(output).unwrap_or(output.len());
    let (before, json) = output.split_at(begin);
    let words = || words(errors, before);
    let unreadable = |why: String| FioOutputError::Unreadable { why, words: words() };
    if json.is_empty() {
        return Err(unreadable("it contains no JSON".to_owned()));
    }
    let document = serde_json::Deserializer::from_slice(json).into_iter::<FioDocument>().next();
    let document = document.transpose().map_err(|error| unreadable(error.to_string()))?;
    let jobs = document.map(|document| document.jobs).unwrap_or_default();
    let [job] = jobs.as_slice() else {
        return Err(unreadable(format!("it has {} jobs, expected one group", jobs.len())));
    };
    match job.error {
        // It is not an error of the job if fio can't open a file.
        0 if job.read.lat_ns.samples == 0 && job.write.lat_ns.samples == 0 => {
            Err(FioOutputError::Nothing { words: words() })
        }
        0 => job.report(),
        WRONG_CHECKSUM => Err(FioOutputError::Corrupted { words: words() }),
        errno => Err(FioOutputError::Failed { errno, words: words() }),
    }
}

/// Returns the offset of the JSON, which begins with a line that contains only a brace.
fn begin_of_json(output: &[u8]) -> Option<usize> {
    let is_line = |at: &usize| *at == 0 || output[*at - 1] == b'\n';
    let braces = output.iter().enumerate().filter(|(_, byte)| **byte == b'{').map(|(at, _)| at);
    braces.into_iter().find(is_line)
}

/// Returns fio's messages about a failure: the first lines, and the number of omitted ones. fio prints a line for each
/// wrong block.
fn words(errors: &[u8], before: &[u8]) -> ForeignText {
    let text = [errors, b"\n", before].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut said: String = lines.first().copied().unwrap_or_default().chars().take(WORDS_MOST).collect();
    let mut told = 1;
    while let Some(line) = lines.get(told).filter(|line| said.len() + line.len() <= WORDS_MOST) {
        said += &format!(" | {line}");
        told += 1;
    }
    match lines.len().saturating_sub(told) {
        0 => said.into(),
        1 => format!("{said} | and 1 line more").into(),
        more => format!("{said} | and {more} lines more").into(),
    }
}

#[derive(Debug, Deserialize)]
struct FioDocument {
    jobs: Vec<FioJobOutput>,
}

/// Totals over all jobs of the group (`group_reporting`).
#[derive(Debug, Deserialize)]
struct FioJobOutput {
    error: i64,
    read: FioDirection,
    write: FioDirection,
    /// Sum over all threads, in milliseconds.
    job_runtime: u64,
    /// Percent of that sum.
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
struct FioDirection {
    io_bytes: u64,
    /// Milliseconds.
    runtime: u64,
    lat_ns: FioTimes,
}

#[derive(Debug, Deserialize)]
struct FioTimes {
    mean: f64,
    #[serde(rename = "N")]
    samples: u64,
    /// Number of latencies in each bin, by the middle of the bin. Absent if there are none.
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

impl FioJobOutput {
    fn report(&self) -> Result<DiskReport, FioOutputError> {
        let seconds = |percent: f64| percent / 100.0 * self.job_runtime as f64 / 1e3;
        let cpu = DiskCpu { user: seconds(self.usr_cpu), system: seconds(self.sys_cpu) };
        if ![cpu.user, cpu.system].iter().all(|seconds| seconds.is_finite() && *seconds >= 0.0) {
            return Err(FioOutputError::Odd { why: "invalid CPU time" });
        }
        Ok(DiskReport { read: self.read.report()?, write: self.write.report()?, cpu })
    }
}

impl FioDirection {
    fn report(&self) -> Result<Option<IoReport>, FioOutputError> {
        let odd = |why| Err(FioOutputError::Odd { why });
        let FioDirection { io_bytes, runtime, lat_ns } = self;
        match self {
            _ if lat_ns.samples == 0 => return Ok(None),
            _ if lat_ns.samples > IOS_MOST => return odd("too many I/Os"),
            _ if *runtime == 0 => return odd("I/Os in a run time of zero"),
            _ if !lat_ns.mean.is_finite() || lat_ns.mean < 0.0 => return odd("invalid mean response time"),
            _ => {}
        }
        let times = bins::histogram(&lat_ns.bins).map_err(|why| FioOutputError::Odd { why })?;
        if times.count() != lat_ns.samples {
            return odd("the latency bins do not add up to the number of I/Os");
        }
        let seconds = *runtime as f64 / 1e3;
        Ok(Some(IoReport { ios: lat_ns.samples, bytes: *io_bytes, seconds, mean_ns: lat_ns.mean, times }))
    }
}

#[cfg(test)]
mod tests;
