//! The options that change a study.

use clap::Args;
use miette::miette;
use vtax_model::{
    address_family::AddressFamily,
    cell::Instrument,
    disk::DiskSet,
    endpoint::Endpoint,
    method::DomainKind,
    options::Idle,
    run::{Difference, Goal},
    study::Row,
    topology::Cable,
    units::{ByteSize, Mtu, Span},
    workload::Warmup,
};
use vtax_run::study::{Changes, ChosenRounds, Congestion};
use vtax_stats::{Confidence, StoppingRule, Width, planning::MOST_ROUNDS};

use super::{
    super::metric::{ChosenMetric, METRICS},
    pods::PodArgs,
};
use crate::{
    exit::{Blamed, Stop},
    one_of::{Choice, one_of, one_of_or_old},
    whole_number::whole,
};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChangeArgs {
    /// Take short samples and few rounds: minutes, not hours
    #[arg(long)]
    quick: bool,
    /// Rounds: samples per cell, e.g. 20 [default: set by the study]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    pub(super) samples: Option<u32>,
    /// Difference to detect with 80 % power, e.g. 2%: take as many rounds as that requires. Noise and duration of a
    /// round are taken from the last run of the study on this machine, else from the first rounds
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["samples", "confidence"], group = "aim")]
    show: Option<Difference>,
    /// Time budget, e.g. 2m: take as many rounds as fit; with --show, no more than required
    #[arg(long, value_name = "TIME", conflicts_with_all = ["samples", "confidence"])]
    budget: Option<Span>,
    /// Measured time per sample, e.g. 30s or 200ms [default: set by the study]
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Warm-up before the measured time: a time, e.g. 10ms; `steady`: until the figures are steady; or `steady:5s`: the
    /// same, but at most 5 s [default: set by the study]
    #[arg(long, value_name = "TIME|steady")]
    warmup: Option<Warmup>,
    /// Attach a zone or guest with the method at both ends of the wire, not only at the host under test (`sut`)
    #[arg(long)]
    both: bool,
    /// Row to compare the others with, e.g. veth [default: set by the study]
    #[arg(long, value_name = "ROW")]
    baseline: Option<Row>,
    /// Rows to run in addition to the baseline, e.g. bridge,veth; a method selects all of its rows [default: all]
    #[arg(long, value_delimiter = ',', value_name = "ROW,…")]
    methods: Vec<Row>,
    /// Skip rows that change settings of this machine while they are measured
    #[arg(long)]
    no_steps: bool,
    /// Pairs of a client and a guest that measure simultaneously, e.g. 4, in a study with several (vmdq has 8)
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    guests: Option<u32>,
    /// Kind of domain that `assigned` and `sr-iov` attach [default: guest]
    #[arg(long, value_parser = one_of(&DOMAINS), value_name = "KIND")]
    guest: Option<DomainKind>,
    /// Address family of the lab [default: that of the study, usually ipv4]
    #[arg(long, value_parser = one_of(&FAMILIES), value_name = "FAMILY")]
    family: Option<AddressFamily>,
    /// Real cable to measure over, instead of a veth pair: the two NICs of this machine that it connects, e.g.
    /// eno3,eno4, each by link, PCI address, MAC address or name in `vtax io list`. Give the option once per cable
    #[arg(long, value_name = "NIC,NIC")]
    pub(super) cable: Vec<Cable>,
    /// MTUs of the cells to run, e.g. 1500,9000 [default: all]
    #[arg(long, value_delimiter = ',', value_name = "MTU,…")]
    mtu: Vec<Mtu>,
    /// Disk studies: disk of this machine to use, a block device or a file, e.g. /dev/sdb, instead of a file created
    /// for the run. Several, separated by commas, are used simultaneously
    #[arg(long, value_name = "PATH,…")]
    disk: Option<DiskSet>,
    /// Disk studies: NVMe disk whose controller the row assigned-nvme assigns to its guest, e.g. /dev/nvme0n1; several
    /// as for --disk. The host cannot use it during the run
    #[arg(long, value_name = "PATH,…")]
    nvme: Option<DiskSet>,
    /// Allow the data on the disks of --disk and --nvme to be overwritten. Without it, disks with data are refused
    #[arg(long)]
    destroy_data: bool,
    /// Measurement mode of a study that has both, e.g. controlled
    #[arg(long, alias = "instrument", value_parser = one_of_or_old(&MODES, &OLD_MODES), default_value = "both")]
    mode: RunModes,
    /// CPU idle states: `poll` disables them while a sample is measured, `system` leaves them unchanged [default: set
    /// by the measurement mode]
    #[arg(long, value_name = "poll|system")]
    idle: Option<Idle>,
    /// TCP congestion control by name, e.g. bbr, or `system` for the machine's own [default: set by the measurement
    /// mode: cubic under controlled conditions]
    #[arg(long, value_name = "NAME|system")]
    congestion: Option<Congestion>,
    /// Size of the file for file tests, e.g. 1000MiB
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Seed for the random order of samples, e.g. 1 [default: random; recorded in the result]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pods: PodArgs,
    #[command(flatten)]
    precision: Precision,
}

/// The measurement modes of a run; `None` stands for all that the study has.
#[derive(Debug, Clone, Copy, Default)]
struct RunModes(Option<Instrument>);

const CONTROLLED: &str = "Controlled conditions: no CPU idle states, TCP cubic, rows interleaved within milliseconds";
const HOST: &str = "Host settings, as an application sees them";

const MODES: [Choice<RunModes>; 3] = [
    ("controlled", CONTROLLED, RunModes(Some(Instrument::Path))),
    ("host", HOST, RunModes(Some(Instrument::System))),
    ("both", "All modes that the study has, in each round", RunModes(None)),
];

/// The measurement modes where there can be only one.
pub(crate) const ONE_MODE: [Choice<Instrument>; 2] =
    [("controlled", CONTROLLED, Instrument::Path), ("host", HOST, Instrument::System)];

/// The names of the measurement modes in result documents, which the option used to take.
pub(crate) const OLD_MODES: [(&str, &str); 2] = [("path", "controlled"), ("system", "host")];

/// The domains of methods that can attach both kinds.
const DOMAINS: [Choice<DomainKind>; 2] = [
    ("guest", "Virtual machines", DomainKind::Guest),
    ("zone", "Processes in a separate network stack", DomainKind::Zone),
];

const FAMILIES: [Choice<AddressFamily>; 2] = [
    ("ipv4", "Addresses of 198.18.0.0/15 (RFC 2544)", AddressFamily::Ipv4),
    ("ipv6", "Addresses of 2001:2::/48 (RFC 5180)", AddressFamily::Ipv6),
];

/// netperf's stopping rule.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Precision {
    /// Confidence level in percent of the mean of each cell to reach before the run stops, e.g. 99, like netperf's -I
    #[arg(long, value_name = "PERCENT", requires = "width", group = "aim")]
    confidence: Option<Confidence>,
    /// With --confidence: full width of the interval to reach, in percent of the mean, e.g. 5
    #[arg(long, value_name = "PERCENT", requires = "confidence")]
    width: Option<Width>,
    /// With --confidence: minimum number of rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>, requires = "confidence")]
    min: usize,
    /// With --confidence: maximum number of rounds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = whole::<usize>, requires = "confidence")]
    max: usize,
    /// Metric that --confidence or --show refers to, in tests that have it, e.g. p99
    #[arg(long, value_parser = one_of(&METRICS), default_value = "figure", requires = "aim")]
    pub(crate) metric: ChosenMetric,
}

impl ChangeArgs {
    pub(super) fn changes(self, endpoints: Vec<Endpoint>) -> Result<Changes, Stop> {
        let rounds = ChosenRounds {
            quick: self.quick,
            samples: self.samples,
            goal: Goal::of(self.show, self.budget),
            stopping: self.precision.rule()?,
            metric: self.precision.metric.0,
            seed: self.seed,
        };
        let ChangeArgs { duration, warmup, both, baseline, methods, guests, guest: domains, no_steps, .. } = self;
        let ChangeArgs { disk, nvme, destroy_data, family, cable, mtu, mode, idle, congestion, size, pods, .. } = self;
        Ok(Changes {
            rounds,
            duration,
            warmup,
            both,
            baseline,
            methods,
            disks: disk.unwrap_or_default(),
            nvme: nvme.unwrap_or_default(),
            destroy_data,
            no_steps,
            guests,
            domains,
            family,
            cable,
            mtu,
            endpoints,
            pods: pods.changes(),
            instrument: mode.0,
            idle,
            congestion,
            size,
        })
    }
}

impl Precision {
    pub(crate) fn rule(&self) -> Result<Option<StoppingRule>, Stop> {
        if self.max > MOST_ROUNDS as usize {
            let max = self.max;
            return Err(Stop::input(miette!(
                code = "bad-precision",
                "--max {max}: at most {MOST_ROUNDS} rounds are possible; longer samples gain more than further rounds"
            )));
        }
        let precision = self.confidence.zip(self.width);
        let rule = precision.map(|(confidence, width)| StoppingRule::new(confidence, width, self.min, self.max));
        rule.transpose().or_input()
    }
}
