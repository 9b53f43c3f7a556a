//! Identity of a link: its driver, its queues and their settings.
//!
//! Part of a path's identity: two figures over links that differ in one of these are figures of two
//! paths. Facts that a link or its driver doesn't report are absent.

use crate::foreign::ForeignText;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A link as its driver and sysfs describe it (ethtool(8), `/sys/class/net`).
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NicFacts {
    /// The driver, e.g. `veth`, `ixgbe`, `virtio_net`.
    pub driver: Option<ForeignText>,
    /// The driver's version.
    pub driver_version: Option<ForeignText>,
    /// The firmware's version.
    pub firmware: Option<ForeignText>,
    /// Its bus address, e.g. `0000:3b:00.1`.
    pub bus: Option<ForeignText>,
    /// 10^6 bits per second, as negotiated.
    pub speed_mbps: Option<u32>,
    /// NUMA node to whose PCI bus the NIC is connected.
    pub numa_node: Option<u32>,
    /// Offloads by the kernel's names (`tx-tcp-segmentation`), and whether they are on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub offloads: BTreeMap<ForeignText, bool>,
    /// Queues in use.
    pub channels: Option<Channels>,
    /// Descriptors of each queue.
    pub rings: Option<Rings>,
    /// Interrupt coalescing.
    pub coalescing: Option<Coalescing>,
    /// Its interrupts and their permitted CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<IrqFacts>,
}

/// Queues in use (`ethtool -l`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Channels {
    /// Receive only.
    pub rx: u32,
    /// Transmit only.
    pub tx: u32,
    /// Link interrupts and similar.
    pub other: u32,
    /// Both ways.
    pub combined: u32,
}

/// Descriptors of a queue (`ethtool -g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rings {
    /// Receive, in use.
    pub rx: u32,
    /// Transmit, in use.
    pub tx: u32,
    /// Receive, maximum.
    pub rx_most: u32,
    /// Transmit, maximum.
    pub tx_most: u32,
}

/// Interrupt coalescing (`ethtool -c`): its timer is part of every round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Coalescing {
    /// µs after a received packet.
    pub rx_us: u32,
    /// Or after this many packets.
    pub rx_frames: u32,
    /// µs after a sent packet.
    pub tx_us: u32,
    /// Or after this many packets.
    pub tx_frames: u32,
    /// True if the driver adapts it for receiving.
    pub adaptive_rx: bool,
    /// True if the driver adapts it for sending.
    pub adaptive_tx: bool,
}

/// One interrupt of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IrqFacts {
    /// Its number in `/proc/irq`.
    pub number: u32,
    /// CPUs that it may be delivered to, in the kernel's notation: `0-3,8`.
    pub affinity: ForeignText,
    /// CPUs that it is delivered to now, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective: Option<ForeignText>,
}
