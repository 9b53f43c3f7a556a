//! Kernel settings under `/proc/sys`.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_sys::sysctl::SysctlKey;

use super::Knob;
use crate::{
    error::ChangeError,
    host::HostAccess,
    namespace::{NamespaceRef, WhereIn},
    text::KernelText,
};

/// A kernel setting. Those below `net` exist once for each network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceRef>,
    pub key: SysctlKey,
}

impl Knob for Sysctl {
    type Value = KernelText;

    fn read(&self, host: &mut HostAccess) -> Result<Option<KernelText>, ChangeError> {
        let text = host.read_proc(self.namespace.as_ref(), &self.key.below_proc())?;
        Ok(text.as_deref().map(KernelText::new))
    }

    fn write(&self, host: &mut HostAccess, value: &KernelText) -> Result<(), ChangeError> {
        Ok(host.write_proc(self.namespace.as_ref(), &self.key.below_proc(), value.as_str())?)
    }

    fn is_known_after_restart(&self, _: &mut HostAccess) -> Result<bool, ChangeError> {
        Ok(self.namespace.is_none())
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sysctl {}{}", self.key.dotted(), WhereIn(self.namespace.as_ref()))
    }
}
