//! Attachment of endpoints to the path. Each kind has a file in this directory; `endpoints.rs` and `domain_ends.rs`
//! select it.

pub(super) mod lab_domain;
pub(super) mod lab_guest;
pub(super) mod lab_place;
pub(super) mod ldm_domain;
pub(super) mod libvirt;
pub(super) mod machine;
pub(super) mod namespace;
pub(super) mod pod;
pub(super) mod switch_end;
mod told;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use vtax_lab::RelayProcess;
use vtax_model::{
    foreign::ForeignText,
    guest::{Accelerator, Flavour},
    run::{DomainRecord, GuestMachine, Hop, PlacementNote},
    station::PublishedPorts,
    study::Row,
};
use vtax_sys::process::ProcessId;

pub(super) use self::lab_place::LabPlace;
use self::{lab_guest::LabGuest, namespace::HeldNamespace, switch_end::SwitchEnd};
use super::{dial::AgentConnection, found_pod::FoundPod};
use crate::stop::Stop;

/// Attachment of an endpoint. What only some kinds provide is in separate traits and types.
pub(super) trait Attachment {
    /// Begins to connect to the endpoint's agent; the returned closure completes this, in any thread. An agent in a
    /// namespace is started here, because the kernel kills it when the thread that started it ends. `name` is the
    /// endpoint's name in errors, `program` the agent on this machine.
    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop>;

    /// Returns whether one agent serves the endpoint in both roles. Other endpoints have an agent for each role,
    /// because two endpoints of a pair in one process would disturb each other.
    fn has_one_agent(&self) -> bool {
        false
    }

    fn place(&self) -> Option<&LabPlace> {
        None
    }

    /// Returns the endpoint's guest, if it is in one.
    fn guest(&self) -> Option<&dyn GuestEnd> {
        None
    }

    /// Returns the endpoint's guest if it was built for this run, which may then change it.
    fn own_guest(&self) -> Option<&LabGuest> {
        None
    }

    /// Returns the endpoint at a virtual switch, if it is a logical domain or the host of one.
    fn switched(&self) -> Option<&dyn SwitchedEnd> {
        None
    }

    /// Returns the endpoint's namespace, if it is an existing one of this machine outside of labs.
    fn namespace(&self) -> Option<&HeldNamespace> {
        None
    }

    /// Returns the endpoint's pod, if it is one.
    fn pod(&self) -> Option<&FoundPod> {
        None
    }

    /// Returns whether the endpoint is in the network stack of vtax itself.
    fn is_in_stack_of_vtax(&self) -> bool {
        false
    }

    /// Returns the published ports through which other hosts reach a responder here, if they cannot reach its own
    /// address.
    fn published(&self) -> Option<&PublishedPorts> {
        None
    }

    /// Selects the NIC with the address on which the endpoint is measured.
    fn measure_on(&mut self, _address: IpAddr) {}

    /// Returns whether only the agent can see the endpoint's links. Those of a lab's hosts and zones are visible from
    /// this machine.
    fn has_links_of_its_own(&self) -> bool {
        true
    }

    /// Returns the host's links that the packets take, from the endpoint outwards.
    fn host_links(&self) -> &[Hop] {
        &[]
    }

    /// Returns the kind of its virtual NIC.
    fn nic(&self) -> Option<Flavour> {
        self.place()?.endpoint.flavour
    }

    /// Returns the programs of this machine that carry the endpoint's traffic.
    fn relays(&self) -> Vec<RelayProcess> {
        Vec::new()
    }

    /// Returns the reason if the endpoint's guest, pod or process, or a program that carried its traffic, has ended;
    /// for a guest with its last output.
    fn death(&self) -> Option<miette::Report> {
        None
    }

    /// Returns notes about the endpoint in `row`, as sentences.
    fn notes(&self, _row: Row, _name: &str) -> Vec<PlacementNote> {
        Vec::new()
    }
}

/// An endpoint in a guest.
pub(super) trait GuestEnd {
    /// Returns the QEMU of the endpoint, if its threads can be observed on this machine.
    fn qemu(&self) -> Option<GuestProcess>;

    /// Returns the virtual machine of the endpoint.
    fn machine(&self) -> Option<GuestMachine>;

    /// Returns the record of the guest as a domain.
    fn domain(&self) -> Option<&DomainRecord> {
        None
    }
}

/// An endpoint at a port of a virtual switch.
pub(super) trait SwitchedEnd {
    /// Returns the port and its host.
    fn switch_end(&self) -> &SwitchEnd;

    /// Returns the stack of the host that has the switch.
    fn host_stack(&self) -> Option<HostStack>;

    /// Returns the guest that serves the switch, if one does and its threads can be observed here.
    fn server(&self) -> Option<GuestProcess> {
        None
    }
}

/// Network stack of a host with logical domains, and its link on the path.
pub(super) struct HostStack {
    /// Path at which its namespace is pinned. None for vtax's own namespace.
    pub(super) namespace: Option<PathBuf>,
    pub(super) link: ForeignText,
}

#[derive(Debug, Clone)]
pub(super) struct GuestProcess {
    pub(super) name: String,
    pub(super) process: ProcessId,
    pub(super) accel: Accelerator,
}
