//! The knee from a proof compared with the knee from many loads.
//!
//! `cargo bench --bench knees -- [RUNS]`, as root, on a machine with at least two CPUs. The I/O side is the responder
//! of a lab's path, alone on one CPU; each request costs it a known time. The load comes from another CPU, at random
//! times. A proof measures four loads, as `vtax size prove` does; the comparison uses nine others.

mod two_hosts;

use std::{env, time::Duration};

use serde_json::Value;
use vtax_model::{
    size::{Knee, KneePoint},
    units::Span,
};

use two_hosts::{Outcome, TwoHosts, said};

/// Time of a request at the I/O side in µs, and an estimate of the time that the kernel adds.
const REQUEST_US: f64 = 100.0;
const KERNEL_US: f64 = 6.0;
/// Loads of a proof, and those of the comparison.
const PROOF: [f64; 4] = [0.5, 0.65, 0.8, 0.92];
const MANY: [f64; 9] = [0.45, 0.52, 0.59, 0.66, 0.72, 0.78, 0.84, 0.89, 0.94];
/// Limit of p99 in service times: p99 of a queue with constant service times at 70 % utilization (M/D/1).
const LIMIT: f64 = 7.3;
const ROUNDS: [u32; 2] = [3, 9];

fn main() -> Outcome<()> {
    let runs = env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20);
    let hosts = TwoHosts::new("knees")?;
    let done = hosts.compare(runs);
    hosts.down()?;
    done
}

impl TwoHosts {
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
            println!("{run:3}   {}   {}   {:+.0} %", shown(&predicted), shown(&measured), difference * 1e2);
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

    /// Returns one point for each sample of the row with the known cost.
    fn points(&self, per_second: f64, rounds: u32) -> Outcome<Vec<KneePoint>> {
        let study = format!(
            "id = \"knees\"\ntitle = \"Knees\"\nbaseline = \"native\"\n{}\
             [matrix]\nmethods = [\"native\", \"shared-ip\"]\nmtu = [1500]\ntransports = [\"udp\"]\ntests = [\"rr\"]\n\
             [options]\narrivals = {{ per_second = {per_second:.0}, process = \"poisson\" }}\n\
             [plan]\nsamples = {rounds}\nduration = \"1s\"\nwarmup = \"100ms\"\n[planted]\nshared-ip = \"{REQUEST_US}us\"\n",
            self.endpoints(),
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

fn shown(knee: &Knee) -> String {
    let high = knee.high.map_or("-".to_owned(), |high| format!("{:.0}", high * 1e2));
    format!("{:.0} % [{:.0}, {high}]", knee.utilization * 1e2, knee.low * 1e2)
}
