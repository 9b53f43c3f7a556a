//! The hosts of a mesh, and where their list comes from.

#[cfg(test)]
mod fuzz;
mod inventory;
mod json;
mod rack_file;
mod slurm;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use vtax_model::{
    endpoint::{Control, DeviceName},
    foreign::ForeignText,
    located::{FileError, Source},
};

use crate::{name::FleetName, schedule::UplinkLimits};

/// A host, with the parts of the fleet that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetHost {
    pub name: FleetName,
    /// Access to its agent.
    pub control: Control,
    /// NICs to measure, at least one. Each is an end of the mesh.
    pub nics: Vec<FleetNic>,
    pub rack: Option<FleetName>,
    /// Other parts of the fleet that it belongs to: groups, partitions, zones.
    pub groups: BTreeSet<FleetName>,
    /// Reason why it isn't measured, as its scheduler reports it, e.g. `state DOWN*`.
    pub unavailable: Option<ForeignText>,
}

/// A NIC of a host, as far as the list describes it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetNic {
    /// Address to measure on; if absent, the one at which the host is reached.
    pub address: Option<IpAddr>,
    /// Device that the sockets are bound to.
    pub device: Option<DeviceName>,
    /// Network that it is in. NICs of different rails are not measured with each other.
    pub rail: Option<FleetName>,
    /// Link from its switch to the rest of the fleet, which all ends behind it share.
    pub uplink: Option<FleetName>,
}

impl FleetHost {
    /// A host about which only its ssh name is known.
    fn named(name: FleetName) -> FleetHost {
        let control = Control::Ssh(name.to_string());
        let nics = vec![FleetNic::default()];
        FleetHost { name, control, nics, rack: None, groups: BTreeSet::new(), unavailable: None }
    }

    fn is_in(&self, part: &FleetName) -> bool {
        let of_nic = |nic: &FleetNic| [&nic.uplink, &nic.rail].into_iter().flatten().any(|name| name == part);
        self.name == *part
            || self.rack.as_ref() == Some(part)
            || self.groups.contains(part)
            || self.nics.iter().any(of_nic)
    }
}

/// The hosts of a fleet, each with a different name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList {
    pub hosts: Vec<FleetHost>,
    /// Tests that may cross an uplink at the same time.
    pub limits: UplinkLimits,
}

/// A host list that cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum HostListError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    #[error("no host, rack, uplink, rail or group is named `{part}`; available: {known}")]
    #[diagnostic(code("unknown-part-of-fleet"))]
    UnknownPart { part: FleetName, known: String },
    #[error("{available} of the hosts can be measured, but a mesh requires 3: add hosts{why}")]
    #[diagnostic(code("too-few-hosts"))]
    TooFew { available: usize, why: String },
}

/// One NIC of one host: what a mesh pairs with others.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshEnd {
    /// Name of the host, and of its NIC if it has several: `gpu7`, `gpu7/eth1`.
    pub name: ForeignText,
    /// Position of the host in the list.
    pub host: usize,
    pub control: Control,
    #[serde(default)]
    pub nic: FleetNic,
    pub rack: Option<FleetName>,
}

/// A host of a list that is not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostExclusion {
    pub host: ForeignText,
    pub why: ForeignText,
}

impl From<&HostExclusion> for ForeignText {
    fn from(HostExclusion { host, why }: &HostExclusion) -> ForeignText {
        format!("{host} ({why})").into()
    }
}

impl HostList {
    /// More than in any intended list.
    pub const MOST: usize = 20_000;
    /// With two hosts, either could be the slow one.
    const FEWEST: usize = 3;

    /// Reads a list. The format is detected from the text: a rack file, an Ansible inventory (INI or the JSON of
    /// `ansible-inventory --list`), `scontrol show nodes`, `kubectl get nodes -o json`, or names, one per line.
    pub fn parse(source: Source<'_>) -> Result<HostList, FileError> {
        let line = |found: &str| source.text.lines().any(|line| line.trim_start().starts_with(found));
        let list = match source.text.trim_start() {
            json if json.starts_with('{') => json::read(source)?,
            slurm if slurm.starts_with(slurm::FIRST) => slurm::read(source)?,
            _ if source.name.ends_with(".toml") || line("[[") => rack_file::read(source)?,
            _ => inventory::read(source)?,
        };
        list.checked(source)
    }

    fn checked(self, source: Source<'_>) -> Result<HostList, FileError> {
        let mut names = BTreeSet::new();
        let twice = self.hosts.iter().find(|host| !names.insert(&host.name));
        match twice {
            _ if self.hosts.is_empty() => Err(source.coded("empty-file", &(0..0), "no host found; add at least 3")),
            _ if self.hosts.len() > HostList::MOST => {
                let message = format!("{} hosts; a list has at most {}", self.hosts.len(), HostList::MOST);
                Err(source.coded("too-many-hosts", &(0..0), message))
            }
            Some(host) => {
                let at = source.text.rfind(host.name.as_str()).unwrap_or_default();
                let message = format!("the host `{}` is named twice; remove one", host.name);
                Err(source.coded("named-twice", &(at..at), message))
            }
            None => Ok(self),
        }
    }

    /// Returns the hosts of a part of the fleet: a rack, an uplink, a rail or a group.
    pub fn within(mut self, part: &FleetName) -> Result<HostList, HostListError> {
        let mut parts: BTreeSet<&FleetName> = BTreeSet::new();
        for host in &self.hosts {
            parts.extend(host.rack.iter().chain(&host.groups));
            parts.extend(host.nics.iter().flat_map(|nic| [&nic.uplink, &nic.rail]).flatten());
        }
        if !self.hosts.iter().any(|host| host.is_in(part)) {
            return Err(HostListError::UnknownPart { part: part.clone(), known: some_of(&parts) });
        }
        self.hosts.retain(|host| host.is_in(part));
        Ok(self)
    }

    /// Returns the hosts that are not measured.
    pub fn excluded(&self) -> Vec<HostExclusion> {
        let excluded = self
            .hosts
            .iter()
            .filter_map(|host| Some(HostExclusion { host: host.name.as_str().into(), why: host.unavailable.clone()? }));
        excluded.collect()
    }

    /// Returns the ends of the hosts that can be measured.
    pub fn ends(&self) -> Result<Vec<MeshEnd>, HostListError> {
        let available = self.hosts.iter().enumerate().filter(|(_, host)| host.unavailable.is_none());
        let count = available.clone().count();
        if count < HostList::FEWEST {
            let why =
                self.hosts.iter().find_map(|host| Some(format!(" ({}: {})", host.name, host.unavailable.as_ref()?)));
            return Err(HostListError::TooFew { available: count, why: why.unwrap_or_default() });
        }
        Ok(available.flat_map(|(position, host)| ends_of(position, host)).collect())
    }
}

fn ends_of(position: usize, host: &FleetHost) -> impl Iterator<Item = MeshEnd> {
    host.nics.iter().enumerate().map(move |(number, nic)| {
        let name = match (host.nics.len(), &nic.device, nic.address) {
            (1, _, _) => host.name.to_string(),
            (_, Some(device), _) => format!("{}/{device}", host.name),
            (_, None, Some(address)) => format!("{}/{address}", host.name),
            (_, None, None) => format!("{}/{number}", host.name),
        };
        let (control, nic, rack) = (host.control.clone(), nic.clone(), host.rack.clone());
        MeshEnd { name: name.into(), host: position, control, nic, rack }
    })
}

fn some_of(parts: &BTreeSet<&FleetName>) -> String {
    const MOST: usize = 20;
    let names: Vec<&str> = parts.iter().take(MOST).map(|name| name.as_str()).collect();
    match parts.len() {
        0 => "none (the list names no parts)".to_owned(),
        count if count > MOST => format!("{}, and {} more", names.join(", "), count - MOST),
        _ => names.join(", "),
    }
}

/// Variables of a host or of a group, by their names.
type Variables = BTreeMap<String, String>;

/// The groups that have each host or group as a member.
type Parents = BTreeMap<FleetName, BTreeSet<FleetName>>;

/// Groups and all groups above them, the nearest first, each once.
fn with_parents(own: Vec<FleetName>, parents: &Parents) -> Vec<FleetName> {
    let mut known: BTreeSet<FleetName> = own.iter().cloned().collect();
    let mut found = own;
    let mut next = 0;
    while next < found.len() {
        let above = parents.get(&found[next]).into_iter().flatten();
        let new: Vec<FleetName> = above.filter(|parent| known.insert((*parent).clone())).cloned().collect();
        found.extend(new);
        next += 1;
    }
    found
}

/// Applies variables of an inventory to a host: Ansible's own, and ours with the prefix `vtax_`.
fn describe(host: &mut FleetHost, variables: &Variables) -> Result<(), String> {
    let known = |name: &str| variables.get(name);
    let named =
        |name: &str| known(name).map(|text| text.parse().map_err(|error| format!("{name}: {error}"))).transpose();
    if let Some(address) = known("ansible_host") {
        let user = known("ansible_user").map(|user| format!("{user}@")).unwrap_or_default();
        host.control = parsed("ansible_host", &format!("ssh:{user}{address}"))?;
    } else if let Some(user) = known("ansible_user") {
        host.control = parsed("ansible_user", &format!("ssh:{user}@{}", host.name))?;
    }
    if let Some(control) = known("vtax_control") {
        host.control = parsed("vtax_control", control)?;
    }
    if let Some(rack) = named("vtax_rack")? {
        host.rack = Some(rack);
    }
    let [nic] = &mut host.nics[..] else { return Ok(()) };
    nic.uplink = named("vtax_uplink")?.or(nic.uplink.take());
    nic.rail = named("vtax_rail")?.or(nic.rail.take());
    nic.address = known("vtax_address").map(|text| parsed("vtax_address", text)).transpose()?.or(nic.address);
    nic.device = known("vtax_device").map(|text| parsed("vtax_device", text)).transpose()?.or(nic.device.take());
    Ok(())
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests;
