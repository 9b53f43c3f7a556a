//! The CPU load by other programs and the hypervisor during measurements.

use std::time::Duration;

use vtax_model::result::Disturbance;
use vtax_sys::{
    SysError,
    cpu::{MachineMeter, MachineReading, MachineTimes, OtherProgramsMeter},
};

/// Reads the CPU times of the machine and of programs other than vtax's.
pub(crate) struct LoadMeter {
    machine: MachineMeter,
    others: OtherProgramsMeter,
}

pub(crate) struct LoadReading {
    machine: MachineReading,
    others: Duration,
}

impl LoadMeter {
    /// Returns a meter that counts this process and all processes that it starts as vtax's.
    pub(crate) fn open() -> Result<LoadMeter, SysError> {
        Ok(LoadMeter { machine: MachineMeter::open()?, others: OtherProgramsMeter::new(None) })
    }

    pub(crate) fn read(&mut self) -> Result<LoadReading, SysError> {
        Ok(LoadReading { others: self.others.read(&[])?, machine: self.machine.read()? })
    }

    /// Returns the load since an earlier reading.
    pub(crate) fn since(&mut self, opened: &LoadReading) -> Result<Disturbance, SysError> {
        let closed = self.read()?;
        let span = closed.machine.since(&opened.machine);
        Ok(shares(span.wall * span.cpus, &span.times, closed.others.saturating_sub(opened.others)))
    }
}

fn shares(available: Duration, times: &MachineTimes, others: Duration) -> Disturbance {
    let share = |time: Duration| (!available.is_zero()).then(|| time.as_secs_f64() / available.as_secs_f64());
    Disturbance { other_programs: share(others), stolen: share(times.steal), guests_waited: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_cpus() {
        let ms = Duration::from_millis;
        let times = MachineTimes { user: ms(900), system: ms(700), steal: ms(40), ..Default::default() };
        let load = shares(ms(4_000), &times, ms(400));
        assert_eq!((load.other_programs, load.stolen), (Some(0.1), Some(0.01)));
        assert_eq!(shares(Duration::ZERO, &times, Duration::ZERO).stolen, None);
    }
}
