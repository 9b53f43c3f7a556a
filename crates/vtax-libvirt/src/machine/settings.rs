//! Settings of a domain that no other domain manager can take over, each described in a few words.

use roxmltree::Node;
use vtax_model::{foreign::ForeignText, run::DomainRecord};

use super::super::xml::{child, text_of};

/// Elements of a domain that are carried over, that are reported separately, or that only describe the domain.
const OWN: [&str; 15] = [
    "name",
    "uuid",
    "title",
    "description",
    "metadata",
    "genid",
    "memory",
    "vcpu",
    "os",
    "cpu",
    "cputune",
    "numatune",
    "memoryBacking",
    "devices",
    "iothreadids",
];

/// Features that every domain of vtax also has.
const USUAL_FEATURES: [&str; 4] = ["acpi", "apic", "pae", "vmport"];

/// Returns the settings of the domain itself that are lost, in addition to those of its devices.
pub(super) fn settings(domain: Node<'_, '_>, record: &DomainRecord) -> Vec<ForeignText> {
    let mut told = firmware(domain);
    told.extend(cpu(domain));
    told.extend(placement(domain, record));
    let others = elements(domain).filter(|element| !OWN.contains(&name(element)));
    told.extend(others.flat_map(other));
    told.into_iter().map(ForeignText::from).collect()
}

fn elements<'a, 'input>(of: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    of.children().filter(Node::is_element)
}

fn name<'a>(element: &Node<'a, '_>) -> &'a str {
    element.tag_name().name()
}

/// Returns the name, the text and the attributes of an element: `quota 50000`, `hard_limit 6291456 KiB`.
fn described(element: Node<'_, '_>) -> String {
    let text = element.text().map(str::trim).filter(|text| !text.is_empty());
    let unit = element.attribute("unit");
    let attributes = element.attributes().filter(|attribute| attribute.name() != "unit");
    let attributes = attributes.map(|attribute| format!("{}={}", attribute.name(), attribute.value()));
    let words = [name(&element)].into_iter().map(str::to_owned);
    let words = words.chain(text.map(str::to_owned)).chain(unit.map(str::to_owned)).chain(attributes);
    words.collect::<Vec<_>>().join(" ")
}

fn firmware(domain: Node<'_, '_>) -> Vec<String> {
    let Some(os) = child(domain, "os") else { return Vec::new() };
    let mut told = Vec::new();
    match (child(os, "loader"), os.attribute("firmware")) {
        (Some(_), _) => told.push("the firmware (<loader>)".to_owned()),
        (None, Some(kind)) => {
            let kind = if kind == "efi" { "UEFI".to_owned() } else { kind.to_owned() };
            told.push(format!("the firmware {kind} (<os firmware=…>)"));
        }
        (None, None) => {}
    }
    let arch = child(os, "type").and_then(|kind| kind.attribute("arch"));
    told.extend(arch.filter(|arch| *arch != "x86_64").map(|arch| format!("the architecture {arch}")));
    let rest = ["type", "loader", "boot", "kernel", "initrd", "cmdline"];
    let rest = elements(os).filter(|element| !rest.contains(&name(element)));
    told.extend(rest.map(|element| format!("a setting of its boot (<{}>)", name(&element))));
    told
}

fn cpu(domain: Node<'_, '_>) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(cpu) = child(domain, "cpu") {
        told.push(format!("the CPU model (mode {})", cpu.attribute("mode").unwrap_or("custom")));
        let of = |name: &str| elements(cpu).find(|element| element.has_tag_name(name));
        told.extend(
            of("topology").map(|topology| {
                format!("the {}", described(topology).replacen("topology", "topology of its CPUs:", 1))
            }),
        );
        told.extend(of("numa").map(|_| "the NUMA nodes that it sees (<numa>)".to_owned()));
    }
    if let Some(vcpus) = child(domain, "vcpu")
        && let (Some(_), Some(most)) = (vcpus.attribute("current"), vcpus.text())
    {
        told.push(format!("vCPU hotplug (up to {})", most.trim()));
    }
    told
}

/// Returns the placement of the domain's threads and memory, and their share of the host.
fn placement(domain: Node<'_, '_>, record: &DomainRecord) -> Vec<String> {
    let (pinned, io) = (record.vcpu_pins.len(), record.io_pins.len());
    let mut told: Vec<String> = [
        (pinned > 0).then(|| format!("the host's CPUs of {pinned} vCPUs (<vcpupin>)")),
        record.emulator_pin.as_ref().map(|cpus| format!("the host's CPUs of QEMU's own threads ({})", cpus.raw())),
        (io > 0).then(|| format!("the host's CPUs of {io} iothread{} (<iothreadpin>)", if io == 1 { "" } else { "s" })),
    ]
    .into_iter()
    .flatten()
    .collect();
    let of = |name: &'static str| child(domain, name).into_iter().flat_map(elements);
    let tunings = of("cputune").filter(|tuning| !["vcpupin", "emulatorpin", "iothreadpin"].contains(&name(tuning)));
    told.extend(tunings.map(|tuning| format!("the CPU tuning {} (<cputune>)", described(tuning))));
    told.extend(record.hugepages.then(|| "huge pages (<memoryBacking>)".to_owned()));
    let backing = of("memoryBacking").filter(|backing| !backing.has_tag_name("hugepages"));
    told.extend(backing.map(|backing| format!("the memory setting {} (<memoryBacking>)", described(backing))));
    match &record.nodes {
        Some(nodes) => told.push(format!("the NUMA nodes of its memory ({})", nodes.raw())),
        None => told.extend(child(domain, "numatune").map(|_| "the NUMA nodes of its memory (<numatune>)".to_owned())),
    }
    told.extend(
        of("numatune")
            .filter(|node| node.has_tag_name("memnode"))
            .map(|node| format!("the {} (<numatune>)", described(node))),
    );
    told
}

/// Returns the setting of any other element, which is reported because it may matter.
fn other(element: Node<'_, '_>) -> Vec<String> {
    let below = |what: &str| elements(element).map(|one| format!("{what} {}", described(one))).collect::<Vec<_>>();
    match name(&element) {
        "currentMemory" => match is_less_than_memory(element) {
            true => vec![format!("its lower initial memory ({})", described(element))],
            false => Vec::new(),
        },
        "maxMemory" => vec![format!("memory hotplug ({})", described(element))],
        "iothreads" => {
            let count = element.text().unwrap_or_default().trim();
            vec![format!("{count} iothread{}", if count == "1" { "" } else { "s" })]
        }
        "memtune" => below("the memory limit"),
        "blkiotune" => below("the limit of its disks"),
        "features" => {
            let others = elements(element).filter(|feature| !USUAL_FEATURES.contains(&name(feature)));
            others.map(|feature| format!("the feature <{}>", name(&feature))).collect()
        }
        "clock" => clock(element),
        "on_poweroff" => unless(element, &["destroy"]),
        "on_reboot" => unless(element, &["restart"]),
        "on_crash" => unless(element, &["destroy", "restart"]),
        "pm" => elements(element)
            .filter(|state| state.attribute("enabled") == Some("yes"))
            .map(|state| format!("the sleep state <{}>", name(&state)))
            .collect(),
        "resource" => match text_of(element, "partition").as_deref() {
            None | Some("/machine") => Vec::new(),
            Some(partition) => vec![format!("its resource partition {partition}")],
        },
        // libvirt adds these to a running domain.
        "seclabel" if element.attribute("type") != Some("static") => Vec::new(),
        "launchSecurity" => {
            let kind = element.attribute("type").map(|kind| format!(" of type {kind}")).unwrap_or_default();
            vec![format!("its confidential memory (<launchSecurity>{kind})")]
        }
        "commandline" => vec!["arguments for QEMU itself (<qemu:commandline>)".to_owned()],
        other => vec![format!("a setting <{other}>")],
    }
}

fn is_less_than_memory(current: Node<'_, '_>) -> bool {
    let size = |element: Node<'_, '_>| {
        let count: u64 = element.text()?.trim().parse().ok()?;
        let shift = match element.attribute("unit").unwrap_or("KiB") {
            "b" | "bytes" => 0,
            "k" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            _ => return None,
        };
        count.checked_mul(1 << shift)
    };
    let memory = current.parent_element().and_then(|domain| child(domain, "memory")).and_then(size);
    size(current) != memory
}

fn clock(clock: Node<'_, '_>) -> Vec<String> {
    let offset = clock.attribute("offset").unwrap_or("utc");
    let offset = (offset != "utc").then(|| format!("the offset of its clock ({offset})"));
    let timers =
        elements(clock).filter(|timer| !["rtc", "pit", "hpet"].contains(&timer.attribute("name").unwrap_or_default()));
    offset.into_iter().chain(timers.map(|timer| format!("the {}", described(timer)))).collect()
}

fn unless(element: Node<'_, '_>, usual: &[&str]) -> Vec<String> {
    let does = element.text().unwrap_or_default().trim();
    if usual.contains(&does) { Vec::new() } else { vec![format!("its setting {}", described(element))] }
}
