//! The CPU time of a sliced test, from start to end.

use vtax_model::measurement::{MachineCpu, SessionCpu};
use vtax_sys::{
    clock::now_ns,
    cpu::{CpuTimes, MachineMeter, MachineReading, thread_times},
};

use super::{meter::in_seconds, seconds};
use crate::error::Result;

/// The counters at the start, read on a measuring thread.
pub(crate) struct Begun {
    at: u64,
    thread: CpuTimes,
    /// Only on the first thread of the end, or the machine would be counted once per thread.
    machine: Option<(MachineMeter, MachineReading)>,
}

impl Begun {
    pub(crate) fn now(first: bool) -> Result<Begun> {
        let read = |meter: MachineMeter| Ok((meter.read()?, meter));
        let machine = first.then(|| MachineMeter::open().and_then(read)).transpose()?;
        Ok(Begun { at: now_ns(), thread: thread_times(), machine: machine.map(|(reading, meter)| (meter, reading)) })
    }

    /// The CPU time since then.
    pub(crate) fn ended(self) -> Result<SessionCpu> {
        let machine = match &self.machine {
            Some((meter, begun)) => in_seconds(&meter.read()?.since(begun)),
            None => MachineCpu::default(),
        };
        let user = thread_times().since(self.thread).user.as_secs_f64();
        Ok(SessionCpu { seconds: seconds(self.at, now_ns()), machine, user })
    }
}

/// The sum over the threads of an end. Only one of them has read the machine's counters.
pub(super) fn joined(sum: Option<SessionCpu>, thread: Option<SessionCpu>) -> Option<SessionCpu> {
    let (Some(sum), Some(thread)) = (sum, thread) else { return sum.or(thread) };
    let looked = |one: &SessionCpu| one.machine != MachineCpu::default();
    let of_machine = if looked(&thread) { thread } else { sum };
    Some(SessionCpu { user: sum.user + thread.user, ..of_machine })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_the_machine_is_counted_once() {
        let machine = MachineCpu { cpus: 2, user: 0.5, ..MachineCpu::default() };
        let first = SessionCpu { seconds: 1.0, machine, user: 0.25 };
        let second = SessionCpu { seconds: 1.5, machine: MachineCpu::default(), user: 0.5 };
        let both = Some(SessionCpu { user: 0.75, ..first });
        assert_eq!(joined(Some(first), Some(second)), both);
        assert_eq!(joined(Some(second), Some(first)), both);
        assert_eq!(joined(None, Some(first)), Some(first));
    }

    #[test]
    fn the_cpu_time_of_a_thread_excludes_others() {
        let begun = Begun::now(true).unwrap();
        let until = now_ns() + 200_000_000;
        while now_ns() < until {}
        let session = begun.ended().unwrap();
        assert!(session.seconds >= 0.2 && session.machine.cpus > 0);
        assert!(session.user > 0.0 && session.user <= session.seconds + 0.02, "{session:?}");
    }
}
