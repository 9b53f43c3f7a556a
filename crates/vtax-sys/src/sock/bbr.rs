//! What the congestion control BBR tells of itself (`TCP_CC_INFO`): a stream's
//! steady state starts behind BBR's startup, and the congestion window alone does
//! not show its end.

use std::os::fd::AsFd;
use std::time::Duration;

use super::{congestion_control, get_bytes};
use crate::error::{Result, SysError};

/// Gains are fixed point numbers with eight bits behind the point (`BBR_UNIT`).
const UNIT: f64 = 256.0;

/// What BBR believes of the path: `struct tcp_bbr_info` of `linux/inet_diag.h`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bbr {
    /// Bytes per second that the path is estimated to carry.
    pub bandwidth: u64,
    /// Smallest round trip time of late; none before the first sample.
    pub min_rtt: Option<Duration>,
    /// Pacing rate over the estimated bandwidth.
    pub pacing_gain: f64,
    /// Congestion window over the estimated product of bandwidth and delay.
    pub window_gain: f64,
}

/// What BBR is doing, told by its pacing gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BbrPhase {
    /// Doubling its rate every round trip, until that brings no more.
    Startup,
    /// Letting the queue run empty that the startup has made.
    Drain,
    /// At the path's rate.
    Steady,
}

impl Bbr {
    /// The gains are 2.89 and 0.35 in `net/ipv4/tcp_bbr.c` (`bbr_high_gain`,
    /// `bbr_drain_gain`), 2.77 and 0.35 to 0.5 in versions 2 and 3; in the steady
    /// state they are between 0.75 and 1.25. They are 1 before the first sample of the
    /// bandwidth.
    pub fn phase(&self) -> BbrPhase {
        match self.pacing_gain {
            _ if self.bandwidth == 0 => BbrPhase::Startup,
            gain if gain >= 2.0 => BbrPhase::Startup,
            gain if gain <= 0.6 => BbrPhase::Drain,
            _ => BbrPhase::Steady,
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let ([low, high, min_rtt, pacing_gain, window_gain], _) = bytes.as_chunks::<4>().0.split_first_chunk::<5>()?;
        let number = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes);
        Some(Self {
            bandwidth: u64::from(number(high)) << 32 | u64::from(number(low)),
            min_rtt: Some(number(min_rtt)).filter(|rtt| *rtt != u32::MAX).map(|rtt| Duration::from_micros(rtt.into())),
            pacing_gain: f64::from(number(pacing_gain)) / UNIT,
            window_gain: f64::from(number(window_gain)) / UNIT,
        })
    }
}

/// What BBR tells of a TCP socket; none if another congestion control is at work.
pub fn bbr(socket: impl AsFd) -> Result<Option<Bbr>> {
    let (operation, object) = ("read", "TCP_CC_INFO of a socket");
    let socket = socket.as_fd();
    // Vegas and DCTCP answer with structures of their own, of which one can't be
    // told from another.
    if !congestion_control(socket)?.starts_with("bbr") {
        return Ok(None);
    }
    let mut info = [0; 64];
    let filled = get_bytes(socket, libc::IPPROTO_TCP, libc::TCP_CC_INFO, &mut info)
        .map_err(|e| SysError::os(operation, object, e))?;
    let bbr = Bbr::from_bytes(&info[..filled]);
    bbr.map(Some).ok_or_else(|| SysError::malformed(operation, object, format!("{filled} bytes")))
}

#[cfg(test)]
mod tests {
    use super::super::{set_congestion_control, tests::tcp_pair};
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn reno_tells_nothing_of_bbr() {
        let (client, _server) = tcp_pair();
        set_congestion_control(&client, "reno").unwrap();
        assert_eq!(bbr(&client).unwrap(), None);
    }

    /// Not every kernel has BBR; the parser is tried below on any.
    #[test]
    fn a_fresh_connection_with_bbr_is_in_its_startup() {
        let (mut client, mut server) = tcp_pair();
        if set_congestion_control(&client, "bbr").is_err() {
            return;
        }
        assert_eq!(bbr(&client).unwrap().unwrap().phase(), BbrPhase::Startup);
        client.write_all(&[0; 100]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        server.write_all(&[0]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let told = bbr(&client).unwrap().unwrap();
        assert!(told.bandwidth > 0 && told.min_rtt.is_some(), "{told:?}");
        assert_eq!(told.phase(), BbrPhase::Startup, "{told:?}");
    }

    #[test]
    fn each_phase_is_known_by_its_gain() {
        let phase = |gain: u32| {
            let words = [5, 1, u32::MAX, gain, 512].map(u32::to_ne_bytes);
            let bbr = Bbr::from_bytes(words.as_flattened()).unwrap();
            assert_eq!((bbr.bandwidth, bbr.min_rtt, bbr.window_gain), ((1 << 32) + 5, None, 2.0));
            bbr.phase()
        };
        assert_eq!(phase(739), BbrPhase::Startup);
        assert_eq!(phase(88), BbrPhase::Drain);
        for steady in [192, 230, 256, 320] {
            assert_eq!(phase(steady), BbrPhase::Steady);
        }
        assert_eq!(Bbr::from_bytes(&[0; 19]), None);
        let (bandwidth, min_rtt, pacing_gain, window_gain) = (0, None, 1.0, 1.0);
        assert_eq!(Bbr { bandwidth, min_rtt, pacing_gain, window_gain }.phase(), BbrPhase::Startup);
    }
}
