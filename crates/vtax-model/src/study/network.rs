//! The network that a study measures.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Row;
use crate::{
    address_family::AddressFamily,
    endpoint::{Control, Endpoint, Ends},
    method::DomainKind,
    topology::Cable,
    units::ByteSize,
};

/// The network of a study: between which ends its rows measure, and how those are attached.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyNetwork {
    /// Rows that are omitted on cables between real NICs, of which each row takes one, unless someone asks for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<Row>,
    /// True if the method is used at both ends of the wire, rather than at `sut` only with a native peer.
    pub both: bool,
    /// Pairs of ends of each row, which measure at the same time: so many clients, and behind a switch
    /// what the row stands for, once for each client. [`Study::MOST_PAIRS`](super::Study::MOST_PAIRS) at most.
    #[serde(default = "one_pair", skip_serializing_if = "is_one")]
    pub pairs: u32,
    /// The address family of its lab.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub family: AddressFamily,
    /// The range for the lab's addresses, if the file names one.
    #[serialize_always]
    pub addresses: Option<IpNet>,
    /// Existing endpoints, if it is not measured in a lab built for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// The cables that the rows' wires are, in place of veth pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cables: Vec<Cable>,
    /// The kind of domain for methods that can attach guests and zones: [`DomainKind::Guest`] or [`DomainKind::Zone`].
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub domains: DomainKind,
    /// Other paths of the same machines, each from the end that asks to the one that answers. Their round trips are
    /// measured at the same time as each sample, and a step must not make them worse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Ends<Control>>,
    /// The size of the files of `--quick`, if it isn't that of the cells.
    pub quick_file: Option<ByteSize>,
}

fn one_pair() -> u32 {
    1
}

fn is_one(pairs: &u32) -> bool {
    *pairs == 1
}

/// A lab of veth pairs, with one pair of ends for each row.
impl Default for StudyNetwork {
    fn default() -> StudyNetwork {
        StudyNetwork {
            extra: Vec::new(),
            both: false,
            pairs: 1,
            family: AddressFamily::Ipv4,
            addresses: None,
            endpoints: Vec::new(),
            cables: Vec::new(),
            domains: DomainKind::Guest,
            guarded: Vec::new(),
            quick_file: None,
        }
    }
}

impl StudyNetwork {
    /// Returns true if rows are measured between the same endpoints as those of another study, attached in the same way.
    pub(crate) fn has_ends_of(&self, other: &StudyNetwork) -> bool {
        let of_ends = |network: &StudyNetwork| (network.both, network.pairs, network.domains, network.family);
        of_ends(self) == of_ends(other)
            && self.endpoints == other.endpoints
            && self.cables == other.cables
            && self.guarded == other.guarded
    }
}
