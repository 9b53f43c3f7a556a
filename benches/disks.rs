//! vtax's figure for a disk compared with that of stand-alone fio, interleaved on one file: the ratio of IOPS.
//!
//! `cargo bench --package vtax-disk --bench disks [-- ROUNDS FOLDER TEST]`, as root; TEST is the beginning of a test.
//! The benchmark fails if the interval of a ratio does not include 1, or extends more than 2 % to either side of 1:
//! vtax's options would then change what fio measures.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use vtax_disk::{job::FioJob, run::FioProgram, target::check};
use vtax_model::disk::DiskTest;
use vtax_stats::{Confidence, Pair, PairedTax};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 20;
/// Largest allowed distance of an interval's bounds from 1.
const MARGIN: f64 = 0.02;
/// A test, and the options that a user of fio would write for it.
const TESTS: [(&str, &str); 3] = [
    (
        "random:reads=60,block=8KiB,jobs=4,range=512MiB,duration=2s,ramp=500ms",
        "--rw=randrw --rwmixread=60 --bs=8k --numjobs=4 --iodepth=1",
    ),
    ("random:block=4KiB,range=512MiB,duration=2s,ramp=500ms", "--rw=randread --bs=4k --numjobs=1 --iodepth=1"),
    ("sequential:block=1MiB,depth=4,range=512MiB,duration=2s,ramp=500ms", "--rw=read --bs=1m --numjobs=1 --iodepth=4"),
];
/// Uses other blocks in each round, as vtax does, because repeated ones may be in a cache below the file.
const PLAIN: &str = "--name=plain --ioengine=io_uring --direct=1 --size=512m --time_based --runtime=2 --ramp_time=500ms \
                     --randrepeat=0 --group_reporting --output-format=json --thread";

fn main() -> Outcome<()> {
    // cargo adds `--bench`.
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let rounds = words.first().and_then(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let folder = words.get(1).map_or(Path::new("/var/tmp"), Path::new);
    let folder = tempfile::tempdir_in(folder)?;
    let file = folder.path().join("disk");
    let mut wrong = Vec::new();
    let wanted = words.get(2).map_or("", String::as_str);
    for (ours, plain) in TESTS.into_iter().filter(|(ours, _)| ours.starts_with(wanted)) {
        let tax = compare(ours.parse()?, plain, &file, rounds)?;
        println!("{ours}: {:.4} ({:.4} to {:.4}) of stand-alone fio, {rounds} rounds", tax.ratio, tax.low, tax.high);
        if tax.excludes_equality() || tax.high > 1.0 + MARGIN || tax.low < 1.0 - MARGIN {
            wrong.push(ours);
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("not within 2 % of 1: {}", wrong.join("; ")).into()),
    }
}

/// Measures both in each round, in alternating order.
fn compare(test: DiskTest, plain: &str, file: &PathBuf, rounds: usize) -> Outcome<PairedTax> {
    let fio = FioProgram::user();
    let targets = std::slice::from_ref(file);
    check(targets, &test, true)?;
    fio.run(&FioJob::new(test, targets, true, 1)?)?;
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let ours = || -> Outcome<f64> {
            let report = fio.run(&FioJob::new(test, targets, false, round as u64)?)?;
            Ok(report.both().ok_or("nothing was measured")?.iops())
        };
        let (cell, baseline) = match round % 2 {
            0 => {
                let cell = ours()?;
                (cell, alone(plain, file)?)
            }
            _ => {
                let baseline = alone(plain, file)?;
                (ours()?, baseline)
            }
        };
        pairs.push(Pair { baseline, cell });
    }
    Ok(PairedTax::of(&pairs, Confidence::P95)?)
}

/// Returns the IOPS that fio itself reports to its users.
fn alone(plain: &str, file: &Path) -> Outcome<f64> {
    let mut command = Command::new("fio");
    command.args(PLAIN.split_whitespace()).args(plain.split(' ')).arg(format!("--filename={}", file.display()));
    let output = command.output()?;
    let said: Value = serde_json::from_slice(&output.stdout)?;
    let iops = |direction: &str| said["jobs"][0][direction]["iops"].as_f64().ok_or("fio has no figure");
    Ok(iops("read")? + iops("write")?)
}
