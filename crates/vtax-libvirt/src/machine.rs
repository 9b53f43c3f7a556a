//! Configuration of a libvirt domain, as far as another domain manager can reproduce it.

mod disks;
mod settings;

use roxmltree::Node;
use vtax_model::{foreign::ForeignText, run::DomainRecord, units::ByteSize};

pub use self::disks::{LibvirtBootDevice, LibvirtDisk};
use super::xml::{XmlError, child, number, owned, source_pci, text_of};

/// A libvirt domain. Its texts come from a file that anyone may have written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibvirtMachine {
    /// Text of `<name>`.
    pub name: ForeignText,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// RAM from `<memory>`, converted from the unit there.
    pub memory: ByteSize,
    /// Kernel that the domain boots without a boot loader.
    pub boot: LibvirtBoot,
    /// `<interface>` elements: the virtual NICs.
    pub links: Vec<LibvirtLink>,
    /// The `<disk>` elements, in the order of the XML.
    pub disks: Vec<LibvirtDisk>,
    /// Boot device if the domain has no kernel.
    pub boot_device: LibvirtBootDevice,
    /// Other settings, each described in a few words.
    pub others: Vec<ForeignText>,
}

/// The kernel that a domain boots without a boot loader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtBoot {
    pub kernel: Option<ForeignText>,
    pub initrd: Option<ForeignText>,
    pub cmdline: Option<ForeignText>,
}

/// A virtual NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtLink {
    /// Type of the `<interface>`: `bridge`, `network`, `direct` etc.
    pub kind: ForeignText,
    /// The bridge, libvirt's network, or the host's link below a macvtap.
    pub source: Option<ForeignText>,
    /// Ethernet address.
    pub mac: Option<ForeignText>,
    /// MTU in bytes, the `size` of `<mtu>`; `None` if the XML does not set it.
    pub mtu: Option<u32>,
    /// VLANs from `<vlan>`; empty without this element.
    pub vlans: LibvirtVlans,
    /// Model of the NIC, e.g. `virtio`.
    pub model: Option<ForeignText>,
    /// Other settings, each described in a few words.
    pub others: Vec<ForeignText>,
}

/// The VLANs of a virtual NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtVlans {
    /// VLAN whose frames are untagged in the domain.
    pub native: Option<u32>,
    /// VLANs whose frames are tagged in the domain.
    pub tagged: Vec<u32>,
}

/// Devices that need not be reported as lost: every domain of vtax has similar ones, or does not need them.
const USUAL: [&str; 9] =
    ["emulator", "controller", "input", "serial", "console", "memballoon", "audio", "video", "panic"];
/// Devices that are reported separately.
const OWN: [&str; 2] = ["interface", "disk"];
/// Elements of an `<interface>` that are read, and those that libvirt adds to each.
const OF_INTERFACE: [&str; 9] = ["mac", "source", "model", "mtu", "vlan", "target", "alias", "address", "driver"];

impl LibvirtMachine {
    pub(super) fn of(domain: Node<'_, '_>, record: &DomainRecord) -> Result<LibvirtMachine, XmlError> {
        let devices: Vec<_> = child(domain, "devices").into_iter().flat_map(|devices| devices.children()).collect();
        let named = |name: &'static str| devices.iter().copied().filter(move |device| device.has_tag_name(name));
        let os = child(domain, "os");
        let text = |name: &str| Some(text_of(os?, name)?.into());
        let disks: Vec<LibvirtDisk> = named("disk").map(LibvirtDisk::of).collect();
        let others = settings::settings(domain, record).into_iter().chain(devices.iter().filter_map(other_device));
        Ok(LibvirtMachine {
            name: record.name.clone(),
            vcpus: record.vcpus,
            memory: record.memory,
            boot: LibvirtBoot { kernel: text("kernel"), initrd: text("initrd"), cmdline: text("cmdline") },
            links: named("interface").map(LibvirtLink::of).collect::<Result<_, _>>()?,
            boot_device: disks::boot_device(domain, &devices, &disks),
            disks,
            others: others.collect(),
        })
    }
}

impl LibvirtLink {
    fn of(interface: Node<'_, '_>) -> Result<LibvirtLink, XmlError> {
        let said = |name: &str, attribute: &str| child(interface, name).and_then(|child| owned(child, attribute));
        let kind = interface.attribute("type").unwrap_or_default();
        // While the domain runs, a network of libvirt also has a bridge.
        let keys: &[&str] = if kind == "network" { &["network"] } else { &["bridge", "dev"] };
        let source = keys.iter().find_map(|key| said("source", key));
        let others = interface.children().filter(Node::is_element).map(|child| child.tag_name().name());
        let others = others.filter(|name| !OF_INTERFACE.contains(name)).map(|name| format!("<{name}>").into());
        let driver = child(interface, "driver").into_iter().flat_map(|driver| driver.attributes());
        let driver = driver.filter(|attribute| attribute.name() != "name");
        let driver = driver.map(|attribute| format!("{}={}", attribute.name(), attribute.value()).into());
        let place = ["portgroup", "mode"].into_iter().filter_map(|key| Some((key, said("source", key)?)));
        // A macvtap in mode `bridge` corresponds to a port of a switch.
        let place = place.filter(|(key, value)| (kind == "direct" || *key != "mode") && *value != "bridge");
        let place = place.map(|(key, value)| format!("{key}={value}").into());
        Ok(LibvirtLink {
            kind: kind.to_owned().into(),
            source: source.map(ForeignText::from),
            mac: said("mac", "address").map(ForeignText::from),
            mtu: number(said("mtu", "size").as_deref(), "MTU")?,
            vlans: child(interface, "vlan").map_or(Ok(LibvirtVlans::default()), LibvirtVlans::of)?,
            model: said("model", "type").map(ForeignText::from),
            others: driver.chain(place).chain(others).collect(),
        })
    }
}

impl LibvirtVlans {
    /// Reads the tags. A single tag applies to all frames. A trunk has several, one of which may apply to untagged
    /// frames (<https://libvirt.org/formatdomain.html#setting-vlan-tag-on-supported-network-types-only>).
    fn of(vlan: Node<'_, '_>) -> Result<LibvirtVlans, XmlError> {
        let mut tags = Vec::new();
        for tag in vlan.children().filter(|tag| tag.has_tag_name("tag")) {
            let id: u32 = number(tag.attribute("id"), "VLAN")?.ok_or(XmlError::Missing("number of a VLAN"))?;
            tags.push((id, tag.attribute("nativeMode") == Some("untagged")));
        }
        let is_trunk = tags.len() > 1 || vlan.attribute("trunk") == Some("yes");
        let native = tags.iter().find(|(_, native)| *native || !is_trunk).map(|(id, _)| *id);
        let tagged = tags.into_iter().map(|(id, _)| id).filter(|id| Some(*id) != native).collect();
        Ok(LibvirtVlans { native, tagged })
    }
}

/// Describes a device: `the PCI device 0000:af:00.0`, or `a device <graphics> of type vnc`.
fn other_device(device: &Node<'_, '_>) -> Option<ForeignText> {
    let name = device.tag_name().name();
    let is_special = match name {
        "serial" | "console" => !["pty", "tty"].contains(&device.attribute("type").unwrap_or("pty")),
        "controller" => child(*device, "driver").is_some(),
        _ => false,
    };
    if !device.is_element() || !is_special && USUAL.contains(&name) || OWN.contains(&name) {
        return None;
    }
    let kind = device.attribute("type").or(device.attribute("model"));
    let kind = kind.map(|kind| format!(" of type {kind}")).unwrap_or_default();
    let pci = source_pci(*device).filter(|_| name == "hostdev");
    Some(pci.map_or(format!("a device <{name}>{kind}"), |pci| format!("the PCI device {pci}")).into())
}
