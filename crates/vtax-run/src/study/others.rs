//! Checks the CPU use of other programs between samples.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use vtax_model::{foreign::ForeignText, run::OtherPrograms};
use vtax_sys::{
    cpu::{OtherProgramsMeter, online_cpus},
    process::Pid,
};

use super::runner::NetSampler;

/// Minimum interval between checks, as a multiple of a check's duration: it reads a file for each process of the
/// machine.
const APART: u32 = 50;

/// CPU time of the other programs of a machine since they started.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OtherProgramsTime {
    /// Unique identity of the machine, because hosts may have the same name. Empty for this
    /// machine.
    pub(crate) identity: String,
    /// Its host name; empty for this machine.
    pub(crate) machine: ForeignText,
    pub(crate) cpus: u32,
    pub(crate) cpu: Duration,
}

/// Result of the last check, and the time of the next one.
#[derive(Debug)]
pub(crate) struct OtherProgramsWatch {
    own: OtherProgramsMeter,
    seen: BTreeMap<String, (Instant, Duration)>,
    due: Instant,
}

impl OtherProgramsWatch {
    /// `working_in` is the directory below which guests and storage daemons of vtax work.
    pub(crate) fn new(working_in: Option<PathBuf>) -> OtherProgramsWatch {
        let own = OtherProgramsMeter::new(working_in);
        OtherProgramsWatch { own, seen: BTreeMap::new(), due: Instant::now() }
    }

    /// Returns the CPU use since the last check, if another one is due. The endpoints of a network have their own
    /// processes and machines.
    pub(crate) fn look(&mut self, network: Option<&dyn NetSampler>) -> Vec<OtherPrograms> {
        let begun = Instant::now();
        if begun < self.due {
            return Vec::new();
        }
        let (ours, elsewhere) = network.map(|ends| (ends.processes(), ends.other_programs())).unwrap_or_default();
        let all = self.here(&ours).into_iter().chain(elsewhere);
        let used = all.filter_map(|time| self.since_last(time, Instant::now())).collect();
        self.due = Instant::now() + begun.elapsed() * APART;
        used
    }

    /// None if `/proc` can't be read.
    fn here(&mut self, ours: &[Pid]) -> Option<OtherProgramsTime> {
        let cpus = u32::try_from(online_cpus().ok()?.iter().count()).ok()?;
        let cpu = self.own.read(ours).ok()?;
        Some(OtherProgramsTime { identity: String::new(), machine: ForeignText::default(), cpus, cpu })
    }

    fn since_last(&mut self, time: OtherProgramsTime, now: Instant) -> Option<OtherPrograms> {
        let OtherProgramsTime { identity, machine, cpus, cpu } = time;
        let (then, before) = self.seen.insert(identity, (now, cpu))?;
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        // The time of a process whose parent ignores its end is lost, so the sum may fall.
        Some(OtherPrograms { machine, cpus, seconds, cpu: cpu.saturating_sub(before).as_secs_f64() })
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{run::Figures, study::Row, units::Mtu, workload::TestSpec};

    use super::*;
    use crate::study::runner::{BrokenTurns, SampleError, Settings};

    /// A path between two machines of the same name.
    struct Path(Vec<OtherProgramsTime>);

    impl NetSampler for Path {
        fn use_settings(&mut self, _: Settings) -> Result<(), SampleError> {
            Ok(())
        }

        fn set_mtu(&mut self, _: Mtu) -> Result<(), SampleError> {
            Ok(())
        }

        fn sample(&mut self, _: Row, _: &TestSpec) -> Result<Figures, SampleError> {
            Err(SampleError::cell("nothing is measured here"))
        }

        fn take_turns(&mut self, _: &[(Row, TestSpec)], _: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns> {
            Ok(Vec::new())
        }

        fn processes(&self) -> Vec<Pid> {
            Vec::new()
        }

        fn other_programs(&self) -> Vec<OtherProgramsTime> {
            self.0.clone()
        }
    }

    fn time(identity: &str, ms: u64) -> OtherProgramsTime {
        let cpu = Duration::from_millis(ms);
        OtherProgramsTime { identity: identity.into(), machine: "debian".into(), cpus: 4, cpu }
    }

    #[test]
    fn each_machine_has_what_was_used_since_the_last_look() {
        let mut watch = OtherProgramsWatch::new(None);
        let (first, second) =
            (Path(vec![time("a", 500), time("b", 9_000)]), Path(vec![time("a", 750), time("b", 9_100)]));
        assert_eq!(watch.look(Some(&first)), [], "the first look only remembers");
        assert_eq!(watch.look(Some(&second)), [], "it is too early");
        watch.due = Instant::now();
        let used = watch.look(Some(&second));
        let machines: Vec<_> =
            used.iter().map(|used| (used.machine.raw(), used.cpus > 0, used.seconds > 0.0)).collect();
        assert_eq!(machines, [("", true, true), ("debian", true, true), ("debian", true, true)]);
        assert!((used[1].cpu - 0.25).abs() < 1e-9 && (used[2].cpu - 0.1).abs() < 1e-9, "{used:?}");
        let fallen = watch.since_last(time("a", 100), Instant::now()).expect("it was seen before");
        assert!(fallen.cpu.abs() < f64::EPSILON, "{fallen:?}");
    }
}
