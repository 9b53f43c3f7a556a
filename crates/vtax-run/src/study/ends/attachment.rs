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
    units::Mtu,
};
use vtax_sys::process::ProcessId;
use vtax_wire::protocol::LinkSetup;

pub(super) use self::lab_place::LabPlace;
use self::{namespace::HeldNamespace, switch_end::SwitchEnd};
use super::agent::Agent;
use crate::{events::RunEvents, stop::Stop};

pub(super) trait Attachment {
    /// Starts the agent of the end. `name` is the name of the end for errors, `program` the agent on this machine.
    fn start_agent(&self, name: &str, program: &Path, events: &RunEvents) -> Result<Agent, Stop>;

    /// Returns whether one agent serves the end in both roles. Two ends of a pair in one process would disturb each
    /// other.
    fn has_one_agent(&self) -> bool {
        false
    }

    fn place(&self) -> Option<&LabPlace> {
        None
    }

    /// The port of a virtual switch that it is at, if it is a logical domain or the host of one.
    fn switch_end(&self) -> Option<&SwitchEnd> {
        None
    }

    /// The stack of the host that has the switch.
    fn host_stack(&self) -> Option<HostStack> {
        None
    }

    /// Returns whether the end is in the network stack that vtax itself is in.
    fn is_in_stack_of_vtax(&self) -> bool {
        false
    }

    /// The namespace of this machine that it is, if it is one that existed before, outside of labs.
    fn namespace(&self) -> Option<&HeldNamespace> {
        None
    }

    /// Name of its network stack where paths are shown. None if it has the name of its machine.
    fn stack_name(&self) -> Option<&str> {
        None
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

    /// Returns the agent's NIC setup when the lab gets another MTU.
    fn nic_setup(&self, _mtu: Mtu) -> Option<LinkSetup> {
        None
    }

    /// The number of its virtual CPUs, if the run chooses their CPUs on the host.
    fn vcpus(&self) -> Option<usize> {
        None
    }

    fn pin_vcpus(&self, _cpus: &[u32]) -> miette::Result<()> {
        Ok(())
    }

    /// The QEMU under the end, if its threads can be observed on this machine.
    fn qemu(&self) -> Option<GuestProcess> {
        None
    }

    /// The guest that serves the virtual switch of the end, if a guest does and its threads can be observed here.
    fn switch_server(&self) -> Option<GuestProcess> {
        None
    }

    /// Returns the machine that runs the end, if it is a guest.
    fn guest_machine(&self) -> Option<GuestMachine> {
        None
    }

    /// The programs of this machine that carry its traffic.
    fn relays(&self) -> Vec<RelayProcess> {
        Vec::new()
    }

    /// Why its guest has ended, with what the guest said last, or a program that carried its traffic.
    fn death(&self) -> Option<miette::Report> {
        None
    }

    /// Returns the record of the end's domain.
    fn domain(&self) -> Option<&DomainRecord> {
        None
    }

    /// Returns notes about the end as an end of `row`, a sentence each.
    fn notes(&self, _row: Row, _name: &str) -> Vec<PlacementNote> {
        Vec::new()
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
