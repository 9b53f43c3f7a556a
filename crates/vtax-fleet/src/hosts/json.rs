//! JSON of `kubectl get nodes -o json` and of `ansible-inventory --list`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use vtax_model::{
    foreign::ForeignText,
    located::{FileError, Source},
};

use super::{FleetHost, HostList, Parents, Variables, describe, with_parents};
use crate::name::FleetName;

pub(super) fn read(source: Source<'_>) -> Result<HostList, FileError> {
    let kind: Kind = parsed(source)?;
    let hosts = match kind.items {
        Some(_) => parsed::<Nodes>(source)?.items.into_iter().map(|node| node.host(source)).collect(),
        None => inventory(source),
    };
    Ok(HostList { hosts: hosts?, ..HostList::default() })
}

#[derive(Deserialize)]
struct Kind {
    items: Option<serde::de::IgnoredAny>,
}

fn parsed<T: DeserializeOwned>(source: Source<'_>) -> Result<T, FileError> {
    serde_json::from_str(source.text).map_err(|error| {
        let lines = source.text.split_inclusive('\n').take(error.line().saturating_sub(1));
        let at: usize = lines.map(str::len).sum();
        source.coded("bad-inventory", &(at..at), error)
    })
}

/// An error about a host, at the line of its name.
fn about(source: Source<'_>, name: &FleetName, error: impl std::fmt::Display) -> FileError {
    let at = source.text.find(&format!("\"{name}\"")).unwrap_or_default();
    source.coded("bad-inventory", &(at..at), format!("{name}: {error}"))
}

#[derive(Deserialize)]
struct Nodes {
    items: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: FleetName,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    addresses: Vec<NodeAddress>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct NodeAddress {
    r#type: String,
    address: String,
}

#[derive(Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

/// Labels that place a node (kubernetes.io, "Well-Known Labels, Annotations and Taints").
const PLACES: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
const RACK: &str = "topology.kubernetes.io/rack";

impl Node {
    fn host(self, source: Source<'_>) -> Result<FleetHost, FileError> {
        let Node { metadata: Metadata { name, labels }, status } = self;
        let mut host = FleetHost::named(name.clone());
        if let Some(address) = status.addresses.iter().find(|address| address.r#type == "InternalIP") {
            let control = format!("ssh:{}", address.address);
            host.control = control.parse().map_err(|error| about(source, &name, error))?;
        }
        let label = |label: &str| labels.get(label).and_then(|value| value.parse().ok());
        host.groups = PLACES.into_iter().filter_map(label).collect();
        host.rack = label(RACK);
        let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
        host.unavailable = ready
            .filter(|ready| ready.status != "True")
            .map(|ready| ForeignText::from(format!("condition Ready is {}", ready.status)));
        Ok(host)
    }
}

#[derive(Deserialize)]
struct Inventory {
    _meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    hostvars: BTreeMap<FleetName, BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    hosts: Vec<FleetName>,
    #[serde(default)]
    children: Vec<FleetName>,
}

fn inventory(source: Source<'_>) -> Result<Vec<FleetHost>, FileError> {
    let Inventory { _meta } = parsed(source)?;
    let groups: BTreeMap<FleetName, Group> = parsed(source)?;
    let [of_hosts, parents] = [|group: &Group| group.hosts.clone(), |group: &Group| group.children.clone()]
        .map(|members| containing(&groups, members));
    let names: BTreeSet<&FleetName> = of_hosts.keys().chain(_meta.hostvars.keys()).collect();
    let hosts = names.into_iter().map(|name| {
        let own = of_hosts.get(name).into_iter().flatten().cloned().collect();
        let groups = with_parents(own, &parents).into_iter().collect();
        let mut host = FleetHost { groups, ..FleetHost::named(name.clone()) };
        let variables = _meta.hostvars.get(name).into_iter().flatten();
        let variables: Variables = variables.filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect();
        describe(&mut host, &variables).map_err(|error| about(source, name, error)).map(|()| host)
    });
    hosts.collect()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The groups that have each member.
fn containing(groups: &BTreeMap<FleetName, Group>, members: fn(&Group) -> Vec<FleetName>) -> Parents {
    let mut found = Parents::new();
    for (name, group) in groups {
        for member in members(group) {
            found.entry(member).or_default().insert(name.clone());
        }
    }
    found
}
