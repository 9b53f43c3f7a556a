//! The knee of a proof next to the knee of many loads.
//!
//! `cargo bench --bench knees -- [RUNS]`, as root, on a machine with two CPUs at least. The I/O side is the responder of a
//! lab's path, alone on one CPU; each request costs it a known time. The load comes from another CPU, at random times. A
//! proof measures four loads, as `vtax size prove` does; the other loads are what it did not see.

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    process::{self, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use vtax_model::{
    size::{Knee, KneePoint},
    units::Span,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Time of a request at the I/O side in µs, and an estimate of what the kernel adds.
const REQUEST_US: f64 = 100.0;
const KERNEL_US: f64 = 6.0;
/// Loads of a proof, and those of the comparison.
const PROOF: [f64; 4] = [0.5, 0.65, 0.8, 0.92];
const MANY: [f64; 9] = [0.45, 0.52, 0.59, 0.66, 0.72, 0.78, 0.84, 0.89, 0.94];
/// Limit of p99 in service times: what a queue with constant times has at 70 % (M/D/1).
const LIMIT: f64 = 7.3;
const ROUNDS: [u32; 2] = [3, 9];

fn main() -> Outcome<()> {
    let runs = env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20);
    let bench = Bench::new()?;
    let done = bench.compare(runs);
    bench.vtax(&["lab", "down", &bench.lab])?;
    done
}

/// A lab of two hosts, and a directory for studies and results.
struct Bench {
    folder: tempfile::TempDir,
    lab: String,
}

impl Bench {
    fn new() -> Outcome<Bench> {
        let bench = Bench { folder: tempfile::tempdir()?, lab: format!("knees-{}", process::id()) };
        let lab = format!(
            "[lab]\nname = \"{}\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
             [[wire]]\nname = \"w\"\nends = [\"a\", \"b\"]\n",
            bench.lab
        );
        bench.write("lab.toml", &lab)?;
        let output = bench.vtax(&["lab", "up", "lab.toml"])?;
        if output.status.success() { Ok(bench) } else { Err(said(&output)) }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) -> Outcome<()> {
        Ok(fs::write(self.path().join(name), text)?)
    }

    fn vtax(&self, arguments: &[&str]) -> Outcome<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.current_dir(&self.folder).env("VTAX_STATE", self.path().join("state"));
        Ok(command.args(arguments).stdin(Stdio::null()).output()?)
    }

    fn compare(&self, runs: usize) -> Outcome<()> {
        let limit = Span(Duration::from_secs_f64(LIMIT * (REQUEST_US + KERNEL_US) / 1e6));
        println!("limit of p99: {limit}");
        println!("run   predicted [interval]   measured [interval]   difference");
        let mut within = 0;
        for run in 1..=runs {
            let [predicted, measured] = [(&PROOF[..], ROUNDS[0]), (&MANY[..], ROUNDS[1])]
                .map(|(loads, rounds)| self.knee(loads, rounds, limit));
            let (predicted, measured) = (predicted?, measured?);
            let difference = predicted.utilization / measured.utilization - 1.0;
            within += usize::from(difference.abs() <= 0.15);
            println!("{run:3}   {}   {}   {:+.0} %", told(&predicted), told(&measured), difference * 1e2);
        }
        println!("within 15 %: {within} of {runs}");
        Ok(())
    }

    fn knee(&self, loads: &[f64], rounds: u32, limit: Span) -> Outcome<Knee> {
        let mut points = Vec::new();
        for load in loads {
            points.extend(self.points(load * 1e6 / (REQUEST_US + KERNEL_US), rounds)?);
        }
        Ok(Knee::of(&points, limit)?)
    }

    /// One point for each sample of the row with the known cost.
    fn points(&self, per_second: f64, rounds: u32) -> Outcome<Vec<KneePoint>> {
        let end =
            |end: &str, host: &str| format!("[[endpoint]]\nend = \"{end}\"\ncontrol = \"zone:{}/{host}\"\n", self.lab);
        let study = format!(
            "id = \"knees\"\ntitle = \"Knees\"\nbaseline = \"native\"\n{}{}\
             [matrix]\nmethods = [\"native\", \"shared-ip\"]\nmtu = [1500]\ntransports = [\"udp\"]\ntests = [\"rr\"]\n\
             [options]\narrivals = {{ per_second = {per_second:.0}, process = \"poisson\" }}\n\
             [plan]\nsamples = {rounds}\nduration = \"1s\"\nwarmup = \"100ms\"\n[planted]\nshared-ip = \"{REQUEST_US}us\"\n",
            end("initiator", "a"),
            end("responder", "b"),
        );
        self.write("study.toml", &study)?;
        let output = self.vtax(&["run", "study.toml", "--mode", "host", "--pin", "0:1", "--json"])?;
        let result: Value = serde_json::from_slice(&output.stdout).map_err(|_| said(&output))?;
        let cells = result["cells"].as_array().into_iter().flatten();
        let samples = cells.filter(|cell| cell["method"] == "shared-ip").filter_map(|cell| cell["samples"].as_array());
        samples.flatten().map(|sample| point(sample).ok_or_else(|| "a sample without p99".into())).collect()
    }
}

fn point(sample: &Value) -> Option<KneePoint> {
    let responder = &sample["cpu"]["responder"];
    let of_thread = |thread: &Value| Some(thread["user"].as_f64()? + thread["system"].as_f64()?);
    let cpu: f64 = responder["threads"].as_array()?.iter().map(of_thread).sum::<Option<f64>>()?;
    Some(KneePoint {
        utilization: cpu / responder["seconds"].as_f64()?,
        p99: Span(Duration::from_nanos(sample["rtt_ns"]["p99"].as_u64()?)),
    })
}

fn told(knee: &Knee) -> String {
    let high = knee.high.map_or("-".to_owned(), |high| format!("{:.0}", high * 1e2));
    format!("{:.0} % [{:.0}, {high}]", knee.utilization * 1e2, knee.low * 1e2)
}

fn said(output: &Output) -> Box<dyn Error> {
    String::from_utf8_lossy(&output.stderr).into_owned().into()
}
