//! Reader of such a document.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Error, Node, ParsingOptions};
use vtax_model::{
    domain::{
        Configuration, ConsoleService, Constraints, CpuDemand, DiskService, DomainDevice, FunctionSettings, PRIMARY,
        Switch, Variable, VirtualConsole, VirtualDisk, VirtualNic, Volume, VolumeName,
    },
    topology::Name,
    units::ByteSize,
};

use super::{
    LONGEST, LdmXmlError, NODES_MOST,
    item::{LdmItem, elements, wrong},
    kind,
};

/// Reads the output of [`write`](super::write()). `rebuilt` of the configuration checks whether its parts are possible
/// together. Document types are refused, and so are all entities except the five of XML itself.
pub fn read(text: &str) -> Result<Configuration, LdmXmlError> {
    if text.len() as u64 > LONGEST {
        return Err(LdmXmlError { line: 1, why: format!("the file has {} bytes (at most {LONGEST})", text.len()) });
    }
    let options = ParsingOptions { nodes_limit: NODES_MOST, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| broken(&error, text))?;
    let mut all = Configuration::default();
    for content in contents(document.root_element())? {
        domain(content, &mut all)?;
    }
    Ok(all)
}

/// Some of the parser's errors have no position.
fn broken(error: &Error, text: &str) -> LdmXmlError {
    let line_of = |place: usize| 1 + text[..place].matches('\n').count() as u32;
    match error {
        Error::DtdDetected => {
            let why = "a document type (<!DOCTYPE>) is refused".to_owned();
            LdmXmlError { line: line_of(text.find("<!DOCTYPE").unwrap_or(0)), why }
        }
        Error::NodesLimitReached => {
            LdmXmlError { line: 1, why: format!("the file has more than {NODES_MOST} elements and texts") }
        }
        Error::UnclosedRootNode | Error::UnexpectedEndOfStream | Error::NoRootNode => {
            LdmXmlError { line: line_of(text.trim_end().len()), why: error.to_string() }
        }
        _ => LdmXmlError { line: error.pos().row, why: error.to_string() },
    }
}

/// Returns the only element with this name in another one.
fn only<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Result<Node<'a, 'input>, LdmXmlError> {
    match elements(node)?.as_slice() {
        [only] if only.tag_name().name() == name => Ok(*only),
        [first, ..] if first.tag_name().name() != name => {
            Err(wrong(*first, format!("<{}> instead of <{name}>", first.tag_name().name())))
        }
        [_, second, ..] => Err(wrong(*second, format!("there is more than one <{name}>"))),
        [] => Err(wrong(node, format!("<{name}> is missing"))),
        [_] => unreachable!("it has another name, and that was refused"),
    }
}

fn contents<'a, 'input>(root: Node<'a, 'input>) -> Result<Vec<Node<'a, 'input>>, LdmXmlError> {
    let name = root.tag_name().name();
    if name != "LDM_interface" {
        return Err(wrong(root, format!("the root is <{name}> instead of <LDM_interface>")));
    }
    let mut contents = Vec::new();
    for element in elements(only(only(root, "data")?, "Envelope")?)? {
        match element.tag_name().name() {
            "References" => drop(elements(element)?),
            "Content" => contents.push(element),
            other => return Err(wrong(element, format!("an Envelope has no <{other}>"))),
        }
    }
    Ok(contents)
}

fn domain(content: Node<'_, '_>, all: &mut Configuration) -> Result<(), LdmXmlError> {
    let id = content.attributes().find(|attribute| attribute.name() == "id");
    let id = id.ok_or_else(|| wrong(content, "a Content has no id: the name of the domain".to_owned()))?;
    let name: Name = id.value().parse().map_err(|error| wrong(content, format!("{error}")))?;
    let mut read = Constraints::default();
    for section in elements(content)? {
        if section.tag_name().name() != "Section" {
            return Err(wrong(section, format!("a Content has no <{}>", section.tag_name().name())));
        }
        for item in elements(section)? {
            if item.tag_name().name() != "Item" {
                return Err(wrong(item, format!("a Section has no <{}>", item.tag_name().name())));
            }
            let mut item = LdmItem::of(item)?;
            of_item(&mut item, &name, &mut read, all)?;
            item.finish()?;
        }
    }
    match name.as_str() {
        PRIMARY => all.primary = read,
        _ if all.domains.contains_key(&name) => return Err(wrong(content, format!("{name} exists twice"))),
        _ => drop(all.domains.insert(name, read)),
    }
    Ok(())
}

/// Returns the number of cores, or the cores themselves if they are listed.
fn cores(item: &mut LdmItem<'_, '_>) -> Result<CpuDemand, LdmXmlError> {
    let count: u32 = item.units()?;
    let ids: BTreeSet<u32> = item.list("cid")?;
    match ids.len() as u64 {
        0 => Ok(CpuDemand::Cores(count)),
        named if named == u64::from(count) => Ok(CpuDemand::Cids(ids)),
        named => Err(item.error(format!("has {count} cores, but `cid` lists {named}"))),
    }
}

fn of_item(
    item: &mut LdmItem<'_, '_>,
    name: &Name,
    domain: &mut Constraints,
    all: &mut Configuration,
) -> Result<(), LdmXmlError> {
    match item.kind {
        kind::DOMAIN => item.change::<Constraints>()?.fill(domain),
        kind::VCPUS => domain.cpus = Some(CpuDemand::Vcpus(item.units()?)),
        kind::CORES => domain.cpus = Some(cores(item)?),
        kind::MEMORY => domain.memory = Some(ByteSize(item.units()?)),
        kind::VARIABLE => {
            let (variable, value): (Variable, String) = (item.needed("name")?, item.needed("value")?);
            if domain.variables.insert(variable, value).is_some() {
                return Err(item.error(format!("sets `{variable}` a second time")));
            }
        }
        kind::VNET => domain.vnets.push(vnet(item)?),
        kind::DISK => domain.disks.push(disk(item)?),
        kind::DEVICE => {
            let (name, kind) = (item.needed("name")?, item.needed("type")?);
            domain.io.push(DomainDevice { name, kind, settings: settings(item)? });
        }
        kind::CONSOLE => domain.console = item.change::<VirtualConsole>()?,
        _ => of_host(item, name, all)?,
    }
    Ok(())
}

/// Reads a service, or a setting of the host's devices.
fn of_host(item: &mut LdmItem<'_, '_>, domain: &Name, all: &mut Configuration) -> Result<(), LdmXmlError> {
    if kind::OF_HOST.contains(&item.kind) && domain.as_str() != PRIMARY {
        return Err(item.error(format!("is in {domain}; only {PRIMARY} can have it")));
    }
    match item.kind {
        kind::SWITCH => add(item, switch, &mut all.switches)?,
        kind::CONSOLE_SERVICE => add(item, console_service, &mut all.consoles)?,
        kind::DISK_SERVICE => add(item, disk_service, &mut all.disk_services)?,
        kind::VOLUME => {
            let VolumeName { volume: name, service } = volume_name(item)?;
            let read = volume(item)?;
            let found = all.disk_services.get_mut(&service);
            let exports =
                found.ok_or_else(|| item.error(format!("belongs to {service}, but no such vds precedes it")))?;
            insert(item, name, read, &mut exports.volumes)?;
        }
        kind::RELEASED => drop(all.devices.released.insert(item.needed("name")?)),
        kind::BUS_IOV => {
            let on = iov(item)?;
            all.devices.iov.insert(item.needed("name")?, on);
        }
        kind::FUNCTION => {
            let name: String = item.needed("name")?;
            all.devices.functions.insert(name, settings(item)?);
        }
        other => return Err(item.error(format!("has an unknown type: vtax domains have no `{other}`"))),
    }
    Ok(())
}

/// Reads a service with its name.
fn add<T>(
    item: &mut LdmItem<'_, '_>,
    read: impl FnOnce(&mut LdmItem<'_, '_>) -> Result<T, LdmXmlError>,
    services: &mut BTreeMap<Name, T>,
) -> Result<(), LdmXmlError> {
    let name = item.needed("service_name")?;
    let service = read(item)?;
    insert(item, name, service, services)
}

fn insert<T>(
    item: &LdmItem<'_, '_>,
    name: Name,
    object: T,
    objects: &mut BTreeMap<Name, T>,
) -> Result<(), LdmXmlError> {
    match objects.insert(name.clone(), object) {
        Some(_) => Err(item.error(format!("exists twice with the name {name}"))),
        None => Ok(()),
    }
}

fn iov(item: &mut LdmItem<'_, '_>) -> Result<bool, LdmXmlError> {
    match item.needed::<String>("iov")?.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(item.error(format!("has iov `{other}`; use on or off"))),
    }
}

fn console_service(item: &mut LdmItem<'_, '_>) -> Result<ConsoleService, LdmXmlError> {
    let ports = format!("{}-{}", item.needed_number::<u16>("min_port")?, item.needed_number::<u16>("max_port")?);
    let ports = ports.parse().map_err(|error| item.error(format!("has invalid ports: {error}")))?;
    let (_, users) = item.change::<ConsoleService>()?;
    Ok(ConsoleService { domain: item.needed("ldom")?, ports, users: users.filter(|users| !users.is_empty()) })
}

fn disk_service(item: &mut LdmItem<'_, '_>) -> Result<DiskService, LdmXmlError> {
    Ok(DiskService { domain: item.needed("ldom")?, volumes: BTreeMap::new() })
}

fn settings(item: &mut LdmItem<'_, '_>) -> Result<FunctionSettings, LdmXmlError> {
    Ok(FunctionSettings::default().changed_by(item.change::<FunctionSettings>()?))
}

fn volume_name(item: &mut LdmItem<'_, '_>) -> Result<VolumeName, LdmXmlError> {
    Ok(VolumeName { volume: item.needed("vol_name")?, service: item.needed("service_name")? })
}

fn volume(item: &mut LdmItem<'_, '_>) -> Result<Volume, LdmXmlError> {
    let (backend, (format, change)) = (item.needed("block_dev")?, item.change::<Volume>()?);
    let mut volume = Volume::new(backend, format.unwrap_or_default());
    change.fill(&mut volume);
    Ok(volume)
}

fn disk(item: &mut LdmItem<'_, '_>) -> Result<VirtualDisk, LdmXmlError> {
    let (name, volume) = (item.needed("vdisk_name")?, volume_name(item)?);
    let change = item.change::<VirtualDisk>()?;
    VirtualDisk::described(name, volume, change).ok_or_else(|| item.error("has no `id`".to_owned()))
}

fn vnet(item: &mut LdmItem<'_, '_>) -> Result<VirtualNic, LdmXmlError> {
    let (name, change) = (item.needed("vnet_name")?, item.change::<VirtualNic>()?);
    VirtualNic::described(name, change).ok_or_else(|| item.error("has `auto` instead of an address".to_owned()))
}

fn switch(item: &mut LdmItem<'_, '_>) -> Result<Switch, LdmXmlError> {
    let (service, (default_vlan, change)) = (item.needed("ldom")?, item.change::<Switch>()?);
    let mut switch = Switch::new(service, default_vlan);
    change.fill(&mut switch);
    Ok(switch)
}
