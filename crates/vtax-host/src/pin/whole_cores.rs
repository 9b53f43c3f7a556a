//! Choice of whole cores for threads that share them with no other threads.

use std::collections::BTreeMap;

use vtax_model::cpus::CpuSet;

use super::Machine;

/// Whole cores, and the CPUs that are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeCores {
    /// CPUs of the cores, with all siblings.
    pub inside: CpuSet,
    /// Other allowed CPUs; at least one.
    pub outside: CpuSet,
}

impl WholeCores {
    /// Number of cores of which this process may use all CPUs.
    pub fn usable(machine: &Machine) -> u32 {
        usable(machine).len() as u32
    }

    /// Chooses cores on one NUMA node if it has enough of them, and avoids the core that handles the most interrupts if
    /// possible. None unless there are more cores than wanted.
    pub fn choose(machine: &Machine, wanted: u32) -> Option<WholeCores> {
        let cores = usable(machine);
        if wanted == 0 || wanted as usize >= cores.len() {
            return None;
        }
        let busiest = machine.busiest().map(|cpu| (cpu.node, cpu.core));
        let mut quiet: Vec<(u32, u32)> = cores.keys().copied().collect();
        // The busiest core comes last, and so does a node with too few cores.
        let on_node =
            |node: u32| quiet.iter().filter(|(of, core)| *of == node && Some((*of, *core)) != busiest).count();
        let is_small: BTreeMap<u32, bool> =
            quiet.iter().map(|(node, _)| (*node, on_node(*node) < wanted as usize)).collect();
        quiet.sort_by_key(|(node, core)| (Some((*node, *core)) == busiest, is_small[node], *node, *core));
        let chosen = &quiet[..wanted as usize];
        let inside: CpuSet = chosen.iter().flat_map(|core| cores[core].iter().copied()).collect();
        let outside = machine.allowed().map(|cpu| cpu.number).filter(|cpu| !inside.contains(*cpu)).collect();
        Some(WholeCores { inside, outside })
    }
}

/// CPUs of each core, by node, of which this process may use all.
fn usable(machine: &Machine) -> BTreeMap<(u32, u32), Vec<u32>> {
    let mut cores: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for cpu in &machine.cpus {
        cores.entry((cpu.node, cpu.core)).or_default().push(cpu.number);
    }
    let is_allowed = |number: &u32| machine.cpu(*number).is_some_and(|cpu| cpu.allowed);
    cores.retain(|_, cpus| cpus.iter().all(is_allowed));
    cores
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pin::Cpu;

    /// Two siblings to each core, as the kernel numbers them on Intel's machines: 0 and `cores`, 1 and `cores + 1`, ….
    fn machine(nodes: u32, cores: u32) -> Machine {
        let total = nodes * cores;
        let cpu = |number: u32| {
            let core = number % total;
            Cpu { number, allowed: true, node: core / cores, core, interrupts: u64::from(core == 0) }
        };
        Machine { cpus: (0..2 * total).map(cpu).collect() }
    }

    fn chosen(machine: &Machine, wanted: u32) -> (String, String) {
        let cores = WholeCores::choose(machine, wanted).expect("enough cores");
        (cores.inside.to_string(), cores.outside.to_string())
    }

    #[test]
    fn cores_include_their_siblings_and_the_busiest_comes_last() {
        let of = |inside: &str, outside: &str| (inside.to_owned(), outside.to_owned());
        assert_eq!(chosen(&machine(1, 4), 2), of("1-2,5-6", "0,3-4,7"));
        assert_eq!(chosen(&machine(1, 4), 3), of("1-3,5-7", "0,4"));
        assert_eq!(chosen(&machine(1, 2), 1), of("1,3", "0,2"));
    }

    #[test]
    fn cores_are_on_one_node_if_it_has_enough() {
        assert_eq!(chosen(&machine(2, 2), 2).0, "2-3,6-7", "node 0 has one that isn't busy");
        assert_eq!(chosen(&machine(2, 2), 3).0, "1-3,5-7");
    }

    #[test]
    fn missing_cores_are_refused() {
        assert!([0, 2, 9].iter().all(|wanted| WholeCores::choose(&machine(1, 2), *wanted).is_none()));
        assert_eq!(WholeCores::usable(&machine(1, 2)), 2);
        let mut partly = machine(1, 3);
        partly.cpus[4].allowed = false;
        assert_eq!(chosen(&partly, 1), ("2,5".to_owned(), "0-1,3".to_owned()), "core 1 lacks a sibling");
    }

    proptest! {
        #[test]
        fn a_choice_has_whole_cores_and_leaves_some_cpus(nodes in 1..4u32, cores in 1..6u32, wanted in 0..20u32, not in 0..60u32) {
            let mut machine = machine(nodes, cores);
            if let Some(cpu) = machine.cpus.get_mut(not as usize) {
                cpu.allowed = false;
            }
            if let Some(WholeCores { inside, outside }) = WholeCores::choose(&machine, wanted) {
                prop_assert_eq!(inside.len(), 2 * wanted as usize);
                prop_assert!(!outside.is_empty() && outside.iter().all(|cpu| !inside.contains(cpu) && cpu != not));
                let has_sibling = |cpu: u32| inside.contains((cpu + nodes * cores) % (2 * nodes * cores));
                prop_assert!(inside.iter().all(|cpu| has_sibling(cpu) && cpu != not));
            }
        }
    }
}
