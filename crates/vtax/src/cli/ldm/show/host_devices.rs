//! `vtax ldm list-devices`: resources available to domains, in the blocks of `ldm`.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;
use vtax_domain::{
    Bindings, CoreOwner, HostResources, HostView, MemoryOwner, MemoryUser, ServiceUtilization, Utilization, ViewDepth,
};
use vtax_lab::io::IoEntry;
use vtax_model::{
    domain::{Configuration, PRIMARY},
    topology::Name,
};

use super::{super::target::LdmTarget, devices::owner, layout};
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct ListDevicesArgs {
    /// Include resources in use
    #[arg(short)]
    all: bool,
    /// Print machine-readable output with |-separated fields
    #[arg(short, conflicts_with = "json")]
    parseable: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Resource types to list [default: all except util]
    #[arg(value_enum)]
    kinds: Vec<HostResourceKind>,
}

/// Types of resources that domains can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostResourceKind {
    /// Whole cores
    Core,
    /// CPUs
    #[value(alias = "vcpu")]
    Cpu,
    /// Memory
    #[value(alias = "mem")]
    Memory,
    /// PCI devices
    Io,
    /// CPU time that the host spends on behalf of domains, measured over 0.2 s
    Util,
}

impl HostResourceKind {
    const ALL: &[HostResourceKind] = &[
        HostResourceKind::Core,
        HostResourceKind::Cpu,
        HostResourceKind::Memory,
        HostResourceKind::Io,
        HostResourceKind::Util,
    ];

    /// The types in `ldm`'s own list.
    const USUAL: &[HostResourceKind] =
        &[HostResourceKind::Core, HostResourceKind::Cpu, HostResourceKind::Memory, HostResourceKind::Io];
}

/// PCI device with the domain that has it; `primary` has those that no other domain has.
#[derive(Debug, Serialize)]
struct OwnedDevice {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    bound: Option<String>,
}

/// CPU time that the host spends on behalf of a domain, or of all of them: `primary`.
#[derive(Debug, Serialize)]
struct SpentOnDomain {
    domain: String,
    #[serde(flatten)]
    spent: ServiceUtilization,
}

/// Resources to show.
#[derive(Debug, Serialize)]
struct ShownDevices {
    #[serde(flatten)]
    host: HostResources,
    io: Vec<OwnedDevice>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    util: Vec<SpentOnDomain>,
    #[serde(skip)]
    kinds: Vec<HostResourceKind>,
}

pub(in crate::cli::ldm) fn host_devices(host: &LdmTarget<'_>, args: &ListDevicesArgs) -> Result<Exit, Stop> {
    let kinds = if args.kinds.is_empty() { HostResourceKind::USUAL } else { &args.kinds };
    let depth = if kinds.contains(&HostResourceKind::Util) { ViewDepth::Running } else { ViewDepth::Bound };
    let HostView { state, bound, capacity, memory, utilization, .. } = host.look(depth)?;
    let io = if kinds.contains(&HostResourceKind::Io) { io(host, &state.configuration)? } else { Vec::new() };
    let bound: Vec<_> = bound.into_iter().map(|bound| bound.bindings).collect();
    let util = if depth == ViewDepth::Running { spent(&bound, &utilization) } else { Vec::new() };
    let host = HostResources::new(&capacity, &memory, &bound);
    let shown = ShownDevices { host, io, util, kinds: kinds.to_vec() }.only_free(!args.all);
    answer(args.json, &shown, |shown| if args.parseable { shown.parseable() } else { shown.blocks() })
}

fn spent(bound: &[Bindings], utilization: &Utilization) -> Vec<SpentOnDomain> {
    let of_domain = |bound: &Bindings| {
        let spent = utilization.service_of(&bound.domain)?;
        Some(SpentOnDomain { domain: bound.domain.to_string(), spent })
    };
    let all = SpentOnDomain { domain: PRIMARY.to_owned(), spent: utilization.all_services() };
    std::iter::once(all).chain(bound.iter().filter_map(of_domain)).collect()
}

fn io(host: &LdmTarget<'_>, all: &Configuration) -> Result<Vec<OwnedDevice>, Stop> {
    let owned = |entry: IoEntry| OwnedDevice {
        kind: entry.kind.into(),
        bound: Some(owner(&entry, all).to_owned()).filter(|domain| !domain.is_empty() && domain != PRIMARY),
        name: entry.name,
    };
    Ok(host.devices()?.entries.into_iter().map(owned).collect())
}

/// Core whose time only shared work uses.
fn free(bound: Option<&Name>) -> u8 {
    if bound.is_none() { 100 } else { 0 }
}

fn shown(bound: Option<&Name>) -> &str {
    bound.map_or("", Name::as_str)
}

fn user(memory: &MemoryOwner) -> String {
    Option::<String>::from(memory.bound.clone()).unwrap_or_default()
}

fn address(memory: &MemoryOwner) -> String {
    memory.address.map_or("-".to_owned(), |address| format!("{address:#x}"))
}

impl ShownDevices {
    /// Removes the resources in use, if only free ones are requested, and the types that weren't requested.
    fn only_free(mut self, only: bool) -> ShownDevices {
        if only {
            self.host.cores.retain(|core| core.bound.is_none());
            self.host.memory.retain(|memory| memory.bound == MemoryUser::Free);
            self.io.retain(|device| device.bound.is_none());
        }
        if !self.has(HostResourceKind::Core) && !self.has(HostResourceKind::Cpu) {
            self.host.cores.clear();
        }
        if !self.has(HostResourceKind::Memory) {
            self.host.memory.clear();
        }
        self
    }

    fn has(&self, kind: HostResourceKind) -> bool {
        self.kinds.contains(&kind)
    }

    fn blocks(&self) -> String {
        HostResourceKind::ALL.iter().filter(|kind| self.has(**kind)).map(|kind| self.block(*kind)).collect()
    }

    fn block(&self, kind: HostResourceKind) -> String {
        let bound = |core: &CoreOwner| shown(core.bound.as_ref()).to_owned();
        let free = |core: &CoreOwner| free(core.bound.as_ref()).to_string();
        match kind {
            HostResourceKind::Core => {
                let columns = [("ID", 6), ("%FREE", 7), ("CPUSET", 24), ("BOUND", 0)];
                let set = |core: &CoreOwner| format!("({})", cpuset(core));
                let line = |core: &CoreOwner| [core.id.to_string(), free(core), set(core), bound(core)];
                layout::whole_block("CORE", columns, self.host.cores.iter().map(line))
            }
            HostResourceKind::Cpu => {
                let line = |(core, cpu): (&CoreOwner, u32)| [cpu.to_string(), free(core), bound(core)];
                layout::whole_block("VCPU", [("PID", 7), ("%FREE", 7), ("BOUND", 0)], self.cpus().map(line))
            }
            HostResourceKind::Memory => {
                let line = |memory: &MemoryOwner| [address(memory), layout::memory(memory.size), user(memory)];
                let columns = [("PA", 20), ("SIZE", 15), ("BOUND", 0)];
                layout::whole_block("MEMORY", columns, self.host.memory.iter().map(line))
            }
            HostResourceKind::Io => {
                let bound = |device: &OwnedDevice| device.bound.clone().unwrap_or_default();
                let line = |device: &OwnedDevice| [device.name.clone(), device.kind.to_owned(), bound(device)];
                layout::whole_block("IO", [("DEVICE", 41), ("TYPE", 6), ("BOUND", 0)], self.io.iter().map(line))
            }
            HostResourceKind::Util => {
                let [vhost, iothread, daemon, qemu, total] = layout::HOST_CPU;
                let columns = [("DOMAIN", 16), vhost, iothread, daemon, qemu, total];
                let line = |SpentOnDomain { domain, spent }: &SpentOnDomain| {
                    let [vhost, iothread, daemon, qemu, total] = layout::host_cpu(spent);
                    [domain.clone(), vhost, iothread, daemon, qemu, total]
                };
                layout::whole_block("HOST CPU", columns, self.util.iter().map(line))
            }
        }
    }

    fn parseable(&self) -> String {
        let mut text = layout::parseable_head();
        for core in self.host.cores.iter().filter(|_| self.has(HostResourceKind::Core)) {
            let (free, bound) = (free(core.bound.as_ref()), shown(core.bound.as_ref()));
            let _ = writeln!(text, "CORE|id={}|free={free}|cpuset={}|bound={bound}", core.id, cpuset(core));
        }
        for (core, cpu) in self.cpus().filter(|_| self.has(HostResourceKind::Cpu)) {
            let (free, bound) = (free(core.bound.as_ref()), shown(core.bound.as_ref()));
            let _ = writeln!(text, "VCPU|pid={cpu}|free={free}|bound={bound}");
        }
        for memory in &self.host.memory {
            let address = memory.address.map(|address| format!("{address:#x}")).unwrap_or_default();
            let _ = writeln!(text, "MEMORY|pa={address}|size={}|bound={}", memory.size.0, user(memory));
        }
        for device in &self.io {
            let bound = device.bound.as_deref().unwrap_or_default();
            let _ = writeln!(text, "IO|dev={}|type={}|bound={bound}", device.name, device.kind);
        }
        for SpentOnDomain { domain, spent } in &self.util {
            let _ = writeln!(text, "HOSTCPU|ldom={domain}|{}", layout::parseable_host_cpu(spent));
        }
        text
    }

    fn cpus(&self) -> impl Iterator<Item = (&CoreOwner, u32)> {
        self.host.cores.iter().flat_map(|core| core.cpus.iter().map(move |cpu| (core, *cpu)))
    }
}

fn cpuset(core: &CoreOwner) -> String {
    core.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use vtax_model::units::ByteSize;

    use super::*;

    fn devices(kinds: &[HostResourceKind]) -> ShownDevices {
        let name = |text: &str| -> Name { text.parse().expect("a name") };
        let core =
            |id, cpus: [u32; 2], bound: Option<&str>| CoreOwner { id, cpus: cpus.into(), bound: bound.map(name) };
        let memory = |address, mib: u64, bound| MemoryOwner { address, size: ByteSize(mib << 20), bound };
        let device = |name: &str, kind, bound: Option<&str>| OwnedDevice {
            name: name.to_owned(),
            kind,
            bound: bound.map(str::to_owned),
        };
        let spent = |domain: &str, vhost| SpentOnDomain {
            domain: domain.to_owned(),
            spent: ServiceUtilization { vhost, qemu: 2.5, ..ServiceUtilization::default() },
        };
        ShownDevices {
            host: HostResources {
                cores: vec![core(0, [0, 4], Some("primary")), core(1, [1, 5], None), core(2, [2, 6], Some("mars"))],
                memory: vec![
                    memory(Some(0x100_0000), 512, MemoryUser::System),
                    memory(None, 7680, MemoryUser::Domain(name("primary"))),
                    memory(None, 8192, MemoryUser::Domain(name("mars"))),
                    memory(None, 1024, MemoryUser::Free),
                ],
            },
            util: vec![spent("primary", 40.0), spent("mars", 40.0)],
            io: vec![device("pci_0", "BUS", None), device("/SYS/MB/NET0/IOVNET.PF0.VF0", "VF", Some("mars"))],
            kinds: kinds.to_vec(),
        }
    }

    #[test]
    fn the_blocks_are_those_of_ldm() {
        insta::assert_snapshot!(devices(HostResourceKind::ALL).only_free(false).blocks());
        let head = devices(&[HostResourceKind::Memory]).only_free(false).blocks();
        let head = head.lines().nth(1).expect("a head");
        assert_eq!(["PA", "SIZE", "BOUND"].map(|it| head.find(it)), [Some(4), Some(25), Some(41)]);
    }

    #[test]
    fn only_what_is_free_is_shown_unless_all_is_asked_for() {
        insta::assert_snapshot!(devices(HostResourceKind::USUAL).only_free(true).blocks());
        let memory = devices(&[HostResourceKind::Memory]).only_free(true);
        assert_eq!(
            memory.blocks(),
            "MEMORY\n    PA                   SIZE            BOUND\n    -                    1G\n\n"
        );
    }

    #[test]
    fn programs_get_a_line_for_each() {
        insta::assert_snapshot!(devices(HostResourceKind::ALL).only_free(false).parseable());
    }
}
