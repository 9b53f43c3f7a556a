//! Access to an endpoint.

use std::{fmt, net::IpAddr, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::{LabHost, NamespaceEnd, PodEnd};
use crate::{
    domain::PRIMARY,
    spelling::nearest,
    topology::{BadName, Name},
};

/// Access to the agent of an endpoint: `local`, `ssh:USER@HOST`, `zone:LAB/NAME`, `libvirt:USER@NAME`, `ldm:DOMAIN/NIC`,
/// `netns:NAME`, `pid:PID`, `container:NAME`, `pod:NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub enum Control {
    /// A process of this machine, in the namespace of vtax.
    Local,
    /// Over the user's ssh, in its notation.
    Ssh(String),
    /// A zone or a host of a persistent lab (`vtax lab up`).
    Zone {
        /// The lab; if absent, the only one that has such a zone.
        lab: Option<Name>,
        /// The zone, host or guest.
        domain: Name,
    },
    /// A running virtual machine of libvirt, over ssh to its address.
    Libvirt {
        /// The user that ssh logs in as; if absent, ssh's own configuration decides.
        user: Option<String>,
        /// Its name in libvirt, possibly with spaces and dots. A name with an `@` needs a user before it.
        domain: String,
    },
    /// A logical domain (`vtax ldm`).
    Domain(DomainEnd),
    /// A network namespace of this machine, outside of labs.
    Namespace(NamespaceEnd),
    /// A pod of Kubernetes, through the user's kubectl.
    Pod(PodEnd),
}

/// A logical domain as an endpoint: `ldm:DOMAIN`, `ldm:DOMAIN/NIC`, and both with `LAB/HOST/` before them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainEnd {
    /// The host of a lab that has it. None for this machine.
    pub within: Option<LabHost>,
    /// Its name; `primary` is the host itself.
    pub domain: Name,
    /// Its virtual NIC; if absent, the first one that reaches the other endpoint. For `primary`, a switch.
    pub nic: Option<Name>,
}

impl Control {
    /// Assigns a logical domain without a host to this host. Returns whether it was one.
    pub fn place_in(&mut self, host: &LabHost) -> bool {
        let Control::Domain(end) = self else { return false };
        end.within.get_or_insert_with(|| host.clone()) == host
    }
}

/// Invalid endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error(
    "invalid endpoint `{}`{why} (endpoints are local, ssh:HOST, ssh:USER@HOST, zone:NAME, zone:LAB/NAME, libvirt:NAME, libvirt:USER@NAME, ldm:DOMAIN, \
     ldm:DOMAIN/NIC, ldm:LAB/HOST/DOMAIN, netns:NAME, netns:/PATH, pid:PID, container:NAME, docker:NAME, podman:NAME, \
     nerdctl:NAME, crictl:NAME, pod:NAMESPACE/NAME, pod:NAMESPACE/NAME/CONTAINER)",
    text.escape_debug()
)]
#[diagnostic(code("bad-endpoint"))]
pub struct BadControl {
    text: String,
    why: String,
}

impl FromStr for Control {
    type Err = BadControl;

    fn from_str(text: &str) -> Result<Self, BadControl> {
        let bad = |why: String| BadControl { text: text.to_owned(), why };
        let name = |part: &str| part.parse::<Name>().map_err(|error| bad(format!(": {error}")));
        match text.split_once(':') {
            None if text == "local" => Ok(Control::Local),
            Some(("ssh", host)) if !host.is_empty() => ssh(host).map_err(|why| bad(format!(": {why}"))),
            Some(("zone", zone)) => match zone.split_once('/') {
                Some((lab, domain)) => Ok(Control::Zone { lab: Some(name(lab)?), domain: name(domain)? }),
                None => Ok(Control::Zone { lab: None, domain: name(zone)? }),
            },
            Some(("ldm", domain)) => {
                DomainEnd::read(domain).map(Control::Domain).map_err(|why| bad(format!(": {why}")))
            }
            Some(("pod", pod)) => PodEnd::read(pod).map(Control::Pod).map_err(|why| bad(format!(": {why}"))),
            Some(("libvirt", domain)) => libvirt(domain).map_err(|why| bad(format!(": {why}"))),
            Some((way, of_way)) if let Some(end) = NamespaceEnd::read(way, of_way) => {
                end.map(Control::Namespace).map_err(|why| bad(format!(": {why}")))
            }
            _ => Err(bad(meant(text))),
        }
    }
}

/// Returns `; did you mean …?` for an invalid endpoint.
fn meant(text: &str) -> String {
    let (way, host) = text.split_once(':').unwrap_or((text, ""));
    let known = ["local", "ssh", "zone", "libvirt", "ldm", "netns", "pid", "container", "docker", "podman", "pod"];
    match (text.parse::<IpAddr>(), nearest(way, known)) {
        (Ok(address), _) if address.is_loopback() => {
            format!(": it is an address of this machine; did you mean `local`, or `ssh:{text}`?")
        }
        (Ok(_), _) => format!(": it is an address; did you mean `ssh:{text}`?"),
        (Err(_), Some("local")) => "; did you mean `local`?".to_owned(),
        (Err(_), Some(way)) if !host.is_empty() => format!("; did you mean `{way}:{host}`?"),
        _ if host.is_empty() && text.parse::<Name>().is_ok() => {
            format!("; did you mean the host `ssh:{text}`, or `zone:{text}` of a lab?")
        }
        _ => String::new(),
    }
}

/// The host may come from someone else's file. It is passed to ssh, whose own configuration may run a shell with it
/// (`ProxyCommand`), and it is printed.
fn ssh(text: &str) -> Result<Control, &'static str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "._-@:%[]+".contains(letter);
    match () {
        () if text.starts_with('-') => Err("a host name cannot start with `-`"),
        () if !text.chars().all(is_of_name) => Err("a host name has only letters, digits and ._-@:%[]+"),
        () => Ok(Control::Ssh(text.to_owned())),
    }
}

fn libvirt(text: &str) -> Result<Control, &'static str> {
    let (user, domain) = text.split_once('@').map_or((None, text), |(user, domain)| (Some(user), domain));
    let is_user = |user: &str| !user.is_empty() && !user.starts_with('-') && !user.contains(char::is_whitespace);
    match user {
        _ if text.chars().any(char::is_control) => Err("a control character"),
        Some(user) if !is_user(user) => Err("the part before the @ is not a user"),
        _ if domain.is_empty() => Err("no domain is specified"),
        _ => Ok(Control::Libvirt { user: user.map(str::to_owned), domain: domain.to_owned() }),
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Control::Local => f.write_str("local"),
            Control::Ssh(host) => write!(f, "ssh:{host}"),
            Control::Zone { lab: Some(lab), domain } => write!(f, "zone:{lab}/{domain}"),
            Control::Zone { lab: None, domain } => write!(f, "zone:{domain}"),
            Control::Libvirt { user: Some(user), domain } => write!(f, "libvirt:{user}@{domain}"),
            Control::Libvirt { user: None, domain } => write!(f, "libvirt:{domain}"),
            Control::Domain(end) => write!(f, "ldm:{end}"),
            Control::Namespace(end) => end.fmt(f),
            Control::Pod(end) => end.fmt(f),
        }
    }
}

impl DomainEnd {
    /// The host itself.
    pub fn primary(within: Option<LabHost>) -> DomainEnd {
        DomainEnd { within, domain: PRIMARY.parse().expect("a name"), nic: None }
    }

    /// Returns true if it is the host itself.
    pub fn is_primary(&self) -> bool {
        self.domain.as_str() == PRIMARY
    }

    fn read(text: &str) -> Result<DomainEnd, String> {
        let names = text
            .split('/')
            .map(str::parse)
            .collect::<Result<Vec<Name>, BadName>>()
            .map_err(|error| error.to_string())?;
        let (within, named) = match &names[..] {
            [lab, host, named @ ..] if !named.is_empty() => {
                (Some(LabHost { lab: lab.clone(), host: host.clone() }), named)
            }
            named => (None, named),
        };
        match named {
            [domain] => Ok(DomainEnd { within, domain: domain.clone(), nic: None }),
            [domain, nic] => Ok(DomainEnd { within, domain: domain.clone(), nic: Some(nic.clone()) }),
            _ => Err("too many names".to_owned()),
        }
    }
}

impl fmt::Display for DomainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.within {
            write!(f, "{host}/")?;
        }
        f.write_str(self.domain.as_str())?;
        self.nic.as_ref().map_or(Ok(()), |nic| write!(f, "/{nic}"))
    }
}
