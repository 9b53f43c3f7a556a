//! Links in named namespaces: each goes with its namespace.

mod recipe;

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use vtax_guest::LinkName;
use vtax_model::{topology::Name, units::Mtu};
use vtax_sys::{
    netlink::{LinkChange, NewRoute, NextHop, Tbf},
    sysctl,
};

pub use recipe::LinkRecipe;

use crate::{error::StepError, part::PartStep, place::Place, receipt::StepReceipt, site::StepSite};

/// Makes a link; for a veth pair, both ends, each where it belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateLink {
    pub at: Place,
    pub kind: LinkRecipe,
    /// Its MTU. Both ends of a veth pair have the same.
    pub mtu: Mtu,
}

impl PartStep for CreateLink {
    fn describe(&self) -> String {
        let CreateLink { at, kind, mtu } = self;
        format!("link {at}: {kind}, mtu {mtu}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        self.kind.make(&self.at, self.mtu, site).map(|()| StepReceipt::default())
    }
}

/// Marks a link as the lab's, puts it on its bridge and switches it on, in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableLink {
    pub at: Place,
    pub bridge: Option<LinkName>,
    pub mark: String,
}

impl PartStep for EnableLink {
    fn describe(&self) -> String {
        let EnableLink { at, bridge, mark } = self;
        let port = bridge.as_ref().map(|bridge| format!(", port of {bridge}")).unwrap_or_default();
        format!("up {at}{port}, marked {mark}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let EnableLink { at, bridge, mark } = self;
        let stack = site.at(at)?;
        let master = bridge.as_ref().map(|bridge| stack.index(bridge.as_str()).map(Some)).transpose()?;
        let change = LinkChange { up: Some(true), master, alias: Some(mark.clone()), ..LinkChange::default() };
        stack.change(at.link.as_str(), &change).map(|()| StepReceipt::default())
    }
}

/// Gives a link an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddAddress {
    pub at: Place,
    pub address: Ipv4Net,
}

impl PartStep for AddAddress {
    fn describe(&self) -> String {
        format!("address {} on {}", self.address, self.at)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let AddAddress { at, address } = self;
        site.at(at)?.add_address(at.link.as_str(), IpNet::V4(*address)).map(|()| StepReceipt::default())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddRoute {
    pub namespace: Name,
    /// Destination; `0.0.0.0/0` is the default route.
    pub to: Ipv4Net,
    pub via: Ipv4Addr,
}

impl PartStep for AddRoute {
    fn describe(&self) -> String {
        let AddRoute { namespace, to, via } = self;
        match to.prefix_len() {
            0 => format!("default route of {namespace} via {via}"),
            _ => format!("route of {namespace} to {to} via {via}"),
        }
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let next_hop = NextHop::Via(self.via.into());
        let route = NewRoute { dest: IpNet::V4(self.to), next_hop, source: None, congestion: None };
        let added = site.stack(Some(&self.namespace))?.rtnl().add_route(&route);
        added.map(|()| StepReceipt::default()).map_err(StepError::kernel(&self.namespace))
    }
}

/// Sets a kernel setting of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSysctl {
    pub namespace: Name,
    pub key: String,
    pub value: String,
}

impl PartStep for SetSysctl {
    fn describe(&self) -> String {
        let SetSysctl { namespace, key, value } = self;
        format!("sysctl of {namespace}: {key} = {value}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let inside = site.namespace(&self.namespace)?;
        let written = self.key.parse().and_then(|key| sysctl::write(&inside, &key, &self.value));
        written.map(|_| StepReceipt::default()).map_err(StepError::kernel(&self.namespace))
    }
}

/// Limits what a link sends, by a token bucket at its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRate {
    pub at: Place,
    pub limit: Tbf,
}

impl PartStep for LimitRate {
    fn describe(&self) -> String {
        let Tbf { rate, burst, queue } = self.limit;
        format!("limit of {}: {rate}, burst {burst}, queue {queue}", self.at)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let stack = site.at(&self.at)?;
        let index = stack.index(self.at.link.as_str())?;
        let set = stack.rtnl().set_tbf(index, &self.limit);
        set.map(|()| StepReceipt::default()).map_err(StepError::kernel(&self.at))
    }

    fn read_back(&self, site: &mut StepSite) -> Result<(), StepError> {
        let found = site.at(&self.at)?.qdisc(self.at.link.as_str())?.and_then(|qdisc| qdisc.tbf);
        match found.is_some_and(|tbf| tbf.is(&self.limit)) {
            true => Ok(()),
            false => Err(StepError::Rate { place: self.at.clone() }),
        }
    }
}
