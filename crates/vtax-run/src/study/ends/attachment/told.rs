//! Descriptions of domains, for notes.

use std::collections::BTreeMap;

use vtax_model::{
    foreign::ForeignText,
    method::IoMethod,
    run::{DomainKeeper, DomainNic, DomainRecord, PlacementNote},
    study::Row,
};

/// Returns a description of a domain, its measured NIC and the pinning of its threads.
pub(super) fn whole(record: &DomainRecord) -> String {
    let served = record.nic.as_ref().map_or(String::new(), |nic| format!("; its NIC is {}", described(nic)));
    let whose = match record.keeper {
        DomainKeeper::Libvirt => "libvirt's",
        DomainKeeper::Ldm => "the domain",
    };
    format!("{whose} {} is {}{served}; its threads: {}", record.name, machine(record), threads(record))
}

/// Returns a warning if the study's method for the endpoint differs from that of its NIC.
pub(super) fn wrong_label(row: Row, end: &str, record: &DomainRecord) -> Option<PlacementNote> {
    let nic = record.nic.as_ref()?;
    (nic.is_as(row) == Some(false)).then(|| {
        let label = nic.label().unwrap_or_else(|| "of an unknown method".to_owned());
        PlacementNote::WrongLabel(format!(
            "the study calls {end} `{row}`, but its NIC is {label} ({}); the figures of this row are those of {label}",
            described(nic)
        ))
    })
}

/// `a pc-q35-10.0 with 4 vCPUs and 4GiB, in huge pages of node 0`
fn machine(record: &DomainRecord) -> String {
    let DomainRecord { machine, vcpus, memory, hugepages, nodes, .. } = record;
    let machine = if machine.is_empty() { "machine".to_owned() } else { machine.to_string() };
    let plural = if *vcpus == 1 { "" } else { "s" };
    let pages = match (hugepages, nodes) {
        (true, Some(nodes)) => format!(", in huge pages of node {nodes}"),
        (true, None) => ", in huge pages".to_owned(),
        (false, Some(nodes)) => format!(", of node {nodes}"),
        (false, None) => String::new(),
    };
    format!("a {machine} with {vcpus} vCPU{plural} and {memory}{pages}")
}

fn threads(record: &DomainRecord) -> String {
    let each = |what: &str, pins: &BTreeMap<u32, ForeignText>| -> Vec<String> {
        pins.iter().map(|(thread, cpus)| format!("{what} {thread} on {}", on(&cpus.to_string()))).collect()
    };
    let mut texts = each("vCPU", &record.vcpu_pins);
    let loose = (0..record.vcpus).filter(|vcpu| !record.vcpu_pins.contains_key(vcpu)).count();
    match loose {
        0 => {}
        _ if texts.is_empty() => texts.push("vCPUs not pinned".to_owned()),
        1 => texts.push("one vCPU not pinned".to_owned()),
        loose => texts.push(format!("{loose} vCPUs not pinned")),
    }
    texts.push(match &record.emulator_pin {
        Some(cpus) => format!("QEMU threads on {}", on(&cpus.to_string())),
        None => "QEMU threads not pinned".to_owned(),
    });
    texts.extend(each("I/O thread", &record.io_pins));
    texts.join(", ")
}

fn on(cpus: &str) -> String {
    if cpus.contains([',', '-']) { format!("CPUs {cpus}") } else { format!("CPU {cpus}") }
}

/// `virtio by vhost, 4 queues, rings of 1024 rx and 256 tx, bridge br0, link vnet0`
fn described(nic: &DomainNic) -> String {
    let ring = |size: Option<u32>| size.map_or("QEMU's default".to_owned(), |size| size.to_string());
    let model = nic
        .model
        .clone()
        .unwrap_or_else(|| if nic.pci.is_some() { "the device itself" } else { "unknown model" }.into());
    let served = nic.backend.filter(|backend| backend.method() == IoMethod::Paravirtual);
    let mut texts = vec![match served {
        Some(backend) => format!("{model} by {backend}"),
        None => model.to_string(),
    }];
    texts.extend((nic.queues > 1).then(|| format!("{} queues", nic.queues)));
    if nic.rx_ring.is_some() || nic.tx_ring.is_some() {
        texts.push(format!("rings of {} rx and {} tx", ring(nic.rx_ring), ring(nic.tx_ring)));
    }
    texts.extend(nic.packed.then(|| "packed".to_owned()));
    texts.extend(nic.maxbw.map(|rate| format!("at most {rate}")));
    texts.extend(nic.vlan.map(|vlan| format!("VLAN {vlan}")));
    texts.extend(nic.mtu.map(|mtu| format!("MTU {mtu}")));
    texts.push(match (&nic.name, &nic.source) {
        (Some(name), Some(source)) => format!("{} {name} of {source}", nic.kind),
        (None, Some(source)) => format!("{} {source}", nic.kind),
        (_, None) => nic.kind.to_string(),
    });
    texts.extend(nic.target.as_ref().map(|target| format!("link {target}")));
    texts.extend(nic.pci.as_ref().map(|pci| format!("at {pci}")));
    texts.join(", ")
}
