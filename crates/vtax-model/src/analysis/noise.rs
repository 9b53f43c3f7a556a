//! Causes of noise that a result shows by itself, and a remedy for each.

use crate::{
    options::Idle,
    result::{CellRecord, ResultDocument, SummaryRecord},
};

/// Minimum share of the CPUs used by others that counts as a cause of noise.
const NOTABLE: f64 = 0.02;
/// Minimum share of lost datagrams at which goodput depends on which datagrams were dropped.
const MUCH_LOST: f64 = 0.001;
/// Idle state whose wake-up takes as long as a short round trip.
const DEEP_IDLE_US: u32 = 10;
/// Minimum number of rounds that can show a difference at 5 %: 2 / 2^5 is 6 %.
const FEWEST_ROUNDS: usize = 6;

/// Cause of noise that a result shows by itself, with the number that shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum NoiseCause {
    /// Too few rounds to show anything.
    FewRounds(usize),
    /// BBR paces the stream by its own estimate of the path's capacity; retransmitted segments, over all samples.
    Bbr(u64),
    /// Share of the CPUs that other programs took.
    OtherPrograms(f64),
    /// Share of the CPUs that the hypervisor gave to others.
    Stolen(f64),
    /// Share of the time that the guests waited for a CPU.
    GuestsWaited(f64),
    /// CPUs sleep between packets; maximum wake-up time in µs, if the kernel reports it.
    Idle(Option<u32>),
    /// Datagrams that a socket had no room for, over all samples.
    SocketDrops(u64),
    /// Share of the datagrams that never arrived.
    Lost(f64),
    /// Datagrams that were overtaken, over all samples.
    Reordered(u64),
}

/// Returns the known causes of a cell's noise, the likeliest first.
pub fn causes(document: &ResultDocument, record: &CellRecord) -> Vec<NoiseCause> {
    let pairs = record.tax.as_ref().map(|tax| tax.pairs);
    let disturbance = &document.disturbance;
    let share = |share: f64, cause: fn(f64) -> NoiseCause| (share > NOTABLE).then(|| cause(share));
    let mut causes: Vec<NoiseCause> = [
        pairs.filter(|pairs| *pairs < FEWEST_ROUNDS).map(NoiseCause::FewRounds),
        bbr(document, record),
        share(disturbance.other_programs.unwrap_or(0.0), NoiseCause::OtherPrograms),
        share(disturbance.stolen.unwrap_or(0.0), NoiseCause::Stolen),
        share(disturbance.guests_waited.unwrap_or(0.0), NoiseCause::GuestsWaited),
        idle(document, record),
    ]
    .into_iter()
    .flatten()
    .collect();
    causes.extend(record.summary.as_ref().into_iter().flat_map(of_datagrams));
    causes
}

fn bbr(document: &ResultDocument, record: &CellRecord) -> Option<NoiseCause> {
    let bulk = !record.cell.kind().is_transactions() && record.cell.medium().is_tcp();
    let retransmits = record.summary.as_ref().and_then(|summary| summary.retransmits).unwrap_or(0);
    (bulk && congestion_control(document, record).starts_with("bbr")).then_some(NoiseCause::Bbr(retransmits))
}

/// Returns the congestion control of the sending endpoint: the chosen one, else its machine's.
fn congestion_control<'a>(document: &'a ResultDocument, record: &'a CellRecord) -> &'a str {
    if let Some(chosen) = record.cell.net().and_then(|net| net.options.socket.congestion.as_ref()) {
        return chosen.name();
    }
    let pair = record.ends.as_ref().and_then(|ends| ends.pairs.first());
    let sender = pair.map(|pair| match record.cell.kind().is_reverse() {
        true => &pair.responder,
        false => &pair.initiator,
    });
    let environment = sender.and_then(|end| end.environment.as_ref()).unwrap_or(&document.environment);
    environment.congestion_control.raw()
}

/// CPUs sleep only while they wait for a transaction. The hypervisor wakes a halted virtual CPU in any state. Disk
/// tests leave CPUs alone.
fn idle(document: &ResultDocument, record: &CellRecord) -> Option<NoiseCause> {
    let environment = &document.environment;
    let deepest = environment.deepest_idle_us;
    let virtual_cpus = !matches!(environment.hypervisor.raw(), "" | "none");
    let sleeps = deepest.is_some_and(|us| us >= DEEP_IDLE_US) || virtual_cpus;
    let waits = record.cell.kind().is_transactions() && record.cell.options().idle == Idle::System;
    let waits = waits && record.cell.disk().is_none();
    (sleeps && waits).then_some(NoiseCause::Idle(deepest.filter(|us| *us >= DEEP_IDLE_US)))
}

fn of_datagrams(summary: &SummaryRecord) -> impl Iterator<Item = NoiseCause> {
    let SummaryRecord { socket_drops, lost_share, reordered, .. } = *summary;
    let (lost_share, socket_drops) = (lost_share.unwrap_or(0.0), socket_drops.unwrap_or(0));
    let causes = [
        (socket_drops > 0 && lost_share > MUCH_LOST).then_some(NoiseCause::SocketDrops(socket_drops)),
        (socket_drops == 0 && lost_share > MUCH_LOST).then_some(NoiseCause::Lost(lost_share)),
        reordered.filter(|count| *count > 0).map(NoiseCause::Reordered),
    ];
    causes.into_iter().flatten()
}

impl NoiseCause {
    /// Returns the cause, as a clause that applies to all cells of a kind, without their counts.
    pub fn why(self) -> String {
        let percent = |share: f64| format!("{:.1} %", share * 1e2);
        match self {
            NoiseCause::FewRounds(rounds) => format!("{rounds} rounds are too few to detect any difference"),
            NoiseCause::Bbr(0) => "BBR paces the stream by its own estimate of the path's rate".into(),
            NoiseCause::Bbr(_) => {
                "BBR paces the stream by its own estimate of the path's rate, and retransmitted segments".into()
            }
            NoiseCause::OtherPrograms(share) => format!("other programs used {} of the CPUs", percent(share)),
            NoiseCause::Stolen(share) => format!("steal time was {} of the CPU time", percent(share)),
            NoiseCause::GuestsWaited(share) => format!("guests waited for a CPU {} of the time", percent(share)),
            NoiseCause::Idle(Some(us)) => format!("CPUs go idle between packets, and waking one takes up to {us} µs"),
            NoiseCause::Idle(None) => "CPUs go idle between packets, and the hypervisor must wake them".into(),
            NoiseCause::SocketDrops(_) => "datagrams were dropped because a socket buffer was full".into(),
            NoiseCause::Lost(_) => "datagrams were lost".into(),
            NoiseCause::Reordered(_) => "datagrams were reordered".into(),
        }
    }

    /// Returns an option or action against this noise.
    pub fn remedy(self) -> &'static str {
        match self {
            NoiseCause::FewRounds(_) => "more rounds: --samples",
            NoiseCause::Bbr(_) => "--congestion cubic",
            NoiseCause::OtherPrograms(_) => "stop them",
            NoiseCause::Stolen(_) => "a machine with dedicated CPUs",
            NoiseCause::GuestsWaited(_) => "fewer guests or more CPUs",
            NoiseCause::Idle(_) => "--idle poll",
            NoiseCause::SocketDrops(_) | NoiseCause::Lost(_) => "a lower rate: --bitrate",
            NoiseCause::Reordered(_) => "pinned endpoints: --pin",
        }
    }
}

/// TCP segments retransmitted over a path that loses nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NeedlessRetransmits {
    /// Over all samples.
    pub segments: u64,
    /// Their share of all segments, assuming that each was as large as the MTU allows.
    pub share: f64,
}

/// Returns retransmits that a wire between namespaces cannot explain by loss: nothing is lost there, so these segments
/// overtook each other between the backlogs of two CPUs, or found a full buffer. None if there are few, or if something
/// on the path might lose packets.
pub fn needless_retransmits(record: &CellRecord) -> Option<NeedlessRetransmits> {
    const TCP_AND_IP: u32 = 52;
    const FEW: f64 = 1e-4;
    let summary = record.summary.as_ref()?;
    let bytes: u64 = record.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.bytes));
    let segments = bytes as f64 / f64::from(record.cell.mtu()?.get().saturating_sub(TCP_AND_IP).max(1));
    let retransmits = summary.retransmits?;
    let share = retransmits as f64 / segments;
    let bulk = !record.cell.kind().is_transactions() && record.cell.medium().is_tcp();
    let many = bulk && share.is_finite() && share > FEW;
    (many && is_lossless(record)).then_some(NeedlessRetransmits { segments: retransmits, share })
}

/// Returns true if the links pass packets on in memory, without a queue that could drop them.
fn is_lossless(record: &CellRecord) -> bool {
    const KINDS: [&str; 5] = ["veth", "bridge", "macvlan", "ipvlan", "vxlan"];
    let hops = record.path.as_ref().map_or(&[][..], |path| &path.hops);
    let hands_on = |hop: &crate::run::Hop| KINDS.contains(&hop.kind.raw()) && hop.qdisc == "noqueue";
    !hops.is_empty() && hops.iter().all(hands_on)
}

#[cfg(test)]
mod tests;
