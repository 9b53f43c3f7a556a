//! An `Item` of such a document: its parts are taken out one by one, and none may be left.

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use roxmltree::Node;

use super::LdmXmlError;

/// What an item says. The line of a part is looked for only if the part is wrong: that counts all lines before it.
pub(super) struct LdmItem<'a, 'input> {
    pub(super) kind: &'a str,
    node: Node<'a, 'input>,
    /// The texts, by the name of the element or the key of the property, each with its element.
    parts: BTreeMap<&'a str, (&'a str, Node<'a, 'input>)>,
}

const UNITS: &str = "AllocationUnits";
const ADDRESS: &str = "Address";

/// The line on which an element begins.
fn line(node: Node<'_, '_>) -> u32 {
    node.document().text_pos_at(node.range().start).row
}

pub(super) fn wrong(node: Node<'_, '_>, why: String) -> LdmXmlError {
    LdmXmlError { line: line(node), why }
}

/// The elements in another one. Text between them is refused.
pub(super) fn elements<'a, 'input>(node: Node<'a, 'input>) -> Result<Vec<Node<'a, 'input>>, LdmXmlError> {
    let stray =
        node.children().find(|child| child.is_text() && child.text().is_some_and(|text| !text.trim().is_empty()));
    match stray {
        Some(text) => Err(wrong(text, format!("there is text in <{}>, between its elements", node.tag_name().name()))),
        None => Ok(node.children().filter(Node::is_element).collect()),
    }
}

/// The text of an element that has no others in it.
fn text<'a>(node: Node<'a, '_>) -> Result<&'a str, LdmXmlError> {
    let mut children = node.children();
    match (children.next(), children.next()) {
        (None, _) => Ok(""),
        (Some(only), None) if only.is_text() => Ok(only.text().unwrap_or_default()),
        _ => Err(wrong(node, format!("<{}> has to be a text only", node.tag_name().name()))),
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
                name @ (UNITS | ADDRESS) => name,
                "GenericProperty" => {
                    part.attribute("key").ok_or_else(|| wrong(part, "a GenericProperty has no key".to_owned()))?
                }
                other => return Err(wrong(part, format!("an Item has no <{other}>"))),
            };
            if parts.insert(key, (text(part)?, part)).is_some() {
                return Err(wrong(part, format!("`{key}` is there twice")));
            }
        }
        let kind = kind.ok_or_else(|| wrong(node, "an Item has no <OtherResourceType>".to_owned()))?;
        Ok(LdmItem { kind, node, parts })
    }

    pub(super) fn error(&self, why: String) -> LdmXmlError {
        wrong(self.node, format!("the item `{}` {why}", self.kind))
    }

    /// A part, if it is there.
    pub(super) fn optional<T: FromStr<Err: Display>>(&mut self, key: &str) -> Result<Option<T>, LdmXmlError> {
        let Some((text, part)) = self.parts.remove(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| wrong(part, format!("`{key}`: {error}")))
    }

    /// A part that is a number, if it is there.
    pub(super) fn number<N: FromStr>(&mut self, key: &str) -> Result<Option<N>, LdmXmlError> {
        let Some((text, part)) = self.parts.remove(key) else { return Ok(None) };
        let wrong = |_| wrong(part, format!("`{key}`: `{text}` is no whole number, or too large"));
        text.parse().map(Some).map_err(wrong)
    }

    /// A part that must be there, and is a number.
    pub(super) fn needed_number<N: FromStr>(&mut self, key: &str) -> Result<N, LdmXmlError> {
        self.number(key)?.ok_or_else(|| self.error(format!("has no `{key}`")))
    }

    /// A part that must be there.
    pub(super) fn needed<T: FromStr<Err: Display>>(&mut self, key: &str) -> Result<T, LdmXmlError> {
        self.optional(key)?.ok_or_else(|| self.error(format!("has no `{key}`")))
    }

    /// The parts of a list with commas; none if it isn't there.
    pub(super) fn list<T: FromStr<Err: Display>, L: FromIterator<T>>(&mut self, key: &str) -> Result<L, LdmXmlError> {
        let Some((text, part)) = self.parts.remove(key) else { return Ok(L::from_iter([])) };
        let parse = |value: &str| value.parse().map_err(|error| wrong(part, format!("`{key}`: {error}")));
        text.split(',').filter(|value| !value.is_empty()).map(parse).collect()
    }

    pub(super) fn units<N: FromStr>(&mut self) -> Result<N, LdmXmlError> {
        self.needed_number(UNITS)
    }

    pub(super) fn address<T: FromStr<Err: Display>>(&mut self) -> Result<Option<T>, LdmXmlError> {
        self.optional(ADDRESS)
    }

    /// That nothing is left that nobody has taken.
    pub(super) fn finish(self) -> Result<(), LdmXmlError> {
        match self.parts.iter().next() {
            Some((key, (_, part))) => Err(wrong(*part, format!("the item `{}` has no `{key}`", self.kind))),
            None => Ok(()),
        }
    }
}
