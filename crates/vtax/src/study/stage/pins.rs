//! Which CPUs the ends are pinned to: the largest single effect on a round-trip time is whether two
//! ends share one.

use std::{collections::BTreeMap, fs};

use anyhow::anyhow;
use vtax_host::{
    inspect::SystemRoot,
    pin::{Machine, PinWish, pin_plan},
};
use vtax_model::{
    cell::Cell,
    endpoint::{Pinning, Pins},
    options::Engine,
    run::{Placement, PlacementNote},
    study::Study,
    workload::TestKind,
};

use super::{ConnectedEnd, ConnectedEnds, ConnectedRow, agents::Agents};
use crate::exit::{Blamed, Stop};

impl ConnectedEnds {
    /// Pins all ends. All rows get as many CPUs, so that they can be compared.
    pub(crate) fn place(&mut self, study: &Study, pins: &Pins) -> Result<Placement, Stop> {
        let here = Here::read();
        let mut notes = Vec::new();
        for staged in &mut self.rows {
            notes.extend(Plan { agents: &self.agents, here: &here, study, pins }.pin(staged)?);
        }
        notes.extend(self.pin_vcpus().or_infrastructure()?);
        notes.sort();
        notes.dedup();
        let notes = notes.into_iter().map(PlacementNote::Remark).collect();
        let (policy, responder_policy) = (pins.policy.clone(), pins.responder.clone());
        let [initiator, responder] = self.cpus_here();
        self.shared_cpu = self.cpu_for_both(&here.machine, pins);
        let path = self.shared_cpu;
        Ok(Placement { policy, responder_policy, initiator, responder, path, guests: None, notes })
    }

    /// The CPU that both ends of rows that take turns share. A virtual machine's CPUs are shared with others:
    /// the hypervisor runs one of them now and the other then, which is noise that one CPU doesn't have. All
    /// rows share it or none, for else they couldn't be compared.
    fn cpu_for_both(&self, machine: &Machine, pins: &Pins) -> Option<u32> {
        let automatic = pins.policy == Pinning::Auto && pins.responder.is_none();
        let free = |party: &ConnectedEnd| {
            let agent = self.agents.get(party);
            agent.is_here() && agent.facts.environment.hypervisor != "none"
        };
        let of_host = |party: &ConnectedEnd| free(party) && party.vcpus.is_none() && party.pin.is_none();
        let all = self.rows.iter().flat_map(|staged| staged.pairs.iter().flatten()).all(of_host);
        let one = PinWish { initiator: Some(1), ..PinWish::default() };
        (automatic && all).then(|| pin_plan(machine, &one).initiator.first().copied()).flatten()
    }

    /// Of the first ends on this machine.
    fn cpus_here(&self) -> [Vec<u32>; 2] {
        [0, 1].map(|end| {
            let mut ends = self.rows.iter().flat_map(|staged| &staged.pairs).map(|pair| &pair[end]);
            ends.find(|party| self.agents.get(party).is_here()).map(|party| party.cpus.clone()).unwrap_or_default()
        })
    }

    /// Says loudly which ends the scheduler may move, and what that costs.
    pub(crate) fn warn_of_unpinned(&self) {
        let parties = self.rows.iter().flat_map(|staged| staged.pairs.iter().flatten());
        let loose = parties.filter(|party| party.cpus.is_empty());
        let mut loose: Vec<String> = loose.map(|party| party.name.to_string()).collect();
        loose.sort();
        loose.dedup();
        if !loose.is_empty() {
            eprintln!(
                "warning: NOT PINNED: {}: whenever the scheduler moves an end, round-trip times can jump fourfold",
                loose.join(", ")
            );
        }
    }
}

/// The machine on which vtax runs, and the guests of its labs.
struct Here {
    /// As agents know it.
    boot_id: String,
    machine: Machine,
}

impl Here {
    fn read() -> Here {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Here { boot_id: boot_id.trim().to_owned(), machine: Machine::read(&SystemRoot::live()) }
    }
}

struct Plan<'a> {
    agents: &'a Agents,
    here: &'a Here,
    study: &'a Study,
    pins: &'a Pins,
}

/// Whose CPUs are chosen together: pair and end, of one machine.
type Together = BTreeMap<String, Vec<[usize; 2]>>;

impl Plan<'_> {
    /// The wishes that a machine has no room for, as sentences.
    fn pin(&self, staged: &mut ConnectedRow) -> Result<Vec<String>, Stop> {
        let mut automatic = Together::new();
        for pair in 0..staged.pairs.len() {
            let shared = self.ground(&staged.pairs[pair][0]).0 == self.ground(&staged.pairs[pair][1]).0;
            for end in 0..2 {
                let party = &mut staged.pairs[pair][end];
                let (id, machine) = self.ground(party);
                match self.asked(party, end, shared) {
                    Pinning::Unpinned => self.settle(party, Vec::new()),
                    Pinning::Cpus(cpus) => {
                        check(&cpus, party, machine)?;
                        self.settle(party, cpus);
                    }
                    Pinning::Auto => automatic.entry(id.to_owned()).or_default().push([pair, end]),
                }
            }
        }
        Ok(automatic.values().flat_map(|together| self.choose(staged, together)).collect())
    }

    /// The machine whose CPUs an end has, and the name that no other has: of a guest of the run's own
    /// the one that it is on.
    fn ground(&self, party: &ConnectedEnd) -> (&str, &Machine) {
        match &party.vcpus {
            Some(_) => (&self.here.boot_id, &self.here.machine),
            None => {
                let agent = self.agents.get(party);
                (agent.machine(), &agent.facts.machine)
            }
        }
    }

    /// Gives an end its CPUs. In a guest they are its vCPUs', and its threads get some of those.
    fn settle(&self, party: &mut ConnectedEnd, cpus: Vec<u32>) {
        let inside = if cpus.is_empty() { Vec::new() } else { self.inside(party) };
        match &mut party.vcpus {
            Some(vcpus) => {
                vcpus.cpus = cpus;
                party.cpus = inside;
            }
            None => party.cpus = cpus,
        }
    }

    fn inside(&self, party: &ConnectedEnd) -> Vec<u32> {
        let machine = &self.agents.get(party).facts.machine;
        let wish = PinWish { initiator: Some(self.threads(machine)), ..PinWish::default() };
        pin_plan(machine, &wish).initiator
    }

    /// What was asked for one end: its own wish, else the run's. Of one list for two ends on one
    /// machine each has a half.
    fn asked(&self, party: &ConnectedEnd, end: usize, shared: bool) -> Pinning {
        let own = self.pins.responder.clone().filter(|_| end == 1);
        match (party.pin.clone().or(own), &self.pins.policy) {
            (Some(own), _) => own,
            (None, Pinning::Cpus(cpus)) if shared && self.pins.responder.is_none() && cpus.len() > 1 => {
                let (first, rest) = cpus.split_at(cpus.len() / 2);
                Pinning::Cpus(if end == 0 { first } else { rest }.to_vec())
            }
            (None, policy) => policy.clone(),
        }
    }

    fn choose(&self, staged: &mut ConnectedRow, together: &[[usize; 2]]) -> Vec<String> {
        let Some([pair, end]) = together.first() else { return Vec::new() };
        let first = &staged.pairs[*pair][*end];
        let machine = self.ground(first).1;
        let threads = self.threads(machine);
        let needs =
            |[pair, end]: &[usize; 2]| staged.pairs[*pair][*end].vcpus.as_ref().map_or(threads, |own| own.count);
        let of_end = |end: usize| together.iter().filter(move |member| member[1] == end);
        let count = [0, 1].map(|end| of_end(end).count());
        let wish = |end: usize| Some(of_end(end).map(needs).sum()).filter(|threads| *threads > 0);
        let nic_node = staged.pairs[*pair][*end].route.first().and_then(|link| link.nic.numa_node);
        let plan = pin_plan(machine, &PinWish { initiator: wish(0), responder: wish(1), nic_node });
        let mut dealt = [0; 2];
        for [pair, end] in together {
            let cpus = [&plan.initiator, &plan.responder][*end];
            let part = share(cpus, dealt[*end], count[*end]);
            self.settle(&mut staged.pairs[*pair][*end], part);
            dealt[*end] += 1;
        }
        let first = &staged.pairs[*pair][*end];
        let elsewhere = self.agents.get(first).elsewhere().filter(|_| first.vcpus.is_none());
        let hostname = elsewhere.map(|environment| format!("{}: ", environment.hostname)).unwrap_or_default();
        plan.notes.into_iter().map(|note| format!("{hostname}{note}")).collect()
    }

    /// The most of one end in any cell.
    fn threads(&self, machine: &Machine) -> usize {
        let allowed = machine.cpus.iter().filter(|cpu| cpu.allowed).count();
        self.study.cells.iter().map(|cell| threads(cell, allowed)).max().unwrap_or(1)
    }
}

/// How many threads an end of a cell has. Engines that share flows out have one a CPU: the half of
/// them, as the other end may be here too.
fn threads(cell: &Cell, cpus: usize) -> usize {
    let flows = match cell.workload.kind() {
        TestKind::Bidirectional => 2 * cell.streams as usize,
        _ => cell.streams as usize,
    };
    match (cell.options.threads, cell.options.engine) {
        (Some(threads), _) => threads as usize,
        (None, Engine::Blocking) => flows,
        (None, _) => flows.min(cpus / 2).max(1),
    }
}

/// The part of the `nth` of `count` ends: equal and apart as long as there are enough.
fn share(cpus: &[u32], nth: usize, count: usize) -> Vec<u32> {
    match cpus.len() {
        0 => Vec::new(),
        len if len < count => vec![cpus[nth % len]],
        len => cpus[nth * len / count..(nth + 1) * len / count].to_vec(),
    }
}

fn check(cpus: &[u32], party: &ConnectedEnd, machine: &Machine) -> Result<(), Stop> {
    let usable: Vec<u32> = machine.cpus.iter().filter(|cpu| cpu.allowed).map(|cpu| cpu.number).collect();
    match cpus.iter().find(|cpu| !usable.contains(cpu)) {
        Some(missing) => {
            let has: Vec<String> = usable.iter().map(u32::to_string).collect();
            let (name, has) = (&party.name, has.join(", "));
            Err(Stop::input(anyhow!("--pin: {name} has no CPU {missing} that vtax may use; it has {has}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        options::TestOptions,
        units::{ByteSize, Mtu},
        workload::{Direction, Transport, Workload},
    };

    use super::*;

    #[test]
    fn ends_share_a_machine_s_cpus_out() {
        assert_eq!([0, 1].map(|nth| share(&[2, 3, 4, 5], nth, 2)), [vec![2, 3], vec![4, 5]]);
        assert_eq!([0, 1, 2].map(|nth| share(&[2, 3], nth, 3)), [vec![2], vec![3], vec![2]]);
        assert_eq!(share(&[], 0, 1), Vec::<u32>::new());
    }

    #[test]
    fn threads_are_counted_as_the_engine_has_them() {
        let cell = |engine, direction| Cell {
            row: "native".parse().expect("a row"),
            mtu: Mtu::ETHERNET,
            transport: Transport::Tcp,
            workload: Workload::Stream { message: ByteSize(1), direction },
            streams: 64,
            options: TestOptions { engine, ..TestOptions::default() },
            variant: 0,
            instrument: vtax_model::cell::Instrument::default(),
        };
        assert_eq!(threads(&cell(Engine::Blocking, Direction::Forward), 8), 64);
        assert_eq!(threads(&cell(Engine::Blocking, Direction::Both), 8), 128);
        assert_eq!(threads(&cell(Engine::Epoll, Direction::Forward), 8), 4);
        assert_eq!(threads(&cell(Engine::Epoll, Direction::Forward), 1), 1);
    }
}
