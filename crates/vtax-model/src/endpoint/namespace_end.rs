//! Network namespaces of this machine as endpoints, by name, path, process or container.

use std::{fmt, path::Path, str::FromStr};

/// An existing network namespace of this machine, which a run leaves unchanged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamespaceEnd {
    /// `netns:NAME`, a name of `ip netns`.
    Named(NetnsName),
    /// `netns:/PATH`: the path at which it is pinned.
    At(NetnsPath),
    /// `pid:PID`: the namespace of a process.
    Process(u32),
    /// The namespace of a container.
    Container(ContainerEnd),
}

/// A container: `container:NAME`, `docker:NAME`, `podman:NAME`, `nerdctl:NAME`, `crictl:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerEnd {
    /// The engine that runs it. None for whichever engine has it.
    pub engine: Option<ContainerEngine>,
    /// Its name there, or the beginning of its ID.
    pub name: ContainerName,
}

/// A program that knows the containers of an engine.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ContainerEngine {
    /// Docker, whose daemon `docker` connects to.
    Docker,
    /// Podman, of this user.
    Podman,
    /// containerd, in the namespace that `nerdctl` is configured for.
    Nerdctl,
    /// A runtime of Kubernetes, such as containerd or CRI-O, by the interface that its kubelet uses (CRI).
    Crictl,
}

impl ContainerEngine {
    /// The order in which they are queried.
    pub const ALL: [ContainerEngine; 4] =
        [ContainerEngine::Docker, ContainerEngine::Podman, ContainerEngine::Nerdctl, ContainerEngine::Crictl];
}

/// Name of a pinned network namespace: a file name in the directory of `ip netns`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsName(String);

/// Absolute path of a pinned network namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsPath(String);

/// Name of a container as Docker and Podman allow it: `[a-zA-Z0-9][a-zA-Z0-9_.-]*`. Their ids have this form, too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName(String);

impl NetnsName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NetnsPath {
    /// Returns the absolute path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl ContainerName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ContainerName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ContainerName, &'static str> {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
        match () {
            () if text.is_empty() => Err("no container is specified"),
            () if !text.starts_with(|first: char| first.is_ascii_alphanumeric()) || !text.chars().all(is_of_name) => {
                Err("a container's name has only letters, digits and _.-, and begins with a letter or digit")
            }
            () => Ok(ContainerName(text.to_owned())),
        }
    }
}

impl NamespaceEnd {
    /// Parses the namespace that `way:text` names. None if it is another kind of endpoint.
    pub(super) fn read(way: &str, text: &str) -> Option<Result<NamespaceEnd, String>> {
        let container = |engine| {
            let name = text.parse().map_err(str::to_owned)?;
            Ok(NamespaceEnd::Container(ContainerEnd { engine, name }))
        };
        match way {
            "netns" => Some(pinned(text).map_err(str::to_owned)),
            "pid" => Some(process(text).map_err(str::to_owned)),
            "container" => Some(container(None)),
            way => way.parse().ok().map(|engine| container(Some(engine))),
        }
    }
}

fn pinned(text: &str) -> Result<NamespaceEnd, &'static str> {
    match () {
        () if text.chars().any(char::is_control) => Err("a control character"),
        () if text.starts_with('/') => Ok(NamespaceEnd::At(NetnsPath(text.to_owned()))),
        () if text.contains('/') => Err("the path of a namespace is absolute, e.g. netns:/run/netns/blue"),
        () if ["", ".", ".."].contains(&text) => Err("no namespace is specified"),
        () => Ok(NamespaceEnd::Named(NetnsName(text.to_owned()))),
    }
}

fn process(text: &str) -> Result<NamespaceEnd, &'static str> {
    let number = text.parse().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid));
    // With a sign, one process would have two names.
    let number = number.filter(|_| text.chars().all(|digit| digit.is_ascii_digit()));
    number.map(NamespaceEnd::Process).ok_or("the process is a number, as `ps` prints it")
}

impl fmt::Display for NamespaceEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamespaceEnd::Named(NetnsName(name)) => write!(f, "netns:{name}"),
            NamespaceEnd::At(NetnsPath(path)) => write!(f, "netns:{path}"),
            NamespaceEnd::Process(pid) => write!(f, "pid:{pid}"),
            NamespaceEnd::Container(end) => end.fmt(f),
        }
    }
}

impl fmt::Display for ContainerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContainerEnd { engine, name: ContainerName(name) } = self;
        write!(f, "{}:{name}", engine.map_or("container", Into::into))
    }
}
