//! Detection of known costs, and the rate of false positives.
//!
//! `cargo bench --bench truths -- [RUNS_WITH_KNOWN_COSTS] [RUNS_OF_ROWS_ALIKE] [RUNS_OF_MANY_COSTS]`, as root. Each run
//! is a study under controlled conditions, by vtax itself, between two hosts of a lab. All rows have the same two
//! endpoints and differ only in the responder's delay, if at all.

mod two_hosts;

use std::env;

use serde_json::Value;
use two_hosts::{Outcome, TwoHosts, said};

/// Rows and the delays of their responders, in µs.
const KNOWN: [(&str, f64); 4] = [("shared-ip", 0.0), ("veth", 0.3), ("bridge", 1.0), ("macvlan", 3.0)];
/// Delays of responders in runs that only count intervals, in µs.
const WAITS: [f64; 6] = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
/// Delay of all responders, in µs.
const LEAST_WAIT: f64 = 1.0;
const TRANSPORTS: [&str; 2] = ["tcp", "udp"];

fn main() -> Outcome<()> {
    let counts: Vec<usize> = env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let (known, alike) = (counts.first().copied().unwrap_or(10), counts.get(1).copied().unwrap_or(200));
    let many = counts.get(2).copied().unwrap_or(8);
    let hosts = TwoHosts::new("truths")?;
    let done = hosts.known_costs(known).and_then(|()| hosts.rows_alike(alike)).and_then(|()| hosts.many_costs(many));
    hosts.down()?;
    done
}

impl TwoHosts {
    /// Runs a study whose rows all have the same endpoints, and returns its result.
    fn run(&self, rows: &[&str], matrix: &str, path: &str, planted: &str) -> Outcome<Value> {
        let study = format!(
            "id = \"truths\"\ntitle = \"Truths\"\nbaseline = \"native\"\n{}\
             [matrix]\nmethods = [\"native\", {}]\nmtu = [1500]\ntransports = [\"tcp\", \"udp\"]\n{matrix}\n\
             [path]\n{path}\n[plan]\nsamples = 9\nduration = \"80ms\"\nwarmup = \"10ms\"\n[planted]\n{planted}",
            self.endpoints(),
            rows.iter().map(|row| format!("{row:?}")).collect::<Vec<_>>().join(", "),
        );
        self.write("study.toml", &study)?;
        let output = self.vtax(&["run", "study.toml", "--mode", "controlled", "--json"])?;
        // On a busy machine a sample may fail: the run then exits with 1, but has the other samples.
        serde_json::from_slice(&output.stdout).map_err(|_| said(&output))
    }

    /// Runs studies like the demo's plan. Each run must show, with 80 % power, the differences that it claims to be
    /// able to detect. It makes this claim for rows in which it shows no difference, such as the one without a cost.
    fn known_costs(&self, runs: usize) -> Outcome<()> {
        let rows = KNOWN.map(|(row, _)| row);
        let planted = planted(&KNOWN);
        let path = "samples = 48\npasses = 4\nduration = \"4ms\"\nstream_duration = \"8ms\"\nwarmup = \"10ms\"";
        let mut found: Vec<Vec<Found>> = vec![Vec::new(); KNOWN.len() * TRANSPORTS.len()];
        let mut load = Vec::new();
        for _ in 0..runs {
            let result = self.run(&rows, "tests = [\"rr\"]", path, &planted)?;
            load.push(result["disturbance"]["other_programs"].as_f64().unwrap_or(f64::NAN));
            for (index, found) in found.iter_mut().enumerate() {
                let (transport, (row, _)) = (TRANSPORTS[index / KNOWN.len()], KNOWN[index % KNOWN.len()]);
                found.push(Found::of(tax(&result, row, transport, "rr", "rtt"))?);
            }
        }
        if runs == 0 {
            return Ok(());
        }
        println!("{runs} runs of 48 rounds; other programs took {} of the CPUs", range(&load, 1e2, " %"));
        println!("known cost       found, median (all)            shown   could show            interval has it");
        for (index, found) in found.iter().enumerate() {
            let each = |value: fn(&Found) -> f64| found.iter().map(value).collect::<Vec<f64>>();
            let count = |is: fn(&Found) -> bool| found.iter().filter(|one| is(one)).count();
            println!(
                "{} rr {:4.1} µs   {:28}   {:2} of {runs:2}   {:19}   {:2} of {runs:2}",
                TRANSPORTS[index / KNOWN.len()],
                KNOWN[index % KNOWN.len()].1,
                range(&each(|one| one.cost), 1.0, " µs"),
                count(|one| one.shown),
                range(&each(|one| one.could_show), 1.0, " µs"),
                count(|one| one.has_it)
            );
        }
        Ok(())
    }

    /// Runs short studies with varying costs: 95 % of the intervals must contain the injected cost.
    fn many_costs(&self, runs: usize) -> Outcome<()> {
        let rows = KNOWN.map(|(row, _)| row);
        let path = "samples = 24\npasses = 4\nduration = \"4ms\"\nstream_duration = \"8ms\"\nwarmup = \"10ms\"";
        let (mut load, mut widths, mut errors, mut excess) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut covered = [0; TRANSPORTS.len()];
        for run in 0..runs {
            let wait = |row: usize| WAITS[(run * (rows.len() - 1) + row) % WAITS.len()];
            let waits: Vec<(&str, f64)> =
                rows[1..].iter().enumerate().map(|(index, row)| (*row, wait(index))).collect();
            let result = self.run(&rows, "tests = [\"rr\"]", path, &planted(&waits))?;
            load.push(result["disturbance"]["other_programs"].as_f64().unwrap_or(f64::NAN));
            for ((row, us), index) in
                waits.iter().flat_map(|wait| (0..TRANSPORTS.len()).map(move |index| (wait, index)))
            {
                let found = Found::of(tax(&result, row, TRANSPORTS[index], "rr", "rtt"))?;
                covered[index] += usize::from(found.has_it);
                widths.push(found.half_width);
                errors.push(found.cost - found.planted);
                excess.push(found.planted - us);
            }
        }
        println!("{runs} runs of 24 rounds; other programs took {} of the CPUs", range(&load, 1e2, " %"));
        for (transport, covered) in TRANSPORTS.iter().zip(covered) {
            println!("{transport}: {covered} of {} intervals contain the planted cost", runs * (rows.len() - 1));
        }
        println!("half an interval {}; found less planted {}", range(&widths, 1.0, " µs"), range(&errors, 1.0, " µs"));
        println!("waited longer than asked {}", range(&excess, 1.0, " µs"));
        Ok(())
    }

    /// Runs short studies of rows that do not differ: each difference shown is a false alarm.
    fn rows_alike(&self, runs: usize) -> Outcome<()> {
        let rows = ["shared-ip", "veth"];
        let path = "samples = 10\npasses = 2\nduration = \"4ms\"\nstream_duration = \"8ms\"\nwarmup = \"5ms\"";
        let (mut speed, mut cpu, mut floors, mut excluded) = (0, 0, 0, 0);
        let mut load = Vec::new();
        for _ in 0..runs {
            let result = self.run(&rows, "tests = [\"rr\", \"stream\"]", path, "")?;
            load.push(result["disturbance"]["other_programs"].as_f64().unwrap_or(f64::NAN));
            let alarms = |of_cpu: bool| {
                let taxes = result["cells"].as_array().into_iter().flatten().flat_map(|cell| cell["taxes"].as_array());
                let asked = taxes.flatten().filter(|tax| (tax["of"] == "cpu") == of_cpu);
                { asked }.any(|tax| tax["verdict"] == "slower" || tax["verdict"] == "faster")
            };
            speed += usize::from(alarms(false));
            cpu += usize::from(alarms(true));
            for floor in result["noise_floor"].as_array().into_iter().flatten().filter(|floor| floor["of"] != "cpu") {
                floors += 1;
                let bound = |key: &str| floor[key].as_f64().unwrap_or(f64::NAN);
                excluded += usize::from(!(bound("low")..=bound("high")).contains(&1.0));
            }
        }
        println!("{runs} runs of 10 rounds, rows alike; other programs took {} of the CPUs", range(&load, 1e2, " %"));
        println!("runs with a false alarm: {speed} in speed, {cpu} in CPU");
        println!("intervals of the baseline against itself that leave 1 out: {excluded} of {floors}");
        Ok(())
    }
}

/// Result of a run for a known cost.
#[derive(Clone)]
struct Found {
    cost: f64,
    planted: f64,
    shown: bool,
    could_show: f64,
    half_width: f64,
    has_it: bool,
}

impl Found {
    fn of(tax: Option<&Value>) -> Outcome<Found> {
        let tax = tax.ok_or("no tax of a row that was measured")?;
        let number = |key: &str| tax[key].as_f64().unwrap_or(f64::NAN);
        // The delay that the responders really had, which is 1 to 2 % longer than configured.
        let planted = tax["planted"].as_f64().ok_or("no responder reported its delays")?;
        Ok(Found {
            cost: number("delta"),
            planted,
            shown: tax["verdict"] == "slower",
            could_show: number("could_show") * number("baseline"),
            half_width: (number("delta_high") - number("delta_low")) / 2.0,
            has_it: (number("delta_low")..=number("delta_high")).contains(&planted),
        })
    }
}

/// Returns the delays of a study's responders. Each is at least [`LEAST_WAIT`], so that the amount by which a wait ends
/// late (about half the time to read the clock) is the same for all.
fn planted(waits: &[(&str, f64)]) -> String {
    let others = ["native", "shared-ip"].iter().filter(|row| waits.iter().all(|(planted, _)| planted != *row));
    let all = waits.iter().copied().chain(others.map(|row| (*row, 0.0)));
    all.map(|(row, us)| format!("{row} = \"{}ns\"\n", (LEAST_WAIT + us) * 1e3)).collect()
}

fn tax<'a>(result: &'a Value, row: &str, transport: &str, test: &str, of: &str) -> Option<&'a Value> {
    let is_asked = |cell: &&Value| cell["method"] == row && cell["transport"] == transport && cell["test"] == test;
    let cell = result["cells"].as_array()?.iter().find(is_asked)?;
    cell["taxes"].as_array()?.iter().find(|tax| tax["of"] == of)
}

/// Formats `median (least to most)`.
fn range(values: &[f64], factor: f64, unit: &str) -> String {
    let mut sorted: Vec<f64> = values.iter().filter(|value| value.is_finite()).map(|value| value * factor).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [] => "-".to_owned(),
        [least, .., most] => format!("{:.2}{unit} ({least:.2} to {most:.2})", sorted[sorted.len() / 2]),
        [one] => format!("{one:.2}{unit}"),
    }
}
