//! Consoles to serve, and their addresses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use vtax_model::topology::Name;
use vtax_sys::netlink::UserId;

/// Maximum number of consoles; each has a thread.
const CONSOLES_MOST: usize = 1024;

/// Number of a domain, which identifies its console in the menu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsoleId(pub u32);

/// Console of one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// Number of the domain.
    pub id: ConsoleId,
    /// Domain that the console belongs to.
    pub domain: Name,
    /// Unix socket of the guest's serial line. It may be missing, e.g. while the guest doesn't run.
    pub serial: PathBuf,
    /// Log file for the guest's output. The older log has the suffix `.1`.
    pub log: Option<PathBuf>,
}

/// Name of a group. Groups of different services may have the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupName {
    /// Console service.
    pub service: Name,
    pub name: Name,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.service)
    }
}

/// Users permitted to use a group's consoles. No one on another machine is permitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConsoleAccess {
    /// All users of this machine.
    #[default]
    Everybody,
    /// Only these users of this machine.
    Users(BTreeSet<UserId>),
}

impl ConsoleAccess {
    /// Returns `true` if a user is permitted. A user unknown to the kernel is permitted only where everyone is.
    pub(crate) fn allows(&self, user: Option<UserId>) -> bool {
        match self {
            ConsoleAccess::Everybody => true,
            ConsoleAccess::Users(users) => user.is_some_and(|user| users.contains(&user)),
        }
    }
}

/// Consoles that share a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleGroup {
    /// Name of the group and of its service, unique in a table.
    pub name: GroupName,
    /// Port of 127.0.0.1.
    pub port: u16,
    /// Users permitted to use it.
    pub access: ConsoleAccess,
    /// Consoles of the group, at least one; a table sorts them by number.
    pub consoles: Vec<Console>,
}

/// Groups that can be served together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsoleTable {
    groups: BTreeMap<GroupName, ConsoleGroup>,
}

/// Reason why groups can't be served together.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum TableError {
    #[error("the console group {0} exists twice; rename one of them")]
    #[diagnostic(code("bad-consoles"))]
    GroupTwice(GroupName),
    #[error("the console groups {0} and {1} have the same port {2}; change one of the ports")]
    #[diagnostic(code("bad-consoles"))]
    PortTwice(GroupName, GroupName, u16),
    #[error("the console group {0} has port 0; use a port from 1 to 65535")]
    #[diagnostic(code("bad-consoles"))]
    NoPort(GroupName),
    #[error("the console group {0} has no console; omit it")]
    #[diagnostic(code("bad-consoles"))]
    NoConsole(GroupName),
    #[error("the console of {0} exists twice; put it into only one group")]
    #[diagnostic(code("bad-consoles"))]
    DomainTwice(Name),
    #[error("the consoles of {0} and {1} have the same number {id}; renumber them", id = .2.0)]
    #[diagnostic(code("bad-consoles"))]
    IdTwice(Name, Name, ConsoleId),
    #[error("there are {0} consoles, and a server supports at most {CONSOLES_MOST}; start another for the rest")]
    #[diagnostic(code("bad-consoles"))]
    TooMany(usize),
}

impl ConsoleTable {
    /// Returns a table of these groups.
    ///
    /// # Errors
    /// Two groups conflict, or there are too many consoles.
    pub fn new(groups: Vec<ConsoleGroup>) -> Result<ConsoleTable, TableError> {
        let mut table = ConsoleTable::default();
        for mut group in groups {
            table.check(&group)?;
            group.consoles.sort_by_key(|console| console.id);
            if let Some(before) = table.groups.insert(group.name.clone(), group) {
                return Err(TableError::GroupTwice(before.name));
            }
        }
        table.check_consoles()?;
        Ok(table)
    }

    pub fn group(&self, name: &GroupName) -> Option<&ConsoleGroup> {
        self.groups.get(name)
    }

    /// Returns the groups, sorted by name.
    pub fn groups(&self) -> impl Iterator<Item = &ConsoleGroup> {
        self.groups.values()
    }

    pub fn consoles(&self) -> impl Iterator<Item = &Console> {
        self.groups().flat_map(|group| &group.consoles)
    }

    fn check(&self, group: &ConsoleGroup) -> Result<(), TableError> {
        let name = || group.name.clone();
        if group.port == 0 {
            return Err(TableError::NoPort(name()));
        }
        if group.consoles.is_empty() {
            return Err(TableError::NoConsole(name()));
        }
        match self.groups().find(|other| other.port == group.port && other.name != group.name) {
            Some(other) => Err(TableError::PortTwice(other.name.clone(), name(), group.port)),
            None => Ok(()),
        }
    }

    fn check_consoles(&self) -> Result<(), TableError> {
        let (mut domains, mut ids) = (BTreeSet::new(), BTreeMap::new());
        for console in self.consoles() {
            if !domains.insert(&console.domain) {
                return Err(TableError::DomainTwice(console.domain.clone()));
            }
            if let Some(other) = ids.insert(console.id, &console.domain) {
                return Err(TableError::IdTwice(other.clone(), console.domain.clone(), console.id));
            }
        }
        if domains.len() > CONSOLES_MOST { Err(TableError::TooMany(domains.len())) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn group(group: &str, port: u16, consoles: &[(u32, &str)]) -> ConsoleGroup {
        let console = |&(id, domain): &(u32, &str)| Console {
            id: ConsoleId(id),
            domain: name(domain),
            serial: PathBuf::from("/x"),
            log: None,
        };
        ConsoleGroup {
            name: GroupName { service: name("console"), name: name(group) },
            port,
            access: ConsoleAccess::Everybody,
            consoles: consoles.iter().map(console).collect(),
        }
    }

    #[test]
    fn consoles_of_a_group_are_in_the_order_of_their_numbers() {
        let table = ConsoleTable::new(vec![group("planets", 5002, &[(3, "pluto"), (2, "jupiter")])]).expect("no clash");
        let ids: Vec<_> = table.consoles().map(|console| console.id.0).collect();
        assert_eq!(ids, [2, 3]);
    }

    #[test]
    fn conflicting_groups_are_named() {
        let refused = |groups: &[ConsoleGroup]| ConsoleTable::new(groups.to_vec()).expect_err("a clash").to_string();
        let planets = group("planets", 5002, &[(2, "jupiter"), (3, "pluto")]);
        for (other, message) in [
            (group("planets", 5003, &[(4, "mars")]), "the console group planets of console exists twice"),
            (group("mars", 5002, &[(4, "mars")]), "planets of console and mars of console have the same port 5002"),
            (group("mars", 0, &[(4, "mars")]), "mars of console has port 0"),
            (group("mars", 5003, &[]), "mars of console has no console"),
            (group("mars", 5003, &[(4, "pluto")]), "the console of pluto exists twice"),
            (group("mars", 5003, &[(3, "mars")]), "the consoles of mars and pluto have the same number 3"),
        ] {
            let text = refused(&[planets.clone(), other]);
            assert!(text.contains(message), "{text} lacks {message}");
        }
        let many: Vec<(u32, String)> = (0..=CONSOLES_MOST as u32).map(|id| (id, format!("d{id}"))).collect();
        let many: Vec<(u32, &str)> = many.iter().map(|(id, domain)| (*id, domain.as_str())).collect();
        assert!(refused(&[group("all", 5003, &many)]).contains("at most 1024"));
    }
}
