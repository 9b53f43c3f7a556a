//! Errors for a libvirt domain that cannot be an endpoint, or cannot be imported.

use std::{io, time::Duration};

use vtax_model::foreign::ForeignText;

use super::{
    virsh::{AddressSource, VirshRefusal, words},
    xml::XmlError,
};

/// Reason why a libvirt domain cannot be an endpoint, or cannot be imported.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum LibvirtError {
    #[error(
        "libvirt:{domain}: cannot start `virsh`: {source}; install libvirt's client (libvirt-clients), or name the \
         domain's system as ssh:HOST"
    )]
    #[diagnostic(code("no-virsh"))]
    NoVirsh { domain: ForeignText, source: io::Error },
    #[error("libvirt:{domain}: no such domain in libvirt; {}", available(names))]
    #[diagnostic(code("no-such-domain"))]
    NoDomain { domain: ForeignText, names: Vec<ForeignText> },
    #[error("libvirt:{domain}: this is the id or UUID of the domain `{name}`; use libvirt:{name}")]
    #[diagnostic(code("libvirt-id"))]
    NoName { domain: ForeignText, name: ForeignText },
    #[error("libvirt:{domain}: domain is {}, not running; {}", state, mend(state, domain))]
    #[diagnostic(code("domain-not-running"))]
    NotRunning { domain: ForeignText, state: ForeignText },
    #[error(
        "libvirt:{domain}: libvirt does not respond: {words}; check that its daemon runs (systemctl status libvirtd \
         virtqemud), that this user may connect (group libvirt), and that LIBVIRT_DEFAULT_URI is the connection with \
         this domain"
    )]
    #[diagnostic(code("libvirt-unreachable"))]
    Refused { domain: ForeignText, words: ForeignText },
    #[error("libvirt:{domain}: virsh has not responded within {deadline:?}; check whether libvirt's daemon hangs")]
    #[diagnostic(code("libvirt-unreachable"))]
    Silent { domain: ForeignText, deadline: Duration },
    #[error(
        "libvirt:{domain}: libvirt knows no address for it ({}); set its `address` (--to-address, --from-address), or \
         name its system as ssh:HOST",
        asked(sources)
    )]
    #[diagnostic(code("no-address"))]
    NoAddress { domain: ForeignText, sources: Vec<(AddressSource, ForeignText)> },
    #[error("libvirt:{domain}: {source}; see virsh dumpxml '{domain}'")]
    #[diagnostic(code("libvirt-xml"))]
    Xml { domain: ForeignText, source: XmlError },
}

impl LibvirtError {
    pub fn refused(domain: &str, refusal: VirshRefusal) -> LibvirtError {
        let domain = domain.into();
        match refusal {
            VirshRefusal::NoProgram(source) => LibvirtError::NoVirsh { domain, source },
            VirshRefusal::Said(text) => LibvirtError::Refused { domain, words: words(&text).into() },
            VirshRefusal::Silent(deadline) => LibvirtError::Silent { domain, deadline },
        }
    }

    /// Returns true if the user's input is at fault rather than the host.
    pub fn is_of_input(&self) -> bool {
        use LibvirtError::{NoAddress, NoDomain, NoName, NotRunning};
        matches!(self, NoDomain { .. } | NoName { .. } | NotRunning { .. } | NoAddress { .. })
    }
}

/// Lists the existing domains, but at most 20 of them.
fn available(names: &[ForeignText]) -> String {
    const MOST: usize = 20;
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    match names.len() {
        0 => "this connection has no domains (LIBVIRT_DEFAULT_URI)".to_owned(),
        count if count > MOST => format!("available: {}, and {} more", names[..MOST].join(", "), count - MOST),
        _ => format!("available: {}", names.join(", ")),
    }
}

fn mend(state: &ForeignText, domain: &ForeignText) -> String {
    match state.raw() {
        "paused" | "pmsuspended" => format!("resume it (virsh resume '{domain}')"),
        _ => format!("start it (virsh start '{domain}')"),
    }
}

/// Returns the sources with their reasons: `lease: none; arp: none; agent: QEMU guest agent is not configured`.
fn asked(sources: &[(AddressSource, ForeignText)]) -> String {
    let texts: Vec<String> = sources.iter().map(|(source, why)| format!("{source}: {why}")).collect();
    texts.join("; ")
}
