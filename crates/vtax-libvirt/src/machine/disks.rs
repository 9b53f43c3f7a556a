//! The disks of a domain, and which of them it boots.

use roxmltree::Node;
use vtax_model::foreign::ForeignText;

use super::super::xml::{at, child, owned, source_pci};

/// A `<disk>` element of the domain's XML.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibvirtDisk {
    /// Name in the domain, e.g. `vda`.
    pub target: Option<ForeignText>,
    /// Kind of device: `disk`, `cdrom`, `floppy` or `lun`.
    pub device: ForeignText,
    /// Source, described in a few words: the path of a file or a block device, or e.g. `the NVMe controller
    /// 0000:01:00.0`.
    pub source: Option<ForeignText>,
    /// Image format, if the source is an unencrypted file.
    pub file_format: Option<ForeignText>,
    /// True if the source is an unencrypted file or block device of the host.
    pub is_local: bool,
    /// Other settings, each described in a few words.
    pub others: Vec<ForeignText>,
}

/// Boot device of a domain without a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LibvirtBootDevice {
    /// No bootable device in the XML.
    #[default]
    Nothing,
    /// Index of a disk among the domain's disks.
    Disk(usize),
    /// Another device, described in a few words.
    Other(ForeignText),
}

/// Elements of a `<disk>` that are read, and those that libvirt adds to each. `<boot>` defines the boot order of
/// devices.
const OF_DISK: [&str; 8] = ["source", "target", "driver", "alias", "address", "backingStore", "boot", "mirror"];

impl LibvirtDisk {
    pub(super) fn of(disk: Node<'_, '_>) -> LibvirtDisk {
        let kind = disk.attribute("type").unwrap_or("file");
        let encrypted = child(disk, "encryption").or_else(|| at(disk, &["source", "encryption"]));
        let driver = child(disk, "driver");
        // libvirt does not guess formats: a file without one is raw.
        let format = driver.and_then(|driver| owned(driver, "type")).unwrap_or_else(|| "raw".to_owned());
        let source = child(disk, "source").and_then(|source| source_of(disk, source, kind));
        LibvirtDisk {
            target: child(disk, "target").and_then(|target| owned(target, "dev")).map(ForeignText::from),
            device: disk.attribute("device").unwrap_or("disk").to_owned().into(),
            file_format: Some(ForeignText::from(format))
                .filter(|_| kind == "file" && source.is_some() && encrypted.is_none()),
            is_local: source.is_some() && ["file", "block"].contains(&kind) && encrypted.is_none(),
            source: source.map(ForeignText::from),
            others: others(disk),
        }
    }
}

fn source_of(disk: Node<'_, '_>, source: Node<'_, '_>, kind: &str) -> Option<String> {
    let said = |name: &str| owned(source, name);
    match kind {
        "file" => said("file"),
        "block" => said("dev"),
        "dir" => Some(format!("the directory {}", said("dir")?)),
        "volume" => Some(format!("the volume {} of the pool {}", said("volume")?, said("pool")?)),
        "network" => {
            let name = said("name").map(|name| format!(" {name}")).unwrap_or_default();
            Some(format!("{}{name} over the network", said("protocol").unwrap_or_else(|| "a disk".to_owned())))
        }
        "nvme" => {
            let namespace = said("namespace").map(|number| format!(", namespace {number}")).unwrap_or_default();
            Some(format!("the NVMe controller {}{namespace}", source_pci(disk)?))
        }
        "vhostuser" => Some(format!("the vhost-user server at {}", said("path")?)),
        "vhostvdpa" => Some(format!("the vDPA device {}", said("dev")?)),
        other => Some(format!("a source of type {other}")),
    }
}

/// Returns the disk's settings other than its source.
fn others(disk: Node<'_, '_>) -> Vec<ForeignText> {
    let attributes = ["sgio", "rawio", "snapshot"];
    let of_disk = attributes.into_iter().filter_map(|key| Some(format!("{key}={}", disk.attribute(key)?)));
    let driver = child(disk, "driver").into_iter().flat_map(|driver| driver.attributes());
    let driver = driver.filter(|attribute| !["name", "type"].contains(&attribute.name()));
    let driver = driver.map(|attribute| format!("{}={}", attribute.name(), attribute.value()));
    let elements = disk.children().filter(Node::is_element).map(|child| child.tag_name().name());
    let elements = elements.filter(|name| !OF_DISK.contains(name)).map(|name| match name {
        "iotune" => "its limits (<iotune>)".to_owned(),
        name => format!("<{name}>"),
    });
    of_disk.chain(driver).chain(elements).map(ForeignText::from).collect()
}

/// Returns the device that is tried first. If devices have `<boot order=…>`, `<boot dev=…>` of the domain is not used;
/// the latter's default is `hd`, the first disk.
pub(super) fn boot_device(domain: Node<'_, '_>, devices: &[Node<'_, '_>], disks: &[LibvirtDisk]) -> LibvirtBootDevice {
    let mut ordered: Vec<_> = devices.iter().filter_map(|device| Some((order(*device)?, *device))).collect();
    ordered.sort_by_key(|(order, _)| *order);
    let elements: Vec<_> = devices.iter().filter(|device| device.has_tag_name("disk")).collect();
    let place = |device: Node<'_, '_>| elements.iter().position(|disk| **disk == device);
    if !ordered.is_empty() {
        let found = ordered.into_iter().map(|(_, device)| match place(device) {
            Some(disk) => LibvirtBootDevice::Disk(disk),
            None => other(&format!("a device <{}>", device.tag_name().name())),
        });
        return first_with_something(found, disks);
    }
    let os = child(domain, "os").into_iter().flat_map(|os| os.children());
    let mut asked: Vec<&str> =
        os.filter(|boot| boot.has_tag_name("boot")).filter_map(|boot| boot.attribute("dev")).collect();
    if asked.is_empty() {
        asked.push("hd");
    }
    let of_kind = |kinds: &[&str]| {
        let of_kind = disks.iter().enumerate().filter(|(_, disk)| kinds.contains(&disk.device.raw()));
        first_of_bus(of_kind.map(|(place, _)| place).collect(), &elements).map(LibvirtBootDevice::Disk)
    };
    let found = asked.into_iter().filter_map(|kind| match kind {
        "hd" => of_kind(&["disk", "lun"]),
        "cdrom" => of_kind(&["cdrom"]),
        "fd" => of_kind(&["floppy"]),
        "network" => Some(other("the network")),
        kind => Some(other(kind)),
    });
    first_with_something(found, disks)
}

fn order(device: Node<'_, '_>) -> Option<u32> {
    child(device, "boot")?.attribute("order")?.parse().ok()
}

fn other(what: &str) -> LibvirtBootDevice {
    LibvirtBootDevice::Other(what.to_owned().into())
}

/// Returns the first device that is not an empty drive.
fn first_with_something(
    mut found: impl Iterator<Item = LibvirtBootDevice>,
    disks: &[LibvirtDisk],
) -> LibvirtBootDevice {
    let has_something = |device: &LibvirtBootDevice| match device {
        LibvirtBootDevice::Disk(place) => disks[*place].source.is_some(),
        _ => true,
    };
    found.find(has_something).unwrap_or_default()
}

/// Returns the first disk of a bus. libvirt sorts a bus by the names of its disks, `sdz` before `sdaa`.
fn first_of_bus(places: Vec<usize>, elements: &[&Node<'_, '_>]) -> Option<usize> {
    let said = |place: usize, key: &str| child(*elements[place], "target")?.attribute(key);
    let bus = said(*places.first()?, "bus");
    let of_bus = places.into_iter().filter(|place| said(*place, "bus") == bus);
    of_bus.min_by_key(|place| said(*place, "dev").map(|name| (name.len(), name)))
}
