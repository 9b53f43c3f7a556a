//! The network that a study measures.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Row, StudyPods};
use crate::{
    address_family::AddressFamily,
    endpoint::{Control, Endpoint, Ends},
    method::DomainKind,
    topology::Cable,
    units::ByteSize,
};

/// Network of a study: the endpoints of its rows, and their attachment.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyNetwork {
    /// Rows that are omitted on cables between real NICs, of which each row takes one, unless the user requests them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<Row>,
    /// True if the method is used at both ends of the wire, rather than only at `sut` with a native peer.
    pub both: bool,
    /// Number of concurrent pairs of endpoints of each row: this many clients, and behind a switch the subject of the
    /// row, once for each client. At most [`Study::MOST_PAIRS`](super::Study::MOST_PAIRS).
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
    /// Pods to create as its endpoints.
    #[serde(default)]
    pub pods: Option<StudyPods>,
    /// The cables used as the rows' wires, in place of veth pairs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cables: Vec<Cable>,
    /// The kind of domain for methods that can attach guests and zones: [`DomainKind::Guest`] or [`DomainKind::Zone`].
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub domains: DomainKind,
    /// Other paths of the same machines. Their round trips are measured concurrently with each sample, and a step must
    /// not make them worse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<Ends<Control>>,
    /// File size of `--quick`, if it isn't that of the cells.
    pub quick_file: Option<ByteSize>,
}

fn one_pair() -> u32 {
    1
}

fn is_one(pairs: &u32) -> bool {
    *pairs == 1
}

/// A lab of veth pairs, with one pair of endpoints for each row.
impl Default for StudyNetwork {
    fn default() -> StudyNetwork {
        StudyNetwork {
            extra: Vec::new(),
            both: false,
            pairs: 1,
            family: AddressFamily::Ipv4,
            addresses: None,
            endpoints: Vec::new(),
            pods: None,
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
