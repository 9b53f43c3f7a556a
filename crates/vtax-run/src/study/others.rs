//! Looks at what other programs use of the CPUs, between samples.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use vtax_model::{foreign::ForeignText, run::OtherPrograms};
use vtax_sys::cpu::{OtherProgramsMeter, online_cpus};

/// A look takes at most this part of a run's time. It reads a file for each process of the machine.
const SHARE: u32 = 50;

/// CPU time of the other programs of a machine since they began.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OtherProgramsTime {
    /// Its host name; empty for this machine.
    pub(crate) machine: ForeignText,
    pub(crate) cpus: u32,
    pub(crate) cpu: Duration,
}

/// What was seen at the last look, and when the next one is due.
#[derive(Debug)]
pub(crate) struct OtherProgramsWatch {
    own: OtherProgramsMeter,
    seen: BTreeMap<ForeignText, (Instant, Duration)>,
    due: Instant,
}

impl OtherProgramsWatch {
    /// `working_in` is the directory below which guests and storage daemons of vtax work.
    pub(crate) fn new(working_in: Option<PathBuf>) -> OtherProgramsWatch {
        let own = OtherProgramsMeter::new(working_in);
        OtherProgramsWatch { own, seen: BTreeMap::new(), due: Instant::now() }
    }

    /// Returns what was used since the last look, if another one is due. `elsewhere` asks the other machines.
    pub(crate) fn look(&mut self, elsewhere: impl FnOnce() -> Vec<OtherProgramsTime>) -> Vec<OtherPrograms> {
        let begun = Instant::now();
        if begun < self.due {
            return Vec::new();
        }
        let all = self.here().into_iter().chain(elsewhere());
        let used = all.filter_map(|time| self.since_last(time, Instant::now())).collect();
        self.due = Instant::now() + begun.elapsed() * SHARE;
        used
    }

    /// None if `/proc` can't be read.
    fn here(&mut self) -> Option<OtherProgramsTime> {
        let cpus = u32::try_from(online_cpus().ok()?.iter().count()).ok()?;
        Some(OtherProgramsTime { machine: ForeignText::default(), cpus, cpu: self.own.read().ok()? })
    }

    fn since_last(&mut self, time: OtherProgramsTime, now: Instant) -> Option<OtherPrograms> {
        let OtherProgramsTime { machine, cpus, cpu } = time;
        let (then, before) = self.seen.insert(machine.clone(), (now, cpu))?;
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        // The time of a process whose parent ignores its end is lost, and then the sum may fall.
        Some(OtherPrograms { machine, cpus, seconds, cpu: cpu.saturating_sub(before).as_secs_f64() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rack(ms: u64) -> OtherProgramsTime {
        OtherProgramsTime { machine: "rack".into(), cpus: 4, cpu: Duration::from_millis(ms) }
    }

    #[test]
    fn each_machine_has_what_was_used_since_the_last_look() {
        let mut watch = OtherProgramsWatch::new(None);
        assert_eq!(watch.look(|| vec![rack(500)]), [], "the first look only remembers");
        assert_eq!(watch.look(|| panic!("it is too early")), []);
        watch.due = Instant::now();
        let used = watch.look(|| vec![rack(750)]);
        let machines: Vec<_> =
            used.iter().map(|used| (used.machine.raw(), used.cpus > 0, used.seconds > 0.0)).collect();
        assert_eq!(machines, [("", true, true), ("rack", true, true)]);
        assert!((used[1].cpu - 0.25).abs() < 1e-9, "{used:?}");
        let fallen = watch.since_last(rack(100), Instant::now()).expect("it was seen before");
        assert!(fallen.cpu.abs() < f64::EPSILON, "{fallen:?}");
    }
}
