//! Existing endpoints, where a study measures instead of in a lab of its own.

mod control;
mod lab_host;
mod namespace_end;
mod other_path;
mod pod_end;

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};
use strum::Display;
use toml::Spanned;

pub use control::{BadControl, Control, DomainEnd};
pub use lab_host::{BadLabHost, LabHost};
pub use namespace_end::{ContainerEnd, ContainerEngine, ContainerName, NamespaceEnd, NetnsName, NetnsPath};
pub use other_path::OtherPath;
pub use pod_end::{ObjectName, PodEnd};

use crate::{
    located::{FileError, Source},
    study::Row,
    units::Mtu,
};

/// An endpoint in a study file (`[[endpoint]]`).
///
/// A row is measured between its initiators and its responders: the first with the first, the
/// second with the second, all of them concurrently. A single one at one end is paired with all at
/// the other.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The row that it belongs to; if absent, every row that has none of its own at this end.
    pub method: Option<Row>,
    /// The end of the row.
    pub end: End,
    /// Access to the agent there.
    pub control: Control,
    /// The address to measure on; if absent, the one at which `control` reaches it.
    #[serde(default, deserialize_with = "address")]
    pub address: Option<IpAddr>,
    /// The device that its sockets are bound to (SO_BINDTODEVICE, socket(7)); if absent, the kernel's routes decide.
    pub device: Option<DeviceName>,
    /// The MTU of the path with that address; if absent, any MTU. The link's MTU is checked all the same.
    pub mtu: Option<Mtu>,
    /// CPUs that its threads are pinned to; if absent, those of the run.
    pub pin: Option<Pinning>,
    /// vsock: the context identifier of its machine as the other end knows it (vsock(7)); not needed on one machine.
    pub cid: Option<u32>,
}

impl Endpoint {
    /// Returns an endpoint with only its access: it belongs to every row.
    pub fn new(end: End, control: Control) -> Endpoint {
        Endpoint { method: None, end, control, address: None, device: None, mtu: None, pin: None, cid: None }
    }

    /// Reads a file of `[[endpoint]]` tables and nothing else.
    pub fn parse_file(source: Source<'_>) -> Result<Vec<Endpoint>, FileError> {
        let file: EndpointFile = source.parse()?;
        if file.endpoint.get_ref().is_empty() {
            let message = "no [[endpoint]] found; add at least two";
            return Err(source.coded("no-endpoint", &file.endpoint.span(), message));
        }
        Ok(file.endpoint.into_inner())
    }
}

/// Parses an address. The link of a link-local one is in a separate field.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match (text.parse(), text.split_once('%')) {
        (Ok(address), _) => Ok(Some(address)),
        (Err(_), Some((address, link))) => Err(D::Error::custom(format!(
            "the link of an address is specified by `device`: use address = \"{address}\" and device = \"{link}\""
        ))),
        (Err(error), None) => Err(D::Error::custom(error)),
    }
}

/// The name of a network device: 1 to 15 bytes without `/` and white space (`dev_valid_name` of the kernel).
#[derive(Debug, Clone, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct DeviceName(String);

/// Invalid name of a network device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid network device name `{0}`; use e.g. eth0 (see `ip link`)")]
#[diagnostic(code("bad-name"))]
pub struct BadDeviceName(String);

impl DeviceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DeviceName {
    type Err = BadDeviceName;

    fn from_str(text: &str) -> Result<DeviceName, BadDeviceName> {
        let possible = |letter: char| !letter.is_whitespace() && !letter.is_control() && !"/:".contains(letter);
        let fits = (1..=15).contains(&text.len()) && text != "." && text != "..";
        match fits && text.chars().all(possible) {
            true => Ok(DeviceName(text.to_owned())),
            false => Err(BadDeviceName(text.to_owned())),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointFile {
    #[serde(default = "no_endpoints")]
    endpoint: Spanned<Vec<Endpoint>>,
}

fn no_endpoints() -> Spanned<Vec<Endpoint>> {
    Spanned::new(0..0, Vec::new())
}

/// Returns the pairs of endpoints that a row measures concurrently at an MTU.
pub fn pairs(endpoints: &[Endpoint], row: Row, mtu: Mtu) -> Result<Vec<[&Endpoint; 2]>, NoPairs> {
    let serving = |end: End| {
        let fits = |endpoint: &&Endpoint| endpoint.end == end && endpoint.mtu.is_none_or(|own| own == mtu);
        let own: Vec<&Endpoint> = endpoints.iter().filter(fits).filter(|e| e.method == Some(row)).collect();
        match own.is_empty() {
            true => endpoints.iter().filter(fits).filter(|e| e.method.is_none()).collect(),
            false => own,
        }
    };
    let (initiators, responders) = (serving(End::Initiator), serving(End::Responder));
    match (initiators.len(), responders.len()) {
        (0, _) => Err(NoPairs::Missing { row, mtu, end: End::Initiator }),
        (_, 0) => Err(NoPairs::Missing { row, mtu, end: End::Responder }),
        (1, _) => Ok(responders.into_iter().map(|responder| [initiators[0], responder]).collect()),
        (_, 1) => Ok(initiators.into_iter().map(|initiator| [initiator, responders[0]]).collect()),
        (n, m) if n == m => Ok(initiators.into_iter().zip(responders).map(|(i, r)| [i, r]).collect()),
        (initiators, responders) => Err(NoPairs::Uneven { row, mtu, initiators, responders }),
    }
}

/// Endpoints that can't be paired for a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum NoPairs {
    #[error("`{row}` has no {end} at MTU {mtu}; add an [[endpoint]] with end = \"{end}\"")]
    #[diagnostic(code("no-endpoint"))]
    Missing { row: Row, mtu: Mtu, end: End },
    #[error(
        "`{row}` has {initiators} initiators and {responders} responders at MTU {mtu}; use equal numbers, or one that serves all"
    )]
    #[diagnostic(code("ends-not-paired"))]
    Uneven { row: Row, mtu: Mtu, initiators: usize, responders: usize },
}

/// One of the two ends of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum End {
    /// Connects, sends requests and streams.
    Initiator,
    /// Accepts connections, answers and receives.
    Responder,
}

/// A value for each of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ends<T> {
    /// Value of the initiator.
    pub initiator: T,
    /// Value of the responder.
    pub responder: T,
}

/// CPUs that the threads of an endpoint are pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Default, SerializeDisplay, DeserializeFromStr)]
pub enum Pinning {
    /// Chosen by the machine's topology: endpoints apart from each other, near the NIC, away from the busiest
    /// interrupts.
    #[default]
    Auto,
    /// Wherever the scheduler puts them.
    Unpinned,
    /// These CPUs, in turn.
    Cpus(Vec<u32>),
}

/// Invalid CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid pin plan `{0}`; use auto, none, or a CPU list, e.g. 0,2 or 4-7; 0,1:2,3 is a list per endpoint")]
#[diagnostic(code("bad-pin-plan"))]
pub struct BadPinning(String);

/// The most CPUs that Linux can be built for (`NR_CPUS`).
const CPUS_MOST: u32 = 8192;

impl FromStr for Pinning {
    type Err = BadPinning;

    fn from_str(text: &str) -> Result<Self, BadPinning> {
        match text {
            "auto" => Ok(Pinning::Auto),
            "none" => Ok(Pinning::Unpinned),
            _ => {
                let mut cpus = Vec::new();
                for part in text.split(',') {
                    let more = cpus_of(part).filter(|more| cpus.len() + more.len() <= CPUS_MOST as usize);
                    cpus.extend(more.ok_or_else(|| BadPinning(text.to_owned()))?);
                }
                Ok(Pinning::Cpus(cpus))
            }
        }
    }
}

fn cpus_of(part: &str) -> Option<Vec<u32>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && last < CPUS_MOST).then(|| (first..=last).collect())
}

impl fmt::Display for Pinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pinning::Auto => f.write_str("auto"),
            Pinning::Unpinned => f.write_str("none"),
            Pinning::Cpus(cpus) => f.write_str(&cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

/// CPUs that the threads of both endpoints are pinned to.
///
/// Written as one [`Pinning`] for both, or as two separated by a colon: `0,1:2,3`. If two endpoints
/// on one machine share a list, the initiator gets the first half and the responder the rest, so
/// that they don't share CPUs; on two machines each gets all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pins {
    /// CPUs of both endpoints, or of the initiator alone.
    pub policy: Pinning,
    /// CPUs of the responder, if it has its own list.
    pub responder: Option<Pinning>,
}

impl FromStr for Pins {
    type Err = BadPinning;

    fn from_str(text: &str) -> Result<Self, BadPinning> {
        let (policy, responder) = match text.split_once(':') {
            Some((initiator, responder)) => (initiator, Some(responder)),
            None => (text, None),
        };
        Ok(Pins { policy: policy.parse()?, responder: responder.map(str::parse).transpose()? })
    }
}

impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)?;
        self.responder.as_ref().map_or(Ok(()), |responder| write!(f, ":{responder}"))
    }
}

#[cfg(test)]
mod tests;
