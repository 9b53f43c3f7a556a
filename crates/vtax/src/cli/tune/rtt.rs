//! The round trip used to check buffers and idle states.

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
    /// Measured round trip of the path, e.g. 20ms. Used to check buffers and idle states
    #[arg(long, value_name = "TIME")]
    rtt: Option<Span>,
    /// Peer to measure the round trip to, from the host: with 1-byte requests to an endpoint spelled as for --host, or
    /// from TCP connection times (accepted or refused) to ADDRESS or ADDRESS:PORT [default port: 22]
    #[arg(long, value_name = "HOST|ADDRESS", conflicts_with = "rtt")]
    rtt_to: Option<RttPeer>,
}

/// The peer of a round trip.
#[derive(Debug, Clone)]
enum RttPeer {
    Agent(Control),
    Address(SocketAddr),
}

/// Usually served, or refused immediately by the kernel.
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
    /// Measures with agents, before the host is reached: a guest's agent serves one vtax at a time.
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

    /// Measures from the host itself.
    pub(super) fn by_host(&self, host: &TuningHost) -> Result<Option<PathRtt>, Stop> {
        let Some(RttPeer::Address(to)) = self.rtt_to else { return Ok(None) };
        Ok(Some(PathRtt { time: host.connect_time(to)?, source: RttSource::Connections(to) }))
    }
}
