//! Which consoles there are, and where they are reached.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use vtax_model::topology::Name;
use vtax_sys::netlink::UserId;

/// Each console has a thread.
const CONSOLES_MOST: usize = 1024;

/// The number of a domain, by which the menu offers its console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsoleId(pub u32);

/// The console of one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// The number of the domain.
    pub id: ConsoleId,
    /// The domain that the console belongs to.
    pub domain: Name,
    /// The Unix socket that is the guest's serial line. It may come and go.
    pub serial: PathBuf,
    /// The file that gets what the guest says. The older one has `.1` behind its name.
    pub log: Option<PathBuf>,
}

/// What a group is called: services may have groups of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupName {
    /// The console service.
    pub service: Name,
    /// The group.
    pub name: Name,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.service)
    }
}

/// Who may use the consoles of a group. Nobody can from another machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConsoleAccess {
    /// Whoever is on this machine.
    #[default]
    Everybody,
    /// These users of this machine only.
    Users(BTreeSet<UserId>),
}

impl ConsoleAccess {
    /// Returns whether a user is allowed. One that the kernel doesn't know is allowed only where everybody is.
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
    /// The port of 127.0.0.1.
    pub port: u16,
    /// Who may use it.
    pub access: ConsoleAccess,
    /// At least one console; a table sorts them by number.
    pub consoles: Vec<Console>,
}

/// Groups that can all be served together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsoleTable {
    groups: BTreeMap<GroupName, ConsoleGroup>,
}

/// Why groups can't be served together.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TableError {
    #[error("the console group {0} is there twice; give one of them another name")]
    #[diagnostic(code("bad-consoles"))]
    GroupTwice(GroupName),
    #[error("the console groups {0} and {1} have the same port {2}; give one of them another port")]
    #[diagnostic(code("bad-consoles"))]
    PortTwice(GroupName, GroupName, u16),
    #[error("the console group {0} has port 0; give it a port from 1 to 65535")]
    #[diagnostic(code("bad-consoles"))]
    NoPort(GroupName),
    #[error("the console group {0} has no console; leave it out")]
    #[diagnostic(code("bad-consoles"))]
    NoConsole(GroupName),
    #[error("the console of {0} is there twice; put it into one group")]
    #[diagnostic(code("bad-consoles"))]
    DomainTwice(Name),
    #[error("the consoles of {0} and {1} have the same number {id}; number them anew", id = .2.0)]
    #[diagnostic(code("bad-consoles"))]
    IdTwice(Name, Name, ConsoleId),
    #[error("there are {0} consoles, and a server takes at most {CONSOLES_MOST}; start another server for the others")]
    #[diagnostic(code("bad-consoles"))]
    TooMany(usize),
}

impl ConsoleTable {
    /// A table of these groups.
    ///
    /// # Errors
    /// Two of them clash, or there are too many consoles.
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

    /// The group of this name.
    pub fn group(&self, name: &GroupName) -> Option<&ConsoleGroup> {
        self.groups.get(name)
    }

    /// The groups in the order of their names.
    pub fn groups(&self) -> impl Iterator<Item = &ConsoleGroup> {
        self.groups.values()
    }

    /// All consoles.
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
    fn what_clashes_is_named() {
        let refused = |groups: &[ConsoleGroup]| ConsoleTable::new(groups.to_vec()).expect_err("a clash").to_string();
        let planets = group("planets", 5002, &[(2, "jupiter"), (3, "pluto")]);
        for (other, message) in [
            (group("planets", 5003, &[(4, "mars")]), "the console group planets of console is there twice"),
            (group("mars", 5002, &[(4, "mars")]), "planets of console and mars of console have the same port 5002"),
            (group("mars", 0, &[(4, "mars")]), "mars of console has port 0"),
            (group("mars", 5003, &[]), "mars of console has no console"),
            (group("mars", 5003, &[(4, "pluto")]), "the console of pluto is there twice"),
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
