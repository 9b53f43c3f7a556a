//! Tables of properties, one for each kind of object that `ldm` configures.
//!
//! An entry has everything about a property: its key, its value in usage, how a text changes it and how it is written,
//! its names in XML and in `-p`, and when a change takes effect. Commands with their usage, lists, XML, pending changes
//! and the page on domains read the tables.

mod console;
mod disk;
mod domain;
mod function;
mod switch;
mod vnet;

use std::{fmt::Display, str::FromStr};

use super::Configuration;

/// Key in XML of a property that is the item's address, `rasd:Address`.
pub const XML_ADDRESS: &str = "Address";

/// Kind of object with a table of properties.
pub trait Configured: Sized + 'static {
    /// Values that a command or a document gives, before they are checked against other objects.
    type Change: Default;
    /// Effect of a change, unless a property has another.
    const EFFECT: PropertyEffect<Self>;
    /// In the order of usage, XML and `-p`.
    const PROPERTIES: &'static [Property<Self>];
}

/// Puts a value into a change, or returns why the text isn't one.
type Parser<T> = fn(&mut <T as Configured>::Change, &str) -> Result<(), String>;

/// Property of a kind of object.
pub struct Property<T: Configured> {
    /// Its name in commands.
    pub key: &'static str,
    /// Placeholder of its value in usage, e.g. `MAC`.
    pub value: &'static str,
    /// Sentence for the page on domains.
    pub meaning: &'static str,
    /// Its key in XML, or [`XML_ADDRESS`]; empty if the item has it in another form.
    pub xml: &'static str,
    /// True if each object in XML must have it.
    pub is_required: bool,
    /// Its field in `-p`; empty if it isn't there.
    pub field: &'static str,
    /// True if lists for people show it only where it may be pending, as `key=value`.
    pub is_detail: bool,
    /// Requirement on the host or on another object; empty if there is none.
    pub requires: &'static str,
    pub effect: PropertyEffect<T>,
    form: PropertyForm,
    verbs: &'static [PropertyVerb],
    parse: Parser<T>,
    write: fn(&T) -> Option<String>,
    show: Option<fn(&T, &Configuration) -> Option<String>>,
    print: Option<fn(&T) -> Option<String>>,
}

/// Way in which a command changes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyVerb {
    /// `add-…`: the object is new.
    Add,
    /// `set-…`: the object exists.
    Set,
}

/// Time at which a change of a running domain's object takes effect.
pub enum PropertyEffect<T> {
    /// Immediately. The function copies the property from one object to another.
    Now(fn(&mut T, &T)),
    /// At the domain's next boot.
    AtBoot,
    /// Immediately: it belongs to the host, and to no domain.
    OnHost,
    /// Immediately, but only while no bound domain uses the object.
    Unused,
}

#[derive(Clone, Copy)]
enum PropertyForm {
    Value,
    /// An empty text removes the value.
    Removable,
    /// Elements separated by commas; `+` and `-` change a part of them.
    List,
}

impl<T: Configured> Property<T> {
    const fn new(
        key: &'static str,
        value: &'static str,
        parse: Parser<T>,
        write: fn(&T) -> Option<String>,
    ) -> Property<T> {
        Property {
            key,
            value,
            meaning: "",
            xml: key,
            is_required: false,
            field: key,
            is_detail: false,
            requires: "",
            effect: T::EFFECT,
            form: PropertyForm::Value,
            verbs: &[PropertyVerb::Add, PropertyVerb::Set],
            parse,
            write,
            show: None,
            print: None,
        }
    }

    const fn means(mut self, meaning: &'static str) -> Property<T> {
        self.meaning = meaning;
        self
    }

    /// Names it differently in XML.
    const fn xml(mut self, key: &'static str) -> Property<T> {
        self.xml = key;
        self
    }

    const fn required(mut self) -> Property<T> {
        self.is_required = true;
        self
    }

    /// Shows it differently in lists, e.g. with values inherited from the object's switch.
    const fn shown(mut self, field: &'static str, show: fn(&T, &Configuration) -> Option<String>) -> Property<T> {
        self.field = field;
        self.show = Some(show);
        self
    }

    const fn unlisted(mut self) -> Property<T> {
        self.field = "";
        self
    }

    const fn detail(mut self) -> Property<T> {
        self.is_detail = true;
        self
    }

    /// Writes it differently for people than for programs.
    const fn printed(mut self, print: fn(&T) -> Option<String>) -> Property<T> {
        self.print = Some(print);
        self
    }

    const fn requires(mut self, what: &'static str) -> Property<T> {
        self.requires = what;
        self
    }

    const fn now(mut self, copy: fn(&mut T, &T)) -> Property<T> {
        self.effect = PropertyEffect::Now(copy);
        self
    }

    const fn list(mut self) -> Property<T> {
        self.form = PropertyForm::List;
        self
    }

    const fn removable(mut self) -> Property<T> {
        self.form = PropertyForm::Removable;
        self
    }

    const fn only(mut self, verbs: &'static [PropertyVerb]) -> Property<T> {
        self.verbs = verbs;
        self
    }

    /// Returns the properties of a verb, in the order of its usage.
    pub fn of_verb(verb: PropertyVerb) -> impl Iterator<Item = &'static Property<T>> {
        T::PROPERTIES.iter().filter(move |property| property.verbs.contains(&verb))
    }

    /// Returns the value in the usage of a verb, e.g. `[+|-][VLAN,…]`.
    pub fn usage(&self, verb: PropertyVerb) -> String {
        let value = self.value;
        match (self.form, verb) {
            (PropertyForm::Value, _) | (_, PropertyVerb::Add) => value.to_owned(),
            (PropertyForm::Removable, PropertyVerb::Set) => format!("[{value}]"),
            (PropertyForm::List, PropertyVerb::Set) => format!("[+|-][{value}]"),
        }
    }

    /// Puts the value of a command or a document into a change.
    pub fn parse(&self, change: &mut T::Change, verb: PropertyVerb, text: &str) -> Result<(), String> {
        match (self.form, verb) {
            (PropertyForm::List, PropertyVerb::Add) if text.starts_with(['+', '-']) => {
                Err(format!("`{text}` changes a list that doesn't exist yet; omit the sign"))
            }
            _ => (self.parse)(change, text),
        }
    }

    /// Returns the object's own value.
    pub fn own(&self, object: &T) -> Option<String> {
        (self.write)(object)
    }

    /// Returns the value in lists for programs, including inherited values.
    pub fn shown_in(&self, object: &T, all: &Configuration) -> Option<String> {
        self.show.map_or_else(|| self.own(object), |show| show(object, all))
    }

    /// Returns the value in lists for people.
    pub fn printed_in(&self, object: &T, all: &Configuration) -> Option<String> {
        self.print.map_or_else(|| self.shown_in(object, all), |print| print(object))
    }
}

/// Returns the object of a running domain after a change: in its previous state, except for what changes immediately.
pub fn before_boot<T: Configured + Clone>(was: &T, wanted: &T) -> T {
    let mut object = was.clone();
    for property in T::PROPERTIES {
        if let PropertyEffect::Now(copy) = property.effect {
            copy(&mut object, wanted);
        }
    }
    object
}

fn set<V: FromStr<Err: Display>>(place: &mut Option<V>, text: &str) -> Result<(), String> {
    *place = Some(text.parse().map_err(|error: V::Err| error.to_string())?);
    Ok(())
}

/// Sets a value that an empty text removes.
fn set_removable<V: FromStr<Err: Display>>(place: &mut Option<Option<V>>, text: &str) -> Result<(), String> {
    let mut value = None;
    if !text.is_empty() {
        set(&mut value, text)?;
    }
    *place = Some(value);
    Ok(())
}

/// Sets a list with commas.
fn set_all<V: FromStr<Err: Display>, L: FromIterator<V>>(place: &mut Option<L>, text: &str) -> Result<(), String> {
    let parts = text.split(',').filter(|part| !part.is_empty()).map(str::parse::<V>);
    *place = Some(parts.collect::<Result<L, V::Err>>().map_err(|error| error.to_string())?);
    Ok(())
}

fn set_number<N: FromStr>(place: &mut Option<N>, text: &str) -> Result<(), String> {
    let wrong = |_| format!("`{text}` is not a whole number, or too large");
    *place = Some(text.parse().map_err(wrong)?);
    Ok(())
}

fn written(value: Option<impl Display>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// Returns a list with commas; `None` if it is empty.
fn joined<V: Display>(values: impl IntoIterator<Item = V>) -> Option<String> {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    Some(values.join(",")).filter(|_| !values.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        ConsoleService, Constraints, FunctionSettings, Switch, VirtualConsole, VirtualDisk, VirtualNic, VnetChange,
        Volume,
    };

    /// Keys, XML names and fields of `-p` are unique, and each property has a meaning.
    fn is_complete<T: Configured>() {
        let names: [fn(&Property<T>) -> &'static str; 3] = [|it| it.key, |it| it.xml, |it| it.field];
        for name in names {
            let mut all: Vec<&str> = T::PROPERTIES.iter().map(name).filter(|name| !name.is_empty()).collect();
            all.sort_unstable();
            assert!(all.is_sorted_by(|one, other| one < other), "{all:?}");
        }
        let untold: Vec<&str> = T::PROPERTIES.iter().filter(|it| it.meaning.is_empty()).map(|it| it.key).collect();
        assert!(untold.is_empty(), "{untold:?} have no meaning");
    }

    #[test]
    fn each_name_is_of_one_property_with_a_meaning() {
        is_complete::<VirtualNic>();
        is_complete::<Switch>();
        is_complete::<Volume>();
        is_complete::<VirtualDisk>();
        is_complete::<ConsoleService>();
        is_complete::<VirtualConsole>();
        is_complete::<FunctionSettings>();
        is_complete::<Constraints>();
    }

    #[test]
    fn a_part_of_a_list_that_does_not_exist_is_refused() {
        let vid = Property::<VirtualNic>::of_verb(PropertyVerb::Add).find(|it| it.key == "vid").expect("vid");
        let mut change = VnetChange::default();
        assert!(vid.parse(&mut change, PropertyVerb::Add, "-44").is_err());
        vid.parse(&mut change, PropertyVerb::Set, "-44").expect("a change");
        assert_eq!(
            (vid.usage(PropertyVerb::Add).as_str(), vid.usage(PropertyVerb::Set).as_str()),
            ("VLAN,…", "[+|-][VLAN,…]")
        );
    }
}
