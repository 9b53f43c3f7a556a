//! Costs of each test in the last run: long tests start first, and tests that mostly wait leave room for others.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use super::{
    error::SuiteError,
    job::{JobEnd, SuiteJob},
    settings::{root, state},
};

/// Costs that were measured when the file was last committed.
const COMMITTED: &str = "tests/costs.tsv";
/// Costs that were measured on this machine, in the suite's state directory.
const MEASURED: &str = "costs.tsv";
/// Minimum wall-clock time in seconds for which a test is listed.
const SHORT: f64 = 1.0;

#[derive(Debug, Default)]
pub(crate) struct JobCosts(BTreeMap<String, Cost>);

#[derive(Debug, Clone, Copy)]
struct Cost {
    wall_seconds: f64,
    cpu_seconds: f64,
}

impl Cost {
    fn of(end: &JobEnd) -> Cost {
        Cost { wall_seconds: end.wall.as_secs_f64(), cpu_seconds: end.cpu.as_secs_f64() }
    }

    /// Returns the number of busy CPUs. A job that mostly waits counts as a quarter of a CPU, because its work comes in
    /// bursts.
    fn cpus(&self) -> f64 {
        const LEAST: f64 = 0.25;
        (self.cpu_seconds / self.wall_seconds).max(LEAST)
    }
}

impl JobCosts {
    /// Reads both files. Costs that were measured here override committed ones.
    pub(crate) fn read() -> Result<JobCosts, SuiteError> {
        let mut costs = JobCosts::default();
        for path in [root().join(COMMITTED), state().join(MEASURED)] {
            if path.exists() {
                let text = fs::read_to_string(&path).map_err(SuiteError::file("read", &path))?;
                costs.0.extend(parsed(&path, &text)?);
            }
        }
        Ok(costs)
    }

    /// Returns the seconds that a job is expected to take.
    pub(crate) fn wall_seconds(&self, job: &SuiteJob) -> f64 {
        self.0.get(&job.name).map_or(0.0, |cost| cost.wall_seconds)
    }

    /// Returns the number of CPUs that a job is expected to keep busy.
    pub(crate) fn cpus(&self, job: &SuiteJob) -> f64 {
        job.cpus.or_else(|| self.0.get(&job.name).map(Cost::cpus)).unwrap_or(1.0)
    }

    /// Returns the CPU seconds that were reserved for jobs but not used by them.
    pub(crate) fn kept_free_in_vain(&self, ends: &[JobEnd]) -> f64 {
        let of = |end: &JobEnd| {
            let taken = Cost::of(end);
            (self.cpus(&end.job) - taken.cpus()).max(0.0) * taken.wall_seconds
        };
        ends.iter().filter(|end| end.tests > 0 && !end.job.alone).map(of).sum()
    }

    /// Adds the measured costs, and writes them for the next run.
    pub(crate) fn save(mut self, ends: &[JobEnd]) -> Result<(), SuiteError> {
        for end in ends.iter().filter(|end| end.tests > 0 && end.passed()) {
            self.0.insert(end.job.name.clone(), Cost::of(end));
        }
        let path = state().join(MEASURED);
        fs::create_dir_all(state()).map_err(SuiteError::file("create", &state()))?;
        fs::write(&path, self.written()).map_err(SuiteError::file("write", &path))
    }

    fn written(&self) -> String {
        let mut text = String::new();
        for (name, cost) in self.0.iter().filter(|(_, cost)| cost.wall_seconds >= SHORT) {
            let _ = writeln!(text, "{name}\t{:.1}\t{:.1}", cost.wall_seconds, cost.cpu_seconds);
        }
        text
    }
}

fn parsed(path: &Path, text: &str) -> Result<BTreeMap<String, Cost>, SuiteError> {
    let cost = |line: &str| {
        let mut fields = line.split('\t');
        let (name, wall, cpu) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        (fields.next().is_none() && wall > 0.0)
            .then(|| (name.to_owned(), Cost { wall_seconds: wall, cpu_seconds: cpu }))
    };
    let lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| cost(line).ok_or_else(|| SuiteError::Costs { path: path.to_owned(), line: index + 1 }));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn costs_are_read_as_they_are_written() {
        let text = "vtax/kernel labs::up\t2.0\t1.5\nvtax/kernel waits\t30.0\t0.3\n";
        let costs = JobCosts(parsed(Path::new("costs.tsv"), text).expect("two lines"));
        assert_eq!(costs.written(), text);
        let error = parsed(Path::new("costs.tsv"), "a\t1.0\t1.0\nb\t1.0\n").expect_err("a field is missing");
        assert!(error.to_string().starts_with("costs.tsv, line 2: "), "{error}");
        assert!(parsed(Path::new("costs.tsv"), "a\t0\t1.0\n").is_err(), "it divides by the wall time");
    }

    #[test]
    fn cpu_time_that_was_reserved_but_not_used_is_counted() {
        let costs = JobCosts(parsed(Path::new("costs.tsv"), "guessed\t10.0\t15.0\n").expect("a line"));
        let ended = |name: &str, wall, cpu, alone| JobEnd {
            job: SuiteJob {
                part: "kernel".into(),
                name: name.into(),
                command: Vec::new(),
                directory: "/".into(),
                environment: Vec::new(),
                cpus: None,
                alone,
                is_test: true,
            },
            result: Ok(()),
            tests: 1,
            wall: Duration::from_secs(wall),
            cpu: Duration::from_secs(cpu),
        };
        // One and a half CPUs were reserved for 20 s, of which half a CPU was used. Nothing is reserved for a job that
        // has the machine to itself.
        assert_eq!(costs.kept_free_in_vain(&[ended("guessed", 20, 10, false), ended("guessed", 20, 10, true)]), 20.0);
        assert_eq!(costs.kept_free_in_vain(&[ended("guessed", 20, 40, false)]), 0.0);
        assert_eq!(costs.kept_free_in_vain(&[ended("unknown", 4, 1, false)]), 3.0);
    }
}
