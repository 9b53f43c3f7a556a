//! JSON as other programs print it.
//!
//! An object keeps duplicate keys, which serde_json's own value does not: iperf3 before 3.12 prints the sums of both
//! directions of `--bidir` under the same names, and fio each `filename=` of a job file.

use std::{fmt, ops::Index};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Returns the document at the beginning of a text, and its length.
    pub(super) fn first(text: &str) -> Result<(Json, usize), serde_json::Error> {
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Json>();
        let first = documents.next().transpose()?;
        Ok((first.unwrap_or(Json::Null), documents.byte_offset()))
    }

    /// Returns the keys and values of an object, in the order of the text.
    pub(super) fn entries(&self) -> &[(String, Json)] {
        match self {
            Json::Object(entries) => entries,
            _ => &[],
        }
    }

    /// Returns each value of a key.
    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Json> {
        self.entries().iter().filter(move |(own, _)| own == name).map(|(_, value)| value)
    }

    /// Returns the last value of a key, like a reader that does not expect duplicates.
    pub(super) fn get(&self, name: &str) -> Option<&Json> {
        self.all(name).last()
    }

    pub(super) fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> Option<&[Json]> {
        match self {
            Json::List(values) => Some(values),
            _ => None,
        }
    }
}

impl Index<&str> for Json {
    type Output = Json;

    /// Returns `Null` for a missing key, so that a path of keys can be looked up in one expression.
    fn index(&self, name: &str) -> &Json {
        self.get(name).unwrap_or(&Json::Null)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = access.next_element()? {
            values.push(value);
        }
        Ok(Json::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Json::Object(entries))
    }
}
