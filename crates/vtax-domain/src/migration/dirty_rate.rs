//! A domain's memory, and the rate at which it changes.

use vtax_guest::{
    GuestError,
    process::Qemu,
    qmp::{DirtyRate, PATIENCE},
};
use vtax_model::{
    domain::{DomainError, DomainState, PRIMARY},
    migration::{ChangedMemory, GuestMemory, MemoryMeasurement},
    topology::Name,
    units::ByteSize,
};

use crate::{error::BindError, ldm_host::LdmHost};

impl LdmHost {
    /// Measures for three seconds how much memory a running domain dirties. QEMU only reads it.
    pub(crate) fn measure_migration(&self, domain: &Name) -> Result<MemoryMeasurement, BindError> {
        if domain.as_str() == PRIMARY {
            return Err(DomainError::Primary.into());
        }
        self.read()?.configuration.domain(domain)?;
        let Some(bound) = self.domains()?.find(domain)?.filter(|bound| bound.state() == DomainState::Active) else {
            return Ok(MemoryMeasurement::NotRunning);
        };
        let Some(qemu) = bound.qemu() else {
            return Ok(MemoryMeasurement::Unknown { why: "it is rebooting".into() });
        };
        Ok(measure(qemu).unwrap_or_else(|error| MemoryMeasurement::Unknown { why: error.to_string().into() }))
    }
}

fn measure(mut qemu: Qemu) -> Result<MemoryMeasurement, GuestError> {
    let mut changed_in = |seconds: u8| -> Result<Option<ByteSize>, GuestError> {
        // The monitor is released in between for others.
        let rate = qemu.monitor(PATIENCE)?.measure_dirty_rate(seconds)?;
        Ok(rate.map(|DirtyRate { per_second }| ByteSize(per_second.0.saturating_mul(seconds.into()))))
    };
    let (one, two) = (changed_in(1)?, changed_in(2)?);
    let (Some(in_one_second), Some(in_two_seconds)) = (one, two) else {
        return Ok(MemoryMeasurement::Unknown { why: "QEMU did not complete its measurement".into() });
    };
    let launch = qemu.launch();
    Ok(MemoryMeasurement::Measured(GuestMemory {
        size: launch.memory,
        used: qemu.used_ram()?,
        changed: ChangedMemory { in_one_second, in_two_seconds },
        accel: launch.accel,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DomainOrder, DomainReply,
        test_domains::{DomainJournal, TestHost, add_domain, configuration, mars, name},
    };

    fn measured(host: &TestHost, domain: &str) -> Result<MemoryMeasurement, BindError> {
        match host.host.execute(DomainOrder::MeasureMigration { domain: name(domain) })? {
            DomainReply::Memory(measured) => Ok(measured),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_domain_that_does_not_run_has_no_memory_to_measure() {
        let (host, mut all) = (TestHost::with_domains(), configuration());
        add_domain(&mut all, "venus");
        host.store(&all);
        DomainJournal::new(&mars(&all)).started(&all).write(&host.domains());
        for domain in ["venus", "mars"] {
            assert_eq!(measured(&host, domain).expect("it exists"), MemoryMeasurement::NotRunning, "{domain}");
        }
        for (domain, why) in [("pluto", "no domain `pluto`"), (PRIMARY, "primary is this host")] {
            let error = measured(&host, domain).expect_err(domain);
            assert!(error.is_of_input() && error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn the_lock_of_a_host_is_not_needed() {
        let (host, all) = (TestHost::with_domains(), configuration());
        host.store(&all);
        let lock = host.host.store().lock().expect("it is free");
        assert_eq!(measured(&host, "mars").expect("it exists"), MemoryMeasurement::NotRunning);
        drop(lock);
    }
}
