//! What a link's driver can be told: features, rings, interrupt delays, queues.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::nic::{Channels, Coalescing};
use vtax_sys::ethtool::Ethtool;

use super::{Knob, link::LinkAt};
use crate::{error::ChangeError, host::HostAccess};

/// A feature of a link, such as `rx-gro`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LinkFeature {
    pub link: LinkAt,
    /// The kernel's name of it.
    pub feature: String,
}

/// Whether a feature is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OnOff(pub bool);

/// The descriptors of a link's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRings {
    /// The link.
    pub link: LinkAt,
}

/// Descriptors of each queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingSizes {
    /// For receiving.
    pub rx: u32,
    /// For sending.
    pub tx: u32,
}

/// How long a link holds interrupts back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCoalescing {
    /// The link.
    pub link: LinkAt,
}

/// How long interrupts are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InterruptDelays(pub Coalescing);

/// The queues of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkChannels {
    /// The link.
    pub link: LinkAt,
}

/// Queues in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueCounts(pub Channels);

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
        Ok(driver.feature(&self.feature)?.map(OnOff))
    }

    fn write(&self, host: &mut HostAccess, on: &OnOff) -> Result<(), ChangeError> {
        Ok(self.link.driver_to_tell(host)?.set_feature(&self.feature, on.0)?)
    }
}

impl Knob for LinkRings {
    type Value = RingSizes;

    fn read(&self, host: &mut HostAccess) -> Result<Option<RingSizes>, ChangeError> {
        let Some(driver) = self.link.driver(host)? else { return Ok(None) };
        Ok(driver.rings()?.map(|rings| RingSizes { rx: rings.rx, tx: rings.tx }))
    }

    fn write(&self, host: &mut HostAccess, sizes: &RingSizes) -> Result<(), ChangeError> {
        Ok(self.link.driver_to_tell(host)?.set_rings(sizes.rx, sizes.tx)?)
    }
}

impl Knob for LinkCoalescing {
    type Value = InterruptDelays;

    fn read(&self, host: &mut HostAccess) -> Result<Option<InterruptDelays>, ChangeError> {
        let Some(driver) = self.link.driver(host)? else { return Ok(None) };
        Ok(driver.coalescing()?.map(InterruptDelays))
    }

    fn write(&self, host: &mut HostAccess, delays: &InterruptDelays) -> Result<(), ChangeError> {
        Ok(self.link.driver_to_tell(host)?.set_coalescing(&delays.0)?)
    }
}

impl Knob for LinkChannels {
    type Value = QueueCounts;

    fn read(&self, host: &mut HostAccess) -> Result<Option<QueueCounts>, ChangeError> {
        let Some(driver) = self.link.driver(host)? else { return Ok(None) };
        Ok(driver.channels()?.map(QueueCounts))
    }

    fn write(&self, host: &mut HostAccess, counts: &QueueCounts) -> Result<(), ChangeError> {
        Ok(self.link.driver_to_tell(host)?.set_channels(&counts.0)?)
    }
}

impl fmt::Display for LinkFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feature {} of {}", self.feature, self.link)
    }
}

impl fmt::Display for LinkRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rings of {}", self.link)
    }
}

impl fmt::Display for LinkCoalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupt delays of {}", self.link)
    }
}

impl fmt::Display for LinkChannels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queues of {}", self.link)
    }
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

impl fmt::Display for RingSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to receive, {} to send", self.rx, self.tx)
    }
}

impl fmt::Display for InterruptDelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coalescing { rx_us, rx_frames, tx_us, tx_frames, adaptive_rx, adaptive_tx } = self.0;
        let chosen = |adaptive: bool| if adaptive { ", by the driver" } else { "" };
        write!(f, "receiving {rx_us} µs or {rx_frames} packets{}, ", chosen(adaptive_rx))?;
        write!(f, "sending {tx_us} µs or {tx_frames} packets{}", chosen(adaptive_tx))
    }
}

impl fmt::Display for QueueCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Channels { rx, tx, other, combined } = self.0;
        write!(f, "{combined} combined, {rx} to receive, {tx} to send, {other} other")
    }
}
