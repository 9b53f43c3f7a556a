//! Ansible's inventory in INI form. A list of names, one per line, is also valid.
//!
//! See "How to build your inventory" of Ansible's documentation: groups, `:children`, `:vars`, ranges such as
//! `gpu[01:16]`. Variables that only Ansible uses are ignored.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use vtax_model::located::{FileError, Source};

use super::{FleetHost, HostList, Parents, Variables, describe, with_parents};
use crate::name::FleetName;

/// A host of the file: the place of its first mention, its groups and its own variables.
struct Mention {
    at: Range<usize>,
    groups: BTreeSet<FleetName>,
    own: Variables,
}

#[derive(Default)]
struct Inventory {
    order: Vec<FleetName>,
    hosts: BTreeMap<FleetName, Mention>,
    /// The groups of which a group is a child.
    parents: Parents,
    variables: BTreeMap<FleetName, Variables>,
}

enum Section {
    Hosts(Option<FleetName>),
    Children(FleetName),
    Variables(FleetName),
}

pub(super) fn read(source: Source<'_>) -> Result<HostList, FileError> {
    let mut inventory = Inventory::default();
    let (mut section, mut at) = (Section::Hosts(None), 0);
    for whole in source.text.split_inclusive('\n') {
        let span = at..at + whole.len();
        at = span.end;
        let line = whole.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let refused = |message: String| source.coded("bad-inventory", &span, message);
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(head) => section = inventory.begin(head).map_err(refused)?,
            None => inventory.take(&section, line, &span).map_err(refused)?,
        }
    }
    inventory.list(source)
}

impl Inventory {
    fn begin(&mut self, head: &str) -> Result<Section, String> {
        let name = |text: &str| text.trim().parse::<FleetName>().map_err(|error| error.to_string());
        match head.split_once(':') {
            None => Ok(Section::Hosts(Some(name(head)?))),
            Some((group, "children")) => Ok(Section::Children(name(group)?)),
            Some((group, "vars")) => Ok(Section::Variables(name(group)?)),
            Some((_, other)) => {
                Err(format!("unknown section `:{other}`; sections are [GROUP], [GROUP:children], [GROUP:vars]"))
            }
        }
    }

    fn take(&mut self, section: &Section, line: &str, at: &Range<usize>) -> Result<(), String> {
        match section {
            Section::Hosts(group) => self.take_hosts(group.as_ref(), line, at),
            Section::Children(parent) => {
                let child = line.parse::<FleetName>().map_err(|error| error.to_string())?;
                self.parents.entry(child).or_default().insert(parent.clone());
                Ok(())
            }
            Section::Variables(group) => {
                let (name, value) = line.split_once('=').ok_or("a line of :vars is NAME=VALUE")?;
                let of_group = self.variables.entry(group.clone()).or_default();
                of_group.insert(name.trim().to_owned(), unquoted(value.trim()).to_owned());
                Ok(())
            }
        }
    }

    fn take_hosts(&mut self, group: Option<&FleetName>, line: &str, at: &Range<usize>) -> Result<(), String> {
        let line = line.split_once(" #").map_or(line, |(line, _)| line.trim_end());
        let mut words = line.split_whitespace();
        let pattern = words.next().unwrap_or_default();
        let variable = |word: &str| {
            let (name, value) = word.split_once('=').ok_or(format!("`{word}` is not NAME=VALUE"))?;
            Ok((name.to_owned(), unquoted(value).to_owned()))
        };
        let own = words.map(variable).collect::<Result<Variables, String>>()?;
        for name in expanded(pattern)? {
            let name = name.parse::<FleetName>().map_err(|error| error.to_string())?;
            if self.hosts.len() > HostList::MOST {
                return Err(format!("too many hosts; a list has at most {}", HostList::MOST));
            }
            let mention = self.hosts.entry(name.clone()).or_insert_with(|| {
                self.order.push(name);
                Mention { at: at.clone(), groups: BTreeSet::new(), own: Variables::new() }
            });
            mention.groups.extend(group.cloned());
            mention.own.extend(own.clone());
        }
        Ok(())
    }

    fn list(self, source: Source<'_>) -> Result<HostList, FileError> {
        let hosts = self.order.iter().map(|name| {
            let mention = &self.hosts[name];
            let groups = with_parents(mention.groups.iter().cloned().collect(), &self.parents);
            let mut host = FleetHost { groups: groups.iter().cloned().collect(), ..FleetHost::named(name.clone()) };
            let mut variables = self.variables.get(&"all".parse().expect("a name")).cloned().unwrap_or_default();
            // The groups next to the host come last, and their variables win.
            let of_groups = groups.iter().rev().filter_map(|group| self.variables.get(group));
            of_groups.chain([&mention.own]).for_each(|more| variables.extend(more.clone()));
            let described = describe(&mut host, &variables);
            described.map_err(|error| source.coded("bad-inventory", &mention.at, error)).map(|()| host)
        });
        Ok(HostList { hosts: hosts.collect::<Result<_, _>>()?, ..HostList::default() })
    }
}

fn unquoted(text: &str) -> &str {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    quoted('"').or_else(|| quoted('\'')).unwrap_or(text)
}

/// The names of a pattern such as `gpu[01:16]`, padded to the width of its first number, or `db[a:f]`.
fn expanded(pattern: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = pattern.split_once('[') else { return Ok(vec![pattern.to_owned()]) };
    let bad = || format!("invalid range in `{pattern}`; use e.g. gpu[01:16] or gpu[a:f]");
    let (range, after) = rest.split_once(']').ok_or_else(bad)?;
    let (first, last) = range.split_once(':').ok_or_else(bad)?;
    let letter = |text: &str| text.parse::<char>().ok().filter(char::is_ascii_alphabetic);
    let middles: Vec<String> = match (first.parse::<u32>(), last.parse::<u32>(), letter(first), letter(last)) {
        (Ok(from), Ok(to), _, _) if from <= to && (to - from) < HostList::MOST as u32 => {
            let width = first.len();
            (from..=to).map(|number| format!("{number:0width$}")).collect()
        }
        (_, _, Some(from), Some(to)) if from <= to => (from..=to).map(String::from).collect(),
        _ => return Err(bad()),
    };
    let rests = expanded(after)?;
    if middles.len().saturating_mul(rests.len()) > HostList::MOST {
        return Err(bad());
    }
    let names = middles.iter().flat_map(|middle| rests.iter().map(move |rest| format!("{before}{middle}{rest}")));
    Ok(names.collect())
}
