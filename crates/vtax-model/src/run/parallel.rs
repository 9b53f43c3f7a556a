//! Concurrent pairs of endpoints as one sample.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::figures::{CpuFigures, EndCpu, Figures, RttFigures};
use crate::{
    endpoint::Ends,
    measurement::{EndReport, IntervalRtt, MachineCpu, QuotaStops, ThreadCpu, WireCounts},
    run::BothEnds,
    workload::TestSpec,
};
use vtax_stats::histogram::Histogram;

/// Concurrent pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parallel {
    /// Time between the first initiator's start and the last one's in µs.
    pub skew_us: f64,
    /// Uncertainty: the clocks of two machines are compared over the control streams.
    pub uncertainty_us: f64,
    /// In the order of the row's endpoints.
    pub pairs: Vec<PairFigures>,
}

/// Skew of pairs that should start simultaneously.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skew {
    /// Time between the first initiator's start and the last one's.
    pub spread: Duration,
    /// Bound of the error of the skew, from comparing clocks over the control streams.
    pub uncertainty: Duration,
}

/// One of several pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairFigures {
    /// The measured time.
    pub seconds: f64,
    /// Request/response pairs.
    pub transactions: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// UDP messages that never arrived.
    pub lost: u64,
    /// Round-trip times in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<IntervalRtt>,
}

/// Reports of the two endpoints of a pair, and their machines: any texts that two machines don't share.
#[derive(Debug, Clone, Copy)]
pub struct PairReports<'a> {
    /// Measured at the endpoint that connects.
    pub initiator: &'a EndReport,
    /// Measured at the endpoint that answers.
    pub responder: &'a EndReport,
    /// Machines of the initiator and the responder.
    pub machines: [&'a str; 2],
}

impl PairReports<'_> {
    fn one_machine(&self) -> bool {
        self.machines[0] == self.machines[1]
    }

    fn join(&self, spec: &TestSpec) -> Figures {
        Figures::join(spec, self.one_machine(), self.initiator, self.responder)
    }
}

impl Figures {
    /// Joins the reports of a sample's endpoints; several pairs become one.
    ///
    /// Counts add up, and so do the rates of the pairs, like those of the flows of one: `seconds`
    /// is the time in which all would have done their work at the sum of their rates. Histograms
    /// are merged. Each machine's CPU time is counted once, however many endpoints were on it.
    ///
    /// Without a pair there is no rate: NaN.
    pub fn join_pairs(spec: &TestSpec, pairs: &[PairReports<'_>], skew: Skew) -> Figures {
        match pairs {
            [only] => only.join(spec),
            _ => merge(spec, pairs, &pairs.iter().map(|pair| pair.join(spec)).collect::<Vec<_>>(), skew),
        }
    }
}

fn merge(spec: &TestSpec, pairs: &[PairReports<'_>], joined: &[Figures], skew: Skew) -> Figures {
    let total = |count: fn(&Figures) -> u64| joined.iter().map(count).fold(0, u64::saturating_add);
    let known = |count: fn(&Figures) -> Option<u64>| {
        joined.iter().try_fold(0_u64, |sum, one| Some(sum.saturating_add(count(one)?)))
    };
    let (transactions, bytes) = (total(|one| one.transactions), total(|one| one.bytes));
    let counted = if spec.workload.kind().is_transactions() {
        |one: &Figures| one.transactions
    } else {
        |one: &Figures| one.bytes
    };
    let rate: f64 = joined.iter().map(|one| counted(one) as f64 / one.seconds).sum();
    let seconds = total(counted) as f64 / rate;
    Figures {
        seconds,
        transactions,
        bytes,
        rtt_ns: rtt(spec, joined, seconds),
        rtt_from_send_ns: merged(joined, |one| one.rtt_from_send_ns.as_ref()).map(|all| RttFigures::of(&all)),
        lost: known(|one| one.lost),
        reordered: known(|one| one.reordered),
        retransmits: known(|one| one.retransmits),
        cpu: cpu(pairs, seconds),
        file: joined.first().and_then(|first| first.file),
        ends: ends(joined),
        parallel: Some(Parallel::of(skew, joined)),
        host_cpu: None,
        locations: Ends::default(),
        slices: Vec::new(),
        guarded: Vec::new(),
        load: None,
        migration: None,
        others: Vec::new(),
    }
}

/// Returns the reports of the first pair's endpoints. Packets and unauthenticated peers are counted over all pairs; the
/// throttling is that of the endpoint that was stopped most often.
fn ends(joined: &[Figures]) -> BothEnds {
    let mut ends = joined.first().map(|first| first.ends.clone()).unwrap_or_default();
    let wire = |end: fn(&Figures) -> Option<WireCounts>| {
        joined.iter().map(end).reduce(|sum, one| Some(sum?.plus(one?))).flatten()
    };
    ends.initiator.wire = wire(|one| one.ends.initiator.wire);
    ends.responder.wire = wire(|one| one.ends.responder.wire);
    ends.responder.strangers = joined.iter().map(|one| one.ends.responder.strangers).fold(0, u64::saturating_add);
    let most = |end: fn(&Figures) -> Option<QuotaStops>| joined.iter().filter_map(end).max_by_key(|one| one.throttled);
    ends.initiator.throttling = most(|one| one.ends.initiator.throttling);
    ends.responder.throttling = most(|one| one.ends.responder.throttling);
    ends
}

impl Parallel {
    fn of(skew: Skew, joined: &[Figures]) -> Parallel {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Parallel {
            skew_us: us(skew.spread),
            uncertainty_us: us(skew.uncertainty),
            pairs: joined.iter().map(PairFigures::of).collect(),
        }
    }
}

impl PairFigures {
    fn of(joined: &Figures) -> PairFigures {
        let Figures { seconds, transactions, bytes, lost, .. } = *joined;
        let interval =
            |rtt: &RttFigures| IntervalRtt { p50: rtt.p50, p90: rtt.hdr.percentile(90.0), p99: rtt.p99, max: rtt.max };
        PairFigures {
            seconds,
            transactions,
            bytes,
            lost: lost.unwrap_or(0),
            rtt_ns: joined.rtt_ns.as_ref().map(interval),
        }
    }
}

/// `seconds` is the time of all pairs' flows together.
fn rtt(spec: &TestSpec, joined: &[Figures], seconds: f64) -> Option<RttFigures> {
    let all = merged(joined, |one| one.rtt_ns.as_ref())?;
    let flows = f64::from(spec.streams) * joined.len() as f64;
    let transactions: u64 = joined.iter().map(|one| one.transactions).fold(0, u64::saturating_add);
    let by_rate = spec.rate_is_inverse().then(|| seconds * 1e9 * flows / transactions as f64);
    Some(RttFigures { by_rate, ..RttFigures::of(&all) })
}

fn merged(joined: &[Figures], of: impl Fn(&Figures) -> Option<&RttFigures>) -> Option<Histogram> {
    joined.iter().filter_map(of).fold(None, |all, rtt| {
        let mut all = all.unwrap_or_default();
        Histogram::merge_sparse(&mut all, &rtt.hdr);
        Some(all)
    })
}

/// A machine on which both initiators and responders run counts as the initiators'.
fn cpu(pairs: &[PairReports<'_>], seconds: f64) -> CpuFigures {
    let mut initiators = BTreeMap::new();
    let mut responders = BTreeMap::new();
    for pair in pairs {
        initiators.entry(pair.machines[0]).or_insert(pair.initiator);
    }
    for pair in pairs.iter().filter(|pair| !initiators.contains_key(pair.machines[1])) {
        responders.entry(pair.machines[1]).or_insert(pair.responder);
    }
    let busy = |machines: &BTreeMap<&str, &EndReport>| {
        machines.values().fold(MachineCpu { busy: Some(0.0), ..MachineCpu::default() }, |sum, report| {
            sum.and(report.machine, report.seconds, seconds)
        })
    };
    let ends = |machines: &BTreeMap<&str, &EndReport>, end: fn(&PairReports<'_>) -> Vec<ThreadCpu>| EndCpu {
        threads: pairs.iter().flat_map(end).collect(),
        machine: busy(machines),
        seconds,
        session: None,
    };
    CpuFigures {
        one_machine: responders.is_empty(),
        initiator: ends(&initiators, |pair| pair.initiator.threads.clone()),
        responder: ends(&responders, |pair| pair.responder.threads.clone()),
    }
}

impl MachineCpu {
    /// Adds another machine, whose usage in `own` seconds counts as if it had been watched for `seconds`.
    fn and(self, other: MachineCpu, own: f64, seconds: f64) -> MachineCpu {
        let scale = if own > 0.0 { seconds / own } else { 0.0 };
        MachineCpu {
            cpus: self.cpus + other.cpus,
            user: self.user + other.user * scale,
            system: self.system + other.system * scale,
            irq: self.irq + other.irq * scale,
            softirq: self.softirq + other.softirq * scale,
            steal: self.steal + other.steal * scale,
            guest: self.guest + other.guest * scale,
            idle: self.idle + other.idle * scale,
            busy: self.busy.zip(other.busy).map(|(busy, others)| busy + others * scale),
            raised: self.raised || other.raised,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measurement::PacketCounts,
        options::TestOptions,
        units::{ByteSize, Span},
        workload::{Transport, Warmup, Workload},
    };

    const SKEW: Skew = Skew { spread: Duration::from_micros(12), uncertainty: Duration::from_micros(3) };

    fn spec() -> TestSpec {
        let workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };
        let duration = Span::from_millis(1000);
        let (transport, warmup, options) = (Transport::Tcp, Warmup::NONE, TestOptions::default());
        TestSpec { transport, workload, streams: 1, warmup, duration, slices: None, options }
    }

    /// One flow in which every transaction took `ns`, on a machine that was half busy.
    fn end(seconds: f64, ns: u64) -> EndReport {
        let transactions = (seconds * 1e9 / ns as f64) as u64;
        let mut rtt = Histogram::new();
        (0..transactions).for_each(|_| rtt.record(ns));
        let machine = MachineCpu { cpus: 2, system: seconds, idle: seconds, ..MachineCpu::default() };
        let threads = vec![ThreadCpu::default()];
        EndReport {
            seconds,
            transactions,
            bytes: 2 * transactions,
            rtt: Some(rtt),
            machine,
            threads,
            ..EndReport::default()
        }
    }

    fn pair<'a>(one: &'a EndReport, machines: [&'a str; 2]) -> PairReports<'a> {
        PairReports { initiator: one, responder: one, machines }
    }

    #[test]
    fn rates_of_pairs_add_up() {
        let (fast, slow) = (end(1.0, 50_000), end(2.0, 200_000));
        let all = Figures::join_pairs(&spec(), &[pair(&fast, ["a", "b"]), pair(&slow, ["c", "d"])], SKEW);
        assert_eq!(all.transactions, 20_000 + 10_000);
        assert!((all.rate() - 25_000.0).abs() < 1.0, "{}", all.rate());
        // Two flows with 25,000 transactions per second.
        assert!((all.rtt_us() - 80.0).abs() < 0.1, "{}", all.rtt_us());
        let rtt = all.rtt_ns.as_ref().expect("merged");
        assert_eq!(rtt.hdr.count(), 30_000);
        assert!((49_000..52_000).contains(&rtt.p50) && rtt.max >= 190_000, "{rtt:?}");
        let parallel = all.parallel.expect("two pairs");
        assert_eq!((parallel.skew_us.round(), parallel.uncertainty_us.round(), parallel.pairs.len()), (12.0, 3.0, 2));
        assert_eq!(parallel.pairs[1].transactions, 10_000);
    }

    #[test]
    fn each_machine_is_counted_once() {
        let one = end(1.0, 50_000);
        let busy = |machines: [[&str; 2]; 2]| {
            let pairs = machines.map(|machines| pair(&one, machines));
            Figures::join_pairs(&spec(), &pairs, SKEW).busy_cpus()
        };
        assert!((busy([["a", "a"], ["a", "a"]]) - 1.0).abs() < 1e-9);
        assert!((busy([["a", "b"], ["a", "b"]]) - 2.0).abs() < 1e-9);
        assert!((busy([["a", "b"], ["b", "c"]]) - 3.0).abs() < 1e-9, "b is an initiator's machine");
        assert!((busy([["a", "b"], ["c", "d"]]) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn packets_of_pairs_add_up_if_all_are_known() {
        let sent = PacketCounts::datagrams(500, 72, 28);
        let known = EndReport { wire: Some(WireCounts { sent, received: sent }), ..end(1.0, 50_000) };
        let packets = |other: &EndReport| {
            let all = Figures::join_pairs(&spec(), &[pair(&known, ["a", "b"]), pair(other, ["c", "d"])], SKEW);
            (all.packets(), all.wire_bytes())
        };
        assert_eq!(packets(&known), (Some(2_000), Some(200_000)));
        assert_eq!(packets(&end(1.0, 50_000)), (None, None));
    }

    #[test]
    fn one_pair_is_what_it_was() {
        let one = end(1.0, 50_000);
        let alone = Figures::join_pairs(&spec(), &[pair(&one, ["a", "b"])], SKEW);
        assert_eq!(alone, Figures::join(&spec(), false, &one, &one));
    }
}
