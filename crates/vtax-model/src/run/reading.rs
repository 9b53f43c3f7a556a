//! The in-memory part of a sample.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{EndCpu, EndDetail, EndLocation, Figures, HostCpu, OtherPrograms, Parallel, Sample};
use crate::{
    cell::{Arm, Turn},
    endpoint::Ends,
    foreign::ForeignText,
    measurement::{
        FileReport, Interval, IntervalRtt, MachineCpu, QuotaStops, SessionCpu, ThreadPriority, WarmupReport,
    },
    metric::{FigureValues, Metric, SampleFigure},
    workload::TestKind,
};
use vtax_stats::Pair;

/// The part of a sample required by analysis and tables, about 700 bytes and its series. Its histograms and slices,
/// which are most of it, stay in the store: a run may have 100,000 samples.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Sample")]
pub struct SampleReading {
    /// Index into the study's cells.
    pub cell: usize,
    /// Arm of the baseline.
    pub arm: Arm,
    /// From 1.
    pub round: u32,
    /// RFC 3339, UTC, when the sample began.
    pub at: String,
    pub seconds: f64,
    pub transactions: u64,
    pub bytes: u64,
    pub lost: Option<u64>,
    pub reordered: Option<u64>,
    pub retransmits: Option<u64>,
    pub packets: Option<u64>,
    pub wire_bytes: Option<u64>,
    /// Every figure that is compared or reported.
    pub values: FigureValues,
    /// Round-trip times in nanoseconds; in the open loop from when the request was due.
    pub rtt: Option<RttReading>,
    /// µs that the responder actually waited before a response, if the test requests a delay.
    pub waited_us: Option<f64>,
    /// Open loop: the mean in nanoseconds from when the request was actually sent.
    pub mean_from_send: Option<f64>,
    pub cpu: CpuReading,
    pub file: Option<FileReport>,
    pub ends: Ends<EndReading>,
    pub parallel: Option<Box<Parallel>>,
    pub host_cpu: Option<Box<HostCpu>>,
    pub locations: Ends<EndLocation>,
    /// True if the sample was cut into slices.
    pub sliced: bool,
    pub guarded: Vec<IntervalRtt>,
    pub others: Vec<OtherPrograms>,
}

/// Round-trip times of a sample in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RttReading {
    /// From the histogram.
    pub mean: f64,
    /// True if the inverse of each flow's rate is the mean.
    pub by_rate: bool,
    /// Minimum.
    pub min: u64,
    /// 99th percentile.
    pub p99: u64,
}

/// CPU seconds of a sample; see [`CpuFigures`](super::CpuFigures).
#[derive(Debug, Clone, PartialEq)]
pub struct CpuReading {
    /// True if both endpoints were on one machine.
    pub one_machine: bool,
    /// True if the CPU time of the machines is known.
    pub tells_machines: bool,
    /// True if the CPU time of a machine is known from ticks only.
    pub by_ticks: bool,
    /// True if it is the time of the measuring threads, in the absence of a better figure.
    pub raised: bool,
    /// The endpoint that sends requests or the stream.
    pub initiator: EndCpuReading,
    /// The endpoint that answers or receives.
    pub responder: EndCpuReading,
}

/// CPU seconds at one endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct EndCpuReading {
    /// User seconds of all measuring threads.
    pub user: f64,
    /// System seconds of all measuring threads.
    pub system: f64,
    /// Seconds of all measuring threads in which they waited for exact moments.
    pub waiting: f64,
    /// The whole machine in this endpoint's measured time.
    pub machine: MachineCpu,
    /// Measured time of this endpoint, in seconds.
    pub seconds: f64,
    /// The CPU time from the first slice to the last one, if the sample was cut into slices.
    pub session: Option<Box<SessionCpu>>,
}

/// Reports of one endpoint beyond the joined figures; see [`EndDetail`].
#[derive(Debug, Clone, PartialEq)]
pub struct EndReading {
    pub warmup: WarmupReport,
    pub series: Vec<Interval>,
    pub socket_drops: Option<u64>,
    pub strangers: u64,
    pub idle_not_held: Option<ForeignText>,
    pub priority: Option<ThreadPriority>,
    pub throttling: Option<QuotaStops>,
}

impl From<Sample> for SampleReading {
    fn from(sample: Sample) -> SampleReading {
        SampleReading::of(&sample)
    }
}

impl SampleReading {
    /// Returns everything in a sample except its histograms and slices.
    pub fn of(sample: &Sample) -> SampleReading {
        let Sample { cell, arm, round, ref at, ref figures } = *sample;
        let Figures { seconds, transactions, bytes, lost, reordered, retransmits, file, .. } = *figures;
        SampleReading {
            cell,
            arm,
            round,
            at: at.clone(),
            seconds,
            transactions,
            bytes,
            lost,
            reordered,
            retransmits,
            packets: figures.packets(),
            wire_bytes: figures.wire_bytes(),
            values: FigureValues::of(figures),
            rtt: figures.rtt_ns.as_ref().map(|rtt| RttReading {
                mean: rtt.mean,
                by_rate: rtt.by_rate.is_some(),
                min: rtt.hdr.percentile(0.0),
                p99: rtt.hdr.percentile(99.0),
            }),
            waited_us: figures.waited_us(),
            mean_from_send: figures.rtt_from_send_ns.as_ref().map(|rtt| rtt.mean),
            cpu: CpuReading::of(figures),
            file,
            ends: Ends {
                initiator: EndReading::of(&figures.ends.initiator),
                responder: EndReading::of(&figures.ends.responder),
            },
            parallel: figures.parallel.clone().map(Box::new),
            host_cpu: figures.host_cpu.clone().map(Box::new),
            locations: figures.locations,
            sliced: !figures.slices.is_empty(),
            guarded: figures.guarded.clone(),
            others: figures.others.clone(),
        }
    }

    /// Returns one of its figures; NaN if it doesn't have it.
    pub fn value(&self, figure: SampleFigure) -> f64 {
        self.values.get(figure)
    }

    /// Returns the value of a metric, if this is a sample of that test.
    pub fn metric(&self, of: Metric, test: TestKind) -> f64 {
        self.value(of.figure(test))
    }

    /// Returns the datagrams that both endpoints' sockets had no room for; none if an endpoint
    /// doesn't report it.
    pub fn socket_drops(&self) -> Option<u64> {
        let Ends { initiator, responder } = &self.ends;
        Some(initiator.socket_drops?.saturating_add(responder.socket_drops?))
    }

    /// Returns the round and the turn in it, which are unique within the run.
    pub fn turn(&self) -> (u32, Turn) {
        (self.round, Turn { cell: self.cell, arm: self.arm })
    }
}

impl CpuReading {
    fn of(figures: &Figures) -> CpuReading {
        let cpu = &figures.cpu;
        CpuReading {
            one_machine: cpu.one_machine,
            tells_machines: cpu.tells_machines(),
            by_ticks: cpu.is_by_ticks(),
            raised: cpu.is_raised(),
            initiator: EndCpuReading::of(&cpu.initiator),
            responder: EndCpuReading::of(&cpu.responder),
        }
    }
}

impl EndCpuReading {
    fn of(end: &EndCpu) -> EndCpuReading {
        EndCpuReading {
            user: end.threads.iter().map(|thread| thread.user).sum(),
            system: end.threads.iter().map(|thread| thread.system).sum(),
            waiting: end.threads.iter().map(|thread| thread.waiting).sum(),
            machine: end.machine,
            seconds: end.seconds,
            session: end.session.map(Box::new),
        }
    }
}

impl EndReading {
    fn of(end: &EndDetail) -> EndReading {
        let EndDetail { warmup, socket_drops, strangers, priority, throttling, .. } = *end;
        let (series, idle_not_held) = (end.series.clone(), end.idle_not_held.clone());
        EndReading { warmup, series, socket_drops, strangers, idle_not_held, priority, throttling }
    }
}

/// Returns a metric of two arms, round by round. Rounds without a positive figure in both are
/// omitted.
pub(crate) fn pairs<'a>(
    of: Metric,
    test: TestKind,
    baseline: impl Iterator<Item = &'a SampleReading>,
    cell: impl Iterator<Item = &'a SampleReading>,
) -> Vec<Pair> {
    let [baseline, cell] = [by_round(of, test, baseline), by_round(of, test, cell)];
    if baseline.values().chain(cell.values()).any(|value| *value == 0.0) {
        return Vec::new();
    }
    let pair = |(round, baseline): (u32, f64)| Some(Pair { baseline, cell: *cell.get(&round)? });
    baseline.into_iter().filter_map(pair).collect()
}

fn by_round<'a>(of: Metric, test: TestKind, arm: impl Iterator<Item = &'a SampleReading>) -> BTreeMap<u32, f64> {
    let values = arm.map(|reading| (reading.round, reading.metric(of, test)));
    values.filter(|(_, value)| value.is_finite() && *value >= 0.0).collect()
}
