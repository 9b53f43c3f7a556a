//! fio's JSON of jobs on disks: random or sequential I/Os of one size.

use vtax_disk::output;
use vtax_model::{disk::DiskTest, units::ByteSize};

use super::{DiskMeasure, fio::block_size};

/// fio's own engine on Linux.
const USUAL_ENGINE: &str = "psync";

pub(super) fn measure<'a>(json: &str, option: impl Fn(&str) -> Option<&'a str>) -> Result<DiskMeasure, String> {
    let test = test(option)?;
    if !json.contains("\"bins\"") {
        return Err(
            "it has no bins of response times: run fio with --output-format=json+ --lat_percentiles=1".to_owned()
        );
    }
    let report =
        output::read(json.as_bytes(), &[]).map_err(|error| format!("{error} (give fio --lat_percentiles=1)"))?;
    Ok(DiskMeasure { test, report })
}

/// The options of fio as our test.
fn test<'a>(option: impl Fn(&str) -> Option<&'a str>) -> Result<DiskTest, String> {
    let or = |name: &str, usual: &'static str| option(name).unwrap_or(usual).to_owned();
    let size = |name: &str, text: &str| match block_size(text) {
        Some(size) => Ok(size),
        None => Err(format!("its {name} `{text}` isn't one that vtax reads: one number, as 4k")),
    };
    let mixed = || or("rwmixread", "50");
    let (access, reads) = match option("rw").or(option("readwrite")).unwrap_or("read") {
        "read" => ("sequential", "100".to_owned()),
        "write" => ("sequential", "0".to_owned()),
        "rw" | "readwrite" => ("sequential", mixed()),
        "randread" => ("random", "100".to_owned()),
        "randwrite" => ("random", "0".to_owned()),
        "randrw" => ("random", mixed()),
        other => {
            return Err(format!(
                "its pattern `{other}` is none that vtax knows: read, write, rw, and the same with rand"
            ));
        }
    };
    let Some(range) = option("size") else {
        return Err("it doesn't say how much of the disk it used: give fio size=".to_owned());
    };
    let block = option("bs").or(option("blocksize")).unwrap_or("4k");
    let (block, range) = (size("block size", block)?, size("size", range)?);
    let targets = option("filename").map_or(1, |names| names.split(':').count());
    let each = ByteSize(range.0 / targets.max(1) as u64);
    let direct = if or("direct", "0") == "0" { "off" } else { "on" };
    let (depth, jobs, engine) = (or("iodepth", "1"), or("numjobs", "1"), or("ioengine", USUAL_ENGINE));
    let text = format!(
        "{access}:reads={reads},block={block},depth={depth},jobs={jobs},targets={targets},range={each},engine={engine},direct={direct}"
    );
    text.parse::<DiskTest>().map_err(|error| format!("as vtax says it, it is {text}, and {error}"))
}
