//! Attachment of an end to the path. Each method is a file in this directory, and a line in `endpoints.rs`.

pub(super) mod lab_domain;
pub(super) mod lab_guest;
pub(super) mod lab_place;
pub(super) mod ldm_domain;
pub(super) mod libvirt;
pub(super) mod machine;
pub(super) mod namespace;
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
use super::dial::AgentConnection;
use crate::stop::Stop;

/// Attachment of an end. Abilities that only some ends have are traits and types of their own.
pub(super) trait Attachment {
    /// Begins to connect to the agent of the end, which is started if it is a process of this machine: the kernel ends
    /// such a process with the thread that started it. `name` is the name of the end for errors, `program` the agent on
    /// this machine.
    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop>;

    /// Returns whether one agent serves the end in both roles. Two ends of a pair in one process would disturb each
    /// other.
    fn has_one_agent(&self) -> bool {
        false
    }

    fn place(&self) -> Option<&LabPlace> {
        None
    }

    /// The guest in which the end is.
    fn guest(&self) -> Option<&dyn GuestEnd> {
        None
    }

    /// The same, if the guest was built for this run, which may then change it.
    fn own_guest(&self) -> Option<&LabGuest> {
        None
    }

    /// The end as one at a virtual switch, if it is a logical domain or the host of one.
    fn switched(&self) -> Option<&dyn SwitchedEnd> {
        None
    }

    /// The namespace of this machine that it is, if it is one that existed before, outside of labs.
    fn namespace(&self) -> Option<&HeldNamespace> {
        None
    }

    /// Returns whether the end is in the network stack that vtax itself is in.
    fn is_in_stack_of_vtax(&self) -> bool {
        false
    }

    /// The ports by which others reach a responder here, if they don't reach its own address.
    fn published(&self) -> Option<&PublishedPorts> {
        None
    }

    /// Chooses the NIC that has the address on which the end is measured.
    fn measure_on(&mut self, _address: IpAddr) {}

    /// Returns whether only the agent sees the links of the end. A lab sees the links of its hosts and zones itself.
    fn has_links_of_its_own(&self) -> bool {
        true
    }

    /// The links of the host that its packets take, from the end outwards.
    fn host_links(&self) -> &[Hop] {
        &[]
    }

    /// The kind of its virtual NIC.
    fn nic(&self) -> Option<Flavour> {
        self.place()?.endpoint.flavour
    }

    /// The programs of this machine that carry its traffic.
    fn relays(&self) -> Vec<RelayProcess> {
        Vec::new()
    }

    /// Why its guest or its process has ended, with what the guest said last, or a program that carried its traffic.
    fn death(&self) -> Option<miette::Report> {
        None
    }

    /// Returns notes about the end as an end of `row`, a sentence each.
    fn notes(&self, _row: Row, _name: &str) -> Vec<PlacementNote> {
        Vec::new()
    }
}

/// An end in a guest.
pub(super) trait GuestEnd {
    /// The QEMU under the end, if its threads can be observed on this machine.
    fn qemu(&self) -> Option<GuestProcess>;

    /// Returns the machine that runs the end.
    fn machine(&self) -> Option<GuestMachine>;

    /// Returns the record of the guest as a domain.
    fn domain(&self) -> Option<&DomainRecord> {
        None
    }
}

/// An end at a port of a virtual switch.
pub(super) trait SwitchedEnd {
    /// The port that it is at.
    fn switch_end(&self) -> &SwitchEnd;

    /// The stack of the host that has the switch.
    fn host_stack(&self) -> Option<HostStack>;

    /// The guest that serves the switch, if a guest does and its threads can be observed here.
    fn server(&self) -> Option<GuestProcess> {
        None
    }
}

/// The network stack of a host with logical domains, and the link there that belongs to the path.
pub(super) struct HostStack {
    /// Path at which its namespace is pinned. None for vtax's own.
    pub(super) namespace: Option<PathBuf>,
    pub(super) link: ForeignText,
}

#[derive(Debug, Clone)]
pub(super) struct GuestProcess {
    pub(super) name: String,
    pub(super) process: ProcessId,
    pub(super) accel: Accelerator,
}
