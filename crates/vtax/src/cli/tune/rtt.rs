//! The round trip that buffers and idle states are judged by.

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
    /// The round trip of the path that matters, as you have measured it. Buffers and idle states are judged by it
    #[arg(long, value_name = "TIME")]
    rtt: Option<Span>,
    /// Measure that round trip from the host: to an end with an agent, as --host names one, by 1-byte requests; or to
    /// an address or ADDRESS:PORT, by the time that TCP connections take, accepted or refused [default port: 22]
    #[arg(long, value_name = "HOST|ADDRESS", conflicts_with = "rtt")]
    rtt_to: Option<RttPeer>,
}

/// Where a round trip goes to.
#[derive(Debug, Clone)]
enum RttPeer {
    Agent(Control),
    Address(SocketAddr),
}

/// Usually there is a server behind it, or a kernel that refuses at once.
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
    /// What agents measure. It comes before the host is reached: the agent of a guest speaks to one vtax at a time.
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

    /// What the host itself measures.
    pub(super) fn by_host(&self, host: &TuningHost) -> Result<Option<PathRtt>, Stop> {
        let Some(RttPeer::Address(to)) = self.rtt_to else { return Ok(None) };
        Ok(Some(PathRtt { time: host.connect_time(to)?, source: RttSource::Connections(to) }))
    }
}
