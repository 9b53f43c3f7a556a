//! Idle CPU time of the machine.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::error::SuiteError;

/// See proc_stat(5).
const STAT: &str = "/proc/stat";

/// The counters of all CPUs at some time, in ticks.
pub(crate) struct IdleTime {
    at: Instant,
    idle: u64,
    all: u64,
    cpus: u64,
}

impl IdleTime {
    pub(crate) fn now() -> Result<IdleTime, SuiteError> {
        let text = fs::read_to_string(STAT).map_err(SuiteError::file("read", STAT.as_ref()))?;
        Ok(IdleTime::parse(&text))
    }

    fn parse(text: &str) -> IdleTime {
        let sum = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = sum.split_whitespace().skip(1).flat_map(str::parse).collect();
        // The time of guests, from the ninth field on, is part of the user time. The fourth and fifth fields are the
        // idle time without and with outstanding I/O.
        let of = |fields: &[u64]| fields.iter().sum();
        let (all, idle) = (of(&ticks[..ticks.len().min(8)]), of(ticks.get(3..5).unwrap_or_default()));
        let cpus = text.lines().skip(1).filter(|line| line.starts_with("cpu")).count();
        IdleTime { at: Instant::now(), idle, all, cpus: cpus as u64 }
    }

    /// Returns the time since the measurement.
    pub(crate) fn age(&self) -> Duration {
        self.at.elapsed()
    }

    /// Returns the number of CPUs that were idle since the last measurement, and measures again.
    pub(crate) fn cpus_since(&mut self) -> Result<f64, SuiteError> {
        let before = std::mem::replace(self, IdleTime::now()?);
        Ok(self.cpus_after(&before))
    }

    fn cpus_after(&self, before: &IdleTime) -> f64 {
        let (idle, all) = (self.idle.saturating_sub(before.idle), self.all.saturating_sub(before.all));
        self.cpus as f64 * idle as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cpus_are_the_idle_part_of_all_time() {
        let text = |user, idle, wait| {
            IdleTime::parse(&format!("cpu  {user} 0 50 {idle} {wait} 0 0 0 700 0\ncpu0 1\ncpu1 1\nintr 7\n"))
        };
        // Of 400 ticks of two CPUs, 100 were idle and 60 waited for a disk.
        let (before, after) = (text(1_000, 500, 40), text(1_240, 600, 100));
        assert_eq!(after.cpus_after(&before), 0.8);
        assert_eq!(after.cpus_after(&after), 0.0);
        assert_eq!(IdleTime::parse("").cpus_after(&before), 0.0);
    }

    #[test]
    fn this_machine_has_cpus() {
        let mut idle = IdleTime::now().expect("procfs");
        assert!(idle.cpus > 0 && idle.all > idle.idle);
        let cpus = idle.cpus_since().expect("procfs");
        assert!((0.0..=idle.cpus as f64).contains(&cpus), "{cpus}");
    }
}
