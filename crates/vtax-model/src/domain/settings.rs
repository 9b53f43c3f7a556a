//! Properties of a domain itself.

use serde::{Deserialize, Serialize};

use super::{Configuration, Constraints, DomainError, FailurePolicy};
use crate::topology::Name;

/// Properties of a domain itself; only those present are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainSettings {
    pub policy: Option<FailurePolicy>,
    pub masters: Option<Vec<Name>>,
    pub autostart: Option<bool>,
}

impl DomainSettings {
    /// Applies them without checks.
    pub fn fill(self, domain: &mut Constraints) {
        let DomainSettings { policy, masters, autostart } = self;
        domain.failure_policy = policy.unwrap_or(domain.failure_policy);
        domain.masters = masters.unwrap_or_else(|| std::mem::take(&mut domain.masters));
        domain.autostart = autostart.unwrap_or(domain.autostart);
    }
}

impl Configuration {
    pub fn set_domain(&mut self, domain: &Name, settings: DomainSettings) -> Result<(), DomainError> {
        let DomainSettings { policy, masters, autostart } = settings;
        policy.map_or(Ok(()), |policy| self.set_failure_policy(domain, policy))?;
        autostart.map_or(Ok(()), |yes| self.set_autostart(domain, yes))?;
        masters.map_or(Ok(()), |masters| self.set_masters(domain, masters))
    }
}
