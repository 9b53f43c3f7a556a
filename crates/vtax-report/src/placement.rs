//! CPU placement of a run: CPUs and NUMA nodes of the endpoints, and of the network links they used.

use std::collections::BTreeSet;

use vtax_model::{
    cpus::CpuSet,
    nic::IrqFacts,
    result::ResultDocument,
    run::{EndRecord, Environment, Hop, PairRecord, Placement},
};

use super::{
    blocks::distinct,
    record::is_of_network,
    view::{Column, Group, Section, Table, TableRow, Value},
    words,
};

/// CPUs in use on one machine.
struct Used<'a> {
    machine: &'a Environment,
    initiator: CpuSet,
    responder: CpuSet,
    /// CPUs of both endpoints, which alternate on them, under controlled conditions.
    path: CpuSet,
    /// Links of the paths, on the machine on which vtax ran.
    hops: Vec<&'a Hop>,
}

/// Returns a line for each NUMA node; `None` for runs of an older vtax, which did not record the nodes.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    if !is_of_network(document) {
        return None;
    }
    let machines: Vec<Used<'_>> = std::iter::once(here(document)).chain(elsewhere(document)).collect();
    let several = machines.len() > 1;
    let heads = ["initiator", "responder", "both (controlled)", "links", "their interrupts"];
    let rows: Vec<(Vec<String>, [String; 5])> = machines.iter().flat_map(|used| used.rows(several)).collect();
    let used: Vec<usize> = (0..heads.len()).filter(|at| rows.iter().any(|(_, texts)| !texts[*at].is_empty())).collect();
    let row = |(labels, texts): (Vec<String>, [String; 5])| {
        let text = |at: &usize| if texts[*at].is_empty() { Value::Absent } else { texts[*at].as_str().into() };
        TableRow::new(labels, used.iter().map(text).collect::<Vec<_>>())
    };
    let machine = several.then(|| "machine".to_owned());
    let table = Table {
        labels: machine.into_iter().chain(["NUMA node".to_owned(), "CPUs".to_owned()]).collect(),
        groups: vec![Group::untitled(used.iter().map(|at| Column::wrapped(heads[*at])).collect::<Vec<_>>())],
        rows: rows.into_iter().map(row).collect(),
        ..Table::default()
    };
    Section::of_table("CPU placement", table)
}

/// Machine on which vtax ran. The endpoints' own records are more precise than the placement, where a run has them.
fn here(document: &ResultDocument) -> Used<'_> {
    let Placement { initiator, responder, path, .. } = &document.placement;
    let pairs = pairs(document);
    let cpus = |placed: &[u32], end: fn(&PairRecord) -> &EndRecord| -> CpuSet {
        let mine = pairs.iter().map(|pair| end(pair)).filter(|end| end.environment.is_none());
        if pairs.is_empty() {
            placed.iter().copied().collect()
        } else {
            mine.flat_map(|end| &end.cpus).copied().collect()
        }
    };
    let paths = document.cells.iter().filter_map(|record| record.path.as_ref());
    Used {
        machine: &document.environment,
        initiator: cpus(initiator, |pair| &pair.initiator),
        responder: cpus(responder, |pair| &pair.responder),
        path: path.iter().copied().collect(),
        hops: distinct(paths.flat_map(|path| &path.hops)),
    }
}

/// Other machines, each once.
fn elsewhere(document: &ResultDocument) -> Vec<Used<'_>> {
    let pairs = pairs(document);
    let ends = pairs.iter().flat_map(|pair| [&pair.initiator, &pair.responder]);
    let of_ends = |machine: &Environment, end: fn(&PairRecord) -> &EndRecord| {
        let there = pairs.iter().map(|pair| end(pair)).filter(|end| end.environment.as_ref() == Some(machine));
        there.flat_map(|end| &end.cpus).copied().collect()
    };
    let used = |machine| Used {
        machine,
        initiator: of_ends(machine, |pair| &pair.initiator),
        responder: of_ends(machine, |pair| &pair.responder),
        path: CpuSet::default(),
        hops: Vec::new(),
    };
    distinct(ends.filter_map(|end| end.environment.as_ref())).into_iter().map(used).collect()
}

fn pairs(document: &ResultDocument) -> Vec<&PairRecord> {
    let ends = document.cells.iter().filter_map(|record| record.ends.as_ref());
    distinct(ends.flat_map(|ends| &ends.pairs))
}

impl Used<'_> {
    fn rows(&self, several: bool) -> Vec<(Vec<String>, [String; 5])> {
        let row = |(node, cpus): (&u32, &CpuSet)| {
            let name = several.then(|| self.machine.hostname.to_string());
            let labels = name.into_iter().chain([node.to_string(), cpus.to_string()]).collect();
            let among = |used: &CpuSet| used.iter().filter(|cpu| cpus.contains(*cpu)).collect::<CpuSet>().to_string();
            let texts = [
                among(&self.initiator),
                among(&self.responder),
                among(&self.path),
                self.links(*node),
                among(&self.interrupts()),
            ];
            (labels, texts)
        };
        self.machine.node_cpus.iter().map(row).collect()
    }

    /// Links whose NIC is attached to this node.
    fn links(&self, node: u32) -> String {
        let there = self.hops.iter().filter(|hop| hop.nic.numa_node == Some(node));
        let names: BTreeSet<String> = there.map(|hop| format!("{} in {}", hop.link, hop.domain)).collect();
        words::list(names.into_iter(), ", ").unwrap_or_default()
    }

    /// CPUs that handle the interrupts of the links.
    fn interrupts(&self) -> CpuSet {
        let cpus = |irq: &IrqFacts| irq.effective.as_ref().unwrap_or(&irq.affinity).raw().parse::<CpuSet>().ok();
        let sets: Vec<CpuSet> = self.hops.iter().flat_map(|hop| &hop.nic.irqs).filter_map(cpus).collect();
        sets.iter().flat_map(CpuSet::iter).collect()
    }
}
