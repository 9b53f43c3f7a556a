//! Location of a link.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_guest::LinkName;
use vtax_model::topology::Name;

/// Link in a namespace, written `sut/wire0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Host or zone whose network stack the link belongs to.
    pub namespace: Name,
    /// Name of the link there.
    pub link: LinkName,
}

impl Place {
    pub fn new(namespace: &Name, link: LinkName) -> Place {
        Place { namespace: namespace.clone(), link }
    }

    /// Returns the link of a zone that has its own network stack.
    pub fn zone(zone: &Name) -> Place {
        Place::new(zone, LinkName::new("eth0"))
    }

    /// Returns the `index`-th end of a wire in a host.
    pub fn wire(host: &Name, index: usize) -> Place {
        Place::new(host, LinkName::new(format!("wire{index}")))
    }

    /// Returns the virtual switch on the `index`-th wire of a host.
    pub fn switch(host: &Name, index: usize) -> Place {
        Place::new(host, LinkName::new(format!("vsw{index}")))
    }

    /// Returns the host's end of its `index`-th vnet: one end of a zone's veth pair, or a guest's tap.
    pub fn vnet(host: &Name, index: usize) -> Place {
        Place::new(host, LinkName::new(format!("vnet{index}")))
    }

    /// Returns the bridge of a single zone, whose port is the host's `index`-th vnet.
    pub fn inner_bridge(host: &Name, index: usize) -> Place {
        Place::new(host, LinkName::new(format!("br{index}")))
    }

    /// Returns the host's own end of a tunnel.
    pub fn tunnel(host: &Name, vni: u32) -> Place {
        Place::new(host, LinkName::new(format!("vxlan{vni}")))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.link)
    }
}
