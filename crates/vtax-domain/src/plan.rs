//! Resources that a domain gets when it is bound: a pure function of its constraints and of the available resources.

use std::{collections::BTreeSet, path::PathBuf};

use vtax_guest::{
    LinkName,
    launch::{GuestDisks, GuestEngine, Launch, NicKind, NicLaunch},
    vdisk::DiskLaunch,
};
use vtax_model::{
    domain::{
        Configuration, Constraints, CpuDemand, LinkProp, PRIMARY, Switch, VirtualConsole, VirtualDisk, VirtualNic,
        VnetProtection,
    },
    guest::{Backend, Mac, VirtioNic},
    topology::{Name, Shape},
    units::{ByteSize, Mtu},
};
use vtax_step::{CreateTap, LimitTap, PortVlanSet, bucket};
use vtax_sys::netlink::MacAddr;

use crate::{
    bindings::{Bindings, BoundConsole, BoundDevice, BoundDisk, BoundNic, ServedSwitch},
    capacity::HostCapacity,
    disk,
    error::BindError,
    step::DomainStep,
    switch::{self, SwitchAbilities},
};

/// Number of host CPUs that cannot be dedicated to domains, because the host itself needs CPUs.
pub(crate) const CPUS_OF_PRIMARY: usize = 1;
/// Memory that is unavailable to domains.
pub(crate) const MEMORY_OF_PRIMARY: ByteSize = ByteSize(256 << 20);
/// Number of NICs and virtual functions that can be plugged in while the domain runs.
pub(crate) const SPARE_PORTS: u32 = 4;
/// Number of virtual functions that a domain is started with and that can be unplugged. The bus has room for 32
/// devices.
pub(crate) const REMOVABLE: u32 = 4;

/// Two devices in one slot prevent QEMU from starting. The last slot is the chipset's.
const _: () = {
    let nics = VirtualNic::MOST + Configuration::MOST_SERVED as u32;
    assert!(DiskLaunch::SLOTS.end <= VirtualNic::FIRST_SLOT && VirtualNic::FIRST_SLOT + nics <= 31);
    // A slot has eight functions, and each port is one.
    assert!(SPARE_PORTS + REMOVABLE <= 8);
    assert!(VirtualDisk::MOST <= 8 * (DiskLaunch::SLOTS.end - DiskLaunch::SLOTS.start));
};

/// Input of a plan.
pub(crate) struct BindRequest<'a> {
    pub(crate) domain: &'a Name,
    pub(crate) configuration: &'a Configuration,
    pub(crate) capacity: &'a HostCapacity,
    /// Resources of the other domains.
    pub(crate) others: &'a [Bindings],
    /// Current resources of the domain itself, if it is bound again.
    pub(crate) own: Option<&'a Bindings>,
    /// PCI devices that it gets, as found on this machine.
    pub(crate) devices: Vec<BoundDevice>,
    /// Backends of its virtual disks.
    pub(crate) disks: Vec<BoundDisk>,
    /// Ports of the host on which other programs listen.
    pub(crate) is_free: &'a dyn Fn(u16) -> bool,
}

/// Environment for starting the domain on this host.
#[derive(Debug, Clone)]
pub(crate) struct DomainEngine {
    pub(crate) engine: GuestEngine,
    pub(crate) backend: Backend,
    /// Directory of QEMU's files.
    pub(crate) directory: PathBuf,
}

/// Returns the resources that the domain gets. Nothing is claimed yet.
pub(crate) fn bindings(request: &BindRequest<'_>) -> Result<Bindings, BindError> {
    let BindRequest { domain, configuration, capacity, others, .. } = *request;
    let constraints = configuration.domain(domain)?;
    let free_id = || (2..).find(|id| others.iter().all(|other| other.id != *id)).expect("there is a free number");
    let id = request.own.map_or_else(free_id, |own| own.id);
    let memory = memory(domain, constraints, request)?;
    let cpus = cpus(domain, constraints, request)?;
    let vcpus = match cpus.len() {
        0 => constraints.vcpus(capacity.threads_per_core()),
        own => own as u32,
    };
    let nics = constraints.vnets.iter().map(|vnet| bound_nic(id, vnet));
    Ok(Bindings {
        domain: domain.clone(),
        id,
        constraints: constraints.clone(),
        vcpus,
        cpus,
        memory,
        nics: nics.collect(),
        served: served(domain, id, configuration),
        disks: request.disks.clone(),
        devices: request.devices.clone(),
        console: console(request, constraints)?,
    })
}

/// Returns the switches that it serves, if it is bound with this number.
fn served(domain: &Name, id: u32, configuration: &Configuration) -> Vec<ServedSwitch> {
    let switches = (0..).zip(configuration.served_by(domain));
    let of_switch = |(number, (name, switch)): (u32, (&Name, &Switch))| {
        Some(ServedSwitch {
            switch: name.clone(),
            link: switch::link_name(name),
            tap: format!("vsw{id}.{number}"),
            mac: configuration.served_mac(domain, name),
            mtu: switch.mtu,
            net_dev: switch.net_dev.clone()?,
        })
    };
    switches.filter_map(of_switch).collect()
}

/// Returns the steps that create the host side of its virtual NICs. `uplink` is the host link that connects a switch
/// with the outside.
pub(crate) fn nic_steps(
    bindings: &Bindings,
    configuration: &Configuration,
    abilities: SwitchAbilities,
    uplink: impl Fn(&Name) -> Result<Option<String>, BindError>,
) -> Result<Vec<DomainStep>, BindError> {
    let mut steps = Vec::new();
    for served in &bindings.served {
        steps.push(served_step(&bindings.domain, served, configuration, abilities)?);
    }
    for (vnet, nic) in bindings.constraints.vnets.iter().zip(&bindings.nics) {
        let uplink = uplink(&vnet.switch)?;
        steps.extend(steps_of(&bindings.domain, vnet, nic, configuration, abilities, uplink)?);
    }
    Ok(steps)
}

/// Returns the tap through which a guest serves a switch. It is part of all VLANs there, and sends from any address.
fn served_step(
    domain: &Name,
    served: &ServedSwitch,
    configuration: &Configuration,
    abilities: SwitchAbilities,
) -> Result<DomainStep, BindError> {
    let switch = configuration.switch(&served.switch)?;
    let vids = configuration.vlans_of(&served.switch, switch);
    Ok(DomainStep::CreateTap(CreateTap {
        vnet: served.switch.clone(),
        link: served.tap.clone(),
        switch: served.link.clone(),
        mtu: served.mtu,
        mark: switch::mark(domain),
        vlans: abilities.vlans.then_some(PortVlanSet { pvid: switch.default_vlan, vids }),
        macs: Vec::new(),
        uplink: None,
        linkprop: LinkProp::None,
    }))
}

/// Returns the tap of a virtual NIC, and its limit if it has one.
pub(crate) fn steps_of(
    domain: &Name,
    vnet: &VirtualNic,
    nic: &BoundNic,
    configuration: &Configuration,
    abilities: SwitchAbilities,
    uplink: Option<String>,
) -> Result<Vec<DomainStep>, BindError> {
    let switch = configuration.switch(&vnet.switch)?;
    let is_protected = vnet.protection == VnetProtection::MacNospoof;
    let mut steps = vec![DomainStep::CreateTap(CreateTap {
        vnet: vnet.name.clone(),
        link: nic.tap.clone(),
        switch: nic.switch.clone(),
        mtu: vnet.mtu_on(switch),
        mark: switch::mark(domain),
        vlans: abilities.vlans.then(|| port_vlans(vnet, switch)),
        macs: if abilities.guards_addresses && is_protected { vnet.macs().collect() } else { Vec::new() },
        uplink,
        linkprop: vnet.linkprop,
    })];
    if let Some(rate) = vnet.maxbw {
        let limit = bucket(&Shape { rate, queue: None }, vnet.mtu_on(switch));
        let through = nic.tap.replacen("vnet", "ifb", 1);
        let step = LimitTap { tap: nic.tap.clone(), through, mark: switch::mark(domain), limit };
        steps.push(DomainStep::LimitTap(step));
    }
    Ok(steps)
}

/// Returns the VLANs of a vnet's port.
pub(crate) fn port_vlans(vnet: &VirtualNic, switch: &Switch) -> PortVlanSet {
    PortVlanSet { pvid: vnet.pvid_on(switch), vids: vnet.vlans.vids.clone() }
}

/// Returns the host side of a vnet of a domain with this number.
pub(crate) fn bound_nic(id: u32, vnet: &VirtualNic) -> BoundNic {
    BoundNic::new(id, vnet.id, vnet.name.clone(), switch::link_name(&vnet.switch))
}

/// Returns how QEMU is started: with its CPUs stopped.
pub(crate) fn launch(
    bindings: &Bindings,
    configuration: &Configuration,
    engine: DomainEngine,
) -> Result<Launch, BindError> {
    let DomainEngine { engine, backend, directory } = engine;
    let nics = bindings.constraints.vnets.iter().zip(&bindings.nics);
    // Devices that were plugged in while it ran are not part of those it is started with.
    let is_own = |device: &&BoundDevice| bindings.constraints.io.iter().any(|own| own.name == device.name);
    let (removable, devices): (Vec<&BoundDevice>, Vec<&BoundDevice>) =
        bindings.devices.iter().filter(is_own).partition(|device| device.port.is_some());
    let functions = |devices: Vec<&BoundDevice>| devices.iter().flat_map(|device| device.functions.clone()).collect();
    let nics = nics.map(|(vnet, bound)| Ok(nic(vnet, bound, configuration.switch(&vnet.switch)?, backend)));
    let mut nics = nics.collect::<Result<Vec<_>, BindError>>()?;
    let of_served =
        |(number, served): (u32, &ServedSwitch)| nic_on(&served.tap, served.mac, number, served.mtu, backend);
    nics.extend((VirtualNic::MOST..).zip(&bindings.served).map(of_served));
    let launch = Launch {
        nics,
        devices: functions(devices),
        spare_ports: SPARE_PORTS + removable.len() as u32,
        removable: functions(removable),
        disks: GuestDisks {
            ports: disk::ports(&bindings.constraints.disks),
            // Disks that were plugged in while it ran are not part of it, as with devices.
            disks: bindings
                .disks
                .iter()
                .filter(|bound| bindings.constraints.disks.contains(&bound.disk))
                .map(disk::launch)
                .collect(),
        },
        paused: true,
        has_events: true,
        ..Launch::new(bindings.domain.clone(), directory, engine, &bindings.size())
    };
    Ok(launch.with_firmware_for_devices())
}

pub(crate) fn nic(vnet: &VirtualNic, bound: &BoundNic, switch: &Switch, backend: Backend) -> NicLaunch {
    nic_on(&bound.tap, vnet.mac, vnet.id, vnet.mtu_on(switch), backend)
}

/// Returns the `number`-th NIC of a domain. Those of switches that it serves come after all vnets.
fn nic_on(tap: &str, mac: Mac, number: u32, mtu: Mtu, backend: Backend) -> NicLaunch {
    let nic = VirtioNic { backend: Some(backend), ..VirtioNic::default() };
    let slot = u8::try_from(VirtualNic::FIRST_SLOT + number).expect("a bus has 32 slots");
    NicLaunch {
        mac: MacAddr(mac.octets()),
        kind: NicKind::Virtio { tap: LinkName::new(tap), nic },
        slot: Some(slot),
        host_mtu: Some(mtu),
    }
}

pub(crate) fn memory(
    domain: &Name,
    constraints: &Constraints,
    request: &BindRequest<'_>,
) -> Result<ByteSize, BindError> {
    let wanted = constraints.memory.ok_or_else(|| BindError::NoMemory { domain: domain.clone() })?;
    let own = request.own.map_or(0, |own| own.memory.0);
    let available = ByteSize((request.capacity.available.0 + own).saturating_sub(MEMORY_OF_PRIMARY.0));
    if wanted <= available {
        return Ok(wanted);
    }
    let has = |other: &Bindings| format!("{} has {}", other.domain, other.memory);
    let who = request.others.iter().map(has).collect::<Vec<_>>().join(", ");
    Err(BindError::Memory { domain: domain.clone(), wanted, available, who: after_colon(&who) })
}

/// Returns the CPUs of whole free cores.
pub(crate) fn cpus(
    domain: &Name,
    constraints: &Constraints,
    request: &BindRequest<'_>,
) -> Result<BTreeSet<u32>, BindError> {
    let taken: BTreeSet<u32> = request.others.iter().flat_map(|other| &other.cpus).copied().collect();
    let free: Vec<&Vec<u32>> =
        request.capacity.cores.iter().filter(|core| core.iter().all(|cpu| !taken.contains(cpu))).collect();
    match constraints.cpus {
        None => Err(BindError::NoCpus { domain: domain.clone() }),
        Some(CpuDemand::Cids(ref ids)) => named_cores(domain, ids, free.len(), request),
        Some(CpuDemand::Cores(wanted)) => {
            // The first core stays with the host: much of the kernel's own work runs there.
            let can_be = free.len().saturating_sub(CPUS_OF_PRIMARY);
            if wanted as usize > can_be {
                return Err(no_cpus(domain, wanted, can_be, "cores", request));
            }
            Ok(free[free.len() - wanted as usize..].iter().flat_map(|core| core.iter().copied()).collect())
        }
        Some(CpuDemand::Vcpus(wanted)) => {
            let shared = request.capacity.cpus().difference(&taken).count();
            match wanted as usize > shared {
                true => Err(no_cpus(domain, wanted, shared, "CPUs", request)),
                false => Ok(BTreeSet::new()),
            }
        }
    }
}

/// Returns the CPUs of the cores with these numbers, which must be free.
fn named_cores(
    domain: &Name,
    ids: &BTreeSet<u32>,
    free: usize,
    request: &BindRequest<'_>,
) -> Result<BTreeSet<u32>, BindError> {
    let cores = &request.capacity.cores;
    let mut cpus = BTreeSet::new();
    for id in ids {
        let missing = || BindError::NoCore { domain: domain.clone(), id: *id, last: cores.len().saturating_sub(1) };
        let core = cores.get(*id as usize).ok_or_else(missing)?;
        if let Some(other) = request.others.iter().find(|other| core.iter().any(|cpu| other.cpus.contains(cpu))) {
            return Err(BindError::CoreTaken { domain: domain.clone(), id: *id, other: other.domain.clone() });
        }
        cpus.extend(core);
    }
    let can_be = free.saturating_sub(CPUS_OF_PRIMARY);
    match ids.len() > can_be {
        true => Err(no_cpus(domain, ids.len() as u32, can_be, "cores", request)),
        false => Ok(cpus),
    }
}

fn no_cpus(domain: &Name, wanted: u32, free: usize, what: &'static str, request: &BindRequest<'_>) -> BindError {
    let own = request.others.iter().filter(|other| !other.cpus.is_empty());
    let who: Vec<String> = own.map(|other| format!("{} has {} CPUs", other.domain, other.cpus.len())).collect();
    BindError::Cpus { domain: domain.clone(), wanted, free, what, who: after_colon(&who.join(", ")) }
}

fn after_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Returns the port of the domain's group: the one specified, the one that the group has, or the first free one.
pub(crate) fn console(request: &BindRequest<'_>, constraints: &Constraints) -> Result<Option<BoundConsole>, BindError> {
    let BindRequest { domain, configuration, others, is_free, .. } = *request;
    let VirtualConsole { service, group, port } = &constraints.console;
    let only = configuration.consoles.iter().next().filter(|_| configuration.consoles.len() == 1);
    let found = match service {
        Some(name) => Some((name, configuration.console_service(name)?)),
        None => only,
    };
    let Some((service, serves)) = found.filter(|(_, serves)| serves.domain.as_str() == PRIMARY) else {
        return Ok(None);
    };
    let group = group.as_ref().unwrap_or(domain);
    let bound = || others.iter().filter_map(|other| other.console.as_ref());
    let own = request.own.and_then(|own| own.console.as_ref());
    let is_of_group = |console: &&BoundConsole| console.group == *group && console.service == *service;
    let of_group = bound().chain(own).find(is_of_group);
    let reserved = configuration.domains.values().filter_map(|other| other.console.port);
    let reserved: BTreeSet<u16> = reserved.collect();
    let port = match (port, of_group) {
        (Some(port), _) => *port,
        (None, Some(console)) => console.port,
        (None, None) => {
            let taken = |port: &u16| bound().any(|console| console.port == *port) || reserved.contains(port);
            let mut ports = serves.ports.ports().filter(|port| !taken(port));
            let free = ports.find(|port| is_free(*port));
            free.ok_or_else(|| BindError::NoPort { service: service.clone(), ports: serves.ports })?
        }
    };
    let other = bound().find(|console| console.port == port && !is_of_group(console));
    if let Some(other) = other {
        return Err(BindError::PortInUse { domain: domain.clone(), port, group: other.group.clone() });
    }
    Ok(Some(BoundConsole { service: service.clone(), group: group.clone(), port }))
}

#[cfg(test)]
mod tests;
