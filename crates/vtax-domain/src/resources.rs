//! Cores, CPUs and memory of the host, each with the domain that has it.

use std::{collections::BTreeSet, fs};

use serde::{Deserialize, Serialize};
use vtax_model::{domain::PRIMARY, topology::Name, units::ByteSize};

use crate::{
    bindings::Bindings,
    capacity::HostCapacity,
    plan::{CPUS_OF_PRIMARY, MEMORY_OF_PRIMARY},
};

/// Resources available to domains, and their owners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostResources {
    /// Cores, in order.
    pub cores: Vec<CoreOwner>,
    /// Memory: reserved by the kernel, used by domains, and free.
    pub memory: Vec<MemoryOwner>,
}

/// Core of the host, with the domain that uses it exclusively.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreOwner {
    pub id: usize,
    /// Logical CPUs of the core, as the kernel numbers them.
    pub cpus: BTreeSet<u32>,
    /// Its owner. A domain can have it if there is none; until then, `primary` and domains with vCPUs use it.
    pub bound: Option<Name>,
}

/// Piece of memory with its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryOwner {
    /// Start address. Linux allocates domains' pages from anywhere, so their memory has no address.
    pub address: Option<u64>,
    /// Length of the range.
    pub size: ByteSize,
    /// Its owner.
    pub bound: MemoryUser,
}

/// Owner of a piece of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "Option<String>")]
pub enum MemoryUser {
    /// Reserved by the kernel when it booted.
    System,
    /// Bound domain, or `primary` for memory that is neither free nor the kernel's nor another domain's.
    Domain(Name),
    /// Free: a domain can have it.
    Free,
}

/// Owner as shown in lists: `_sys_`, a domain, or nothing.
impl From<MemoryUser> for Option<String> {
    fn from(user: MemoryUser) -> Option<String> {
        match user {
            MemoryUser::System => Some("_sys_".to_owned()),
            MemoryUser::Domain(name) => Some(name.to_string()),
            MemoryUser::Free => None,
        }
    }
}

/// The machine's memory as shown to root in `/proc/iomem`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryMap {
    /// Total RAM.
    ram: u64,
    /// Parts of the kernel: address and size.
    kernel: Vec<(u64, u64)>,
}

impl MemoryMap {
    /// Returns the map of this machine. An unprivileged user sees no addresses, and gets an empty one.
    pub fn look() -> MemoryMap {
        MemoryMap::of(&fs::read_to_string("/proc/iomem").unwrap_or_default())
    }

    /// Parses lines such as `00100000-bfffffff : System RAM`, with indented ones such as `  01000000-02209987 : Kernel
    /// code`.
    fn of(iomem: &str) -> MemoryMap {
        let mut map = MemoryMap::default();
        for (address, size, what) in iomem.lines().filter_map(region) {
            match what {
                "System RAM" => map.ram = map.ram.saturating_add(size),
                "Kernel code" | "Kernel rodata" | "Kernel data" | "Kernel bss" | "Crash kernel" => {
                    // Its last page is not shared either.
                    map.kernel.push((address, size.checked_next_multiple_of(4096).unwrap_or(size)));
                }
                _ => {}
            }
        }
        map
    }
}

fn region(line: &str) -> Option<(u64, u64, &str)> {
    let (range, what) = line.trim().split_once(" : ")?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (first, last) = (number(first)?, number(last)?);
    // Both are 0 for users who may not see them.
    (last > first).then(|| (first, (last - first).saturating_add(1), what))
}

impl HostResources {
    /// Returns the resources of a host with these domains bound.
    pub fn new(capacity: &HostCapacity, map: &MemoryMap, bound: &[Bindings]) -> HostResources {
        HostResources { cores: cores(capacity, bound), memory: memory(capacity, map, bound) }
    }
}

/// The first free cores stay with `primary`.
fn cores(capacity: &HostCapacity, bound: &[Bindings]) -> Vec<CoreOwner> {
    let primary: Name = PRIMARY.parse().expect("a name");
    let mut kept = 0;
    let mut owner = |core: &[u32]| {
        let has = |bindings: &&Bindings| core.iter().any(|cpu| bindings.cpus.contains(cpu));
        let domain = bound.iter().find(has).map(|bindings| bindings.domain.clone());
        kept += usize::from(domain.is_none());
        domain.or_else(|| (kept <= CPUS_OF_PRIMARY).then(|| primary.clone()))
    };
    let cores = capacity.cores.iter().enumerate();
    cores.map(|(id, core)| CoreOwner { id, cpus: core.iter().copied().collect(), bound: owner(core) }).collect()
}

fn memory(capacity: &HostCapacity, map: &MemoryMap, bound: &[Bindings]) -> Vec<MemoryOwner> {
    let primary: Name = PRIMARY.parse().expect("a name");
    let piece = |address, size, bound| MemoryOwner { address, size: ByteSize(size), bound };
    let kernel = map.kernel.iter().fold(0, |sum: u64, (_, size)| sum.saturating_add(*size));
    let rest_of_system = map.ram.saturating_sub(capacity.memory.0).saturating_sub(kernel);
    let of_domains: u64 = bound.iter().map(|bindings| bindings.memory.0).sum();
    let free =
        (capacity.available.0.saturating_sub(MEMORY_OF_PRIMARY.0)).min(capacity.memory.0.saturating_sub(of_domains));
    let free = free >> 20 << 20;
    let of_primary = capacity.memory.0.saturating_sub(of_domains).saturating_sub(free);
    let mut pieces: Vec<MemoryOwner> =
        map.kernel.iter().map(|(address, size)| piece(Some(*address), *size, MemoryUser::System)).collect();
    pieces.push(piece(None, rest_of_system, MemoryUser::System));
    pieces.push(piece(None, of_primary, MemoryUser::Domain(primary)));
    pieces.extend(
        bound.iter().map(|bindings| piece(None, bindings.memory.0, MemoryUser::Domain(bindings.domain.clone()))),
    );
    pieces.push(piece(None, free, MemoryUser::Free));
    pieces.retain(|piece| piece.size.0 > 0);
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_domains::{bindings, capacity, mib};

    const IOMEM: &str = "\
00000000-00000fff : Reserved
00100000-404fffff : System RAM
  01000000-011fffff : Kernel code
  01400000-014fffff : Kernel data
c0001000-eebfffff : PCI Bus 0000:00
";

    #[test]
    fn each_core_and_each_piece_of_memory_has_one_owner() {
        let bound = [bindings("mars", &[3, 7], mib(128)), bindings("venus", &[], mib(64))];
        let devices = HostResources::new(&capacity(), &MemoryMap::of(IOMEM), &bound);
        let owners: Vec<Option<&str>> =
            devices.cores.iter().map(|core| core.bound.as_ref().map(Name::as_str)).collect();
        assert_eq!(owners, [Some("primary"), None, None, Some("mars")]);
        let memory: Vec<String> = devices
            .memory
            .iter()
            .map(|piece| format!("{:?} {} {:?}", piece.address, piece.size.0 >> 20, piece.bound))
            .collect();
        assert_eq!(
            memory,
            [
                "Some(16777216) 2 System",
                "Some(20971520) 1 System",
                "None 25 System",
                "None 364 Domain(Name(\"primary\"))",
                "None 128 Domain(Name(\"mars\"))",
                "None 64 Domain(Name(\"venus\"))",
                "None 444 Free"
            ]
        );
    }

    /// An unprivileged user sees only zeros.
    #[test]
    fn without_addresses_only_known_memory_is_listed() {
        let map = MemoryMap::of("00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\nnonsense\n-: x\n");
        assert_eq!(map, MemoryMap::default());
        let devices = HostResources::new(&capacity(), &map, &[]);
        assert!(devices.memory.iter().all(|piece| piece.bound != MemoryUser::System));
        assert_eq!(devices.memory.iter().map(|piece| piece.size.0).sum::<u64>(), mib(1000).0);
    }

    #[test]
    fn the_host_keeps_the_first_free_core() {
        let owners = |bound: &[Bindings]| {
            let found = HostResources::new(&capacity(), &MemoryMap::default(), bound);
            found.cores.into_iter().map(|core| core.bound.map(|name| name.to_string())).collect::<Vec<_>>()
        };
        let [primary, mars] = ["primary", "mars"].map(|name| Some(name.to_owned()));
        assert_eq!(owners(&[]), [primary.clone(), None, None, None]);
        assert_eq!(owners(&[bindings("mars", &[0, 4], mib(1))]), [mars, primary, None, None]);
    }

    proptest! {
        /// Domains can't have more than there is.
        #[test]
        fn the_pieces_of_memory_add_up_to_the_total(sizes in prop::collection::vec(0u64..300, 0..4), available in 0u64..1001) {
            let bound: Vec<Bindings> =
                sizes.iter().zip(0..).map(|(size, number)| bindings(&format!("d{number}"), &[], mib(*size))).collect();
            let all: u64 = sizes.iter().sum();
            prop_assume!(all <= 1000);
            let capacity = HostCapacity { available: mib(available), ..capacity() };
            let pieces = HostResources::new(&capacity, &MemoryMap::default(), &bound).memory;
            prop_assert_eq!(pieces.iter().map(|piece| piece.size.0).sum::<u64>(), mib(1000).0);
            let free = pieces.iter().filter(|piece| piece.bound == MemoryUser::Free).map(|piece| piece.size.0);
            let free: u64 = free.sum();
            let wanted = available.saturating_sub(256).min(1000 - all);
            prop_assert_eq!(free, mib(wanted).0, "the host keeps 256 MiB of what is available");
        }

        #[test]
        fn no_map_makes_the_reader_panic(text: String, iomem in "([0-9a-f]{0,17}-[0-9a-f]{0,17} : (System RAM|Kernel code)\n){0,8}") {
            for text in [text, iomem] {
                let _ = HostResources::new(&capacity(), &MemoryMap::of(&text), &[]);
            }
        }
    }
}
