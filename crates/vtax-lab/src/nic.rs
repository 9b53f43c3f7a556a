//! The registry of I/O methods. Each method has its own file with a pure function, which adds the steps for attaching
//! one zone or guest to a plan.

mod bridge;
mod emulated;
mod exclusive;
mod fitting;
mod function;
mod guest;
mod ipvlan;
mod macvlan;
mod method;
mod nat;
mod paravirtual;
mod pasta;
mod published;
mod published_proxy;
mod shared_ip;
mod slirp4netns;
mod veth;
mod vxlan;

use vtax_model::{
    address_family::AddressFamily,
    guest::{Attach, EmulatedNic, System, VirtioNic},
    method::{IoMethod, Unsupported},
    vf::VfOptions,
};

use crate::facts::{Facts, PciDevice};

pub(crate) use fitting::{Fitting, claim, fitting};
pub(crate) use guest::{GuestAttachment, PlannedDisks};
use method::Need;
pub(crate) use method::{
    AddressOf, AttachZone, Claim, Far, Handler, Router, Tunnel, Uplink, ZoneAttachment, ZoneMethod,
};

enum Entry {
    Host,
    Zone(&'static ZoneMethod),
    Guest(Attach),
    /// A PCI device: how it is assigned to a zone, if possible, and to a guest.
    Device(Option<&'static ZoneMethod>, Attach),
}

fn entry(method: IoMethod) -> Entry {
    match method {
        IoMethod::Native => Entry::Host,
        IoMethod::SharedIp => Entry::Zone(&shared_ip::NIC),
        IoMethod::Veth => Entry::Zone(&veth::NIC),
        IoMethod::Bridge => Entry::Zone(&bridge::NIC),
        IoMethod::Macvlan => Entry::Zone(&macvlan::NIC),
        IoMethod::Ipvlan => Entry::Zone(&ipvlan::NIC),
        IoMethod::Vxlan => Entry::Zone(&vxlan::NIC),
        IoMethod::Exclusive => Entry::Zone(&exclusive::NIC),
        IoMethod::Nat => Entry::Zone(&nat::NIC),
        IoMethod::Published => Entry::Zone(&published::NIC),
        IoMethod::PublishedProxy => Entry::Zone(&published_proxy::NIC),
        IoMethod::Pasta => Entry::Zone(&pasta::NIC),
        IoMethod::Slirp4netns => Entry::Zone(&slirp4netns::NIC),
        IoMethod::Assigned => Entry::Device(Some(&exclusive::NIC), Attach::Assigned),
        IoMethod::SrIov => Entry::Device(Some(&function::NIC), Attach::SrIov(VfOptions::default())),
        IoMethod::Paravirtual => Entry::Guest(Attach::Paravirtual(VirtioNic::default())),
        IoMethod::Emulated => Entry::Guest(Attach::Emulated { model: EmulatedNic::default() }),
        IoMethod::RootDomain => Entry::Device(None, Attach::RootDomain),
    }
}

/// The method for a zone on such a wire, or why there is none on this machine.
pub(crate) fn supported(method: IoMethod, cable: bool, facts: &Facts) -> Result<&'static ZoneMethod, Unsupported> {
    if !cable {
        wire(facts)?;
    }
    match entry(method) {
        Entry::Zone(nic) => nic.needs.iter().try_for_each(|need| meets(facts, *need)).map(|()| nic),
        Entry::Device(..) if !cable => Err(no_cable(method)),
        Entry::Device(Some(nic), _) => Ok(nic),
        Entry::Device(None, _) | Entry::Guest(_) => {
            Err(Unsupported::new(format!("`{method}` attaches guests, not zones"), "make it a guest"))
        }
        Entry::Host => Err(Unsupported::new("`native` is the host itself, not a zone", "use the host's own endpoint")),
    }
}

fn meets(facts: &Facts, need: Need) -> Result<(), Unsupported> {
    match need {
        Need::Link(kind) => facts.has_link_kind(kind),
        Need::Translation => facts.can_translate(),
        Need::Program(name) => facts.program(name).map(drop),
    }
}

/// Checks that a method works with addresses of this family.
pub fn family_support(method: IoMethod, family: AddressFamily) -> Result<(), Unsupported> {
    match (method, family) {
        (IoMethod::Slirp4netns, AddressFamily::Ipv6) => {
            let why = "slirp4netns supports IPv6 for tests only, with its own addresses";
            Err(Unsupported::new(why, "use `pasta`, or IPv4 (family = \"ipv4\" of a lab, --family ipv4 of a study)"))
        }
        _ => Ok(()),
    }
}

/// Returns the availability of each method on this machine. The planner gives the same answer. For the methods of
/// guests, the facts must have been gathered [`with guests`](Facts::with_guests).
pub fn availability(facts: &Facts) -> Vec<(IoMethod, Result<(), Unsupported>)> {
    let answer = |method| match entry(method) {
        Entry::Host => wire(facts),
        Entry::Guest(attach) => guest_availability(&attach, &System::default(), facts),
        Entry::Zone(_) => supported(method, false, facts).map(drop),
        Entry::Device(_, attach) => hardware(&attach, facts),
    };
    IoMethod::ALL.map(|method| (method, answer(method))).into()
}

/// Checks that guests with exactly this NIC that boot this system are available here.
pub fn guest_availability(attach: &Attach, system: &System, facts: &Facts) -> Result<(), Unsupported> {
    wire(facts)?;
    fitting::supported(attach, system, facts)
}

/// Checks that this machine has any NIC for such a method.
fn hardware(attach: &Attach, facts: &Facts) -> Result<(), Unsupported> {
    let elsewhere = "try it on the emulated server (--server emulated)";
    let nics: Vec<&PciDevice> =
        facts.pci.devices.iter().filter(|device| device.is_nic() && device.physfn.is_none()).collect();
    let capable = |nic: &&&PciDevice| !matches!(attach, Attach::SrIov(_)) || nic.sriov.is_some();
    let capable: Vec<&PciDevice> = nics.iter().filter(capable).copied().collect();
    let kept = capable.iter().find_map(|nic| nic.kept.as_ref());
    if facts.ordinary_user && !nics.is_empty() {
        let why = "only the machine's root may assign PCI devices";
        return Err(Unsupported::new(why, format!("run as root, or {elsewhere}")));
    }
    match (nics.is_empty(), capable.iter().any(|nic| nic.kept.is_none()), kept) {
        (true, ..) => Err(Unsupported::new("this machine has no PCI NIC", elsewhere)),
        (_, false, None) => Err(Unsupported::new("no NIC of this machine supports virtual functions", elsewhere)),
        (_, false, Some(why)) => Err(Unsupported::new(format!("the only NIC here must stay: {why}"), elsewhere)),
        (_, true, _) if matches!(attach, Attach::RootDomain) => facts.pci.for_guests(),
        (_, true, _) => Ok(()),
    }
}

/// Returns why a method of PCI devices cannot be used on a wire that is a veth pair.
pub fn no_cable(method: IoMethod) -> Unsupported {
    Unsupported::new(
        format!("the method {method} requires a PCI device, but the wire is a veth pair"),
        "make it a cable between two NICs (`nics = [\"eno1\", \"eno2\"]` of a wire, --cable eno1,eno2 of a study), or use the emulated server (--server emulated)",
    )
}

pub(crate) fn wire(facts: &Facts) -> Result<(), Unsupported> {
    facts.has_link_kind("veth")
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        guest::Backend,
        method::{DomainKind, GuestCount, MethodVariant},
    };

    use super::*;
    use crate::plan::tests::facts;

    #[test]
    fn every_method_has_an_answer_with_a_remedy() {
        let answers = availability(&facts());
        assert_eq!(answers.len(), IoMethod::ALL.len());
        for (method, answer) in answers {
            if let Err(Unsupported { why, remedy }) = answer {
                assert!(!why.is_empty() && !remedy.is_empty(), "{method}");
            }
        }
    }

    #[test]
    fn an_ordinary_user_has_no_assigned_nic() {
        let mut facts = facts();
        facts.pci = crate::survey::pci_tests::facts();
        assert_eq!(hardware(&Attach::Assigned, &facts), Ok(()));
        facts.ordinary_user = true;
        let refused = hardware(&Attach::Assigned, &facts).expect_err("not this user's");
        assert!(refused.why.contains("may assign PCI devices") && refused.remedy.contains("run as root"), "{refused}");
    }

    /// If each domain takes the wire's end with its device, the table limits the number of domains by those.
    #[test]
    fn the_table_of_capabilities_counts_what_the_plan_claims() {
        for variant in MethodVariant::all() {
            let claim = match (variant.domain, entry(variant.method)) {
                (DomainKind::Zone, Entry::Zone(nic) | Entry::Device(Some(nic), _)) => nic.claim,
                (DomainKind::Guest, Entry::Guest(attach) | Entry::Device(_, attach)) => {
                    let vnet = variant.virtio.map(|path| path.vnet).unwrap_or_default();
                    let attach = match attach {
                        Attach::Paravirtual(nic) => Attach::Paravirtual(VirtioNic { vnet, ..nic }),
                        other => other,
                    };
                    claim(&attach)
                }
                (DomainKind::Primary, Entry::Host) => continue,
                _ => panic!("{variant} is in the table, and the planner refuses it"),
            };
            let of_table = match variant.capabilities().count {
                GuestCount::Devices | GuestCount::RootComplexes | GuestCount::Wires => Claim::All,
                GuestCount::SwitchPorts => Claim::Receive(Handler::Bridge),
                _ if claim == Claim::All || claim == Claim::Receive(Handler::Bridge) => Claim::Nothing,
                _ => claim,
            };
            // A port of another program's switch isn't planned at all.
            let is_planned = variant.virtio.is_none_or(|path| path.backend != Backend::VhostUser);
            assert!(!is_planned || claim == of_table, "{variant}: {claim:?}");
        }
    }

    #[test]
    fn missing_kernel_features_are_reported() {
        let mut facts = facts();
        facts.kinds.insert("ipvlan".into(), Some("this kernel has no link kind ipvlan".into()));
        let text: Vec<String> = availability(&facts)
            .into_iter()
            .map(|(method, answer)| match answer {
                Ok(()) => format!("{method}: yes"),
                Err(why) => format!("{method}: {why}"),
            })
            .collect();
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn without_veth_nothing_is_available() {
        let mut facts = facts();
        facts.kinds.insert("veth".into(), Some("no".into()));
        assert!(availability(&facts).iter().all(|(_, answer)| answer.is_err()));
    }
}
