//! CPUs to which an interrupt may be delivered.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};
use vtax_sys::SysError;

use super::Knob;
use crate::{error::ChangeError, host::HostAccess};

/// Kernel errors for an interrupt that cannot be moved (`write_irq_affinity`): EIO from older ones, EPERM from newer
/// ones, such as 6.18. Unprivileged processes can't even open the file (EACCES).
const MANAGED: [i32; 2] = [5, 1];

/// An interrupt of `/proc/irq`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqAffinity {
    irq: u32,
    /// Names of its actions. When a driver restarts, its number may go to another interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_for: Option<ForeignText>,
    /// The CPUs, among those allowed, that the kernel had chosen for it when the change was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chosen: Option<CpuSet>,
}

impl IrqAffinity {
    pub(crate) fn find(host: &mut HostAccess, irq: u32) -> Result<IrqAffinity, ChangeError> {
        let chosen = host.read_proc(None, &format!("irq/{irq}/effective_affinity_list"))?;
        let chosen = chosen.and_then(|text| text.parse().ok()).filter(|cpus: &CpuSet| !cpus.is_empty());
        Ok(IrqAffinity { irq, used_for: used_for(host, irq)?, chosen })
    }

    fn path(&self) -> String {
        format!("irq/{}/smp_affinity_list", self.irq)
    }

    /// Returns the CPUs to write before these. An interrupt that is allowed on additional CPUs stays where it is
    /// (`assign_vector_locked`, arch/x86/kernel/apic/vector.c): to restore its state, it must first be moved back. If
    /// vtax is killed in between, the next one finds a value that may be someone else's, leaves it alone and reports
    /// it.
    fn first_to(&self, cpus: &CpuSet) -> Option<&CpuSet> {
        self.chosen.as_ref().filter(|chosen| *chosen != cpus && chosen.iter().all(|cpu| cpus.contains(cpu)))
    }
}

fn used_for(host: &mut HostAccess, irq: u32) -> Result<Option<ForeignText>, ChangeError> {
    let Some(sys) = host.sys(None)? else { return Ok(None) };
    let actions = sys.read(&format!("kernel/irq/{irq}/actions"))?;
    Ok(actions.filter(|actions| !actions.is_empty()).map(ForeignText::from))
}

impl Knob for IrqAffinity {
    type Value = CpuSet;

    fn read(&self, host: &mut HostAccess) -> Result<Option<CpuSet>, ChangeError> {
        if used_for(host, self.irq)? != self.used_for {
            return Ok(None);
        }
        let Some(text) = host.read_proc(None, &self.path())? else { return Ok(None) };
        let malformed = |_| SysError::plain("read", self, std::io::ErrorKind::InvalidData.into());
        Ok(Some(text.parse().map_err(malformed)?))
    }

    fn write(&self, host: &mut HostAccess, cpus: &CpuSet) -> Result<(), ChangeError> {
        let mut lists = self.first_to(cpus).into_iter().chain([cpus]);
        match lists.try_for_each(|cpus| host.write_proc(None, &self.path(), &cpus.to_string())) {
            Err(error) if error.errno().is_some_and(|number| MANAGED.contains(&number)) => {
                Err(ChangeError::ManagedIrq { irq: self.irq })
            }
            written => Ok(written?),
        }
    }
}

impl fmt::Display for IrqAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPUs of interrupt {}", self.irq)?;
        self.used_for.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A revert once left all interrupts on the CPUs to which they had been moved.
    #[test]
    fn an_interrupt_is_moved_back_before_its_affinity_is_widened() {
        let cpus = |text: &str| text.parse::<CpuSet>().expect("CPUs");
        let knob = IrqAffinity { irq: 24, used_for: None, chosen: Some(cpus("1")) };
        assert_eq!(knob.first_to(&cpus("0-3")), Some(&cpus("1")));
        assert_eq!((knob.first_to(&cpus("2-3")), knob.first_to(&cpus("1"))), (None, None));
    }
}
