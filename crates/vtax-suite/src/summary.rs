//! Final summary: time per part compared with its budget, the slowest tests, and failures.

use std::{process::ExitCode, thread, time::Duration};

use super::{
    job::JobEnd,
    settings::{SuitePart, SuiteSettings},
};

/// Number of slowest tests listed.
const SLOWEST: usize = 10;

/// Share of the machine that may be reserved without being used before a hint is printed.
const IN_VAIN: f64 = 0.05;

/// Prints the summary. `elapsed` is the time since the suite started, and `in_vain` the CPU seconds that were reserved
/// but not used. Returns a failure if a job failed or a part took more CPU time than its budget.
pub(crate) fn print(settings: &SuiteSettings, ends: &[JobEnd], elapsed: Duration, in_vain: f64) -> ExitCode {
    println!("\n{:<10} {:>6} {:>8} {:>8} {:>9}", "PART", "TESTS", "JOBS (s)", "CPU (s)", "BUDGET");
    let rows: Vec<Row> = settings.parts.iter().map(|part| Row::of(part, ends)).collect();
    rows.iter().for_each(Row::print);
    let cpu: Duration = rows.iter().map(|row| row.cpu).sum();
    let budget = rows.iter().map(|row| row.budget).sum();
    let tests = rows.iter().map(|row| row.tests).sum();
    let wall = rows.iter().map(|row| row.wall).sum();
    Row { name: "all", tests, wall, cpu, budget }.print();
    print_use(elapsed, cpu, in_vain);
    print_slowest(ends);
    let over: Vec<&Row> = rows.iter().filter(|row| row.cpu.as_secs() > row.budget).collect();
    for row in &over {
        println!(
            "OVER BUDGET: {} took {} s of CPU time, and tests/suite.toml gives it {} s: make it faster, or raise the \
             budget and give the reason in the commit",
            row.name,
            row.cpu.as_secs(),
            row.budget
        );
    }
    let failed: Vec<&JobEnd> = ends.iter().filter(|end| !end.passed()).collect();
    for end in &failed {
        println!("FAILED: {}", end.job.name);
    }
    if over.is_empty() && failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_use(elapsed: Duration, cpu: Duration, in_vain: f64) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let machine = elapsed.as_secs_f64() * cpus as f64;
    let percent = 100.0 * cpu.as_secs_f64() / machine;
    println!(
        "Elapsed: {} s, {percent:.0} % of {cpus} CPUs used. JOBS is the sum over jobs, which run concurrently.",
        elapsed.as_secs()
    );
    if in_vain > IN_VAIN * machine {
        println!(
            "{in_vain:.0} s of CPU time were kept free for nothing: copy target/suite/costs.tsv to tests/costs.tsv"
        );
    }
}

struct Row<'a> {
    name: &'a str,
    tests: usize,
    /// Sum over the part's jobs, which run at the same time.
    wall: Duration,
    cpu: Duration,
    budget: u64,
}

impl Row<'_> {
    fn of<'a>(part: &'a SuitePart, ends: &[JobEnd]) -> Row<'a> {
        let own: Vec<&JobEnd> = ends.iter().filter(|end| end.job.part == part.name).collect();
        Row {
            name: &part.name,
            tests: own.iter().map(|end| end.tests).sum(),
            wall: own.iter().map(|end| end.wall).sum(),
            cpu: own.iter().map(|end| end.cpu).sum(),
            budget: part.cpu_seconds,
        }
    }

    fn print(&self) {
        let (wall, cpu) = (self.wall.as_secs(), self.cpu.as_secs());
        println!("{:<10} {:>6} {wall:>8} {cpu:>8} {:>9}", self.name, self.tests, self.budget);
    }
}

fn print_slowest(ends: &[JobEnd]) {
    let mut tests: Vec<&JobEnd> = ends.iter().filter(|end| end.tests > 0).collect();
    tests.sort_by_key(|end| std::cmp::Reverse(end.wall));
    if !tests.is_empty() {
        println!("\nSlowest tests:");
    }
    for end in tests.iter().take(SLOWEST) {
        println!("{:>8.1} s, CPU {:>7.1} s  {}", end.wall.as_secs_f64(), end.cpu.as_secs_f64(), end.job.name);
    }
}
