//! What other programs and the hypervisor took of the machine's CPUs while vtax measured.

use std::time::Duration;

use vtax_model::result::Disturbance;
use vtax_sys::{
    SysError,
    cpu::{MachineMeter, MachineReading, MachineSpan, program_times},
};

use crate::rig::Rig;

/// Reads the account of the machine, and of the programs that are vtax's own.
pub(super) struct LoadMeter {
    machine: MachineMeter,
    programs: Vec<u32>,
}

/// Both accounts at one moment.
pub(super) struct LoadReading {
    machine: MachineReading,
    own_user: Duration,
}

impl LoadMeter {
    /// Of this process and the agents.
    pub(super) fn open(rig: &Rig) -> Result<LoadMeter, SysError> {
        let programs = rig.agent_processes().into_iter().chain([std::process::id()]).collect();
        Ok(LoadMeter { machine: MachineMeter::open()?, programs })
    }

    pub(super) fn read(&self) -> Result<LoadReading, SysError> {
        let users = self.programs.iter().map(|pid| Ok(program_times(*pid)?.user));
        Ok(LoadReading { machine: self.machine.read()?, own_user: users.sum::<Result<_, SysError>>()? })
    }

    /// The load since an earlier reading.
    pub(super) fn since(&self, opened: &LoadReading) -> Result<Disturbance, SysError> {
        let closed = self.read()?;
        Ok(shares(&closed.machine.since(&opened.machine), closed.own_user.saturating_sub(opened.own_user)))
    }
}

/// As in reports of runs: what others did in the kernel can't be told from the work of the path that is measured.
fn shares(span: &MachineSpan, own_user: Duration) -> Disturbance {
    let available = (span.wall * span.cpus).as_secs_f64();
    let others = (span.times.user + span.times.nice).saturating_sub(own_user);
    let share = |time: Duration| if available > 0.0 { time.as_secs_f64() / available } else { 0.0 };
    Disturbance { other_programs: share(others), stolen: share(span.times.steal), guests_waited: None }
}
