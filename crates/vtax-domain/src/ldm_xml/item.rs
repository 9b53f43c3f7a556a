//! `Item` of such a document: its parts are removed one by one, and none may be left.

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use roxmltree::Node;
use vtax_model::domain::{Configured, PropertyVerb, XML_ADDRESS};

use super::LdmXmlError;

/// Contents of an item. The line of a part is only determined if the part is invalid, since that counts all lines
/// before it.
pub(super) struct LdmItem<'a, 'input> {
    pub(super) kind: &'a str,
    node: Node<'a, 'input>,
    /// Texts, by the name of the element or the key of the property, each with its element.
    parts: BTreeMap<&'a str, (&'a str, Node<'a, 'input>)>,
}

const UNITS: &str = "AllocationUnits";

/// Returns the line on which an element begins.
fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

pub(super) fn wrong(node: Node<'_, '_>, why: String) -> LdmXmlError {
    LdmXmlError { line: line(node), why }
}

/// Returns the child elements of an element. Text between them is refused.
pub(super) fn elements<'a, 'input>(node: Node<'a, 'input>) -> Result<Vec<Node<'a, 'input>>, LdmXmlError> {
    let stray =
        node.children().find(|child| child.is_text() && child.text().is_some_and(|text| !text.trim().is_empty()));
    match stray {
        Some(text) => Err(wrong(text, format!("there is text between the elements of <{}>", node.tag_name().name()))),
        None => Ok(node.children().filter(Node::is_element).collect()),
    }
}

/// Returns the text of an element without child elements.
fn text<'a>(node: Node<'a, '_>) -> Result<&'a str, LdmXmlError> {
    let mut children = node.children();
    match (children.next(), children.next()) {
        (None, _) => Ok(""),
        (Some(only), None) if only.is_text() => Ok(only.text().unwrap_or_default()),
        _ => Err(wrong(node, format!("<{}> must contain only text", node.tag_name().name()))),
    }
}

impl<'a, 'input> LdmItem<'a, 'input> {
    pub(super) fn of(node: Node<'a, 'input>) -> Result<LdmItem<'a, 'input>, LdmXmlError> {
        let (mut kind, mut parts) = (None, BTreeMap::new());
        for part in elements(node)? {
            let key = match part.tag_name().name() {
                "OtherResourceType" => {
                    kind = Some(text(part)?);
                    continue;
                }
                name @ (UNITS | XML_ADDRESS) => name,
                "GenericProperty" => {
                    part.attribute("key").ok_or_else(|| wrong(part, "a GenericProperty has no key".to_owned()))?
                }
                other => return Err(wrong(part, format!("an Item has no <{other}>"))),
            };
            if parts.insert(key, (text(part)?, part)).is_some() {
                return Err(wrong(part, format!("`{key}` exists twice")));
            }
        }
        let kind = kind.ok_or_else(|| wrong(node, "an Item has no <OtherResourceType>".to_owned()))?;
        Ok(LdmItem { kind, node, parts })
    }

    pub(super) fn error(&self, why: String) -> LdmXmlError {
        wrong(self.node, format!("the item `{}` {why}", self.kind))
    }

    /// Returns a part, if it exists.
    pub(super) fn optional<T: FromStr<Err: Display>>(&mut self, key: &str) -> Result<Option<T>, LdmXmlError> {
        let Some((text, part)) = self.parts.remove(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| wrong(part, format!("`{key}`: {error}")))
    }

    /// Returns the values of a table's properties.
    pub(super) fn change<T: Configured>(&mut self) -> Result<T::Change, LdmXmlError> {
        let mut change = T::Change::default();
        for property in T::PROPERTIES.iter().filter(|property| !property.xml.is_empty()) {
            let key = property.xml;
            match self.parts.remove(key) {
                Some((text, part)) => property
                    .parse(&mut change, PropertyVerb::Add, text)
                    .map_err(|error| wrong(part, format!("`{key}`: {error}")))?,
                None if property.is_required => return Err(self.error(format!("has no `{key}`"))),
                None => {}
            }
        }
        Ok(change)
    }

    /// Returns a numeric part, if it exists.
    pub(super) fn number<N: FromStr>(&mut self, key: &str) -> Result<Option<N>, LdmXmlError> {
        let Some((text, part)) = self.parts.remove(key) else { return Ok(None) };
        let wrong = |_| wrong(part, format!("`{key}`: `{text}` is not a whole number, or too large"));
        text.parse().map(Some).map_err(wrong)
    }

    /// Returns a required numeric part.
    pub(super) fn needed_number<N: FromStr>(&mut self, key: &str) -> Result<N, LdmXmlError> {
        self.number(key)?.ok_or_else(|| self.error(format!("has no `{key}`")))
    }

    /// Returns a required part.
    pub(super) fn needed<T: FromStr<Err: Display>>(&mut self, key: &str) -> Result<T, LdmXmlError> {
        self.optional(key)?.ok_or_else(|| self.error(format!("has no `{key}`")))
    }

    /// Returns the elements of a comma-separated list; none if it doesn't exist.
    pub(super) fn list<T: FromStr<Err: Display>, L: FromIterator<T>>(&mut self, key: &str) -> Result<L, LdmXmlError> {
        let Some((text, part)) = self.parts.remove(key) else { return Ok(L::from_iter([])) };
        let parse = |value: &str| value.parse().map_err(|error| wrong(part, format!("`{key}`: {error}")));
        text.split(',').filter(|value| !value.is_empty()).map(parse).collect()
    }

    pub(super) fn units<N: FromStr>(&mut self) -> Result<N, LdmXmlError> {
        self.needed_number(UNITS)
    }

    /// Checks that no part is left.
    pub(super) fn finish(self) -> Result<(), LdmXmlError> {
        match self.parts.iter().next() {
            Some((key, (_, part))) => Err(wrong(*part, format!("the item `{}` does not support `{key}`", self.kind))),
            None => Ok(()),
        }
    }
}
