//! Requirements of an I/O domain, as the command line has them.

use serde::{Deserialize, Serialize};

use super::{IoRate, MigrationRate, PacketRate, ServiceLoad, SizeError, SizedService};
use crate::units::{BitRate, ByteSize, Mtu, Span};

/// Requirements. Whatever is unset isn't required.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeTarget {
    /// Bits per second on the guests' networks, both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<BitRate>,
    /// Packets per second of the same traffic; without it, they have 1500 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketRate>,
    /// I/Os per second on the guests' disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ios: Option<IoRate>,
    /// Size of an I/O; without it, 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<ByteSize>,
    /// Limit of the 99th percentile of response times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<Span>,
    /// Consoles in use at the same time.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub consoles: u32,
    /// Live migrations of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<MigrationRate>,
    /// Guests served by the domain; for its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestTotals>,
    /// Page cache for the backends of virtual disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_cache: Option<ByteSize>,
}

/// Sums over the guests that a domain serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTotals {
    pub guests: u32,
    /// Virtual CPUs of all guests.
    pub vcpus: u32,
    /// Memory of all guests.
    pub memory: ByteSize,
}

/// Packet size of a target without a packet rate: full packets, the fewest that carry its bits.
pub(super) const ASSUMED_PACKET: Mtu = Mtu::ETHERNET;
/// Size of an I/O of a target without one: the page size, in which most file systems allocate.
pub(super) const ASSUMED_BLOCK: ByteSize = ByteSize(4096);
/// Bytes per second of a console in use, both directions together: a serial line of 115,200 baud has 10 bits per byte.
const CONSOLE_BYTES: f64 = 11_520.0;
/// Bytes of the smallest IPv4 packet with a UDP header.
const SMALLEST_PACKET: f64 = 28.0;
/// Largest size of an I/O; the kernel splits larger ones.
const LARGEST_BLOCK: ByteSize = ByteSize(64 << 20);

impl SizeTarget {
    /// Returns the load of each required service, and refuses a target that contradicts itself.
    pub fn loads(&self) -> Result<Vec<ServiceLoad>, SizeError> {
        self.check_limits()?;
        let consoles = (self.consoles > 0)
            .then(|| ServiceLoad::of(SizedService::Console, 0.0, f64::from(self.consoles) * CONSOLE_BYTES));
        let loads: Vec<ServiceLoad> = self.network()?.into_iter().chain(self.disk()?).chain(consoles).collect();
        if loads.is_empty() { Err(SizeError::NothingToSize) } else { Ok(loads) }
    }

    fn check_limits(&self) -> Result<(), SizeError> {
        let zero = |option, example| Err(SizeError::Zero { option, example });
        match self {
            SizeTarget { p99: Some(limit), .. } if limit.0.is_zero() => zero("--p99", "200us"),
            SizeTarget { block: Some(ByteSize(0)), .. } => zero("--block", "4KiB"),
            SizeTarget { guests: Some(GuestTotals { guests: 0, .. }), .. } => zero("the number of guests", "12"),
            SizeTarget { guests: Some(GuestTotals { guests, vcpus, .. }), .. } if vcpus < guests => {
                Err(SizeError::FewVcpus { guests: *guests, vcpus: *vcpus })
            }
            _ => Ok(()),
        }
    }

    fn network(&self) -> Result<Option<ServiceLoad>, SizeError> {
        let (net, packets) = match (self.net, self.packets) {
            (None, None) => return Ok(None),
            (None, Some(packets)) => return Err(SizeError::PacketsWithoutBits(packets)),
            (Some(net), packets) => (net, packets),
        };
        let bytes = net.bits() as f64 / 8.0;
        let per_second = packets.map_or(bytes / f64::from(ASSUMED_PACKET.get()), PacketRate::per_second);
        match packets {
            Some(packets) if bytes / per_second < SMALLEST_PACKET => Err(SizeError::PacketsTooSmall { net, packets }),
            Some(packets) if bytes / per_second > f64::from(Mtu::MAX.get()) => {
                Err(SizeError::PacketsTooLarge { net, packets })
            }
            _ => Ok(Some(ServiceLoad::of(SizedService::Vnet, per_second, bytes))),
        }
    }

    fn disk(&self) -> Result<Option<ServiceLoad>, SizeError> {
        match (self.ios, self.block) {
            (None, None) => Ok(None),
            (None, Some(block)) => Err(SizeError::BlockWithoutIos(block)),
            (Some(_), Some(block)) if block > LARGEST_BLOCK => Err(SizeError::BlockTooLarge(block)),
            (Some(ios), block) => {
                let block = block.unwrap_or(ASSUMED_BLOCK);
                let per_second = ios.per_second();
                Ok(Some(ServiceLoad::of(SizedService::Vdisk, per_second, per_second * block.0 as f64)))
            }
        }
    }

    /// Returns a sentence for each figure that the target doesn't have and that was assumed.
    pub fn assumptions(&self) -> Vec<String> {
        let packets = self
            .net
            .filter(|_| self.packets.is_none())
            .map(|_| format!("packets of {ASSUMED_PACKET} bytes assumed; smaller ones cost more (--pps)"));
        let block = self
            .ios
            .filter(|_| self.block.is_none())
            .map(|_| format!("I/Os of {ASSUMED_BLOCK} assumed; larger ones cost more (--block)"));
        packets.into_iter().chain(block).collect()
    }
}
