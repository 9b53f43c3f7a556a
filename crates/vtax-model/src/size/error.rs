//! Targets and measurements from which no size can be computed.

use vtax_stats::CrossingError;

use super::{PacketRate, SizedService};
use crate::units::{BitRate, ByteSize, Span};

/// Reason why there is no size.
#[derive(Clone, Debug, PartialEq, thiserror::Error, miette::Diagnostic)]
pub enum SizeError {
    #[error("invalid packet rate `{0}`; use packets/s above 0, e.g. 1.5M or 800k")]
    #[diagnostic(code("bad-rate"))]
    Packets(String),
    #[error("invalid I/O rate `{0}`; use IOPS above 0, e.g. 40k")]
    #[diagnostic(code("bad-rate"))]
    Ios(String),
    #[error("invalid migration rate `{0}`; use a number above 0 per hour, day or week, e.g. 2/day")]
    #[diagnostic(code("bad-rate"))]
    Migrations(String),
    #[error("nothing to size: specify a load, e.g. --net 10G --pps 1.5M or --iops 40k")]
    #[diagnostic(code("bad-target"))]
    NothingToSize,
    #[error("{option} cannot be 0; use e.g. {example}")]
    #[diagnostic(code("bad-target"))]
    Zero { option: &'static str, example: &'static str },
    #[error("{guests} guests cannot have {vcpus} virtual CPUs: each has at least one; specify the sum over all guests")]
    #[diagnostic(code("bad-target"))]
    FewVcpus { guests: u32, vcpus: u32 },
    #[error("{0} without a bit rate: the size of the packets is unknown; add --net, e.g. --net 10G")]
    #[diagnostic(code("bad-target"))]
    PacketsWithoutBits(PacketRate),
    #[error(
        "{packets} in {net} are {bytes:.1} bytes each, less than the 28 bytes of an IPv4 and a UDP header; \
         reduce --pps or increase --net",
        bytes = net.bits() as f64 / 8.0 / packets.per_second()
    )]
    #[diagnostic(code("bad-target"))]
    PacketsTooSmall { net: BitRate, packets: PacketRate },
    #[error(
        "{packets} in {net} are {bytes:.0} bytes each, more than the 65535 bytes of the largest IPv4 packet; \
         increase --pps or reduce --net",
        bytes = net.bits() as f64 / 8.0 / packets.per_second()
    )]
    #[diagnostic(code("bad-target"))]
    PacketsTooLarge { net: BitRate, packets: PacketRate },
    #[error("--block {0} without an I/O rate; add --iops, e.g. --iops 40k")]
    #[diagnostic(code("bad-target"))]
    BlockWithoutIos(ByteSize),
    #[error("invalid I/O size {0}; use at most 64 MiB, e.g. --block 4KiB")]
    #[diagnostic(code("bad-target"))]
    BlockTooLarge(ByteSize),
    #[error("a core cannot have {0} threads and a CPU a clock of {1} GHz; read both from this machine")]
    #[diagnostic(code("bad-target"))]
    Machine(u32, f64),
    #[error("{0} of memory is more than any machine has; check the guests' memory and the file cache")]
    #[diagnostic(code("bad-target"))]
    TooMuchMemory(ByteSize),
    #[error("the target requires {needed:.0} cores, more than any machine has; check --net, --pps and --iops")]
    #[diagnostic(code("bad-target"))]
    TooManyCores { needed: f64 },
    #[error("migration {number} has no cores or no suspend time; measure it again")]
    #[diagnostic(code("cost-not-measured"))]
    InvalidMigration { number: usize },
    #[error("the cost of {} has not been measured; to measure it, repeat `vtax size` with e.g. {}", .0, .0.measuring())]
    #[diagnostic(code("cost-not-measured"))]
    NotMeasured(SizedService),
    #[error(
        "the cost of consoles is not known and cannot be measured; specify the load of networks or disks, e.g. --net 10G"
    )]
    #[diagnostic(code("bad-target"))]
    OnlyConsoles,
    #[error("measurement {number} of {service} is not a valid cost: its rates and cores must be numbers of at least 0")]
    #[diagnostic(code("cost-not-measured"))]
    InvalidPoint { service: SizedService, number: usize },
    #[error(
        "{service} was measured with {}; costs of several methods cannot be mixed: choose one, e.g. --method {}",
        methods.join(" and "),
        methods.first().map_or("", String::as_str)
    )]
    #[diagnostic(code("cost-not-measured"))]
    SeveralMethods { service: SizedService, methods: Vec<String> },
    #[error(
        "{service} was measured at {given} different rates between a quarter of the target and four times the target, \
         but a fit requires {needed}; to measure more, repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-measured"))]
    TooFewRates { service: SizedService, given: usize, needed: usize },
    #[error(
        "{service} has {given} measurements near the target, but a fit requires {needed}; to measure more, \
         repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-measured"))]
    TooFewPoints { service: SizedService, given: usize, needed: usize },
    #[error(
        "{service} was measured only with {message}s of about {measured:.0} bytes, which doesn't separate the cost of a \
         {message} from that of its bytes, and the target has {target:.0}; measure a second size, e.g. {other} bytes: \
         repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-measured"))]
    OneMessageSize { service: SizedService, message: &'static str, measured: f64, target: f64, other: u32 },
    #[error(
        "the {predictor} per second of {service} were the same in all measurements near the target, so their cost is \
         unknown; to measure other rates, repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-measured"))]
    NotVaried { service: SizedService, predictor: &'static str },
    #[error(
        "the target is {times:.1} times the highest measured rate of {service}, and beyond {most} times a cost is a guess; \
         to measure near the target, repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-measured"))]
    BeyondMeasured { service: SizedService, times: f64, most: f64 },
    #[error(
        "the measured cost of {service} falls as its {predictor} increase, so its rates were not the only difference \
         between the measurements; to measure again on an idle machine, repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-linear"))]
    Falling { service: SizedService, predictor: &'static str },
    #[error(
        "the cost of {service} grows faster than its rate, so it cannot be extrapolated to {times:.2} times the highest \
         measured rate; to measure at the target, repeat `vtax size` with e.g. {}",
        service.measuring()
    )]
    #[diagnostic(code("cost-not-linear"))]
    GrowsFaster { service: SizedService, times: f64 },
    #[error("invalid point {number} of the proof: utilization must be above 0 and at most 1, and p99 above 0")]
    #[diagnostic(code("knee-not-found"))]
    InvalidProof { number: usize },
    #[error("a knee requires {needed} utilizations, but {given} were measured; measure more")]
    #[diagnostic(code("knee-not-found"))]
    TooFewUtilizations { given: usize, needed: usize },
    #[error("no utilization was measured twice, so the variation of p99 is unknown; repeat the measurements")]
    #[diagnostic(code("knee-not-found"))]
    NotRepeated,
    #[error(
        "p99 is not shown to be at most {limit} even at {percent:.0} % utilization, the lowest measured (there it is {p99}); \
         relax --p99, choose a faster method, or measure at a lower load",
        percent = utilization * 100.0
    )]
    #[diagnostic(code("knee-not-found"))]
    LimitNotMet { limit: Span, p99: Span, utilization: f64 },
}

impl SizeError {
    /// Error of a knee whose points were checked.
    pub(super) fn of_crossing(error: CrossingError, limit: Span) -> SizeError {
        match error {
            CrossingError::TooFewLevels { given, needed } => SizeError::TooFewUtilizations { given, needed },
            CrossingError::NotRepeated => SizeError::NotRepeated,
            CrossingError::NotFinite { number, .. } => SizeError::InvalidProof { number },
            CrossingError::NotWithin { level, mean } => {
                SizeError::LimitNotMet { limit, p99: super::knee::of_log(mean), utilization: level }
            }
        }
    }
}
