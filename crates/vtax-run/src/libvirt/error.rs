//! Why a domain of libvirt can't be an end, or can't be imported.

use std::{io, time::Duration};

use super::{
    virsh::{AddressSource, VirshRefusal, words},
    xml::XmlError,
};
use crate::stop::Stop;

#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub(crate) enum LibvirtError {
    #[error(
        "libvirt:{domain}: `virsh` can't be started: {source}; install libvirt's client (libvirt-clients); to measure, its system can be named as ssh:HOST instead"
    )]
    #[diagnostic(code("no-virsh"))]
    NoVirsh { domain: String, source: io::Error },
    #[error("libvirt:{domain}: libvirt has no such domain; {}", there_is(names))]
    #[diagnostic(code("no-such-domain"))]
    NoDomain { domain: String, names: Vec<String> },
    #[error("libvirt:{domain}: that is the id or UUID of the domain `{name}`; write libvirt:{name}")]
    #[diagnostic(code("libvirt-id"))]
    NoName { domain: String, name: String },
    #[error("libvirt:{domain}: it is {}, not running; {}", state, mend(state, domain))]
    #[diagnostic(code("domain-not-running"))]
    NotRunning { domain: String, state: String },
    #[error(
        "libvirt:{domain}: libvirt doesn't answer: {words}; does its daemon run (systemctl status libvirtd virtqemud), may this user speak to it (group libvirt), and is LIBVIRT_DEFAULT_URI the connection that has this domain?"
    )]
    #[diagnostic(code("libvirt-unreachable"))]
    Refused { domain: String, words: String },
    #[error("libvirt:{domain}: virsh has not answered in {deadline:?}; see whether libvirt's daemon hangs")]
    #[diagnostic(code("libvirt-unreachable"))]
    Silent { domain: String, deadline: Duration },
    #[error(
        "libvirt:{domain}: libvirt knows no address of it ({}); give its `address` (--to-address, --from-address), or name its system as ssh:HOST",
        asked(sources)
    )]
    #[diagnostic(code("no-address"))]
    NoAddress { domain: String, sources: Vec<(AddressSource, String)> },
    #[error("libvirt:{domain}: {source}; see virsh dumpxml '{domain}'")]
    #[diagnostic(code("libvirt-xml"))]
    Xml { domain: String, source: XmlError },
}

impl LibvirtError {
    pub(crate) fn refused(domain: &str, refusal: VirshRefusal) -> LibvirtError {
        let domain = domain.to_owned();
        match refusal {
            VirshRefusal::NoProgram(source) => LibvirtError::NoVirsh { domain, source },
            VirshRefusal::Said(text) => LibvirtError::Refused { domain, words: words(&text) },
            VirshRefusal::Silent(deadline) => LibvirtError::Silent { domain, deadline },
        }
    }
}

impl From<LibvirtError> for Stop {
    fn from(error: LibvirtError) -> Stop {
        use LibvirtError::{NoAddress, NoDomain, NoName, NotRunning};
        match error {
            NoDomain { .. } | NoName { .. } | NotRunning { .. } | NoAddress { .. } => Stop::input(error),
            _ => Stop::infrastructure(error),
        }
    }
}

/// Names the domains that there are, but at most 20 of them.
fn there_is(names: &[String]) -> String {
    const MOST: usize = 20;
    match names.len() {
        0 => "it has none at all over this connection (LIBVIRT_DEFAULT_URI)".to_owned(),
        count if count > MOST => format!("there is {}, and {} more", names[..MOST].join(", "), count - MOST),
        _ => format!("there is {}", names.join(", ")),
    }
}

fn mend(state: &str, domain: &str) -> String {
    match state {
        "paused" | "pmsuspended" => format!("let it go on (virsh resume '{domain}')"),
        _ => format!("start it (virsh start '{domain}')"),
    }
}

/// `lease: none; arp: none; agent: QEMU guest agent is not configured`
fn asked(sources: &[(AddressSource, String)]) -> String {
    let texts: Vec<String> = sources.iter().map(|(source, why)| format!("{source}: {why}")).collect();
    texts.join("; ")
}
