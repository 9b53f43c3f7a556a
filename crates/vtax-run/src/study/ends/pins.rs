//! CPU pinning of the endpoints. Nothing affects a round-trip time as much as whether two endpoints share a CPU.

use std::collections::{BTreeMap, BTreeSet};

use miette::miette;
use vtax_host::{
    inspect::SystemRoot,
    pin::{Machine, PinWish, pin_plan},
};
use vtax_model::{
    cell::{Cell, Instrument},
    endpoint::{Pinning, Pins},
    options::Engine,
    run::{Placement, PlacementNote},
    study::Study,
};

use super::{
    ConnectedEnds,
    agent::boot_id,
    end::{ConnectedEnd, ConnectedRow},
};
use crate::{
    events::RunEvents,
    stop::{Blamed, Stop},
};

impl ConnectedEnds {
    /// Pins all endpoints, in all rows to the same number of CPUs, so that the rows can be compared.
    pub(crate) fn place(&mut self, study: &Study, pins: &Pins) -> Result<Placement, Stop> {
        let here = Machine::read(&SystemRoot::live());
        let mut plan = Pinner { boot_id: boot_id(), here: &here, study, pins, vcpus: BTreeMap::new() };
        let mut notes = Vec::new();
        for connected in &mut self.rows {
            notes.extend(plan.pin(connected)?);
        }
        notes.extend(plan.vcpus.into_iter().map(|((end, cpus), guests)| where_vcpus_run(end, &cpus, guests)));
        notes.sort();
        notes.dedup();
        let notes = notes.into_iter().map(PlacementNote::Remark).collect();
        let (policy, responder_policy) = (pins.policy.clone(), pins.responder.clone());
        let [initiator, responder] = self.cpus_here();
        let of_path = study.cells.iter().any(|cell| cell.instrument == Instrument::Path);
        self.shared_cpu = if of_path { self.cpu_for_both(&here, pins) } else { None };
        let path = self.shared_cpu;
        Ok(Placement { policy, responder_policy, initiator, responder, path, guests: None, notes })
    }

    /// Returns the CPU that both endpoints of alternating rows share on a virtual machine, because its hypervisor may
    /// not run two CPUs at the same time. Either all rows share the CPU or none does, so that they can be compared.
    fn cpu_for_both(&self, machine: &Machine, pins: &Pins) -> Option<u32> {
        let automatic = pins.policy == Pinning::Auto && pins.responder.is_none();
        let is_movable = |end: &ConnectedEnd| {
            let is_virtual = end.agent.facts.environment.hypervisor != "none";
            end.agent.is_here() && is_virtual && end.vcpus().is_none() && end.pin.is_none()
        };
        let all = self.ends().all(is_movable);
        let one = PinWish { initiator: Some(1), ..PinWish::default() };
        (automatic && all).then(|| pin_plan(machine, &one).initiator.first().copied()).flatten()
    }

    /// Returns the CPUs of the first initiator and of the first responder on this machine.
    fn cpus_here(&self) -> [Vec<u32>; 2] {
        [0, 1].map(|end| {
            let mut ends = self.rows.iter().flat_map(|connected| &connected.pairs).map(|pair| &pair[end]);
            ends.find(|end| end.agent.is_here()).map(|end| end.cpus.clone()).unwrap_or_default()
        })
    }

    /// Warns of endpoints that the scheduler may move, and of the effect.
    pub(crate) fn warn_of_unpinned(&self, events: &RunEvents) {
        let loose = self.ends().filter(|end| end.cpus.is_empty()).map(|end| end.name.as_str());
        let loose: Vec<&str> = BTreeSet::from_iter(loose).into_iter().collect();
        if !loose.is_empty() {
            let names = loose.join(", ");
            events.tell(format_args!(
                "warning: NOT PINNED: {names}: whenever the scheduler moves an endpoint, round-trip times can jump \
                 fourfold"
            ));
        }
    }
}

/// Pins the endpoints of the rows, in sequence.
struct Pinner<'a> {
    /// Boot ID of this machine, which runs the guests of its labs.
    boot_id: String,
    here: &'a Machine,
    study: &'a Study,
    pins: &'a Pins,
    /// Number of initiators (0) or responders (1) whose virtual CPUs run on these CPUs.
    vcpus: BTreeMap<(usize, Vec<u32>), usize>,
}

/// Endpoints whose CPUs are chosen together, by machine: the index of the pair, and of the endpoint in it.
type Together = BTreeMap<String, Vec<[usize; 2]>>;

impl Pinner<'_> {
    /// Pins the endpoints of a row. Returns notes on what the machines couldn't provide, as sentences.
    fn pin(&mut self, connected: &mut ConnectedRow) -> Result<Vec<String>, Stop> {
        let mut automatic = Together::new();
        for pair in 0..connected.pairs.len() {
            let shared = self.machine(&connected.pairs[pair][0]).0 == self.machine(&connected.pairs[pair][1]).0;
            for role in 0..2 {
                let end = &mut connected.pairs[pair][role];
                let (id, machine) = self.machine(end);
                match self.asked(end, role, shared) {
                    Pinning::Unpinned => self.settle(end, role, Vec::new())?,
                    Pinning::Cpus(cpus) => {
                        check(&cpus, end, machine)?;
                        self.settle(end, role, cpus)?;
                    }
                    Pinning::Auto => automatic.entry(id.to_owned()).or_default().push([pair, role]),
                }
            }
        }
        let mut notes = Vec::new();
        for together in automatic.values() {
            notes.extend(self.choose(connected, together)?);
        }
        Ok(notes)
    }

    /// Returns the machine whose CPUs an endpoint gets, and its identifier: the host, for a guest whose vCPUs the run
    /// pins.
    fn machine<'a>(&'a self, end: &'a ConnectedEnd) -> (&'a str, &'a Machine) {
        match end.vcpus() {
            Some(_) => (&self.boot_id, self.here),
            None => (end.agent.machine(), &end.agent.facts.machine),
        }
    }

    /// Assigns CPUs to an endpoint. If the run pins the guest's vCPUs, they get these CPUs, and the endpoint's threads
    /// get vCPUs.
    fn settle(&mut self, end: &mut ConnectedEnd, role: usize, cpus: Vec<u32>) -> Result<(), Stop> {
        let guest = end.attachment.own_guest().filter(|guest| guest.vcpus().is_some() && !cpus.is_empty());
        let Some(guest) = guest else {
            end.cpus = cpus;
            return Ok(());
        };
        end.cpus = self.inside(end);
        guest.pin_vcpus(&cpus).or_infrastructure()?;
        *self.vcpus.entry((role, cpus)).or_default() += 1;
        Ok(())
    }

    fn inside(&self, end: &ConnectedEnd) -> Vec<u32> {
        let machine = &end.agent.facts.machine;
        let wish = PinWish { initiator: Some(self.threads(machine)), ..PinWish::default() };
        pin_plan(machine, &wish).initiator
    }

    /// Returns the user's request for this endpoint, otherwise the one for the run. Two endpoints on one machine split
    /// the run's list.
    fn asked(&self, end: &ConnectedEnd, role: usize, shared: bool) -> Pinning {
        let own = self.pins.responder.clone().filter(|_| role == 1);
        match (end.pin.clone().or(own), &self.pins.policy) {
            (Some(own), _) => own,
            (None, Pinning::Cpus(cpus)) if shared && self.pins.responder.is_none() && cpus.len() > 1 => {
                let (first, rest) = cpus.split_at(cpus.len() / 2);
                Pinning::Cpus(if role == 0 { first } else { rest }.to_vec())
            }
            (None, policy) => policy.clone(),
        }
    }

    fn choose(&mut self, connected: &mut ConnectedRow, together: &[[usize; 2]]) -> Result<Vec<String>, Stop> {
        let Some([pair, end]) = together.first() else { return Ok(Vec::new()) };
        let machine = common(together.iter().map(|[pair, end]| self.machine(&connected.pairs[*pair][*end]).1));
        if together.len() > 1 && !machine.cpus.iter().any(|cpu| cpu.allowed) {
            let each = together.iter().map(|one| self.choose(connected, std::slice::from_ref(one)));
            return Ok(each.collect::<Result<Vec<_>, _>>()?.concat());
        }
        let first = &connected.pairs[*pair][*end];
        let threads = self.threads(&machine);
        let needs = |[pair, end]: &[usize; 2]| connected.pairs[*pair][*end].vcpus().unwrap_or(threads);
        let of_end = |end: usize| together.iter().filter(move |member| member[1] == end);
        let count = [0, 1].map(|end| of_end(end).count());
        let wish = |end: usize| Some(of_end(end).map(needs).sum()).filter(|threads| *threads > 0);
        let nic_node = first.link().and_then(|link| link.nic.numa_node);
        let plan = pin_plan(&machine, &PinWish { initiator: wish(0), responder: wish(1), nic_node });
        let mut dealt = [0; 2];
        for [pair, end] in together {
            let cpus = [&plan.initiator, &plan.responder][*end];
            let part = share(cpus, dealt[*end], count[*end]);
            self.settle(&mut connected.pairs[*pair][*end], *end, part)?;
            dealt[*end] += 1;
        }
        let first = &connected.pairs[*pair][*end];
        let elsewhere = first.agent.elsewhere().filter(|_| first.vcpus().is_none());
        let hostname = elsewhere.map(|environment| format!("{}: ", environment.hostname)).unwrap_or_default();
        Ok(plan.notes.into_iter().map(|note| format!("{hostname}{note}")).collect())
    }

    fn threads(&self, machine: &Machine) -> usize {
        let allowed = machine.cpus.iter().filter(|cpu| cpu.allowed).count();
        self.study.cells.iter().map(|cell| threads(cell, allowed)).max().unwrap_or(1)
    }
}

/// Returns a machine with the CPUs that all of these endpoints may use: containers of one machine may have different ones
/// (cpuset(7)), and possibly none in common.
fn common<'a>(mut machines: impl Iterator<Item = &'a Machine>) -> Machine {
    let mut all = machines.next().cloned().unwrap_or_default();
    for machine in machines {
        let has = |number| machine.cpus.iter().any(|cpu| cpu.number == number && cpu.allowed);
        all.cpus.iter_mut().for_each(|cpu| cpu.allowed &= has(cpu.number));
    }
    all
}

/// Returns the number of threads of an endpoint. An engine that distributes flows over threads has one per flow, up to
/// half the number of CPUs.
fn threads(cell: &Cell, cpus: usize) -> usize {
    let Some(net) = cell.net() else { return cell.parallel() as usize };
    let flows = net.workload.flows(net.streams) as usize;
    match (net.options.threads, net.options.engine) {
        (Some(threads), _) => threads as usize,
        (None, Engine::Blocking) => flows,
        (None, _) => flows.min(cpus / 2).max(1),
    }
}

/// Returns the CPUs of the `nth` of `count` endpoints. If there are enough CPUs, the shares don't overlap, and their
/// sizes differ by at most one.
fn share(cpus: &[u32], nth: usize, count: usize) -> Vec<u32> {
    match cpus.len() {
        0 => Vec::new(),
        len if len < count => vec![cpus[nth % len]],
        len => cpus[nth * len / count..(nth + 1) * len / count].to_vec(),
    }
}

fn where_vcpus_run(end: usize, cpus: &[u32], guests: usize) -> String {
    let role = ["initiator", "responder"][end];
    let whose = if guests == 1 { format!("{role}'s guest") } else { format!("{role}s' {guests} guests") };
    let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("vCPUs of the {whose}: {word} {}.", listed(cpus))
}

fn listed(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn check(cpus: &[u32], end: &ConnectedEnd, machine: &Machine) -> Result<(), Stop> {
    let usable: Vec<u32> = machine.cpus.iter().filter(|cpu| cpu.allowed).map(|cpu| cpu.number).collect();
    match cpus.iter().find(|cpu| !usable.contains(cpu)) {
        Some(missing) => {
            let (name, has) = (&end.name, listed(&usable));
            Err(Stop::input(miette!(
                code = "no-such-cpu",
                "--pin: CPU {missing} of {name} is unavailable to vtax; available: {has}"
            )))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use vtax_host::pin::Cpu;
    use vtax_model::{
        options::TestOptions,
        units::{ByteSize, Mtu},
        workload::{Direction, Transport, Workload},
    };

    use super::*;

    #[test]
    fn placement_of_vcpus_is_a_sentence() {
        assert_eq!(where_vcpus_run(0, &[1], 1), "vCPUs of the initiator's guest: CPU 1.");
        assert_eq!(where_vcpus_run(1, &[2, 3], 4), "vCPUs of the responders' 4 guests: CPUs 2, 3.");
    }

    #[test]
    fn ends_share_a_machine_s_cpus_out() {
        assert_eq!([0, 1].map(|nth| share(&[2, 3, 4, 5], nth, 2)), [vec![2, 3], vec![4, 5]]);
        assert_eq!([0, 1, 2].map(|nth| share(&[2, 3], nth, 3)), [vec![2], vec![3], vec![2]]);
        assert_eq!(share(&[], 0, 1), Vec::<u32>::new());
    }

    #[test]
    fn ends_of_one_machine_get_cpus_that_all_may_use() {
        let machine = |allowed: [bool; 4]| {
            let cpu = |(number, allowed)| Cpu { number, allowed, node: 0, core: number, interrupts: 0 };
            Machine { cpus: (0..).zip(allowed).map(cpu).collect() }
        };
        let usable = |machines: &[Machine]| -> Vec<u32> {
            common(machines.iter()).cpus.iter().filter(|cpu| cpu.allowed).map(|cpu| cpu.number).collect()
        };
        let (whole, pod) = (machine([true; 4]), machine([false, false, true, true]));
        assert_eq!(usable(&[whole.clone(), pod.clone()]), [2, 3]);
        assert_eq!(usable(&[pod.clone(), whole]), [2, 3]);
        assert_eq!(usable(&[pod, machine([true, true, false, false])]), Vec::<u32>::new());
    }

    #[test]
    fn threads_are_counted_as_the_engine_has_them() {
        let cell = |engine, direction| Cell {
            row: "native".parse().expect("a row"),
            test: vtax_model::cell::CellTest::Net(vtax_model::cell::NetCell {
                mtu: Mtu::ETHERNET,
                transport: Transport::Tcp,
                workload: Workload::Stream { message: ByteSize(1), direction },
                streams: 64,
                options: TestOptions { engine, ..TestOptions::default() },
            }),
            variant: 0,
            instrument: vtax_model::cell::Instrument::default(),
        };
        assert_eq!(threads(&cell(Engine::Blocking, Direction::Forward), 8), 64);
        assert_eq!(threads(&cell(Engine::Blocking, Direction::Both), 8), 128);
        assert_eq!(threads(&cell(Engine::Epoll, Direction::Forward), 8), 4);
        assert_eq!(threads(&cell(Engine::Epoll, Direction::Forward), 1), 1);
    }
}
