//! Studies: a question with a matrix, a sampling plan and a baseline.
//!
//! A study is a TOML file; the classic ones are built in, in the same form
//! (`data/studies/`).

mod reader;

use std::{fmt, str::FromStr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::{
    cell::Cell,
    endpoint::Endpoint,
    guest::{Flavour, GuestDefaults},
    located::{FileError, Source},
    method::IoMethod,
    options::Engine,
    topology::Name,
    units::Span,
    workload::Warmup,
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
    /// The row that the others are held against.
    pub baseline: Row,
    /// Whether the method stands at both ends of the wire or at `sut` only, against a native peer.
    pub both: bool,
    /// The range for the lab's addresses, if the file names one.
    pub addresses: Option<Ipv4Net>,
    /// Where to measure, if not in a lab that is built for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// What the guests of its rows are like.
    #[serde(default, skip_serializing_if = "GuestDefaults::is_plain")]
    pub guest: GuestDefaults,
    /// Every cell, row by row.
    pub cells: Vec<Cell>,
    /// The published plan.
    pub plan: SamplingPlan,
    /// The plan for `--quick`.
    pub quick: SamplingPlan,
}

/// What one row of a table stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Row {
    /// A domain attached by this method, on a wire between two hosts.
    Method(IoMethod),
    /// A guest attached by this kind of NIC, on a wire between two hosts: `paravirtual:userspace`.
    Device(Flavour),
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

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            IpType::Shared => "shared",
            IpType::Exclusive => "exclusive",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Method(method) => method.fmt(f),
            Row::Device(flavour) => f.pad(&format!("{}:{flavour}", flavour.method())),
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
            Row::Zones { .. } | Row::Engine(_) => None,
        }
    }

    /// Which kind of NIC it is about, if it says.
    pub fn flavour(self) -> Option<Flavour> {
        match self {
            Row::Device(flavour) => Some(flavour),
            Row::Method(_) | Row::Zones { .. } | Row::Engine(_) => None,
        }
    }

    /// Bytes of each packet on the wire that the domain can't use.
    pub fn overhead(self) -> u32 {
        self.method().map_or(0, IoMethod::overhead)
    }

    /// Rows of one study are of one kind: each kind has another lab.
    fn kind(self) -> &'static str {
        match self {
            Row::Method(_) | Row::Device(_) => "methods need a wire between two hosts",
            Row::Zones { .. } => "pairs of zones are on one host",
            Row::Engine(_) => "engines share one path",
        }
    }
}

/// A row that is none of the four kinds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown row `{0}`; it is an I/O method ({methods}), a kind of NIC of a guest ({devices}), a pair of zones as shared-to-exclusive, or an engine ({engines})", methods = IoMethod::ALL.map(IoMethod::name).join(", "), devices = Flavour::ALL.map(|flavour| Row::Device(flavour).to_string()).join(", "), engines = Engine::ALL.map(Engine::name).join(", "))]
pub struct UnknownRow(String);

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
    /// The measured time of a sample.
    pub duration: Span,
    /// Traffic before it.
    pub warmup: Warmup,
}

impl Study {
    /// The built-in studies, by name and text.
    pub const BUILT_IN: [(&'static str, &'static str); 3] = [
        ("demo", include_str!("../data/studies/demo.toml")),
        ("sparc-t7-1", include_str!("../data/studies/sparc-t7-1.toml")),
        ("ip-instances", include_str!("../data/studies/ip-instances.toml")),
    ];

    /// A built-in study.
    pub fn built_in(id: &str) -> Option<Study> {
        let (name, text) = Study::BUILT_IN.into_iter().find(|(name, _)| *name == id)?;
        let study = Study::parse(Source { name, text });
        Some(study.expect("a test reads every built-in study"))
    }

    /// Reads a study file.
    pub fn parse(source: Source<'_>) -> Result<Study, FileError> {
        reader::read(source)
    }
}

/// A sampling plan that gives no figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Zero rounds.
    #[error("0 samples measure nothing; give at least 1")]
    NoSamples,
    /// A sample too short for its CPU figures.
    #[error("duration {0} is too short for a rate; give at least {least}", least = SamplingPlan::SHORTEST)]
    TooShort(Span),
}

impl SamplingPlan {
    /// Below this the machine's CPU figures, which the kernel keeps in ticks of 10 ms, mean nothing.
    pub const SHORTEST: Span = Span::from_millis(20);

    /// Whether figures can come of it.
    pub fn check(&self) -> Result<(), PlanError> {
        match self {
            SamplingPlan { samples: 0, .. } => Err(PlanError::NoSamples),
            SamplingPlan { duration, .. } if *duration < SamplingPlan::SHORTEST => Err(PlanError::TooShort(*duration)),
            _ => Ok(()),
        }
    }
}

/// Whether a text is a lab file rather than a study.
pub fn is_lab_file(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("lab") || table.contains_key("host"))
}

#[cfg(test)]
mod tests;
