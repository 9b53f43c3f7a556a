//! Root queueing disciplines: the rate limit of a link, and its counters.
//!
//! Each packet that a link sends passes its root qdisc, so the qdisc's drops are exactly the link's losses.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage};
use vtax_model::units::{BitRate, ByteSize};

use super::name::IfIndex;
use super::reply::{attribute, number32, text};
use super::request::{NetlinkRequest, emitted};
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::Result;
use crate::netns::NetNs;

/// Length of `struct tcmsg`, after which the attributes begin.
pub(super) const HEADER: usize = 20;
/// From `linux/rtnetlink.h`, `linux/pkt_sched.h` and `linux/gen_stats.h`.
pub(super) const TCA_KIND: u16 = 1;
pub(super) const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// Lengths of `struct tc_ratespec` and `struct tc_tbf_qopt`, and the offset of the rate in the first.
const RATE_SPEC: usize = 12;
const TBF_PARMS: usize = 2 * RATE_SPEC + 12;
const RATE_AT: usize = 8;
/// Time unit of the kernel's packet scheduler, 64 ns (`PSCHED_SHIFT`).
const TICK_NS: u128 = 64;

/// Handle of our root qdisc, `1:`.
const HANDLE: TcHandle = TcHandle { major: 1, minor: 0 };

/// A token bucket (tc-tbf(8)). Packets leave at this rate on average. A packet that cannot leave yet waits in a
/// first-in-first-out queue of limited size; one that doesn't fit there is dropped.
///
/// Packets are counted as they leave the stack: with their Ethernet header, without the overhead of a physical wire. If
/// a NIC would cut a packet into segments (GSO), each segment counts with its own headers. A packet longer than the
/// burst is segmented before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tbf {
    /// The rate; the kernel counts whole bytes.
    pub rate: BitRate,
    /// Number of bytes that may leave immediately after a pause. A longer packet never gets through.
    pub burst: ByteSize,
    /// Number of bytes that may wait.
    pub queue: ByteSize,
}

/// Current state of a root qdisc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Kind, e.g. `tbf` or `noqueue`.
    pub kind: String,
    /// Settings of a `tbf`. The kernel stores the burst as a time, so it reads back rounded.
    pub tbf: Option<Tbf>,
    /// Counters since it was created.
    pub stats: QdiscStats,
}

/// Counters of a qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QdiscStats {
    /// Packets passed to the link; each segment counts.
    pub packets: u64,
    /// Their bytes with Ethernet headers.
    pub bytes: u64,
    /// Packets dropped. The kernel's counter has only 32 bits.
    pub drops: u32,
    /// Number of times a packet had to wait.
    pub overlimits: u32,
}

impl Rtnl {
    /// Makes a token bucket the root qdisc of a link. If vtax has already set one on the link, this changes it: waiting
    /// packets aren't lost, and the counters continue.
    ///
    /// # Errors
    /// `ENOENT` if this kernel has no `tbf`; `EINVAL` if the burst is 0.
    pub fn set_tbf(&mut self, link: IfIndex, tbf: &Tbf) -> Result<()> {
        let mut message = root_of(link);
        message.header.handle = HANDLE;
        message.attributes =
            vec![TcAttribute::Kind("tbf".into()), TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, tbf.options()))];
        let subject = Subject { operation: "limit the rate of", object: &format_args!("link number {link}") };
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(&NetlinkRequest::new(libc::RTM_NEWQDISC, &message), flags, subject)
    }

    /// Removes the token bucket of a link, which then sends at its own speed again. Waiting packets are lost.
    ///
    /// # Errors
    /// `EINVAL` or `ENOENT` if vtax has set none on the link.
    pub fn remove_tbf(&mut self, link: IfIndex) -> Result<()> {
        let mut message = root_of(link);
        message.header.handle = HANDLE;
        let subject = Subject { operation: "remove the rate limit of", object: &format_args!("link number {link}") };
        self.change(&NetlinkRequest::new(libc::RTM_DELQDISC, &message), CHANGE, subject)
    }

    /// Returns the root qdisc of a link. None if there is no such link, or if it has only the default one of a link
    /// that is down.
    ///
    /// Reads all qdiscs of the namespace. The kernel answers a request for a single one only to programs that listen
    /// for changes (`qdisc_get_notify`).
    pub fn root_qdisc(&mut self, link: IfIndex) -> Result<Option<Qdisc>> {
        let subject = Subject { operation: "read the qdisc of", object: &format_args!("link number {link}") };
        let all = NetlinkRequest::new(libc::RTM_GETQDISC, &TcMessage::default());
        let found = self.dump(&all, subject, |body| match is_root_of(body, link) {
            true => Qdisc::parse(body).map(Some).ok_or("a qdisc without a kind"),
            false => Ok(None),
        })?;
        Ok(found.into_iter().next())
    }
}

/// Tries to limit a link's rate in a temporary namespace, to check whether this kernel can. The kernel may load a
/// module for it.
///
/// # Errors
/// `ENOENT` if it has no `tbf`; any other error means that the privilege is missing.
pub fn probe_tbf() -> Result<()> {
    let loopback = IfIndex(1);
    let any = Tbf { rate: BitRate::new(1_000_000).expect("not 0"), burst: ByteSize(100_000), queue: ByteSize(100_000) };
    Rtnl::open_in(&NetNs::scratch()?)?.set_tbf(loopback, &any)
}

impl Tbf {
    /// Returns whether the kernel would report these settings for `asked`.
    pub fn is(&self, asked: &Tbf) -> bool {
        let ticks = |tbf: &Tbf| ticks(bytes_per_second(tbf.rate), tbf.burst.0);
        let same_burst = ticks(self).abs_diff(ticks(asked)) <= 1;
        bytes_per_second(self.rate) == bytes_per_second(asked.rate) && same_burst && self.limit() == asked.limit()
    }

    /// Returns the attributes of `TCA_OPTIONS`.
    fn options(&self) -> Vec<u8> {
        let rate = bytes_per_second(self.rate);
        let burst = u32::try_from(self.burst.0).unwrap_or(u32::MAX);
        let mut parms = vec![0; TBF_PARMS];
        // With the link layer given, the kernel needs no table of times per size.
        parms[1] = TC_LINKLAYER_ETHERNET;
        let small = u32::try_from(rate).unwrap_or(u32::MAX);
        parms[RATE_AT..RATE_SPEC].copy_from_slice(&small.to_ne_bytes());
        let buffer = ticks(rate, u64::from(burst));
        for (index, number) in [self.limit(), buffer].into_iter().enumerate() {
            parms[2 * RATE_SPEC + 4 * index..][..4].copy_from_slice(&number.to_ne_bytes());
        }
        let options = [
            DefaultNla::new(TCA_TBF_PARMS, parms),
            DefaultNla::new(TCA_TBF_RATE64, rate.to_ne_bytes().to_vec()),
            DefaultNla::new(TCA_TBF_BURST, burst.to_ne_bytes().to_vec()),
        ];
        emitted(&options.as_slice())
    }

    fn limit(&self) -> u32 {
        u32::try_from(self.queue.0).unwrap_or(u32::MAX)
    }

    fn parse(options: &[u8]) -> Option<Self> {
        let parms = attribute(options, TCA_TBF_PARMS)?;
        let number = |at: usize| parms.get(at..).and_then(number32);
        let small = number(RATE_AT).map(u64::from)?;
        // This attribute exists only if the other field is too small for the rate.
        let rate = attribute(options, TCA_TBF_RATE64).and_then(number64).unwrap_or(small);
        let buffer = number(2 * RATE_SPEC + 4)?;
        Some(Self {
            rate: BitRate::new(rate.checked_mul(8)?)?,
            burst: ByteSize((u128::from(buffer) * TICK_NS * u128::from(rate)).div_ceil(1_000_000_000) as u64),
            queue: ByteSize(number(2 * RATE_SPEC)?.into()),
        })
    }
}

impl Qdisc {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let attributes = body.get(HEADER..)?;
        let kind = attribute(attributes, TCA_KIND).and_then(text)?;
        let options = attribute(attributes, TCA_OPTIONS).filter(|_| kind == "tbf");
        Some(Self {
            tbf: options.and_then(Tbf::parse),
            stats: attribute(attributes, TCA_STATS2).map(QdiscStats::parse).unwrap_or_default(),
            kind,
        })
    }
}

impl QdiscStats {
    fn parse(stats: &[u8]) -> Self {
        let find = |kind| attribute(stats, kind).unwrap_or_default();
        let (basic, queue) = (find(TCA_STATS_BASIC), find(TCA_STATS_QUEUE));
        let queue = |index: usize| queue.get(4 * index..).and_then(number32).unwrap_or(0);
        let packets = basic.get(8..).and_then(number32).unwrap_or(0);
        Self {
            bytes: number64(basic).unwrap_or(0),
            // This attribute exists only if the old field has overflowed.
            packets: number64(find(TCA_STATS_PKT64)).unwrap_or(packets.into()),
            drops: queue(2),
            overlimits: queue(4),
        }
    }
}

fn root_of(link: IfIndex) -> TcMessage {
    let mut message = TcMessage::with_index(link.0.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message
}

fn is_root_of(body: &[u8], link: IfIndex) -> bool {
    let header = TcHeader::parse(body);
    header.is_ok_and(|header| header.index == link.0.cast_signed() && header.parent == TcHandle::ROOT)
}

/// Returns the rate in bytes; the kernel doesn't accept a rate of 0.
fn bytes_per_second(rate: BitRate) -> u64 {
    rate.bytes().max(1)
}

/// Returns the time to send a number of bytes, in the scheduler's ticks.
fn ticks(bytes_per_second: u64, bytes: u64) -> u32 {
    let ticks = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second) / TICK_NS;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn number64(value: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tbf(bits: u64, burst: u64, queue: u64) -> Tbf {
        Tbf { rate: BitRate::new(bits).unwrap(), burst: ByteSize(burst), queue: ByteSize(queue) }
    }

    fn nla(kind: u16, value: &[u8]) -> DefaultNla {
        DefaultNla::new(kind, value.to_vec())
    }

    #[test]
    fn a_report_is_read() {
        let basic = [7_u64.to_ne_bytes().as_slice(), &5_u32.to_ne_bytes()].concat();
        let queue: Vec<u8> = [1_u32, 2, 3, 4, 6].into_iter().flat_map(u32::to_ne_bytes).collect();
        let stats = emitted(&[nla(TCA_STATS_BASIC, &basic), nla(TCA_STATS_QUEUE, &queue)].as_slice());
        let asked = tbf(100_000_000, 25_000, 65_536);
        let mut body = vec![0; HEADER];
        let attributes = [nla(TCA_KIND, b"tbf\0"), nla(TCA_OPTIONS, &asked.options()), nla(TCA_STATS2, &stats)];
        body.extend(emitted(&attributes.as_slice()));
        let qdisc = Qdisc::parse(&body).unwrap();
        assert!(qdisc.kind == "tbf" && qdisc.tbf.is_some_and(|found| found.is(&asked)), "{qdisc:?}");
        let stats = QdiscStats { packets: 5, bytes: 7, drops: 3, overlimits: 6 };
        assert_eq!(qdisc.stats, stats);
    }

    #[test]
    fn another_rate_burst_or_queue_is_not_the_same() {
        let asked = tbf(100_000_000, 25_000, 65_536);
        for other in
            [tbf(100_000_800, 25_000, 65_536), tbf(100_000_000, 25_800, 65_536), tbf(100_000_000, 25_000, 65_535)]
        {
            assert!(!other.is(&asked), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn requested_settings_match_those_read_back(bits in 8..1_u64 << 42, burst in 1..1_u64 << 26, queue in 0..1_u64 << 32) {
            let asked = tbf(bits, burst, queue);
            // At a very low rate, the kernel's field for the burst's time is too small.
            prop_assume!(ticks(bytes_per_second(asked.rate), burst) < u32::MAX);
            let read = Tbf::parse(&asked.options()).unwrap();
            prop_assert!(read.is(&asked), "{:?}", read);
        }

        #[test]
        fn hostile_reports_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Qdisc::parse(&bytes), Tbf::parse(&bytes), QdiscStats::parse(&bytes), is_root_of(&bytes, IfIndex(1)));
        }
    }
}
