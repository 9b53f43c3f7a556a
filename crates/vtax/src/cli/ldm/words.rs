//! Words of an `ldm` command: positional names, with `key=value` properties among them.

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use miette::miette;
use vtax_model::{
    domain::{Configured, Property, PropertyVerb},
    spelling::suggestion,
};

use super::verbs::property;
use crate::exit::Stop;

/// Words that a verb accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grammar {
    verb: &'static str,
    kind: PropertyVerb,
    /// Properties of a table, with placeholders of their values.
    table: fn(PropertyVerb) -> Vec<(&'static str, String)>,
    /// Keys of properties that are in no table.
    keys: &'static [&'static str],
    /// Placeholders of its names, in order.
    names: &'static [&'static str],
    /// Number of names that may be omitted at the end.
    optional: usize,
    /// Its options in usage, e.g. `[-q] `.
    options: &'static str,
}

/// Words of one command.
#[derive(Debug)]
pub(super) struct LdmWords<'a> {
    grammar: Grammar,
    properties: BTreeMap<&'static str, &'a str>,
    names: Vec<&'a str>,
}

impl Grammar {
    const fn new(verb: &'static str, keys: &'static [&'static str], names: &'static [&'static str]) -> Grammar {
        Grammar { verb, kind: PropertyVerb::Set, table: |_| Vec::new(), keys, names, optional: 0, options: "" }
    }

    /// Grammar of a verb that adds an object with properties.
    pub(super) const fn add<T: Configured>(verb: &'static str, names: &'static [&'static str]) -> Grammar {
        Grammar { kind: PropertyVerb::Add, table: table::<T>, ..Grammar::new(verb, &[], names) }
    }

    /// Grammar of a verb that changes an object's properties.
    pub(super) const fn set<T: Configured>(verb: &'static str, names: &'static [&'static str]) -> Grammar {
        Grammar { table: table::<T>, ..Grammar::new(verb, &[], names) }
    }

    pub(super) fn is_of(&self, verb: &str) -> bool {
        self.verb == verb
    }

    /// Returns the usage that `--help` shows.
    pub(super) fn help(self) -> String {
        let properties = (self.table)(self.kind).into_iter().map(|(key, value)| format!("[{key}={value}] "));
        let (needed, optional) = self.names.split_at(self.names.len() - self.optional);
        let names = needed.iter().map(|name| (*name).to_owned()).chain(optional.iter().map(|name| format!("[{name}]")));
        let (properties, names) = (properties.collect::<String>(), names.collect::<Vec<_>>().join(" "));
        format!("vtax ldm {} {}{properties}{names}", self.verb, self.options)
    }

    fn all_keys(self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().copied().chain((self.table)(self.kind).into_iter().map(|(key, _)| key))
    }

    /// Makes the last name optional.
    pub(super) const fn or_one_less(self) -> Grammar {
        Grammar { optional: 1, ..self }
    }

    /// Adds properties that are in no table, and not in the usage of `--help`.
    pub(super) const fn and(self, keys: &'static [&'static str]) -> Grammar {
        Grammar { keys, ..self }
    }

    pub(super) const fn options(self, options: &'static str) -> Grammar {
        Grammar { options, ..self }
    }

    /// Sorts the words into properties and names.
    pub(super) fn read<'a>(self, words: &'a [String]) -> Result<LdmWords<'a>, Stop> {
        let mut properties = BTreeMap::new();
        let mut names = Vec::new();
        for word in words {
            // File paths may contain an equals sign.
            match word.split_once('=').filter(|_| !word.starts_with(['/', '.'])) {
                Some((key, value)) => {
                    let key = self.key(key)?;
                    if properties.insert(key, value).is_some() {
                        return Err(self.usage(format!("`{key}=` is given twice")));
                    }
                }
                None => names.push(word.as_str()),
            }
        }
        let expected = self.names.len() - self.optional..=self.names.len();
        if names.len() > self.names.len() {
            return Err(self.usage(format!("unexpected name `{}`", names[self.names.len()])));
        }
        if !expected.contains(&names.len()) {
            return Err(self.usage(format!("{} is missing", self.names[names.len()])));
        }
        if self.kind == PropertyVerb::Set && properties.is_empty() {
            return Err(self.usage("no property to change".to_owned()));
        }
        Ok(LdmWords { grammar: self, properties, names })
    }

    fn key(self, written: &str) -> Result<&'static str, Stop> {
        let known = self.all_keys().find(|key| *key == written);
        known.ok_or_else(|| {
            if let Some(why) = property(self.verb, written) {
                return Stop::input(miette!(code = "usage", "{} {written}= is not supported: {why}", self.verb));
            }
            let near = suggestion(written, self.all_keys());
            self.usage(format!("unknown property `{written}`{near}"))
        })
    }

    fn usage(self, what: String) -> Stop {
        let keys = self.all_keys().map(|key| format!("[{key}=…] ")).collect::<String>();
        let names = self.names.join(" ");
        let verb = self.verb;
        Stop::input(miette!(code = "usage", "{verb}: {what}; usage: {verb} {keys}{names}"))
    }
}

fn table<T: Configured>(verb: PropertyVerb) -> Vec<(&'static str, String)> {
    Property::<T>::of_verb(verb).map(|property| (property.key, property.usage(verb))).collect()
}

impl LdmWords<'_> {
    /// Returns the change that the properties of a table ask for.
    pub(super) fn change<T: Configured>(&self) -> Result<T::Change, Stop> {
        let mut change = T::Change::default();
        for property in Property::<T>::of_verb(self.grammar.kind) {
            if let Some(text) = self.properties.get(property.key) {
                let parsed = property.parse(&mut change, self.grammar.kind, text);
                parsed.map_err(|error| self.bad(property.key, &error))?;
            }
        }
        Ok(change)
    }

    /// Returns the value of a property, if present.
    pub(super) fn property<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>, Stop> {
        let parse = |value: &&str| value.parse().map_err(|error| self.bad(key, &error));
        self.properties.get(key).map(parse).transpose()
    }

    /// Returns the name at a position, which must be present.
    pub(super) fn name<T: FromStr<Err: Display>>(&self, place: usize) -> Result<T, Stop> {
        self.names[place].parse().map_err(|error| self.bad(self.grammar.names[place], &error))
    }

    /// Returns the name at a position, if present.
    pub(super) fn optional_name<T: FromStr<Err: Display>>(&self, place: usize) -> Result<Option<T>, Stop> {
        if place < self.names.len() { self.name(place).map(Some) } else { Ok(None) }
    }

    fn bad(&self, of: &str, error: &dyn Display) -> Stop {
        Stop::input(miette!(code = "usage", "{} {of}: {error}", self.grammar.verb))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vtax_model::{domain::ListChange, topology::Name, vf::Vlan};

    use super::*;

    const ADD_VNET: Grammar = Grammar::new("add-vnet", &["mac-addr", "pvid", "vid"], &["VNET", "SWITCH", "DOMAIN"]);

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn properties_may_be_anywhere_among_the_names() {
        let words = words("admin-net pvid=1 vid=11,22,33 admin-vsw mars");
        let read = ADD_VNET.read(&words).expect("as in the article");
        assert_eq!(read.property::<Vlan>("pvid").expect("a VLAN").map(Vlan::get), Some(1));
        let vids = read.property::<ListChange<Vlan>>("vid").expect("VLANs").expect("it is there");
        assert_eq!(vids, ListChange::from([11, 22, 33].map(|vlan| Vlan::try_from(vlan).expect("a VLAN"))));
        assert_eq!(read.name::<Name>(2).expect("a name").as_str(), "mars");
        assert_eq!(read.property::<Vlan>("mac-addr").expect("nothing"), None);
    }

    #[test]
    fn wrong_words_are_named() {
        let told: Vec<String> = [
            "admin-net admin-vsw",
            "admin-net admin-vsw mars venus",
            "admin-net pvdi=1 admin-vsw mars",
            "admin-net pvid=1 pvid=2 admin-vsw mars",
        ]
        .iter()
        .map(|text| ADD_VNET.read(&words(text)).expect_err(text).to_string())
        .collect();
        insta::assert_snapshot!(told.join("\n"));
        let words = words("a pvid=4095 vid=x b c");
        let read = ADD_VNET.read(&words).expect("the words are right");
        let told = [
            read.property::<Vlan>("pvid").expect_err("too large").to_string(),
            read.property::<ListChange<Vlan>>("vid").expect_err("no number").to_string(),
        ];
        insta::assert_snapshot!(told.join("\n"));
    }

    proptest! {
        #[test]
        fn no_words_are_too_odd(words in prop::collection::vec("[a-z=,0-9-]{0,12}", 0..8)) {
            if let Ok(read) = ADD_VNET.read(&words) {
                let _ = (read.name::<Name>(0), read.property::<ListChange<Vlan>>("vid"), read.property::<Vlan>("pvid"));
            }
        }
    }
}
