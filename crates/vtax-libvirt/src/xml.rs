//! Reads the properties of a domain that identify a path from its XML (<https://libvirt.org/formatdomain.html>).

use std::{collections::BTreeMap, str::FromStr};

use roxmltree::{Document, Node, ParsingOptions};
use vtax_model::{
    foreign::ForeignText,
    guest::{Accelerator, Backend, Flavour},
    method::IoMethod,
    run::{DomainKeeper, DomainNic, DomainRecord},
    units::ByteSize,
};

use super::machine::LibvirtMachine;

/// Size limit of the XML; a domain with hundreds of devices has about 100 KiB.
const BYTES_MOST: usize = 4 << 20;
const NODES_MOST: u32 = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// The domain, without its NIC.
    pub record: DomainRecord,
    pub nics: Vec<XmlNic>,
    pub machine: LibvirtMachine,
}

/// A NIC, or a device that may be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XmlNic {
    pub facts: DomainNic,
    /// libvirt's alias of the NIC, e.g. `net0`. The name of QEMU's backend is `host` followed by the alias.
    pub alias: Option<String>,
    /// True if the XML does not name the backend of a virtio-net tap: then it is vhost, unless QEMU or the host could
    /// not use it.
    pub open: bool,
}

/// Reason why vtax cannot read the XML.
#[derive(Debug, thiserror::Error)]
pub enum XmlError {
    #[error("{bytes} bytes of XML, more than the limit of {BYTES_MOST}")]
    Long { bytes: usize },
    // The message quotes the XML.
    #[error("{}", ForeignText::from(.0.to_string()))]
    Broken(#[from] roxmltree::Error),
    #[error("its XML is a <{0}>, not a <domain>")]
    Other(ForeignText),
    #[error("its XML has no {0}")]
    Missing(&'static str),
    #[error("invalid {what} `{value}` in its XML")]
    Value { what: &'static str, value: ForeignText },
    #[error("unsupported hypervisor `{0}`: vtax supports kvm and qemu")]
    Hypervisor(ForeignText),
}

/// Parses the output of `virsh dumpxml`. Document types are refused, and so are all entities except the five of XML
/// itself.
pub(crate) fn read(text: &str) -> Result<Described, XmlError> {
    if text.len() > BYTES_MOST {
        return Err(XmlError::Long { bytes: text.len() });
    }
    let options = ParsingOptions { nodes_limit: NODES_MOST, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)?;
    let domain = document.root_element();
    match domain.tag_name().name() {
        "domain" => described(domain),
        other => Err(XmlError::Other(other.into())),
    }
}

fn described(domain: Node<'_, '_>) -> Result<Described, XmlError> {
    let accel = match domain.attribute("type").unwrap_or_default() {
        "kvm" => Accelerator::Kvm,
        "qemu" => Accelerator::Tcg,
        other => return Err(XmlError::Hypervisor(other.into())),
    };
    let vcpus = child(domain, "vcpu");
    let tune = child(domain, "cputune");
    let count = vcpus.map_or(Ok(None), |vcpus| number(vcpus.attribute("current").or(vcpus.text()), "number of vCPUs"));
    let everywhere = vcpus.and_then(|vcpus| vcpus.attribute("cpuset")).map(str::to_owned);
    let backing = child(domain, "memoryBacking");
    let record = DomainRecord {
        keeper: DomainKeeper::Libvirt,
        within: None,
        name: text_of(domain, "name").ok_or(XmlError::Missing("<name>"))?.into(),
        uuid: text_of(domain, "uuid").unwrap_or_default().into(),
        accel,
        machine: at(domain, &["os", "type"]).and_then(|os| os.attribute("machine")).unwrap_or_default().into(),
        vcpus: count?.unwrap_or(1),
        memory: memory(domain)?,
        hugepages: backing.is_some_and(|backing| child(backing, "hugepages").is_some()),
        nodes: at(domain, &["numatune", "memory"]).and_then(|memory| owned(memory, "nodeset")).map(ForeignText::from),
        vcpu_pins: pins(tune, "vcpupin", "vcpu", everywhere.as_ref(), count_of(vcpus))?,
        emulator_pin: tune
            .and_then(|tune| owned(child(tune, "emulatorpin")?, "cpuset"))
            .or(everywhere)
            .map(ForeignText::from),
        io_pins: pins(tune, "iothreadpin", "iothread", None, 0)?,
        nic: None,
    };
    let devices = child(domain, "devices");
    let nics = devices.into_iter().flat_map(|devices| devices.children()).filter_map(nic);
    let machine = LibvirtMachine::of(domain, &record)?;
    Ok(Described { nics: nics.collect::<Result<_, _>>()?, record, machine })
}

/// Returns the number of virtual CPUs to which the `cpuset` of `<vcpu>` applies.
fn count_of(vcpus: Option<Node<'_, '_>>) -> u32 {
    let text = vcpus.and_then(|vcpus| vcpus.attribute("current").or(vcpus.text()));
    // Linux has at most 8192 CPUs.
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(1).min(8192)
}

/// Returns the CPUs of each pinned thread.
fn pins(
    tune: Option<Node<'_, '_>>,
    element: &'static str,
    key: &'static str,
    everywhere: Option<&String>,
    count: u32,
) -> Result<BTreeMap<u32, ForeignText>, XmlError> {
    // With a few thousand vCPUs, copies of a long list would be many times as large as the XML.
    if let Some(cpus) = everywhere.filter(|cpus| cpus.len().saturating_mul(count as usize) > BYTES_MOST) {
        let value = cpus.chars().take(40).collect::<String>();
        return Err(XmlError::Value { what: "CPU list for this number of vCPUs", value: value.into() });
    }
    let mut pins: BTreeMap<u32, ForeignText> =
        everywhere.map(|cpus| (0..count).map(|thread| (thread, cpus.into())).collect()).unwrap_or_default();
    for pin in tune.into_iter().flat_map(|tune| tune.children()).filter(|pin| pin.has_tag_name(element)) {
        let thread = number(pin.attribute(key), "thread's number")?.ok_or(XmlError::Missing("number of a pin"))?;
        pins.extend(owned(pin, "cpuset").map(|cpus| (thread, cpus.into())));
    }
    Ok(pins)
}

/// Returns the memory size. libvirt prints KiB.
fn memory(domain: Node<'_, '_>) -> Result<ByteSize, XmlError> {
    let Some(memory) = child(domain, "memory") else { return Err(XmlError::Missing("<memory>")) };
    let count: u64 = number(memory.text(), "amount of memory")?.unwrap_or_default();
    let unit = memory.attribute("unit").unwrap_or("KiB");
    let bytes: u64 = match unit {
        "b" | "bytes" => 1,
        "k" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        other => return Err(XmlError::Value { what: "unit of memory", value: other.into() }),
    };
    let value = || XmlError::Value { what: "amount of memory", value: format!("{count} {unit}").into() };
    count.checked_mul(bytes).map(ByteSize).ok_or_else(value)
}

/// Returns the device if it is, or may be, a NIC of the domain.
fn nic(device: Node<'_, '_>) -> Option<Result<XmlNic, XmlError>> {
    match device.tag_name().name() {
        "interface" => Some(interface(device)),
        "hostdev" if device.attribute("type") == Some("pci") => Some(Ok(handed_over(device))),
        _ => None,
    }
}

/// Returns a PCI device that the guest drives itself. libvirt does not report whether it is a NIC.
fn handed_over(device: Node<'_, '_>) -> XmlNic {
    let (kind, method) = ("pci".to_owned(), Some(IoMethod::Assigned));
    let facts = DomainNic {
        kind: kind.into(),
        method,
        pci: source_pci(device).map(ForeignText::from),
        queues: 1,
        ..DomainNic::default()
    };
    XmlNic { facts, alias: alias(device), open: false }
}

fn interface(interface: Node<'_, '_>) -> Result<XmlNic, XmlError> {
    let kind = interface.attribute("type").ok_or(XmlError::Missing("type of an <interface>"))?.to_owned();
    let model = child(interface, "model").and_then(|model| owned(model, "type"));
    let driver = child(interface, "driver");
    let said = |name: &str| driver.and_then(|driver| driver.attribute(name));
    let method = method(&kind, model.as_deref());
    let backend = backend(&kind, method, model.as_deref(), said("name"));
    let open = backend.is_none() && method == Some(IoMethod::Paravirtual) && has_tap(&kind);
    let source = child(interface, "source");
    let facts = DomainNic {
        name: None,
        vlan: None,
        maxbw: None,
        mac: child(interface, "mac")
            .and_then(|mac| owned(mac, "address"))
            .map(|mac| mac.to_ascii_lowercase())
            .map(ForeignText::from),
        method,
        backend,
        queues: number(said("queues"), "number of queues")?.unwrap_or(1),
        rx_ring: number(said("rx_queue_size"), "size of a ring")?,
        tx_ring: number(said("tx_queue_size"), "size of a ring")?,
        packed: said("packed") == Some("on"),
        mtu: child(interface, "mtu").map_or(Ok(None), |mtu| number(mtu.attribute("size"), "MTU"))?,
        // The bridge or link of the NIC takes precedence over the name of libvirt's network.
        source: source
            .and_then(|source| ["bridge", "dev", "network", "path", "name"].iter().find_map(|name| owned(source, name)))
            .map(ForeignText::from),
        target: child(interface, "target").and_then(|target| owned(target, "dev")).map(ForeignText::from),
        pci: if kind == "hostdev" { source_pci(interface).map(ForeignText::from) } else { None },
        kind: kind.into(),
        model: model.map(ForeignText::from),
    };
    Ok(XmlNic { facts, alias: alias(interface), open })
}

/// Returns the method. `<interface type='hostdev'>` is only for virtual functions: libvirt sets their addresses through
/// the NIC.
fn method(kind: &str, model: Option<&str>) -> Option<IoMethod> {
    match (kind, model) {
        ("hostdev", _) => Some(IoMethod::SrIov),
        ("vhostuser" | "vdpa", _) => Some(IoMethod::Paravirtual),
        (_, Some("virtio" | "virtio-transitional" | "virtio-non-transitional")) => Some(IoMethod::Paravirtual),
        (_, Some(_)) => Some(IoMethod::Emulated),
        (_, None) => None,
    }
}

fn backend(kind: &str, method: Option<IoMethod>, model: Option<&str>, driver: Option<&str>) -> Option<Flavour> {
    match (method?, kind, driver) {
        (IoMethod::Emulated, ..) => {
            model?.parse().ok().filter(|flavour: &Flavour| flavour.method() == IoMethod::Emulated)
        }
        (IoMethod::Paravirtual, "vhostuser", _) => Some(Flavour::Backend(Backend::VhostUser)),
        (IoMethod::Paravirtual, "vdpa", _) => None,
        (IoMethod::Paravirtual, _, Some("vhost")) if has_tap(kind) => Some(Flavour::Backend(Backend::Vhost)),
        (IoMethod::Paravirtual, _, Some("qemu")) => Some(Flavour::Backend(Backend::Userspace)),
        // The backend is a socket, and vhost serves only taps.
        (IoMethod::Paravirtual, ..) if !has_tap(kind) => Some(Flavour::Backend(Backend::Userspace)),
        _ => None,
    }
}

fn has_tap(kind: &str) -> bool {
    ["network", "bridge", "direct", "ethernet"].contains(&kind)
}

/// Returns `0000:3b:02.1` for `<source><address domain='0x0000' bus='0x3b' slot='0x02' function='0x1'/>`.
pub(super) fn source_pci(device: Node<'_, '_>) -> Option<String> {
    let address = at(device, &["source", "address"])?;
    let part = |name: &str| u32::from_str_radix(address.attribute(name)?.trim_start_matches("0x"), 16).ok();
    let (domain, bus) = (part("domain").unwrap_or(0), part("bus")?);
    Some(format!("{domain:04x}:{bus:02x}:{:02x}.{:x}", part("slot")?, part("function")?))
}

fn alias(device: Node<'_, '_>) -> Option<String> {
    owned(child(device, "alias")?, "name")
}

pub(super) fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

pub(super) fn at<'a, 'input>(node: Node<'a, 'input>, path: &[&str]) -> Option<Node<'a, 'input>> {
    path.iter().try_fold(node, |node, name| child(node, name))
}

pub(super) fn text_of(node: Node<'_, '_>, name: &str) -> Option<String> {
    child(node, name)?.text().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

pub(super) fn owned(node: Node<'_, '_>, attribute: &str) -> Option<String> {
    node.attribute(attribute).map(str::to_owned)
}

pub(super) fn number<N: FromStr>(text: Option<&str>, what: &'static str) -> Result<Option<N>, XmlError> {
    let parsed = text.map(|text| text.trim().parse().map_err(|_| XmlError::Value { what, value: text.into() }));
    parsed.transpose()
}

#[cfg(test)]
mod tests;
