//! Chooses the CPUs to which the two ends of a measurement are pinned.
//!
//! Placement is often the largest single effect on a round-trip time: whether the ends share a CPU, a core or a NUMA
//! node, and whether these CPUs handle interrupts. [`pin_plan`] is a pure function, so tests can use machines that
//! don't exist.

mod machine;
#[cfg(test)]
mod tests;
mod whole_cores;

use std::collections::{BTreeMap, BTreeSet};

use vtax_model::cpus::CpuSet;

pub use machine::{Cpu, Machine};
pub use whole_cores::WholeCores;

/// The endpoints on this machine, and their path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinWish {
    /// Number of threads of the initiator, if it is here.
    pub initiator: Option<usize>,
    /// Number of threads of the responder, if it is here.
    pub responder: Option<usize>,
    /// The NUMA node of their NIC, if there is a NIC and it reports one.
    pub nic_node: Option<u32>,
}

/// The CPUs to which each end is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PinPlan {
    /// In ascending order; empty if the end isn't here or isn't to be pinned.
    pub initiator: Vec<u32>,
    /// In ascending order; empty if the end isn't here or isn't to be pinned.
    pub responder: Vec<u32>,
    /// A sentence for each wish that can't be met on this machine.
    pub notes: Vec<String>,
}

/// Chooses CPUs by these wishes. Each thread of an end has its own CPU, and the ends share neither a CPU nor
/// a core. All CPUs are on the NIC's node, or else on one node. None is the CPU that handles the most
/// interrupts.
///
/// If they can't all be met, wishes are dropped in this order: the quiet CPU, the single node, separate cores. After
/// that, threads share CPUs. If there is only one CPU, both ends use it.
pub fn pin_plan(machine: &Machine, wish: &PinWish) -> PinPlan {
    let threads = [wish.initiator, wish.responder].map(Option::unwrap_or_default);
    if threads == [0, 0] {
        return PinPlan::default();
    }
    let mut allowed = machine.allowed();
    if let (Some(only), None) = (allowed.next(), allowed.next()) {
        let [initiator, responder] = threads.map(|threads| if threads > 0 { vec![only.number] } else { Vec::new() });
        return PinPlan { initiator, responder, notes: vec!["There is only one CPU to run on.".to_owned()] };
    }
    let room = Room { machine, wish, threads, busiest: machine.busiest() };
    let [initiator, responder] = room.choose();
    let notes = room.unmet([&initiator, &responder]);
    PinPlan { initiator, responder, notes }
}

/// Preferences for the choice of CPUs.
#[derive(Debug, Clone, Copy)]
struct Keep {
    /// The ends share no core.
    cores: bool,
    /// All CPUs are on one node.
    node: bool,
    /// The CPU that handles the most interrupts isn't used.
    quiet: bool,
}

/// From all preferences down to none.
const CONCESSIONS: [Keep; 8] = [
    Keep { cores: true, node: true, quiet: true },
    Keep { cores: true, node: true, quiet: false },
    Keep { cores: true, node: false, quiet: true },
    Keep { cores: true, node: false, quiet: false },
    Keep { cores: false, node: true, quiet: true },
    Keep { cores: false, node: true, quiet: false },
    Keep { cores: false, node: false, quiet: true },
    Keep { cores: false, node: false, quiet: false },
];

/// With too few CPUs for all threads: first whole cores for each end, then single CPUs.
const FEWER: [Keep; 2] = [CONCESSIONS[3], CONCESSIONS[7]];

struct Room<'a> {
    machine: &'a Machine,
    wish: &'a PinWish,
    threads: [usize; 2],
    /// The CPU that handles the most interrupts. An agent may report thousands of CPUs, so it is determined once.
    busiest: Option<&'a Cpu>,
}

type Ends = [Vec<u32>; 2];

impl Room<'_> {
    /// Drops as few wishes as possible so that each thread has a CPU. If there aren't enough CPUs, all of them are
    /// used.
    fn choose(&self) -> Ends {
        let each_thread = |ends: &Ends| ends.iter().zip(self.threads).all(|(cpus, threads)| cpus.len() == threads);
        let each_end = |ends: &Ends| ends.iter().zip(self.threads).all(|(cpus, n)| n == 0 || !cpus.is_empty());
        let full = CONCESSIONS.iter().flat_map(|keep| self.choices(*keep)).find(each_thread);
        let fewer = || FEWER.iter().flat_map(|keep| self.choices(*keep)).find(each_end);
        full.or_else(fewer).unwrap_or_default()
    }

    /// One choice for each possible node.
    fn choices(&self, keep: Keep) -> impl Iterator<Item = Ends> {
        self.pools(keep).into_iter().map(move |pool| {
            let [initiator, responder] = deal(groups(&pool, keep.cores), self.threads);
            [fill(&initiator, self.threads[0]), fill(&responder, self.threads[1])]
        })
    }

    /// Candidate CPUs, the best first.
    fn pools(&self, keep: Keep) -> Vec<Vec<&Cpu>> {
        let mut all: Vec<&Cpu> = self.machine.allowed().filter(|cpu| !keep.quiet || !self.is_busiest(cpu)).collect();
        all.sort_by_key(|cpu| (self.is_off_nic(cpu), self.noise(cpu), cpu.number));
        if !keep.node {
            return vec![all];
        }
        let nodes: BTreeSet<u32> = all.iter().map(|cpu| cpu.node).collect();
        let wanted = self.wish.nic_node.filter(|node| nodes.contains(node));
        let nodes = nodes.into_iter().filter(|node| wanted.is_none_or(|wanted| wanted == *node));
        nodes.map(|node| all.iter().filter(|cpu| cpu.node == node).copied().collect()).collect()
    }

    fn is_busiest(&self, cpu: &Cpu) -> bool {
        self.busiest.is_some_and(|busiest| busiest.number == cpu.number)
    }

    /// Disturbance of this CPU by interrupts: work on one hardware thread slows down its siblings.
    fn noise(&self, cpu: &Cpu) -> u32 {
        match self.busiest {
            Some(busiest) if busiest.number == cpu.number => 2,
            Some(busiest) if busiest.core == cpu.core => 1,
            _ => 0,
        }
    }

    fn is_off_nic(&self, cpu: &Cpu) -> bool {
        self.wish.nic_node.is_some_and(|node| node != cpu.node)
    }

    /// The wishes that the choice doesn't meet.
    fn unmet(&self, ends: [&[u32]; 2]) -> Vec<String> {
        let mut notes = Vec::new();
        for ((name, cpus), threads) in ["initiator", "responder"].into_iter().zip(ends).zip(self.threads) {
            if cpus.len() < threads {
                let count = if cpus.len() == 1 { "one CPU".to_owned() } else { format!("{} CPUs", cpus.len()) };
                notes.push(format!("The {name}'s {threads} threads share {count}."));
            }
        }
        notes.extend(self.shared_core(ends));
        notes.extend(self.distance(ends));
        let busiest = self.busiest.map(|cpu| cpu.number);
        let busiest = busiest.filter(|number| ends.concat().contains(number));
        notes.extend(busiest.map(|number| format!("One of the CPUs, {number}, handles the most interrupts.")));
        notes
    }

    fn shared_core(&self, [initiator, responder]: [&[u32]; 2]) -> Option<String> {
        let mut cores = BTreeMap::new();
        for (cpu, other) in responder.iter().filter_map(|number| Some((self.machine.cpu(*number)?, number))) {
            cores.entry(cpu.core).or_insert(other);
        }
        let shared = |one: &u32| Some((*one, cores.get(&self.machine.cpu(*one)?.core)?));
        let (one, other) = initiator.iter().find_map(shared)?;
        Some(format!("The endpoints share a core: CPUs {one} and {other} are its threads."))
    }

    fn distance(&self, ends: [&[u32]; 2]) -> Option<String> {
        let used = ends.concat().into_iter().filter_map(|number| self.machine.cpu(number));
        let nodes: BTreeSet<u32> = used.clone().map(|cpu| cpu.node).collect();
        match self.wish.nic_node {
            Some(node) if nodes.iter().any(|used| *used != node) => {
                let far: CpuSet = used.filter(|cpu| cpu.node != node).map(|cpu| cpu.number).collect();
                Some(format!("CPUs not on NUMA node {node}, where the NIC is: {far}."))
            }
            None if nodes.len() > 1 => Some("The CPUs are on more than one NUMA node.".to_owned()),
            _ => None,
        }
    }
}

/// The CPUs of each core, or each CPU alone, in the order of the pool.
fn groups(pool: &[&Cpu], cores: bool) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut of_core = BTreeMap::new();
    for cpu in pool {
        let group = *of_core.entry(cpu.core).or_insert(groups.len());
        match groups.get_mut(group).filter(|_| cores) {
            Some(group) => group.push(cpu.number),
            None => groups.push(vec![cpu.number]),
        }
    }
    groups
}

/// Gives each group to the end with the fewest groups relative to its number of threads. No end gets more groups than
/// threads.
fn deal(groups: Vec<Vec<u32>>, threads: [usize; 2]) -> [Vec<Vec<u32>>; 2] {
    let mut dealt = [Vec::new(), Vec::new()];
    for group in groups {
        let has = |end: usize| dealt[end].len();
        let poorer = match [0, 1].map(|end| has(end) < threads[end]) {
            [false, false] => break,
            [true, false] => 0,
            [false, true] => 1,
            [true, true] => usize::from(has(0) * threads[1] > has(1) * threads[0]),
        };
        dealt[poorer].push(group);
    }
    dealt
}

/// Takes one CPU of each core before taking a second CPU of any core.
fn fill(groups: &[Vec<u32>], threads: usize) -> Vec<u32> {
    let deepest = groups.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..deepest).flat_map(|turn| groups.iter().filter_map(move |group| group.get(turn)));
    let mut cpus: Vec<u32> = in_turn.take(threads).copied().collect();
    cpus.sort_unstable();
    cpus
}
