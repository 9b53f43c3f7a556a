//! fio's JSON (`--output-format=json`): one job that sends over TCP (`ioengine=net`), or jobs on disks.
//! <https://fio.readthedocs.io/en/latest/fio_doc.html>

mod option;

use jiff::Timestamp;
use vtax_model::{
    units::ByteSize,
    workload::{Direction, Transport, Workload},
};

use super::{
    fio_disk,
    foreign::{Counts, ForeignMeasure, ForeignTest, NetMeasure},
    json::Json,
};
pub(super) use option::FioOptions;

pub(super) const NAME: &str = "fio";

/// fio counts bytes accepted by the socket. A few MB of them may not have arrived at the end: less than 1 % of this.
const LEAST_BYTES: f64 = 1e9;

pub(super) fn is(json: &Json) -> bool {
    json["fio version"].as_str().is_some()
}

/// Reads a document; `text` is the document as it was printed.
pub(super) fn read(result: &Json, text: &str, size: Option<ByteSize>) -> Result<ForeignTest, String> {
    let job = only_job(result)?;
    if let Some(error) = job["error"].as_f64().filter(|error| *error != 0.0) {
        return Err(format!("the job failed with error {error}"));
    }
    let options = FioOptions::of(result, job);
    options.check()?;
    let measured = match options.get("ioengine") {
        Some("net") => ForeignMeasure::Net(sent(job, &options, size)?),
        _ => ForeignMeasure::Disk(Box::new(fio_disk::measure(text, job, &options)?)),
    };
    let ended = result["timestamp"].as_f64();
    Ok(ForeignTest {
        format: NAME,
        program: result["fio version"].as_str().unwrap_or("fio").to_owned(),
        // fio reports the time when it ended.
        begun: ended.and_then(|ended| Timestamp::from_second((ended - measured.seconds()) as i64).ok()),
        measured,
        machine: None,
    })
}

fn only_job(result: &Json) -> Result<&Json, String> {
    match result["jobs"].as_list() {
        Some([job]) => Ok(job),
        Some(jobs) => Err(format!(
            "it has {} jobs, but only the output of a single job can be imported, or of equal jobs with numjobs= and \
             group_reporting=1",
            jobs.len()
        )),
        None if result.get("client_stats").is_some() => {
            Err("it is from fio's client/server mode, but only the output of a single fio can be imported".to_owned())
        }
        None => Err("it has no jobs: it is truncated".to_owned()),
    }
}

/// A job that sends over TCP.
fn sent(job: &Json, options: &FioOptions<'_>, size: Option<ByteSize>) -> Result<NetMeasure, String> {
    is_sender(options)?;
    let message = match (size, options.any(&["bs", "blocksize"])) {
        (Some(size), _) => size,
        // fio's default.
        (None, None) => ByteSize(4096),
        (None, Some(text)) => {
            options.size(text).ok_or(format!("its block size `{text}` is not supported: give --size"))?
        }
    };
    let streams = options.get("numjobs").unwrap_or("1");
    let streams = streams.parse::<u32>().map_err(|_| format!("its numjobs `{streams}` is not a number"))?;
    let written = |name: &str| job["write"][name].as_f64().ok_or(format!("it has no figure \"write.{name}\""));
    let (bytes, milliseconds) = (written("io_bytes")?, written("runtime")?);
    if bytes < LEAST_BYTES {
        return Err(format!(
            "it sent {:.0} MB, but fio counts bytes accepted by the socket, not bytes received: send at least 1000 MB",
            bytes / 1e6
        ));
    }
    Ok(NetMeasure {
        transport: Transport::Tcp,
        workload: Workload::Stream { message, direction: Direction::Forward },
        streams,
        counts: Counts { seconds: milliseconds / 1e3, bytes, ..Counts::default() },
    })
}

/// Refuses anything but a stream over TCP, and outputs that fio counts wrongly.
fn is_sender(options: &FioOptions<'_>) -> Result<(), String> {
    match options.any(&["protocol", "proto"]) {
        None | Some("tcp") => {}
        Some(other) => return Err(format!("it ran over {other}, but only data sent over tcp can be imported")),
    }
    match (options.any(&["rw", "readwrite"]), options.get("pingpong")) {
        (_, Some(_)) => Err("with `pingpong` it isn't a stream: for round trips, use netperf or sockperf".to_owned()),
        (Some("write"), None) => Ok(()),
        _ => Err("it is the receiver's output, but fio does not count reads of less than a block: import \
                  the sender's (rw=write)"
            .to_owned()),
    }
}
