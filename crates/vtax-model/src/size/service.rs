//! Services of an I/O domain, and their loads.

use serde::{Deserialize, Serialize};

/// Service of an I/O domain whose cost is fitted separately.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SizedService {
    /// Virtual networks.
    Vnet,
    /// Virtual disks.
    Vdisk,
    /// Consoles of guests.
    Console,
}

/// Quantity on which the cost of a service depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predictor {
    Packets,
    Bytes,
    Ios,
}

impl SizedService {
    /// Options of `vtax size` that measure it.
    pub(super) fn measuring(self) -> &'static str {
        match self {
            SizedService::Vnet | SizedService::Console => "--measure --to ldm:mars",
            SizedService::Vdisk => "--measure --disk ldm:mars/data",
        }
    }

    /// Quantities on which the cost depends, the main one first.
    pub(super) fn predictors(self) -> &'static [Predictor] {
        match self {
            SizedService::Vnet => &[Predictor::Packets, Predictor::Bytes],
            SizedService::Vdisk => &[Predictor::Ios, Predictor::Bytes],
            SizedService::Console => &[Predictor::Bytes],
        }
    }

    /// Name of the unit in which a service transfers bytes.
    pub(super) fn message(self) -> &'static str {
        match self {
            SizedService::Vnet => "packet",
            SizedService::Vdisk => "block",
            SizedService::Console => "message",
        }
    }
}

/// Load of one service, per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceLoad {
    pub service: SizedService,
    /// Packets in both directions.
    pub packets_per_s: f64,
    /// Bytes in both directions.
    pub bytes_per_s: f64,
    pub ios_per_s: f64,
}

impl ServiceLoad {
    /// Returns a load; messages are packets or I/Os, and a console has none.
    pub fn of(service: SizedService, messages_per_s: f64, bytes_per_s: f64) -> ServiceLoad {
        let (packets_per_s, ios_per_s) = match service {
            SizedService::Vnet => (messages_per_s, 0.0),
            SizedService::Vdisk => (0.0, messages_per_s),
            SizedService::Console => (0.0, 0.0),
        };
        ServiceLoad { service, packets_per_s, bytes_per_s, ios_per_s }
    }

    pub(super) fn get(&self, predictor: Predictor) -> f64 {
        match predictor {
            Predictor::Packets => self.packets_per_s,
            Predictor::Bytes => self.bytes_per_s,
            Predictor::Ios => self.ios_per_s,
        }
    }

    /// Packets or I/Os per second.
    pub fn messages_per_s(&self) -> f64 {
        self.get(self.service.predictors()[0])
    }

    /// Bytes of a packet or an I/O.
    pub fn message_size(&self) -> f64 {
        self.bytes_per_s / self.messages_per_s()
    }

    pub(super) fn times(&self, share: f64) -> ServiceLoad {
        ServiceLoad {
            packets_per_s: self.packets_per_s * share,
            bytes_per_s: self.bytes_per_s * share,
            ios_per_s: self.ios_per_s * share,
            ..*self
        }
    }

    /// This load as a share of a target's: the largest share of any quantity.
    pub(super) fn share_of(&self, target: &ServiceLoad) -> f64 {
        let share = |predictor: &Predictor| self.get(*predictor) / target.get(*predictor);
        self.service.predictors().iter().map(share).fold(0.0, f64::max)
    }
}

impl Predictor {
    pub(super) fn plural(self) -> &'static str {
        match self {
            Predictor::Packets => "packets",
            Predictor::Bytes => "bytes",
            Predictor::Ios => "I/Os",
        }
    }
}
