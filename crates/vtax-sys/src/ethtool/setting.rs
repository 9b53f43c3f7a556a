//! Numeric driver settings.

use std::io;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter};

use super::{CHANNELS, COALESCING, Command, Ethtool, RINGS};
use crate::error::{Result, SysError};

/// A numeric driver setting, by its name in ethtool(8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, EnumIter, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum DriverSetting {
    /// Descriptors of each receive queue (`ethtool -G`). Most drivers reset the link for a change.
    RxRing,
    /// Descriptors of each send queue.
    TxRing,
    /// Microseconds by which an interrupt is delayed after a packet was received (`ethtool -C`).
    RxUsecs,
    /// Number of received packets that end the delay.
    RxFrames,
    /// Microseconds by which an interrupt is delayed after a packet was sent.
    TxUsecs,
    /// Number of sent packets that end the delay.
    TxFrames,
    /// 1 if the driver adapts the receive delay.
    AdaptiveRx,
    /// 1 if the driver adapts the send delay.
    AdaptiveTx,
    /// Receive-only queues (`ethtool -L`). Most drivers reset the link for a change.
    RxChannels,
    /// Send-only queues.
    TxChannels,
    /// Queues for link interrupts and similar.
    OtherChannels,
    /// Queues that do both.
    CombinedChannels,
}

impl DriverSetting {
    /// Returns the structure with the setting, and the index of its word.
    fn place(self) -> (Command, usize) {
        match self {
            DriverSetting::RxRing => (RINGS, 5),
            DriverSetting::TxRing => (RINGS, 8),
            DriverSetting::RxUsecs => (COALESCING, 1),
            DriverSetting::RxFrames => (COALESCING, 2),
            DriverSetting::TxUsecs => (COALESCING, 5),
            DriverSetting::TxFrames => (COALESCING, 6),
            DriverSetting::AdaptiveRx => (COALESCING, 10),
            DriverSetting::AdaptiveTx => (COALESCING, 11),
            DriverSetting::RxChannels => (CHANNELS, 5),
            DriverSetting::TxChannels => (CHANNELS, 6),
            DriverSetting::OtherChannels => (CHANNELS, 7),
            DriverSetting::CombinedChannels => (CHANNELS, 8),
        }
    }
}

impl Ethtool {
    /// Returns the current number. None if the driver has no such setting, or if the link no longer exists.
    pub fn setting(&self, setting: DriverSetting) -> Result<Option<u32>> {
        let (command, at) = setting.place();
        Ok(self.ask(command)?.map(|words| words[at]))
    }

    /// Sets the number. Read it back: some drivers round it. Other settings of its structure stay.
    pub fn set(&self, setting: DriverSetting, value: u32) -> Result<()> {
        let object = || format!("{setting} of {}", self.link);
        let unsupported = || SysError::os("set", object(), io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let (command, at) = setting.place();
        let mut words = self.ask(command)?.ok_or_else(unsupported)?;
        words[0] = command.setter.ok_or_else(unsupported)?;
        words[at] = value;
        // SAFETY: the buffer is as long as the structure of this command, and is only read.
        unsafe { self.call(&mut words) }.map_err(|e| SysError::os("set", object(), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strum::IntoEnumIterator;

    #[test]
    fn each_setting_has_its_own_settable_word() {
        let places: Vec<_> = DriverSetting::iter().map(DriverSetting::place).collect();
        assert!(places.iter().all(|(command, at)| (1..command.words).contains(at) && command.setter.is_some()));
        let own: BTreeSet<(u32, usize)> = places.iter().map(|(command, at)| (command.number, *at)).collect();
        assert_eq!(own.len(), places.len());
    }
}
