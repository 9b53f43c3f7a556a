//! QEMU's description of a device, for the command line and for the monitor.

use std::fmt;

use serde_json::{Map, Value};

/// A device, or the host's side of a NIC: its type and its properties in order. Switches are `bool`, and numbers are
/// numbers: the monitor accepts nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceOptions {
    kind: String,
    properties: Vec<(&'static str, Value)>,
}

impl DeviceOptions {
    /// Creates a device without properties.
    pub fn new(kind: impl Into<String>) -> DeviceOptions {
        DeviceOptions { kind: kind.into(), properties: Vec::new() }
    }

    /// Adds a property.
    #[must_use]
    pub fn with(mut self, property: &'static str, value: impl Into<Value>) -> DeviceOptions {
        self.properties.push((property, value.into()));
        self
    }

    /// Adds a property if there is a value.
    #[must_use]
    pub fn with_some(self, property: &'static str, value: Option<impl Into<Value>>) -> DeviceOptions {
        match value {
            Some(value) => self.with(property, value),
            None => self,
        }
    }

    /// The arguments of a monitor command, in which the type's key is `kind`.
    pub(crate) fn json(&self, kind: &str) -> Value {
        let properties = self.properties.iter().map(|(property, value)| ((*property).to_owned(), value.clone()));
        let kind = (kind.to_owned(), Value::from(self.kind.as_str()));
        Value::Object(std::iter::once(kind).chain(properties).collect::<Map<_, _>>())
    }
}

/// Formats the device as a command line argument.
impl fmt::Display for DeviceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        self.properties.iter().try_for_each(|(property, value)| match value {
            Value::Bool(on) => write!(f, ",{property}={}", if *on { "on" } else { "off" }),
            Value::String(text) => write!(f, ",{property}={text}"),
            value => write!(f, ",{property}={value}"),
        })
    }
}
