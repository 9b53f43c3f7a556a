//! The options that change a study.

use clap::Args;
use miette::miette;
use vtax_model::{
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
use vtax_run::study::{Changes, Congestion};
use vtax_stats::{Confidence, StoppingRule, Width, planning::MOST_ROUNDS};

use crate::{
    exit::{Blamed, Stop},
    one_of::{Choice, one_of},
    whole_number::whole,
};

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ChangeArgs {
    /// Short samples and few rounds: minutes, not hours
    #[arg(long)]
    quick: bool,
    /// Rounds: samples of each cell [default: as the study says]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    pub(super) samples: Option<u32>,
    /// Take as many rounds as it takes to show a difference of this size, as 2%, in four of five such runs. How noisy
    /// rounds are and how long they take is known from the last run of the same study on this machine, else from the
    /// first rounds
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["samples", "confidence"])]
    show: Option<Difference>,
    /// Take as many rounds as fit into this time, as 2m. With --show, no more than that takes
    #[arg(long, value_name = "TIME", conflicts_with_all = ["samples", "confidence"])]
    budget: Option<Span>,
    /// Measured time of each sample, as 30s or 200ms [default: as the study says]
    #[arg(long)]
    duration: Option<Span>,
    /// Traffic before the measured time: a time, as 10ms; or `steady`, which waits until the figures are
    /// steady; or `steady:5s`, which waits 5 s at most [default: as the study says]
    #[arg(long)]
    warmup: Option<Warmup>,
    /// Attach a zone or guest by the method at both ends of the wire, not only at the host `sut`
    #[arg(long)]
    both: bool,
    /// Compare the other rows with this one [default: as the study says]
    #[arg(long, value_name = "ROW")]
    baseline: Option<Row>,
    /// Run only these rows and the baseline. A method stands for all of its rows
    #[arg(long, value_delimiter = ',', value_name = "METHOD,…")]
    methods: Vec<Row>,
    /// Leave out the rows that change settings of this machine while they are measured
    #[arg(long)]
    no_steps: bool,
    /// How many pairs of a client and a guest measure at the same time, in a study that has several (vmdq has 8)
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    guests: Option<u32>,
    /// Whether `assigned` and `sr-iov` attach guests or zones [default: guests]
    #[arg(long, value_parser = one_of(&DOMAINS), value_name = "KIND")]
    guest: Option<DomainKind>,
    /// Measure over a real cable and not over a veth pair. Name the two NICs of this machine that the cable joins,
    /// by link, PCI address, MAC address or name in `vtax io list`. Give the option once for each cable
    #[arg(long, value_name = "NIC,NIC")]
    pub(super) cable: Vec<Cable>,
    /// Run only the cells with these MTUs
    #[arg(long, value_delimiter = ',', value_name = "MTU,…")]
    mtu: Vec<Mtu>,
    /// A study of disks: use this disk of this machine, a block device or a file, in place of a file that is made for the run.
    /// Several, separated by commas, are used at the same time
    #[arg(long, value_name = "PATH,…")]
    disk: Option<DiskSet>,
    /// A study of disks: the NVMe disk whose controller the row assigned-nvme gives to its guest; several as for --disk. The
    /// host can't use it meanwhile
    #[arg(long, value_name = "PATH,…")]
    nvme: Option<DiskSet>,
    /// What is on the disks of --disk and --nvme may be overwritten. Without it, what isn't empty is refused
    #[arg(long)]
    destroy_data: bool,
    /// Run only one part of a study that measures by both instruments [default: both parts]
    #[arg(long, value_parser = one_of(&INSTRUMENTS), value_name = "INSTRUMENT")]
    instrument: Option<Instrument>,
    /// What CPUs do while they have nothing to do: `poll` keeps them awake while a sample is measured, `system`
    /// changes nothing [default: as the instrument has it]
    #[arg(long, value_name = "poll|system")]
    idle: Option<Idle>,
    /// TCP's congestion control by its name, or `system` for the machine's own [default: as the instrument
    /// has it: cubic for the path's own cost]
    #[arg(long, value_name = "NAME|system")]
    congestion: Option<Congestion>,
    /// Size of the file of file tests, as 1000MiB
    #[arg(long)]
    size: Option<ByteSize>,
    /// Seed of the random order of the samples [default: random; the result has it]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    precision: Precision,
}

pub(crate) const INSTRUMENTS: [Choice<Instrument>; 2] = [
    (
        "path",
        "The path's own cost: CPUs don't sleep, TCP uses cubic, rows take turns within milliseconds",
        Instrument::Path,
    ),
    ("system", "As the machine runs, which is what an application sees", Instrument::System),
];

/// What methods attach that can attach both.
const DOMAINS: [Choice<DomainKind>; 2] = [
    ("guest", "Virtual machines", DomainKind::Guest),
    ("zone", "Processes in a network stack of their own", DomainKind::Zone),
];

/// netperf's rule for stopping.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Precision {
    /// Stop when each cell's mean is known with this confidence, in per cent, as netperf's -I does
    #[arg(long, value_name = "PERCENT", requires = "width")]
    confidence: Option<Confidence>,
    /// With --confidence: the full width of the interval that is precise enough, in per cent of the mean
    #[arg(long, value_name = "PERCENT", requires = "confidence")]
    width: Option<Width>,
    /// With --confidence: take at least this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>, requires = "confidence")]
    min: usize,
    /// With --confidence: take at most this many rounds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = whole::<usize>, requires = "confidence")]
    max: usize,
}

impl ChangeArgs {
    pub(super) fn changes(self, endpoints: Vec<Endpoint>) -> Result<Changes, Stop> {
        let stopping = self.precision.rule()?;
        let goal = Goal::of(self.show, self.budget);
        let ChangeArgs { quick, samples, duration, warmup, both, baseline, methods, guests, guest: domains, .. } = self;
        let ChangeArgs {
            disk, nvme, destroy_data, cable, mtu, instrument, idle, congestion, size, seed, no_steps, ..
        } = self;
        Ok(Changes {
            quick,
            samples,
            goal,
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
            cable,
            mtu,
            endpoints,
            instrument,
            idle,
            congestion,
            size,
            seed,
            stopping,
        })
    }
}

impl Precision {
    pub(crate) fn rule(&self) -> Result<Option<StoppingRule>, Stop> {
        if self.max > MOST_ROUNDS as usize {
            let max = self.max;
            return Err(Stop::input(miette!(
                code = "bad-precision",
                "--max {max}: give at most {MOST_ROUNDS} rounds; longer samples gain more than further rounds"
            )));
        }
        let precision = self.confidence.zip(self.width);
        let rule = precision.map(|(confidence, width)| StoppingRule::new(confidence, width, self.min, self.max));
        rule.transpose().or_input()
    }
}
