//! A virtual machine that existed before the run, as described by its manager.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::Display;

use crate::{
    endpoint::LabHost,
    foreign::ForeignText,
    guest::{Accelerator, Flavour},
    method::IoMethod,
    study::Row,
    units::{BitRate, ByteSize},
    vf::Vlan,
};

/// The manager of a virtual machine, which describes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DomainKeeper {
    /// libvirt, whose XML describes the domain.
    #[default]
    Libvirt,
    /// vtax itself, as a logical domain (`vtax ldm`).
    Ldm,
}

/// A libvirt domain, or a logical domain.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainRecord {
    /// Its manager.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub keeper: DomainKeeper,
    /// The host of a lab that it runs on, `LAB/HOST`; absent for the machine of vtax.
    pub within: Option<LabHost>,
    /// Its name there.
    pub name: ForeignText,
    /// Unique id; empty for a logical domain, whose name suffices.
    #[serde(default, skip_serializing_if = "ForeignText::is_empty")]
    pub uuid: ForeignText,
    /// KVM or TCG.
    pub accel: Accelerator,
    /// The machine that QEMU emulates, e.g. `pc-q35-10.0`; empty if not reported.
    pub machine: ForeignText,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// RAM.
    pub memory: ByteSize,
    /// True if it consists of huge pages.
    #[serde(default)]
    pub hugepages: bool,
    /// NUMA nodes of its RAM, in the kernel's notation; any if absent.
    pub nodes: Option<ForeignText>,
    /// The host's CPUs on which each virtual CPU may run, in the kernel's notation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vcpu_pins: BTreeMap<u32, ForeignText>,
    /// CPUs of QEMU's other threads, which do the work that neither vhost nor an I/O thread does.
    pub emulator_pin: Option<ForeignText>,
    /// The CPUs of each I/O thread.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub io_pins: BTreeMap<u32, ForeignText>,
    /// The measured NIC; absent if it isn't known which one that is.
    pub nic: Option<DomainNic>,
}

/// NIC of a domain, as reported by the domain's keeper.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DomainNic {
    /// Its name in the domain manager, if that names NICs.
    pub name: Option<ForeignText>,
    /// `vnet` or `vf` (a virtual function) of a logical domain. Otherwise the type of libvirt's `<interface>`:
    /// `network`, `bridge`, `direct`, `hostdev`, `vhostuser`, `user`, …; `pci` is a device that is passed through as a
    /// whole (`<hostdev>`).
    #[serde(rename = "type")]
    pub kind: ForeignText,
    /// The Ethernet address in the guest, if reported.
    pub mac: Option<ForeignText>,
    /// The model that the guest sees, e.g. `virtio` or `e1000e`.
    pub model: Option<ForeignText>,
    /// Its I/O method; absent if vtax doesn't have it.
    pub method: Option<IoMethod>,
    /// Kind within that method; absent if vtax doesn't have it or it isn't known.
    pub backend: Option<Flavour>,
    /// Number of queue pairs.
    pub queues: u32,
    /// Descriptors of a receive queue, if specified.
    pub rx_ring: Option<u32>,
    /// Descriptors of a transmit queue, if specified.
    pub tx_ring: Option<u32>,
    /// The packed ring of virtio 1.1.
    #[serde(default)]
    pub packed: bool,
    /// The VLAN of its untagged frames, if known.
    pub vlan: Option<Vlan>,
    /// Limit of its send rate and of its receive rate.
    pub maxbw: Option<BitRate>,
    /// Its MTU, if reported.
    pub mtu: Option<u32>,
    /// Its connection: a bridge, a network, a link, a socket.
    pub source: Option<ForeignText>,
    /// The host's link created for it: a tap or a macvtap. A different one after each start.
    pub target: Option<ForeignText>,
    /// The host's PCI address of a passed-through device.
    pub pci: Option<ForeignText>,
}

impl DomainRecord {
    /// Returns true if samples of both belong together: changes due to a restart of the domain are ignored.
    pub fn is_same_as(&self, other: &DomainRecord) -> bool {
        let plain = |record: &DomainRecord| {
            let nic = record.nic.clone().map(|nic| DomainNic { target: None, ..nic });
            DomainRecord { nic, ..record.clone() }
        };
        plain(self) == plain(other)
    }
}

impl DomainNic {
    /// Returns true if a row of a study may have this name for its domain; none if that isn't known, or the row doesn't
    /// specify an attachment.
    pub fn is_as(&self, row: Row) -> Option<bool> {
        match row {
            Row::Method(method) => Some(method == self.method?),
            Row::Device(flavour) if self.method? == flavour.method() => Some(flavour == self.backend?),
            Row::Device(_) => Some(false),
            Row::Queue(_) => Some(self.method? == IoMethod::Paravirtual),
            Row::Zones { .. } => Some(false),
            Row::Path(_)
            | Row::Engine(_)
            | Row::Nic(_)
            | Row::Load(_)
            | Row::Pods(_)
            | Row::Disk(_)
            | Row::Migration(_)
            | Row::AsIs
            | Row::Tuned { .. } => None,
        }
    }

    /// Returns the name that a row would have for it: `paravirtual:vhost`.
    pub fn label(&self) -> Option<String> {
        match (self.backend, self.method) {
            (Some(backend), _) => Some(Row::Device(backend).to_string()),
            (None, method) => method.map(|method| method.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Backend;

    fn row(name: &str) -> Row {
        name.parse().expect("a row")
    }

    #[test]
    fn another_start_of_a_domain_is_the_same_and_another_binding_is_not() {
        let of = |change: &str, json: &str| -> DomainRecord {
            let nic = r#"{"name":"net0","type":"vnet","queues":1,"mac":"a","mtu":1500,"vlan":1,"source":"vsw0","target":"t1"}"#;
            let whole = format!(
                r#"{{"keeper":"ldm","within":"rack/sut","name":"mars","accel":"tcg","machine":"","vcpus":1,"memory":1024,"nic":{nic}}}"#
            );
            assert!(whole.contains(change), "{change}");
            serde_json::from_str(&whole.replace(change, json)).expect("a record")
        };
        let mars = of("", "");
        assert!(mars.is_same_as(&of(r#""t1""#, r#""t2""#)));
        let others = [
            (r#""vsw0""#, r#""vsw1""#),
            (r#""net0""#, r#""net1""#),
            (r#""mac":"a""#, r#""mac":"b""#),
            ("1500", "9000"),
            (r#""vlan":1"#, r#""vlan":2"#),
            (r#""queues":1"#, r#""queues":1,"maxbw":"100M""#),
            (r#""vcpus":1"#, r#""vcpus":2"#),
            (r#""rack/sut""#, r#""rack/peer""#),
            (r#""keeper":"ldm""#, r#""keeper":"libvirt""#),
        ];
        for (change, json) in others {
            assert!(!mars.is_same_as(&of(change, json)), "{json}");
        }
        let text = serde_json::to_string(&mars).expect("JSON");
        assert_eq!(serde_json::from_str::<DomainRecord>(&text).expect("its own"), mars);
    }

    #[test]
    fn a_row_calls_a_nic_by_its_name_or_not() {
        let backend = Some(Flavour::Backend(Backend::Vhost));
        let nic = DomainNic { method: Some(IoMethod::Paravirtual), backend, ..DomainNic::default() };
        assert_eq!(nic.label().as_deref(), Some("paravirtual:vhost"));
        let asked = ["paravirtual", "paravirtual:vhost", "paravirtual:userspace", "emulated:e1000e", "native"];
        assert_eq!(asked.map(|name| nic.is_as(row(name))), [true, true, false, false, false].map(Some));
        assert_eq!(nic.is_as(row("epoll")), None);
        let unknown = DomainNic { backend: None, ..nic };
        let asked = ["paravirtual", "paravirtual:vhost", "emulated"];
        assert_eq!(asked.map(|name| unknown.is_as(row(name))), [Some(true), None, Some(false)]);
        assert_eq!(DomainNic::default().is_as(row("paravirtual")), None);
    }
}
