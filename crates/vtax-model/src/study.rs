//! Studies: a question with a matrix, a sampling plan and a baseline.
//!
//! A study is a TOML file; the classic ones are built in, in the same form
//! (`data/studies/`).

mod reader;

use std::{fmt, str::FromStr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, Instrument},
    endpoint::Endpoint,
    guest::{Attach, Flavour, GuestDefaults},
    located::{FileError, Source},
    method::{DomainKind, IoMethod},
    options::Engine,
    spelling::nearest,
    topology::{Cable, Name},
    units::{ByteSize, Span},
    workload::{TestKind, Warmup},
};

/// What a study asks, and how it samples the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name; names the lab and the published figures too.
    pub id: Name,
    /// One line.
    pub title: String,
    /// What it is to find out.
    pub question: String,
    /// Rows of the tables, in order.
    pub rows: Vec<Row>,
    /// Those of them that are measured where a wire costs nothing, or if somebody asks for them: on cables
    /// between real NICs, of which each row takes one, they are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<Row>,
    /// The row that the others are held against.
    pub baseline: Row,
    /// Whether the method stands at both ends of the wire or at `sut` only, against a native peer.
    pub both: bool,
    /// Pairs of ends of each row, which measure at the same time: so many clients, and behind a switch
    /// what the row stands for, once for each client. [`Study::MOST_PAIRS`] at most.
    #[serde(default = "one_pair", skip_serializing_if = "is_one")]
    pub pairs: u32,
    /// The range for the lab's addresses, if the file names one.
    pub addresses: Option<Ipv4Net>,
    /// Where to measure, if not in a lab that is built for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// The cables that the rows' wires are, in place of veth pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cables: Vec<Cable>,
    /// What methods attach that can attach guests and zones: [`DomainKind::Guest`] or [`DomainKind::Zone`].
    #[serde(default = "guests", skip_serializing_if = "are_guests")]
    pub domains: DomainKind,
    /// What the guests of its rows are like.
    #[serde(default, skip_serializing_if = "GuestDefaults::is_plain")]
    pub guest: GuestDefaults,
    /// Every cell, row by row.
    pub cells: Vec<Cell>,
    /// The plan of the cells that are measured as the machine runs; the published one in a classic study.
    pub plan: SamplingPlan,
    /// The same for `--quick`.
    pub quick: SamplingPlan,
    /// The plan of the cells that tell the path's own cost, if the study has such cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<SamplingPlan>,
    /// The same for `--quick`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick_path: Option<SamplingPlan>,
    /// Which instrument answers the question; the path's own cost where it is measured, if the file doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Instrument>,
    /// The size of the files of `--quick`, if it isn't that of the cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick_file: Option<ByteSize>,
}

fn guests() -> DomainKind {
    DomainKind::Guest
}

fn are_guests(domains: &DomainKind) -> bool {
    *domains == DomainKind::Guest
}

fn one_pair() -> u32 {
    1
}

fn is_one(pairs: &u32) -> bool {
    *pairs == 1
}

/// What one row of a table stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Row {
    /// A domain attached by this method, on a wire between two hosts.
    Method(IoMethod),
    /// A guest attached by this kind of NIC, on a wire between two hosts: `paravirtual:userspace`.
    Device(Flavour),
    /// Guests that share a NIC, and who sorts the frames that come for them.
    Queue(Queueing),
    /// Two domains, each a host or a paravirtual guest.
    Path(GuestPath),
    /// Two zones on one host, whose traffic leaves the host unless both share its stack.
    Zones {
        /// The sender's stack.
        from: IpType,
        /// The receiver's stack.
        to: IpType,
    },
    /// One path, measured by this engine.
    Engine(Engine),
}

/// Whose network stack a zone uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpType {
    /// Its host's.
    Shared,
    /// Its own, on a wire of its own.
    Exclusive,
}

impl IpType {
    const ALL: [IpType; 2] = [IpType::Shared, IpType::Exclusive];
    const PAIRS: [&str; 4] =
        ["shared-to-shared", "shared-to-exclusive", "exclusive-to-shared", "exclusive-to-exclusive"];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            IpType::Shared => "shared",
            IpType::Exclusive => "exclusive",
        }
    }
}

/// Through how many queues the frames of a host's guests come off its wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queueing {
    /// All through one: the guests hang on a vsw, and the wire is its uplink.
    Shared,
    /// Through one of each guest: the wire's own driver sorts them by address, by a macvtap each.
    PerGuest,
    /// Through those of a virtual function of each guest: the NIC itself sorts them.
    Function,
}

impl Queueing {
    const ALL: [Queueing; 3] = [Queueing::Shared, Queueing::PerGuest, Queueing::Function];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Queueing::Shared => "shared-queue",
            Queueing::PerGuest => "queue-per-guest",
            Queueing::Function => "vf-per-guest",
        }
    }
}

/// From whom to whom a stream goes, between two hosts unless it is said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GuestPath {
    /// Both by their own stacks.
    HostToHost,
    /// To a guest of the other host.
    HostToGuest,
    /// Both on one vsw of one host.
    GuestToGuest,
    /// Each on a host of its own.
    GuestToGuestAcrossHosts,
}

impl GuestPath {
    const ALL: [GuestPath; 4] =
        [GuestPath::HostToHost, GuestPath::HostToGuest, GuestPath::GuestToGuest, GuestPath::GuestToGuestAcrossHosts];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            GuestPath::HostToHost => "host-to-host",
            GuestPath::HostToGuest => "host-to-guest",
            GuestPath::GuestToGuest => "guest-to-guest",
            GuestPath::GuestToGuestAcrossHosts => "guest-to-guest-across-hosts",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Method(method) => method.fmt(f),
            Row::Device(flavour) => f.pad(&format!("{}:{flavour}", flavour.method())),
            Row::Queue(queueing) => f.pad(queueing.name()),
            Row::Path(path) => f.pad(path.name()),
            Row::Zones { from, to } => f.pad(&format!("{}-to-{}", from.name(), to.name())),
            Row::Engine(engine) => engine.fmt(f),
        }
    }
}

impl Row {
    /// The I/O method that the row stands for.
    pub fn method(self) -> Option<IoMethod> {
        match self {
            Row::Method(method) => Some(method),
            Row::Device(flavour) => Some(flavour.method()),
            Row::Queue(Queueing::Function) => Some(IoMethod::SrIov),
            Row::Queue(_) => Some(IoMethod::Paravirtual),
            Row::Path(_) | Row::Zones { .. } | Row::Engine(_) => None,
        }
    }

    /// Which kind of NIC it is about, if it says.
    pub fn flavour(self) -> Option<Flavour> {
        match self {
            Row::Device(flavour) => Some(flavour),
            Row::Method(_) | Row::Queue(_) | Row::Path(_) | Row::Zones { .. } | Row::Engine(_) => None,
        }
    }

    /// Whether it says what one end is and leaves the other to [`Study::both`].
    pub fn may_be_both(self) -> bool {
        matches!(self, Row::Method(_) | Row::Device(_))
    }

    /// Whether several pairs of it can stand behind one switch. A routed zone, a tunnel and a zone that
    /// takes the wire's end away need a wire whose other end is their only peer.
    pub fn may_be_paired(self) -> bool {
        let alone = [IoMethod::Veth, IoMethod::Vxlan, IoMethod::Exclusive, IoMethod::Assigned, IoMethod::RootDomain];
        self.method().is_some_and(|method| !alone.contains(&method))
    }

    /// Bytes of each packet on the wire that the domain can't use.
    pub fn overhead(self) -> u32 {
        self.method().map_or(0, IoMethod::overhead)
    }

    /// Rows of one study are of one kind: each kind has another lab.
    fn kind(self) -> &'static str {
        match self {
            Row::Method(_) | Row::Device(_) | Row::Queue(_) => "methods need a wire between two hosts",
            Row::Path(_) => "paths name both of their ends",
            Row::Zones { .. } => "pairs of zones are on one host",
            Row::Engine(_) => "engines share one path",
        }
    }
}

/// A text that names no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownRow(String);

impl std::error::Error for UnknownRow {}

impl fmt::Display for UnknownRow {
    /// The whole list only if no name is near: it is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |names: &[&'static str]| names.join(", ");
        let devices = Flavour::ALL.map(|flavour| Row::Device(flavour).to_string());
        let (methods, queues) = (IoMethod::ALL.map(IoMethod::name), Queueing::ALL.map(Queueing::name));
        let (paths, engines) = (GuestPath::ALL.map(GuestPath::name), Engine::ALL.map(Engine::name));
        let known = { methods }.into_iter().chain(queues).chain(paths).chain(engines).chain(IpType::PAIRS);
        if let Some(name) = nearest(&self.0, known.chain(devices.iter().map(String::as_str))) {
            return write!(
                f,
                "unknown row `{}`; did you mean `{name}`? (`vtax methods` lists the I/O methods)",
                self.0
            );
        }
        write!(
            f,
            "unknown row `{}`; it is an I/O method ({}), a kind of NIC of a guest ({}), a queueing of guests ({}), a path \
             ({}), a pair of zones ({}), or an engine ({})",
            self.0,
            names(&methods),
            devices.join(", "),
            names(&queues),
            names(&paths),
            names(&IpType::PAIRS),
            names(&engines)
        )
    }
}

impl FromStr for Row {
    type Err = UnknownRow;

    fn from_str(text: &str) -> Result<Self, UnknownRow> {
        if let Ok(method) = text.parse() {
            return Ok(Row::Method(method));
        }
        if let Ok(engine) = text.parse() {
            return Ok(Row::Engine(engine));
        }
        if let Some(flavour) = device(text) {
            return Ok(Row::Device(flavour));
        }
        if let Some(queueing) = Queueing::ALL.into_iter().find(|queueing| queueing.name() == text) {
            return Ok(Row::Queue(queueing));
        }
        if let Some(path) = GuestPath::ALL.into_iter().find(|path| path.name() == text) {
            return Ok(Row::Path(path));
        }
        let ip_type = |name: &str| IpType::ALL.into_iter().find(|kind| kind.name() == name);
        let pair = text.split_once("-to-").and_then(|(from, to)| Some((ip_type(from)?, ip_type(to)?)));
        pair.map(|(from, to)| Row::Zones { from, to }).ok_or_else(|| UnknownRow(text.to_owned()))
    }
}

fn device(text: &str) -> Option<Flavour> {
    let (method, flavour) = text.split_once(':')?;
    let flavour: Flavour = flavour.parse().ok()?;
    (flavour.method().name() == method).then_some(flavour)
}

impl TryFrom<String> for Row {
    type Error = UnknownRow;

    fn try_from(text: String) -> Result<Self, UnknownRow> {
        text.parse()
    }
}

impl From<Row> for String {
    fn from(row: Row) -> String {
        row.to_string()
    }
}

/// How often and how long each cell is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SamplingPlan {
    /// Rounds: samples of each cell.
    pub samples: u32,
    /// The measured time of a sample; of each of its slices, if it is cut into slices.
    pub duration: Span,
    /// Traffic before it.
    pub warmup: Warmup,
    /// How a sample is cut into slices; absent if it is measured in one piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
}

/// A sample that is cut into slices. All rows of a block connect at the beginning of a round and warm up one
/// after the other. Then they take turns, `passes` times and each time in another random order, and each turn
/// is a slice. What is compared is so measured within milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slices {
    /// Slices of a sample.
    pub passes: u32,
    /// The measured time of a slice of a stream: a stream needs longer slices than transactions do.
    pub stream: Span,
}

impl Study {
    /// The instrument that answers the study's question, of those that its cells are measured by.
    pub fn answering(&self) -> Instrument {
        let measured = |instrument: &Instrument| self.cells.iter().any(|cell| cell.instrument == *instrument);
        let chosen = self.answer.into_iter().chain(Instrument::ALL);
        { chosen }.find(measured).unwrap_or_default()
    }

    /// The plan of the cells of an instrument, short with `--quick`; none if the study has no such cells, or
    /// `--quick` leaves them out: the path's own cost, where it isn't the answer and has no short plan.
    pub fn plan_of(&self, instrument: Instrument, quick: bool) -> Option<SamplingPlan> {
        let answers = self.answering() == Instrument::Path;
        match (instrument, quick) {
            (Instrument::System, false) => Some(self.plan),
            (Instrument::System, true) => Some(self.quick),
            (Instrument::Path, false) => self.path,
            (Instrument::Path, true) => self.quick_path.or(self.path.filter(|_| answers)),
        }
    }

    /// The built-in studies, by name and text.
    pub const BUILT_IN: [(&'static str, &'static str); 5] = [
        ("demo", include_str!("../data/studies/demo.toml")),
        ("sparc-t7-1", include_str!("../data/studies/sparc-t7-1.toml")),
        ("ip-instances", include_str!("../data/studies/ip-instances.toml")),
        ("ovm3-tuning", include_str!("../data/studies/ovm3-tuning.toml")),
        ("vmdq", include_str!("../data/studies/vmdq.toml")),
    ];
    /// More clients than that are more processes than a host can start at once, and no source has as
    /// many.
    pub const MOST_PAIRS: u32 = 64;

    /// A built-in study.
    pub fn built_in(id: &str) -> Option<Study> {
        let (name, text) = Study::BUILT_IN.into_iter().find(|(name, _)| *name == id)?;
        let study = Study::parse(Source { name, text });
        Some(study.expect("a test reads every built-in study"))
    }

    /// The NIC of a row's guests; none if the row has no guests.
    pub fn attach(&self, row: Row) -> Option<Attach> {
        let either = row.method().is_some_and(|method| method.domains().contains(&DomainKind::Zone));
        self.guest.attach(row).filter(|_| self.domains == DomainKind::Guest || !either)
    }

    /// Reads a study file.
    pub fn parse(source: Source<'_>) -> Result<Study, FileError> {
        reader::read(source)
    }
}

/// A sampling plan that gives no figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamplingPlanError {
    /// Zero rounds.
    #[error("0 samples measure nothing; give at least 1")]
    NoSamples,
    /// A sample too short for its CPU figures.
    #[error("duration {0} is too short for a rate; give at least {least}", least = SamplingPlan::SHORTEST)]
    TooShort(Span),
    /// A slice too short for a rate.
    #[error("a slice of {0} is too short for a rate; give at least {least}", least = SamplingPlan::SHORTEST_SLICE)]
    ShortSlice(Span),
    /// No slice at all, or more than a sample may have.
    #[error("{0} passes: give 1 to {most}", most = SamplingPlan::PASSES_MOST)]
    Passes(u32),
}

impl SamplingPlan {
    /// Below this the machine's CPU figures, which the kernel keeps in ticks of 10 ms, mean nothing.
    pub const SHORTEST: Span = Span::from_millis(20);
    /// Below this a slice holds too few transactions for its edges not to count.
    pub const SHORTEST_SLICE: Span = Span::from_millis(1);
    /// More slices in a sample gain nothing over more rounds.
    pub const PASSES_MOST: u32 = 64;

    /// The measured time of a sample, or of a slice, of a test.
    pub fn duration_of(&self, test: TestKind) -> Span {
        match self.slices {
            Some(slices) if test.is_stream() => slices.stream,
            _ => self.duration,
        }
    }

    /// Whether figures can come of it.
    pub fn check(&self) -> Result<(), SamplingPlanError> {
        let shortest = |span: Span, least: Span| if span < least { Some(span) } else { None };
        if self.samples == 0 {
            return Err(SamplingPlanError::NoSamples);
        }
        let Some(Slices { passes, stream }) = self.slices else {
            return shortest(self.duration, SamplingPlan::SHORTEST)
                .map_or(Ok(()), |span| Err(SamplingPlanError::TooShort(span)));
        };
        if !(1..=SamplingPlan::PASSES_MOST).contains(&passes) {
            return Err(SamplingPlanError::Passes(passes));
        }
        let short = shortest(self.duration.min(stream), SamplingPlan::SHORTEST_SLICE);
        short.map_or(Ok(()), |span| Err(SamplingPlanError::ShortSlice(span)))
    }
}

/// Whether a text is a lab file rather than a study.
pub fn is_lab_file(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("lab") || table.contains_key("host"))
}

#[cfg(test)]
pub(crate) mod tests;
