//! Ways of attaching a domain: the rows of the table of capabilities.

use std::fmt;

use serde::Serialize;

use super::{
    DomainKind, IoMethod,
    capability::{Capabilities, HostWork},
    table,
};
use crate::guest::{Attach, Backend, VirtioNic, Vnet};

/// Method, with everything that its capabilities depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct MethodVariant {
    /// I/O method.
    pub method: IoMethod,
    /// Kind of domain that is attached.
    pub domain: DomainKind,
    /// Backend and vnet of `paravirtual`.
    #[serde(flatten)]
    pub virtio: Option<VirtioPath>,
}

/// Path of a virtio NIC's packets on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct VirtioPath {
    /// Backend of its rings.
    pub backend: Backend,
    /// Connection to the wire.
    pub vnet: Vnet,
}

impl IoMethod {
    /// Returns the ways of attaching a domain by this method, the usual one first.
    pub fn variants(self) -> Vec<MethodVariant> {
        let plain = |domain: &DomainKind| MethodVariant { method: self, domain: *domain, virtio: None };
        let virtio =
            |(backend, vnet)| MethodVariant { virtio: Some(VirtioPath { backend, vnet }), ..plain(&DomainKind::Guest) };
        let paths = [
            (Backend::Vhost, Vnet::Bridge),
            (Backend::Userspace, Vnet::Bridge),
            (Backend::VhostUser, Vnet::Bridge),
            (Backend::Vhost, Vnet::Macvtap),
        ];
        match self {
            IoMethod::Paravirtual => paths.map(virtio).into(),
            _ => self.domains().iter().map(plain).collect(),
        }
    }
}

impl MethodVariant {
    /// Returns every way of attaching a domain, in the order of tables.
    pub fn all() -> Vec<MethodVariant> {
        IoMethod::ALL.into_iter().flat_map(IoMethod::variants).collect()
    }

    /// Returns the way in which a guest with this NIC is attached. A backend that isn't chosen yet is vhost.
    pub fn of_guest(attach: &Attach) -> MethodVariant {
        let virtio = match attach {
            Attach::Paravirtual(VirtioNic { backend, vnet, .. }) => {
                Some(VirtioPath { backend: backend.unwrap_or(Backend::Vhost), vnet: *vnet })
            }
            _ => None,
        };
        MethodVariant { method: attach.method(), domain: DomainKind::Guest, virtio }
    }

    /// Returns the way in which a zone of this method is attached.
    pub fn of_zone(method: IoMethod) -> MethodVariant {
        MethodVariant { method, domain: DomainKind::Zone, virtio: None }
    }

    /// Returns its row of the table.
    pub fn capabilities(self) -> Capabilities {
        let is_zone = self.domain == DomainKind::Zone;
        match self.method {
            IoMethod::Native => table::NATIVE,
            IoMethod::Assigned if is_zone => table::LINK_OF_ZONE,
            IoMethod::Assigned => table::ASSIGNED,
            IoMethod::SrIov if is_zone => table::FUNCTION_OF_ZONE,
            IoMethod::SrIov => table::FUNCTION,
            IoMethod::Paravirtual => self.virtio.map_or(table::VHOST, VirtioPath::capabilities),
            IoMethod::Emulated => table::EMULATED,
            IoMethod::RootDomain => table::ROOT_DOMAIN,
            IoMethod::SharedIp => table::SHARED_IP,
            IoMethod::Veth => table::VETH,
            IoMethod::Bridge => table::BRIDGE,
            IoMethod::Macvlan | IoMethod::Ipvlan => table::ON_WIRE,
            IoMethod::Vxlan => table::TUNNEL,
            IoMethod::Exclusive => table::WIRE_OF_ZONE,
            IoMethod::Nat | IoMethod::Published => table::TRANSLATED,
            IoMethod::PublishedProxy => table::PROXIED,
            IoMethod::Pasta | IoMethod::Slirp4netns => table::RELAYED,
        }
    }
}

impl VirtioPath {
    fn capabilities(self) -> Capabilities {
        let by_backend = match self.backend {
            Backend::Vhost => table::VHOST,
            Backend::Userspace => Capabilities { host_cpu: HostWork::Qemu, ..table::VHOST },
            Backend::VhostUser => return table::VHOST_USER,
        };
        match self.vnet {
            Vnet::Bridge => by_backend,
            Vnet::Macvtap => table::on_macvtap(by_backend),
        }
    }
}

impl fmt::Display for MethodVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.virtio {
            Some(VirtioPath { backend, vnet: Vnet::Bridge }) => {
                format!("{}:{}", self.method, <&str>::from(backend))
            }
            Some(VirtioPath { backend, vnet }) => format!("{}:{} ({vnet})", self.method, <&str>::from(backend)),
            None if self.domain == DomainKind::Zone && self.method.domains().len() > 1 => {
                format!("{} (zone)", self.method)
            }
            None => self.method.to_string(),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::method::Capability;

    #[test]
    fn every_method_has_an_entry_for_each_kind_of_domain() {
        let all = MethodVariant::all();
        for method in IoMethod::ALL {
            for domain in method.domains() {
                let has = |variant: &&MethodVariant| variant.method == method && variant.domain == *domain;
                assert!(all.iter().any(|variant| has(&variant)), "{method} {domain:?}");
            }
        }
        let names: BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
    }

    #[test]
    fn every_answer_but_yes_has_a_sentence_as_its_reason() {
        for variant in MethodVariant::all() {
            for answer in variant.capabilities().answers() {
                let what = format!("{variant}: {answer:?}");
                assert_eq!(answer.word == "yes", answer.reason.is_empty(), "{what}");
                assert!(!answer.reason.ends_with('.') && !answer.reason.contains("  "), "{what}");
            }
        }
    }

    #[test]
    fn a_guest_has_the_row_of_its_nic() {
        let nic = |backend, vnet| Attach::Paravirtual(VirtioNic { backend, vnet, ..VirtioNic::default() });
        let name = |attach| MethodVariant::of_guest(&attach).to_string();
        assert_eq!(name(nic(None, Vnet::Bridge)), "paravirtual:vhost");
        assert_eq!(name(nic(Some(Backend::Userspace), Vnet::Macvtap)), "paravirtual:userspace (macvtap)");
        assert_eq!(name(Attach::RootDomain), "root-domain");
        assert_eq!(MethodVariant::of_zone(IoMethod::Assigned).to_string(), "assigned (zone)");
        let of = |backend| MethodVariant::of_guest(&nic(Some(backend), Vnet::Macvtap)).capabilities();
        assert_eq!(of(Backend::Userspace).host_cpu, HostWork::Qemu);
        assert_eq!(of(Backend::Userspace).vlan, of(Backend::Vhost).vlan);
    }

    /// Only virtual devices move: a guest whose I/O is all virtual, on any host.
    #[test]
    fn hardware_does_not_move_with_every_driver() {
        for variant in MethodVariant::all() {
            let is_virtual_guest = variant.domain == DomainKind::Guest && !variant.method.is_hardware();
            let answer = variant.capabilities().answer(Capability::LiveMigration).word;
            assert!(is_virtual_guest || answer != "yes", "{variant}");
        }
    }
}
