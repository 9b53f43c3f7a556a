//! Pods of Kubernetes as endpoints.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// A pod: `pod:NAMESPACE/NAME` or `pod:NAMESPACE/NAME/CONTAINER`. The cluster is the one of kubectl's current context.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodEnd {
    /// The namespace of Kubernetes, not of the kernel.
    pub namespace: ObjectName,
    /// Its name there.
    pub name: ObjectName,
    /// The container in which the agent runs. None for the only one.
    pub container: Option<ObjectName>,
}

/// Name of an object in Kubernetes: a DNS subdomain in lower case, e.g. `web-0` (RFC 1123).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct ObjectName(String);

impl ObjectName {
    const LENGTH_MOST: usize = 253;

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ObjectName, &'static str> {
        let is_inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let is_of_name = |letter: char| is_inner(letter) || "-.".contains(letter);
        match () {
            () if text.is_empty() => Err("a name is missing; a pod is pod:NAMESPACE/NAME, e.g. pod:default/web-0"),
            () if text.len() > ObjectName::LENGTH_MOST => Err("a name in Kubernetes has at most 253 characters"),
            () if !text.chars().all(is_of_name) || !text.starts_with(is_inner) || !text.ends_with(is_inner) => {
                Err("a name in Kubernetes has only a-z, 0-9, - and ., and begins and ends with a letter or digit")
            }
            () => Ok(ObjectName(text.to_owned())),
        }
    }
}

impl PodEnd {
    pub(super) fn read(text: &str) -> Result<PodEnd, &'static str> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [namespace, name] => Ok(PodEnd { namespace: namespace.parse()?, name: name.parse()?, container: None }),
            [namespace, name, container] => {
                let container = Some(container.parse()?);
                Ok(PodEnd { namespace: namespace.parse()?, name: name.parse()?, container })
            }
            _ => Err("a pod is pod:NAMESPACE/NAME or pod:NAMESPACE/NAME/CONTAINER, e.g. pod:default/web-0"),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PodEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PodEnd { namespace, name, container } = self;
        write!(f, "pod:{namespace}/{name}")?;
        container.as_ref().map_or(Ok(()), |container| write!(f, "/{container}"))
    }
}
