//! The round trip by which buffers and idle states are judged.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use clap::Args;
use vtax_model::{
    endpoint::{BadControl, Control},
    units::Span,
};
use vtax_run::{Locations, TuningHost};
use vtax_tune::{PathRtt, RttSource};

use crate::{exit::Stop, progress};

#[derive(Debug, Args)]
pub(super) struct RttArgs {
    /// Measured round trip of the relevant path, e.g. 200us, by which buffers and idle states are judged
    #[arg(long, value_name = "TIME")]
    rtt: Option<Span>,
    /// Target to measure this round trip to, e.g. ssh:vm1 or 192.0.2.1: an endpoint with an agent, in the syntax of
    /// --host, with 1-byte requests; or an address or ADDRESS:PORT, with TCP connections, accepted or refused [default
    /// port: 22]
    #[arg(long, value_name = "HOST|ADDRESS", conflicts_with = "rtt")]
    rtt_to: Option<RttPeer>,
}

/// Target of a round trip.
#[derive(Debug, Clone)]
enum RttPeer {
    Agent(Control),
    Address(SocketAddr),
}

/// Usually a server listens there, or the kernel refuses immediately.
const SSH: u16 = 22;

impl FromStr for RttPeer {
    type Err = BadControl;

    fn from_str(text: &str) -> Result<RttPeer, BadControl> {
        let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, SSH));
        match address.or_else(|_| text.parse()) {
            Ok(address) => Ok(RttPeer::Address(address)),
            Err(_) => text.parse().map(RttPeer::Agent),
        }
    }
}

impl RttArgs {
    /// Measurement by agents. It precedes the connection to the host: a guest's agent serves one vtax at a time.
    pub(super) fn by_agents(&self, host: &Control, places: &Locations) -> Result<Option<PathRtt>, Stop> {
        match (&self.rtt, &self.rtt_to) {
            (Some(given), _) => Ok(Some(PathRtt { time: given.0, source: RttSource::Given })),
            (_, Some(RttPeer::Agent(to))) => {
                let time = TuningHost::round_trip(host, to, places, &progress::terminal())?;
                Ok(Some(PathRtt { time, source: RttSource::Requests(to.clone()) }))
            }
            _ => Ok(None),
        }
    }

    /// Measurement by the host itself.
    pub(super) fn by_host(&self, host: &TuningHost) -> Result<Option<PathRtt>, Stop> {
        let Some(RttPeer::Address(to)) = self.rtt_to else { return Ok(None) };
        Ok(Some(PathRtt { time: host.connect_time(to)?, source: RttSource::Connections(to) }))
    }
}
