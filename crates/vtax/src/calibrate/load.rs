//! What other programs and the hypervisor took of the machine's CPUs while vtax measured.

use std::time::Duration;

use vtax_model::result::Disturbance;
use vtax_run::rig::Rig;
use vtax_sys::{
    SysError,
    cpu::{MachineMeter, MachineReading, MachineTimes, program_times},
};

/// Reads the CPU times of the machine and of vtax's own programs.
pub(crate) struct LoadMeter {
    machine: MachineMeter,
    programs: Vec<u32>,
}

pub(crate) struct LoadReading {
    machine: MachineReading,
    own_user: Duration,
}

impl LoadMeter {
    /// A meter that counts this process and the agents as vtax's own programs.
    pub(crate) fn open(rig: &Rig) -> Result<LoadMeter, SysError> {
        let programs = rig.agent_processes().into_iter().chain([std::process::id()]).collect();
        Ok(LoadMeter { machine: MachineMeter::open()?, programs })
    }

    pub(crate) fn read(&self) -> Result<LoadReading, SysError> {
        let users = self.programs.iter().map(|pid| Ok(program_times(*pid)?.user));
        Ok(LoadReading { machine: self.machine.read()?, own_user: users.sum::<Result<_, SysError>>()? })
    }

    /// The load since an earlier reading.
    pub(crate) fn since(&self, opened: &LoadReading) -> Result<Disturbance, SysError> {
        let closed = self.read()?;
        let span = closed.machine.since(&opened.machine);
        Ok(shares(span.wall * span.cpus, &span.times, closed.own_user.saturating_sub(opened.own_user)))
    }
}

/// Only user time counts as the load of others: their kernel time can't be told from the measured path's.
fn shares(available: Duration, times: &MachineTimes, own_user: Duration) -> Disturbance {
    let share = |time: Duration| (!available.is_zero()).then(|| time.as_secs_f64() / available.as_secs_f64());
    // Ticks are coarse: over a short span vtax's own time may come out above that of all programs.
    let others = (times.user + times.nice).saturating_sub(own_user);
    Disturbance { other_programs: share(others), stolen: share(times.steal), guests_waited: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_programs_are_no_load() {
        let ms = Duration::from_millis;
        let times = MachineTimes { user: ms(900), nice: ms(100), system: ms(700), steal: ms(40), ..Default::default() };
        let load = shares(ms(4_000), &times, ms(600));
        assert_eq!((load.other_programs, load.stolen), (Some(0.1), Some(0.01)));
        assert_eq!(shares(ms(4_000), &times, ms(1_010)).other_programs, Some(0.0));
        assert_eq!(shares(Duration::ZERO, &times, Duration::ZERO).stolen, None);
    }
}
