//! `vtax measure` as a study: its rows are e.g. engines or loads, its matrix is the tests and the swept parameters.

mod rows;

use std::str::FromStr;

use miette::{Context, bail};
use serde::{Deserialize, Serialize};
use vtax_model::{
    cell::{Cell, CellTest, Instrument, NetCell},
    endpoint::{Control, End, Endpoint, Ends, OtherPath},
    options::{Engine, OptionError, Segments, TestOptions},
    run::{Difference, Goal, RunHeader},
    spelling::available,
    study::{MatrixPoint, NetMatrix, Row, SamplingPlan, Study, StudyNetwork, StudySubject, SweepPoint, TuningStep},
    units::{ByteSize, Mtu, Span},
    workload::{SpecError, StreamLoad, TestKind, TestSizes, Transport, Warmup, Workload, WorkloadError},
};
use vtax_wire::limits::{LimitError, Load};

use super::{
    chosen_rounds::ChosenRounds,
    ends::room_of,
    options::{ChangedStudy, blaming},
};
use crate::{
    events::RunEvents,
    stop::{Blamed, Stop},
};

/// Measurement between two endpoints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasureRequest {
    /// Responders, and initiators if any are named.
    pub endpoints: Vec<Endpoint>,
    /// Tests, in order.
    pub tests: Vec<Test>,
    /// Engines. The baseline is `blocking` if it is one of them, else the first.
    pub engines: Vec<Engine>,
    /// Loads under which each test is measured, in addition to the idle path.
    #[serde(default)]
    pub under: Vec<StreamLoad>,
    /// Numbers of concurrent flows; the tests run with each of them.
    pub streams: Vec<u32>,
    /// Message sizes.
    pub sizes: GivenSizes,
    /// Gaps for rr. `None` is a test without gaps.
    pub gaps: Vec<Option<Span>>,
    /// Options except engine and gap.
    pub options: TestOptions,
    /// Number and order of the rounds.
    pub rounds: ChosenRounds,
    /// The plan without the number of samples.
    pub sampling: SamplingPlan,
    /// Settings to try, each against the current settings. Then there is one engine.
    #[serde(default)]
    pub steps: Vec<TuningStep>,
    /// Other paths whose round trips are measured at the same time, and must not become worse with a step.
    #[serde(default)]
    pub guarded: Vec<OtherPath>,
    /// Measurement mode.
    #[serde(default)]
    pub instrument: Instrument,
    /// A step is kept if its gain certainly exceeds this. The run ends early only once that is decided.
    #[serde(default)]
    pub margin: Option<Difference>,
    /// A run between the same endpoints, whose CPUs are used again, so that both runs' figures are comparable.
    #[serde(default)]
    pub placed_as: Option<Box<RunHeader>>,
}

/// A test by its name, e.g. `tcp-rr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// Transport protocol.
    pub transport: Transport,
    /// The measured test, e.g. `rr`.
    pub kind: TestKind,
}

/// Unknown test name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown test `{_0}`; {}", available(_0, &known_tests()))]
pub struct UnknownTest(String);

/// Returns `tcp-rr`, `udp-stream` and all others. Only a study sends files.
fn known_tests() -> Vec<String> {
    let named = |transport: Transport| {
        let kinds = TestKind::ALL.into_iter().filter(move |kind| !kind.is_file() && transport.carries(*kind));
        kinds.map(move |kind| format!("{transport}-{kind}").to_ascii_lowercase())
    };
    Transport::ALL.into_iter().flat_map(named).collect()
}

impl FromStr for Test {
    type Err = UnknownTest;

    /// Also accepts netperf's form: `TCP_RR`.
    fn from_str(text: &str) -> Result<Self, UnknownTest> {
        let name = text.to_ascii_lowercase().replace('_', "-");
        let is = |known: String, word: &str| known.eq_ignore_ascii_case(word);
        let find = |(one, other): (&str, &str)| {
            let transport = Transport::ALL.into_iter().find(|known| is(known.to_string(), one))?;
            let kind = TestKind::ALL.into_iter().find(|known| is(known.to_string(), other))?;
            (!kind.is_file()).then_some(Test { transport, kind })
        };
        name.split_once('-').and_then(find).ok_or_else(|| UnknownTest(text.to_owned()))
    }
}

/// Sizes chosen by the user.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GivenSizes {
    /// The size of each request.
    pub request: Option<ByteSize>,
    /// The size of each response.
    pub response: Option<ByteSize>,
    /// The size of each send call of streams.
    pub message: Option<ByteSize>,
    /// The test runs once with each of these sizes, in place of the others.
    pub sizes: Vec<ByteSize>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownPath {
    mtu: Mtu,
    ipv6: bool,
}

/// Requests and responses of one byte, as in netperf and sparc-t7-1.
const BYTE: ByteSize = ByteSize(1);
/// Size of a whole sequence number.
const NUMBER: ByteSize = ByteSize(8);
/// Number of bytes that iperf3 passes to a TCP socket per call.
const STREAM_MESSAGE: ByteSize = ByteSize(128 << 10);
/// The largest payload of a UDP datagram over IPv4.
const DATAGRAM_MOST: u64 = 65_507;
/// Minimum number of samples for which an interval is worth printing.
const SAMPLES_LEAST: u32 = 5;

impl MeasureRequest {
    /// Placeholder for the MTU of a path that isn't known yet.
    pub(crate) const ANY_MTU: Mtu = Mtu::MAX;

    /// Returns the measurement of a run that has tried settings, with other settings.
    pub fn trying(header: &RunHeader, steps: Vec<TuningStep>, goal: Goal) -> MeasureRequest {
        let study = &header.study;
        let instrument = study.answering();
        let mut tests: Vec<Test> = Vec::new();
        for net in study.cells.iter().filter_map(Cell::net) {
            let test = Test { transport: net.transport, kind: net.workload.kind() };
            if !tests.contains(&test) {
                tests.push(test);
            }
        }
        MeasureRequest {
            endpoints: study.endpoints().to_vec(),
            tests,
            engines: vec![Engine::default()],
            under: Vec::new(),
            streams: vec![1],
            sizes: GivenSizes::default(),
            gaps: vec![None],
            options: TestOptions::default(),
            rounds: ChosenRounds {
                goal: Some(goal),
                metric: header.metric,
                seed: Some(header.seed.wrapping_add(1)),
                ..ChosenRounds::default()
            },
            sampling: *header.plan_of(instrument),
            steps,
            guarded: study.guarded().iter().map(OtherPath::between).collect(),
            instrument,
            margin: header.margin,
            placed_as: Some(Box::new(header.clone())),
        }
    }

    /// Returns its study, as far as it doesn't depend on the path. Refuses anything that no path can carry.
    pub(crate) fn anywhere(&self) -> Result<Study, Stop> {
        self.study(KnownPath { mtu: MeasureRequest::ANY_MTU, ipv6: false }).or_input()
    }

    /// Returns the guarded paths. One without a named initiator begins where the measured path
    /// does.
    pub(crate) fn guarded_paths(&self) -> Vec<Ends<Control>> {
        let near = self.endpoints.iter().find(|endpoint| endpoint.end == End::Initiator);
        let near = near.map_or(Control::Local, |endpoint| endpoint.control.clone());
        let path = |OtherPath { from, to }: &OtherPath| Ends {
            initiator: from.clone().unwrap_or_else(|| near.clone()),
            responder: to.clone(),
        };
        self.guarded.iter().map(path).collect()
    }

    pub(crate) fn on(&self, mtu: Option<Mtu>, ipv6: bool, events: &RunEvents) -> KnownPath {
        let mtu = mtu.unwrap_or_else(|| {
            let assumed = Mtu::ETHERNET;
            events.tell(format_args!("warning: the MTU of the endpoints' links is not reported; assuming {assumed}"));
            assumed
        });
        let way = KnownPath { mtu, ipv6 };
        self.shortened(way).iter().for_each(|note| events.tell(note));
        way
    }

    /// Returns the note that datagrams are shorter than the path allows, so that one call can send as many as --gso
    /// requests.
    fn shortened(&self, way: KnownPath) -> Option<String> {
        let is_udp = |test: &Test| test.transport == Transport::Udp && test.kind.is_stream();
        let (segments, room) = (self.options.gso?.get(), room_of(way.mtu, way.ipv6).udp_payload());
        let chosen = self.sizes.message.is_some() || !self.sizes.sizes.is_empty();
        let message = self.datagram(way);
        (self.tests.iter().any(is_udp) && !chosen && message < room).then(|| {
            format!(
                "note: --gso {segments}: datagrams are {message} instead of {room}, so that {segments} fit in \
                 one send call of {DATAGRAM_MOST} bytes; set another size with --message"
            )
        })
    }

    pub(crate) fn wanted(&self, way: KnownPath) -> Result<ChangedStudy, Stop> {
        let study = self.study(way).or_input()?;
        Ok(ChangedStudy { plan: study.plan, path_plan: study.path, study, rounds: self.rounds })
    }

    fn study(&self, way: KnownPath) -> miette::Result<Study> {
        self.check_use()?;
        self.check_under()?;
        if let (Some(nic), [_, engine, ..]) = (self.nics().first(), &self.engines[..]) {
            bail!(
                code = "option-not-for-this",
                "--engine {engine}: the rows are already NICs ({nic}), all measured by one engine; name one engine"
            );
        }
        let cells = self.cells(way)?;
        let plan = self.plan(&cells)?;
        let id = if self.steps.is_empty() { "measure" } else { "tune" }.parse().expect("a name");
        let (endpoints, guarded) = (self.endpoints.clone(), self.guarded_paths());
        Ok(Study {
            baseline: self.baseline(),
            subject: StudySubject::Network(StudyNetwork { endpoints, guarded, ..StudyNetwork::default() }),
            steps: self.steps.clone(),
            path: (self.instrument == Instrument::Path).then_some(plan),
            ..Study::plain(id, self.title().into(), self.rows(), cells, plan)
        })
    }

    /// `TCP RR, local to ssh:vm1`
    fn title(&self) -> String {
        let tests: Vec<String> = self.tests.iter().map(|test| format!("{} {}", test.transport, test.kind)).collect();
        let ends = |end: End| {
            let of_end = self.endpoints.iter().filter(|endpoint| endpoint.end == end);
            let mut names: Vec<String> = of_end.map(|endpoint| endpoint.control.to_string()).collect();
            names.dedup();
            names.join(", ")
        };
        format!("{}, {} to {}", tests.join(", "), ends(End::Initiator), ends(End::Responder))
    }

    /// Refuses a size or gap that no test has.
    fn check_use(&self) -> miette::Result<()> {
        let any = |is: fn(TestKind) -> bool| self.tests.iter().any(|test| is(test.kind));
        let pairs = any(|kind| kind.is_transactions() && kind.is_swept());
        let streams = any(TestKind::is_stream);
        let GivenSizes { request, response, message, sizes } = &self.sizes;
        let uses = [
            ("request", "rr and crr", pairs, request.is_some()),
            ("response", "rr and crr", pairs, response.is_some()),
            ("message", "streams", streams, message.is_some()),
            ("sizes", "rr, crr and streams", pairs || streams, !sizes.is_empty()),
            ("gap", "rr", any(TestKind::is_paced), self.gaps.iter().any(Option::is_some)),
        ];
        match uses.into_iter().find(|(_, _, used, given)| *given && !used) {
            Some((flag, of, ..)) => {
                bail!(code = "option-not-for-this", "--{flag} applies to {of}, but --test names none; omit it")
            }
            None => Ok(()),
        }
    }

    /// Refuses loads if rows already stand for something else, or if added latency is meaningless.
    fn check_under(&self) -> miette::Result<()> {
        let Some(load) = self.under.first() else { return Ok(()) };
        let tests = self.tests.iter();
        let stream = tests.map(|test| test.kind).find(|kind| !kind.is_transactions());
        let why = match (stream, self.nics().first(), &self.engines[..], self.sampling.warmup) {
            (Some(kind), ..) => {
                format!("the added latency is that of transactions, and --test has a {kind}: omit it, or --under")
            }
            (_, Some(nic), ..) => format!("the rows are already NICs ({nic}): name one, as --to ldm:DOMAIN/NIC"),
            (_, _, [_, engine, ..], _) => format!("the rows are already engines ({engine}): name one engine"),
            (.., warmup @ Warmup::UntilSteady { .. }) => {
                format!("--warmup {warmup}: test and load must warm up for the same time: give one, e.g. --warmup 1s")
            }
            _ => return Ok(()),
        };
        bail!(code = "option-not-for-this", "--under {load}: {why}")
    }

    fn cells(&self, way: KnownPath) -> miette::Result<Vec<Cell>> {
        let tests: Vec<_> = self.tests.iter().map(|test| (test.transport, test.kind)).collect();
        let (sweep, rows) = (self.sweep(), self.rows());
        let matrix = NetMatrix { tests: &tests, streams: &self.streams, sweep: &sweep, mtus: &[way.mtu], rows: &rows };
        matrix.points().map(|point| self.cell(way, point)).collect()
    }

    fn sweep(&self) -> Vec<SweepPoint> {
        let sizes: Vec<Option<ByteSize>> = match self.sizes.sizes.as_slice() {
            [] => vec![None],
            swept => swept.iter().copied().map(Some).collect(),
        };
        SweepPoint::all(&sizes, &self.gaps)
    }

    fn cell(&self, way: KnownPath, point: MatrixPoint) -> miette::Result<Cell> {
        let MatrixPoint { transport, kind, streams, variant, swept, mtu, row } = point;
        let engine = if let Row::Engine(engine) = row { engine } else { self.engines[0] };
        let options = TestOptions { engine, gap: swept.gap_of(kind), ..self.options };
        let workload = self.workload(way, Test { transport, kind }, swept.size)?;
        let net = NetCell { mtu, transport, workload, streams, options };
        let mut cell = Cell { row, test: CellTest::Net(net), variant, instrument: Instrument::default() };
        if self.instrument == Instrument::Path {
            cell.hold_still();
        }
        cell.net().map_or(Ok(()), |net| self.check_net(way, net))?;
        Ok(cell)
    }

    fn check_net(&self, way: KnownPath, net: &NetCell) -> miette::Result<()> {
        let spec = net.spec(&self.sampling);
        let room = room_of(way.mtu, way.ipv6);
        for load in &self.under {
            let load_spec = load.spec(room, &spec);
            let checked = load_spec.check(room).map_err(LimitError::Spec);
            checked.and_then(|()| Load::of(&load_spec)).wrap_err_with(|| format!("--under {load}"))?;
        }
        let checked = spec.check(room).map_err(LimitError::Spec);
        match checked.and_then(|()| Load::of(&spec)) {
            Ok(_) => Ok(()),
            Err(error) => {
                let told = format!("--{}: {error}", self.flag(&error));
                Err(miette::Report::new(error).wrap_err(told))
            }
        }
    }

    fn workload(&self, way: KnownPath, test: Test, size: Option<ByteSize>) -> Result<Workload, WorkloadError> {
        // Datagrams in flight are distinguished by a number, which needs room.
        let several = self.options.burst.get() > 1 || self.options.arrivals.is_some();
        let least = if test.transport.is_datagram() && several { NUMBER } else { BYTE };
        let usual = if test.transport.is_datagram() { self.datagram(way) } else { STREAM_MESSAGE };
        let message = size.or(self.sizes.message).unwrap_or(usual);
        let request = size.or(self.sizes.request).unwrap_or(least);
        let response = size.or(self.sizes.response).unwrap_or(least);
        let refused = WorkloadError::NotOver { test: test.kind, transport: test.transport };
        TestSizes { request, response, message, file: message }.workload(test.kind).ok_or(refused)
    }

    /// Returns the largest datagram of the path. One call must be able to send as many of them as `--gso` says.
    fn datagram(&self, way: KnownPath) -> ByteSize {
        let segments = self.options.gso.map_or(1, Segments::get);
        room_of(way.mtu, way.ipv6).udp_payload().min(ByteSize(DATAGRAM_MOST / u64::from(segments)))
    }

    /// Returns the plan. Comparing several rows takes more rounds than a mean; under a load also by percentiles.
    fn plan(&self, cells: &[Cell]) -> miette::Result<SamplingPlan> {
        let percentiles = |cell: &Cell| cell.kind().metrics().iter().filter(|of| of.percentile().is_some()).count();
        let family = if self.under.is_empty() { 1 } else { cells.iter().map(percentiles).max().unwrap_or(1) };
        let comparisons = (cells.len() - cells.len() / self.rows().len()) * family;
        let samples = self.rounds.samples.unwrap_or_else(|| rounds_for(comparisons));
        let plan = SamplingPlan { samples, ..self.sampling };
        plan.check().map_err(blaming)?;
        Ok(plan)
    }

    /// Returns the command line option that an error is about.
    fn flag(&self, error: &LimitError) -> &'static str {
        match error {
            LimitError::Spec(SpecError::Workload(error)) => self.size_flag(error),
            LimitError::Spec(SpecError::Options(error)) => option_flag(error),
            LimitError::Spec(SpecError::NoSlices) => "test",
            LimitError::NoInterval | LimitError::Intervals { .. } => "interval",
            LimitError::NoTime | LimitError::Time { .. } => "duration",
            _ => "streams",
        }
    }

    fn size_flag(&self, error: &WorkloadError) -> &'static str {
        match error.what() {
            "test" | "file" => "test",
            _ if !self.sizes.sizes.is_empty() => "sizes",
            what => what,
        }
    }
}

fn option_flag(error: &OptionError) -> &'static str {
    match error {
        OptionError::Flows { .. } => "streams",
        OptionError::Threads { .. } => "threads",
        OptionError::NotForTest { option, .. } | OptionError::Clash { first: option, .. } => match *option {
            "sending" => "send",
            "engine io-uring" => "engine",
            option => option,
        },
        OptionError::UnknownEngine(_) => "engine",
        OptionError::Burst(_) => "burst",
        OptionError::Outage { .. } => "outage",
        OptionError::Rate(_) => "rate",
        OptionError::Segments(_) => "gso",
        OptionError::CongestionControl(_) => "congestion",
        OptionError::Dscp(_) => "dscp",
        OptionError::NotANumber(_) => "burst",
        OptionError::UnknownIdle(_) => "idle",
    }
}

/// Returns the number of rounds after which each comparison can be significant at 5 %: p is at least 2/2^n, times the
/// number of comparisons (Holm).
pub(super) fn rounds_for(comparisons: usize) -> u32 {
    let needed = (1..).find(|rounds| 2.0 * comparisons as f64 / 2f64.powi(*rounds) < 0.05);
    needed.map_or(SAMPLES_LEAST, |rounds| SAMPLES_LEAST.max(rounds as u32))
}

#[cfg(test)]
mod tests;
