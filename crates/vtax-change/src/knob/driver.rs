//! Settings of a link's driver: features, rings, interrupt delays, queues.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;
use vtax_sys::ethtool::{DriverSetting, Ethtool};

use super::{Knob, link::LinkAt};
use crate::{error::ChangeError, host::HostAccess};

/// A feature of a link, such as `rx-gro`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkFeature {
    pub link: LinkAt,
    /// The kernel's name for it.
    pub feature: ForeignText,
}

/// True if a feature is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OnOff(pub bool);

/// A numeric setting of a link's driver. Each is read, compared and restored separately, because drivers adjust others
/// by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDriver {
    pub link: LinkAt,
    pub setting: DriverSetting,
}

impl LinkAt {
    fn driver(&self, host: &mut HostAccess) -> Result<Option<Ethtool>, ChangeError> {
        Ok(host.driver(self.namespace.as_ref(), self.index())?)
    }

    fn driver_to_tell(&self, host: &mut HostAccess) -> Result<Ethtool, ChangeError> {
        self.driver(host)?.ok_or_else(|| ChangeError::Missing { what: self.to_string() })
    }
}

impl Knob for LinkFeature {
    type Value = OnOff;

    fn read(&self, host: &mut HostAccess) -> Result<Option<OnOff>, ChangeError> {
        let Some(driver) = self.link.driver(host)? else { return Ok(None) };
        Ok(driver.feature(self.feature.raw())?.map(OnOff))
    }

    fn write(&self, host: &mut HostAccess, on: &OnOff) -> Result<(), ChangeError> {
        Ok(self.link.driver_to_tell(host)?.set_feature(self.feature.raw(), on.0)?)
    }

    fn is_known_after_restart(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        self.link.is_known_after_restart(host)
    }
}

impl Knob for LinkDriver {
    type Value = u32;

    fn read(&self, host: &mut HostAccess) -> Result<Option<u32>, ChangeError> {
        let Some(driver) = self.link.driver(host)? else { return Ok(None) };
        Ok(driver.setting(self.setting)?)
    }

    fn write(&self, host: &mut HostAccess, value: &u32) -> Result<(), ChangeError> {
        Ok(self.link.driver_to_tell(host)?.set(self.setting, *value)?)
    }

    fn is_known_after_restart(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        self.link.is_known_after_restart(host)
    }
}

impl fmt::Display for LinkFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feature {} of {}", self.feature, self.link)
    }
}

impl fmt::Display for LinkDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.setting, self.link)
    }
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}
