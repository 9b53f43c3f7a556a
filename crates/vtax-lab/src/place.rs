//! Where a link is.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::topology::Name;

/// The name of a link of a lab, such as `wire0`: the planner makes these names short enough for the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkName(String);

impl LinkName {
    /// The link of a zone that has its own network stack.
    pub(crate) fn zone() -> LinkName {
        LinkName("eth0".to_owned())
    }

    /// The `index`-th end of a wire in a host.
    pub(crate) fn wire(index: usize) -> LinkName {
        LinkName(format!("wire{index}"))
    }

    /// The virtual switch on the `index`-th wire of a host.
    pub(crate) fn switch(index: usize) -> LinkName {
        LinkName(format!("vsw{index}"))
    }

    /// The host's end of its `index`-th vnet: one end of a zone's veth pair, or a guest's tap.
    pub(crate) fn vnet(index: usize) -> LinkName {
        LinkName(format!("vnet{index}"))
    }

    /// The host's own end of a tunnel.
    pub(crate) fn tunnel(vni: u32) -> LinkName {
        LinkName(format!("vxlan{vni}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A link in a namespace, written `sut/wire0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The host or zone whose network stack it belongs to.
    pub namespace: Name,
    /// The link there.
    pub link: LinkName,
}

impl Place {
    pub(crate) fn new(namespace: &Name, link: LinkName) -> Place {
        Place { namespace: namespace.clone(), link }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.link)
    }
}
