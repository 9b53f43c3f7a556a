//! fio's JSON of jobs on disks: random or sequential I/Os of one size.

use vtax_disk::output;
use vtax_model::disk::DiskTest;

use super::{fio::FioOptions, foreign::DiskMeasure, json::Json};

/// fio's default engine on Linux.
const USUAL_ENGINE: &str = "psync";

/// The accepted deviation of the share of reads: with [`ENOUGH`] I/Os, chance alone stays well below.
const OTHER_MIX: f64 = 0.05;
const ENOUGH: f64 = 2_000.0;

pub(super) fn measure(text: &str, job: &Json, options: &FioOptions<'_>) -> Result<DiskMeasure, String> {
    let test = test(options)?;
    is_of_test(job, &test)?;
    let wanted = "run fio with --output-format=json+ --lat_percentiles=1";
    if !text.contains("\"bins\"") {
        return Err(format!("it has no bins of response times: {wanted}"));
    }
    let has_times = options.get("lat_percentiles").is_some_and(|value| value != "0");
    let report = output::read(text.as_bytes(), &[]);
    let report = report.map_err(|error| if has_times { error.to_string() } else { format!("{error} ({wanted})") })?;
    Ok(DiskMeasure { test, report })
}

/// Returns fio's options as a test of vtax.
fn test(options: &FioOptions<'_>) -> Result<DiskTest, String> {
    let or = |name: &str, usual: &'static str| options.get(name).unwrap_or(usual).to_owned();
    let size = |name: &str, text: &str| match options.size(text) {
        Some(size) => Ok(size),
        None => Err(format!("its {name} `{text}` is not supported: only a single number, e.g. 4k")),
    };
    let (access, reads) = match options.any(&["rw", "readwrite"]).unwrap_or("read") {
        "read" => ("sequential", "100".to_owned()),
        "write" => ("sequential", "0".to_owned()),
        "rw" | "readwrite" => ("sequential", mixed(options)?),
        "randread" => ("random", "100".to_owned()),
        "randwrite" => ("random", "0".to_owned()),
        "randrw" => ("random", mixed(options)?),
        other => {
            return Err(format!("unknown pattern `{other}`: only read, write, rw, and these with rand are supported"));
        }
    };
    let Some(range) = options.get("size") else {
        return Err("it does not report the range of the disk: give fio size=".to_owned());
    };
    let block = options.any(&["bs", "blocksize"]).unwrap_or("4k");
    let (block, range) = (size("block size", block)?, size("size", range)?);
    let targets = options.targets()?;
    let each = range.0 / targets.max(1) as u64;
    let is_direct = or("direct", "0") != "0" || options.get("buffered") == Some("0");
    let direct = if is_direct { "on" } else { "off" };
    let (depth, jobs, engine) = (or("iodepth", "1"), or("numjobs", "1"), or("ioengine", USUAL_ENGINE));
    let text = |block: &str, each: &str| {
        format!(
            "{access}:reads={reads},block={block},depth={depth},jobs={jobs},targets={targets},range={each},engine={engine},\
             direct={direct}"
        )
    };
    text(&block.0.to_string(), &each.to_string()).parse::<DiskTest>().map_err(|error| {
        let shown = text(&block.to_string(), &vtax_model::units::ByteSize(each).to_string());
        format!("its test is {shown}: {error}")
    })
}

/// Returns the share of reads of a mixed pattern.
fn mixed(options: &FioOptions<'_>) -> Result<String, String> {
    match (options.get("rwmixread"), options.get("rwmixwrite")) {
        (Some(reads), _) => Ok(reads.to_owned()),
        (None, None) => Ok("50".to_owned()),
        (None, Some(writes)) => match writes.parse::<u32>().ok().filter(|writes| *writes <= 100) {
            Some(writes) => Ok((100 - writes).to_string()),
            None => Err(format!("its rwmixwrite `{writes}` is not a percentage")),
        },
    }
}

/// Checks that the figures match the test of the options. fio prints the options of only one of the jobs that
/// `group_reporting` combines.
fn is_of_test(job: &Json, test: &DiskTest) -> Result<(), String> {
    let figure = |direction: &str, name: &str| job[direction][name].as_f64().unwrap_or(0.0);
    let grouped = "different jobs were combined (group_reporting): run each separately";
    let [reads, writes, trims] = ["read", "write", "trim"].map(|direction| figure(direction, "total_ios"));
    let share = f64::from(test.reads.get()) / 100.0;
    for (ios, share, direction) in [(reads, share, "reads"), (writes, 1.0 - share, "writes"), (trims, 0.0, "trims")] {
        if share == 0.0 && ios > 0.0 {
            return Err(format!("its job makes no {direction}, but it has {ios}: {grouped}"));
        }
    }
    let all = reads + writes;
    if all >= ENOUGH && (reads / all - share).abs() > OTHER_MIX {
        let (found, share) = (reads / all * 1e2, share * 1e2);
        return Err(format!("{found:.0} % of its I/Os are reads, but its job makes {share:.0} %: {grouped}"));
    }
    for direction in ["read", "write"] {
        is_of_block(figure(direction, "io_bytes"), figure(direction, "total_ios"), test)?;
    }
    let (all, one) = (figure_of(job, "job_runtime"), figure("read", "runtime").max(figure("write", "runtime")));
    let (ran, jobs) = (all / one, f64::from(test.jobs.get()));
    if one >= LONG_ENOUGH && ran > jobs + 0.5 {
        return Err(format!("{ran:.0} jobs ran simultaneously, but the options are of {jobs}: {grouped}"));
    }
    Ok(())
}

/// The minimum milliseconds for the number of jobs to follow from their total time.
const LONG_ENOUGH: f64 = 100.0;

fn figure_of(job: &Json, name: &str) -> f64 {
    job[name].as_f64().unwrap_or(0.0)
}

/// Refuses I/Os of sizes other than the block. Those in flight at the end of the ramp are counted by their bytes only.
fn is_of_block(bytes: f64, ios: f64, test: &DiskTest) -> Result<(), String> {
    const NEAR: f64 = 0.01;
    let block = test.block.get().0 as f64;
    let in_flight = f64::from(test.depth.get()) * f64::from(test.jobs.get());
    if ios == 0.0 || (bytes - ios * block).abs() <= (bytes * NEAR).max(in_flight * block) {
        return Ok(());
    }
    Err(format!(
        "its I/Os have {:.0} bytes on average, but its block size is {block}: only I/Os of one size, by one kind of \
         job, can be imported",
        bytes / ios
    ))
}
