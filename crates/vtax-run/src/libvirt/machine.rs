//! What a domain of libvirt is made of, as far as another manager of domains can have the same.

use roxmltree::Node;
use vtax_model::{foreign::ForeignText, run::DomainRecord, units::ByteSize};

use super::xml::{XmlError, at, child, number, owned, source_pci, text_of};

/// A domain of libvirt. Its texts come from a file that anybody may have written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibvirtMachine {
    /// Text of `<name>`.
    pub name: ForeignText,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// RAM from `<memory>`, whatever its unit there.
    pub memory: ByteSize,
    /// The kernel that it boots without a boot loader.
    pub boot: LibvirtBoot,
    /// Its virtual NICs.
    pub links: Vec<LibvirtLink>,
    /// The `<disk>` elements, in the order of the XML.
    pub disks: Vec<LibvirtDisk>,
    /// What else it has, each in a few words.
    pub others: Vec<ForeignText>,
}

/// The kernel that a domain boots without a boot loader.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "as libvirt calls them")]
pub struct LibvirtBoot {
    pub kernel: Option<ForeignText>,
    pub initrd: Option<ForeignText>,
    pub cmdline: Option<ForeignText>,
}

/// A virtual NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtLink {
    /// The kind of its `<interface>`: `bridge`, `network`, `direct` ….
    pub kind: ForeignText,
    /// The bridge, libvirt's network, or the link of the host below a macvtap.
    pub source: Option<ForeignText>,
    /// Its Ethernet address.
    pub mac: Option<ForeignText>,
    /// MTU in bytes, the `size` of `<mtu>`; `None` if the XML does not set it.
    pub mtu: Option<u32>,
    /// VLANs from `<vlan>`; empty without this element.
    pub vlans: LibvirtVlans,
    /// The kind of the NIC, as `virtio`.
    pub model: Option<ForeignText>,
    /// What else is said of it, each in a few words.
    pub others: Vec<ForeignText>,
}

/// The VLANs of a virtual NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtVlans {
    /// Whose frames have no tag in the domain.
    pub native: Option<u32>,
    /// Whose frames have tags there.
    pub tagged: Vec<u32>,
}

/// A `<disk>` element of the domain's XML.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtDisk {
    /// Its name in the domain, as `vda`.
    pub target: Option<ForeignText>,
    /// What it is: `disk`, `cdrom`, `floppy` or `lun`.
    pub device: ForeignText,
    /// The file, block device or volume behind it.
    pub source: Option<ForeignText>,
    /// The format, if a file is behind it.
    pub file_format: Option<ForeignText>,
}

/// Devices that are no loss: every domain of vtax has the like, or needs none.
const USUAL: [&str; 9] =
    ["emulator", "controller", "input", "serial", "console", "memballoon", "audio", "video", "panic"];
/// Devices with lines of their own.
const OWN: [&str; 2] = ["interface", "disk"];
/// What is read of an `<interface>`, and what libvirt adds to each.
const OF_INTERFACE: [&str; 9] = ["mac", "source", "model", "mtu", "vlan", "target", "alias", "address", "driver"];

impl LibvirtMachine {
    pub(super) fn of(domain: Node<'_, '_>, record: &DomainRecord) -> Result<LibvirtMachine, XmlError> {
        let devices: Vec<_> = child(domain, "devices").into_iter().flat_map(|devices| devices.children()).collect();
        let named = |name: &'static str| devices.iter().copied().filter(move |device| device.has_tag_name(name));
        let os = child(domain, "os");
        let text = |name: &str| Some(text_of(os?, name)?.into());
        Ok(LibvirtMachine {
            name: record.name.clone(),
            vcpus: record.vcpus,
            memory: record.memory,
            boot: LibvirtBoot { kernel: text("kernel"), initrd: text("initrd"), cmdline: text("cmdline") },
            links: named("interface").map(LibvirtLink::of).collect::<Result<_, _>>()?,
            disks: named("disk").map(LibvirtDisk::of).collect(),
            others: settings(domain, record).into_iter().chain(devices.iter().filter_map(other_device)).collect(),
        })
    }
}

impl LibvirtLink {
    fn of(interface: Node<'_, '_>) -> Result<LibvirtLink, XmlError> {
        let said = |name: &str, attribute: &str| child(interface, name).and_then(|child| owned(child, attribute));
        let kind = interface.attribute("type").unwrap_or_default();
        // A network of libvirt has a bridge too while the domain runs.
        let keys: &[&str] = if kind == "network" { &["network"] } else { &["bridge", "dev"] };
        let source = keys.iter().find_map(|key| said("source", key));
        let others = interface.children().filter(Node::is_element).map(|child| child.tag_name().name());
        let others = others.filter(|name| !OF_INTERFACE.contains(name)).map(|name| format!("<{name}>").into());
        let driver = ["queues", "rx_queue_size", "tx_queue_size", "packed"];
        let driver = driver.iter().filter_map(|key| Some(format!("{key}={}", said("driver", key)?).into()));
        Ok(LibvirtLink {
            kind: kind.to_owned().into(),
            source: source.map(ForeignText::from),
            mac: said("mac", "address").map(ForeignText::from),
            mtu: number(said("mtu", "size").as_deref(), "MTU")?,
            vlans: child(interface, "vlan").map_or(Ok(LibvirtVlans::default()), LibvirtVlans::of)?,
            model: said("model", "type").map(ForeignText::from),
            others: driver.chain(others).collect(),
        })
    }
}

impl LibvirtVlans {
    /// One tag is that of all frames. A trunk has several, of which one may be of frames without a tag
    /// (<https://libvirt.org/formatdomain.html#setting-vlan-tag-on-supported-network-types-only>).
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

impl LibvirtDisk {
    fn of(disk: Node<'_, '_>) -> LibvirtDisk {
        let is_file = disk.attribute("type") == Some("file");
        let source = child(disk, "source");
        let path = ["file", "dev", "name", "volume", "dir"];
        LibvirtDisk {
            target: child(disk, "target").and_then(|target| owned(target, "dev")).map(ForeignText::from),
            device: disk.attribute("device").unwrap_or("disk").to_owned().into(),
            source: source.and_then(|source| path.iter().find_map(|key| owned(source, key))).map(ForeignText::from),
            file_format: child(disk, "driver")
                .and_then(|driver| owned(driver, "type"))
                .filter(|_| is_file)
                .map(ForeignText::from),
        }
    }
}

/// Settings of the domain that aren't devices.
fn settings(domain: Node<'_, '_>, record: &DomainRecord) -> Vec<ForeignText> {
    let pinned = record.vcpu_pins.len();
    let cpu = child(domain, "cpu").map(|cpu| cpu.attribute("mode").unwrap_or("custom").to_owned());
    let told = [
        at(domain, &["os", "loader"]).map(|_| "the firmware (<loader>)".to_owned()),
        cpu.map(|mode| format!("the CPU model (mode {mode})")),
        (pinned > 0).then(|| format!("the host's CPUs of {pinned} vCPUs (<vcpupin>)")),
        record.emulator_pin.as_ref().map(|cpus| format!("the host's CPUs of QEMU's own threads ({})", cpus.raw())),
        record.hugepages.then(|| "huge pages (<memoryBacking>)".to_owned()),
        record.nodes.as_ref().map(|nodes| format!("the NUMA nodes of its memory ({})", nodes.raw())),
    ];
    told.into_iter().flatten().map(ForeignText::from).collect()
}

/// `the PCI device 0000:af:00.0`, or `a device <graphics> of type vnc`.
fn other_device(device: &Node<'_, '_>) -> Option<ForeignText> {
    let name = device.tag_name().name();
    if !device.is_element() || USUAL.contains(&name) || OWN.contains(&name) {
        return None;
    }
    let kind = device.attribute("type").or(device.attribute("model"));
    let kind = kind.map(|kind| format!(" of type {kind}")).unwrap_or_default();
    let pci = source_pci(*device).filter(|_| name == "hostdev");
    Some(pci.map_or(format!("a device <{name}>{kind}"), |pci| format!("the PCI device {pci}")).into())
}
