//! fio's JSON (`--output-format=json`): one job that sends over TCP (`ioengine=net`), or jobs on disks.
//! <https://fio.readthedocs.io/en/latest/fio_doc.html>

use jiff::Timestamp;
use serde_json::Value;
use vtax_model::{
    units::ByteSize,
    workload::{Direction, Transport, Workload},
};

use super::{Counts, ForeignFormat, ForeignMeasure, ForeignTest, NetMeasure, fio_disk};

pub(super) const FORMAT: ForeignFormat = ForeignFormat { name: "fio", is, read };

/// fio counts what the socket took. Some MB of it may not have arrived when its time ends: less than a hundredth of this.
const LEAST_BYTES: f64 = 1e9;

fn is(text: &str) -> bool {
    // Warnings may stand before the JSON.
    text.contains("\"fio version\"")
}

fn read(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, String> {
    let json = text.find('{').map_or(text, |begin| &text[begin..]);
    let result: Value = serde_json::from_str(json).map_err(|error| format!("its JSON: {error}"))?;
    let job = match result["jobs"].as_array().map(Vec::as_slice) {
        Some([job]) => job,
        Some(_) | None => {
            let told = "only the output of a single job is imported, or of jobs with group_reporting=1";
            return Err(told.to_owned());
        }
    };
    let option = |name: &str| job["job options"][name].as_str().or(result["global options"][name].as_str());
    if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
        return Err(format!("the job failed with error {error}"));
    }
    let (begun, program) = (result["timestamp"].as_i64(), result["fio version"].as_str().unwrap_or("fio").to_owned());
    let test = |measured: ForeignMeasure| ForeignTest {
        format: FORMAT.name,
        program,
        // fio's time is when it ended.
        begun: begun.and_then(|ended| Timestamp::from_second(ended - measured.seconds() as i64).ok()),
        measured,
        machine: None,
    };
    if option("ioengine") != Some("net") {
        return Ok(test(ForeignMeasure::Disk(Box::new(fio_disk::measure(json, option)?))));
    }
    check(option)?;
    let message = match (size, option("bs").or(option("blocksize"))) {
        (Some(size), _) => size,
        // fio's own.
        (None, None) => ByteSize(4096),
        (None, Some(text)) => {
            block_size(text).ok_or(format!("its block size `{text}` isn't one that vtax reads: give --size"))?
        }
    };
    let written = |name: &str| job["write"][name].as_f64().ok_or(format!("it has no figure \"write.{name}\""));
    let (bytes, milliseconds) = (written("io_bytes")?, written("runtime")?);
    if bytes < LEAST_BYTES {
        return Err(format!(
            "it sent {:.0} MB, and fio counts what the socket took, not what arrived: that is near enough from 1000 MB on",
            bytes / 1e6
        ));
    }
    Ok(test(ForeignMeasure::Net(NetMeasure {
        transport: Transport::Tcp,
        workload: Workload::Stream { message, direction: Direction::Forward },
        streams: 1,
        counts: Counts { seconds: milliseconds / 1e3, bytes, ..Counts::default() },
    })))
}

/// Refuses what is no stream over TCP, and what fio doesn't count right.
fn check<'a>(option: impl Fn(&str) -> Option<&'a str>) -> Result<(), String> {
    match option("protocol").or(option("proto")) {
        None | Some("tcp") => {}
        Some(other) => return Err(format!("it ran over {other}, and only what it sends over tcp is imported")),
    }
    match (option("rw").or(option("readwrite")), option("pingpong")) {
        (_, Some(_)) => Err("with `pingpong` it is no stream; measure round trips with netperf or sockperf".to_owned()),
        (Some("write"), None) => Ok(()),
        _ => Err(
            "it is the receiver's output, and fio leaves reads that got less than a block out of its count: import \
                  the sender's (rw=write)"
                .to_owned(),
        ),
    }
}

/// `64k`, as fio has it: k, m and g are powers of 1,024.
pub(super) fn block_size(text: &str) -> Option<ByteSize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        _ => return None,
    };
    let size = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (size > 0 && size <= 1 << 40).then_some(ByteSize(size))
}
