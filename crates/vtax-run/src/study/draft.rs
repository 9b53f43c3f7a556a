//! A run before its first sample: which rows can run, and the plan to save.

use std::collections::{BTreeMap, BTreeSet};

use miette::miette;
use vtax_host::inspect;
use vtax_lab::{Facts, GuestNeeds, World, availability, disk_availability, family_support, guest_availability};
use vtax_model::{
    cell::Cell,
    disk::DiskDevice,
    endpoint::{NoPairs, pairs},
    method::{IoMethod, Unsupported},
    run::{RunHeader, UnavailableRow},
    study::{DiskRow, IpType, Row, Study, StudyDisks, StudyNetwork, StudySubject},
    units::Mtu,
};

use super::{
    arrange::topology,
    cabling::{cabling, of_guests_only},
    chosen_rounds::ChosenRounds,
    clock, migration_needs,
    options::ChangedStudy,
};
use crate::stop::{Blamed, Coded, Stop};

/// Returns the plan of a run. Its endpoints and their CPUs aren't known yet.
pub(super) fn header(wanted: ChangedStudy, unavailable: Vec<UnavailableRow>) -> Result<RunHeader, Stop> {
    let checked = check_baseline(&wanted.study, &unavailable);
    match wanted.study.is_in_lab() {
        true => checked.or_infrastructure()?,
        false => checked.or_input()?,
    }
    let seed = wanted.rounds.seed.map_or_else(random_seed, Ok).or_infrastructure()?;
    let lot = random_seed().or_infrastructure()? as u16;
    let id = format!("{}-{}-{lot:04x}", wanted.study.id, clock::compact());
    let ChangedStudy { study, plan, path_plan, rounds } = wanted;
    let ChosenRounds { quick, goal, stopping, metric, .. } = rounds;
    Ok(RunHeader {
        plan,
        path_plan,
        quick,
        seed,
        stopping,
        metric,
        unsettled: goal,
        environment: inspect::environment(&inspect::SystemRoot::live()),
        unavailable,
        ..RunHeader::plain(id, clock::now(), study)
    })
}

/// Refuses a run whose baseline can't be measured.
pub(super) fn check_baseline(study: &Study, unavailable: &[UnavailableRow]) -> miette::Result<()> {
    let Some(row) = unavailable.iter().find(|row| row.method == study.baseline) else { return Ok(()) };
    let UnavailableRow { method, unsupported } = row;
    let others = available(study, unavailable);
    let other = others.first().map(|row| format!("; or compare the rows with another one, e.g. --baseline {row}"));
    let why = format!("{unsupported}{}", other.unwrap_or_default());
    Err(miette!(code = "baseline-unavailable", "the baseline `{method}` is unavailable here: {why}"))
}

/// Draws the seed of a run. It has 32 bits because people must type it.
pub fn random_seed() -> miette::Result<u64> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .coded("kernel", || "drawing a random seed")?;
    Ok(u32::from_le_bytes(bytes).into())
}

/// Reads the facts of this machine that the rows of a study depend on.
pub(super) fn facts_for(study: &Study, world: &World, needs: &GuestNeeds) -> Result<Facts, Stop> {
    let needs = match &study.subject {
        StudySubject::Network(_) => needs.clone().of_study(study),
        StudySubject::Disks(_) => needs.clone().of_lab(&topology(study, &study.rows)),
        StudySubject::Migrations(_) => needs.clone().with_driver(&study.guest.system, migration_needs::DRIVER),
    };
    Ok(Facts::gather(world).or_infrastructure()?.with_guests(world, &needs))
}

/// Returns the rows that this machine can't run, with the reasons.
pub fn unavailable(study: &Study, facts: &Facts) -> Vec<UnavailableRow> {
    let unsupported: &dyn Fn(Row) -> Option<Unsupported> = match &study.subject {
        StudySubject::Network(network) => &of_network(study, network, facts),
        StudySubject::Disks(disks) => &|row| of_disks(disks, row, facts).err(),
        StudySubject::Migrations(_) => &|row| migration_needs::unsupported(study, row, facts),
    };
    let of_row = |row: &Row| Some(UnavailableRow { method: *row, unsupported: unsupported(*row)? });
    study.rows.iter().filter_map(of_row).collect()
}

/// Returns why a row of a network study can't run here.
fn of_network(study: &Study, network: &StudyNetwork, facts: &Facts) -> impl Fn(Row) -> Option<Unsupported> {
    let methods: BTreeMap<IoMethod, Result<(), Unsupported>> = availability(facts).into_iter().collect();
    let uncabled = cabling(network, &study.rows).lacking;
    move |row| {
        if let Row::Nic(_) = row {
            return Some(lacks(row).unsupported);
        }
        if let Some(unsupported) = of_guests_only(network, row) {
            return Some(unsupported);
        }
        if let Some(lacking) = uncabled.iter().find(|lacking| lacking.method == row) {
            return Some(lacking.unsupported.clone());
        }
        match study.attach(row) {
            Some(nic) => guest_availability(&nic, &study.guest.system, facts).err(),
            None => needed(row).iter().find_map(|method| {
                methods[method].clone().and_then(|()| family_support(*method, network.family)).err()
            }),
        }
    }
}

fn of_disks(disks: &StudyDisks, row: Row, facts: &Facts) -> Result<(), Unsupported> {
    let Row::Disk(DiskRow::Guest(attach)) = row else { return Ok(()) };
    disk_availability(&attach, facts)?;
    match (attach.device, disks.of_way(&attach).0.len()) {
        (DiskDevice::Ide, 2..) => Err(Unsupported::new(
            "a guest has one disk of this kind, and each row has several",
            "name one disk, or use ahci",
        )),
        (DiskDevice::AssignedNvme, 0) => Err(Unsupported::new(
            "the guest needs an NVMe controller of the host, and none is named",
            "name a disk of a controller that the host does not need: --nvme /dev/nvme1n1",
        )),
        _ => Ok(()),
    }
}

/// Returns the I/O methods that make up a row.
fn needed(row: Row) -> Vec<IoMethod> {
    let zone = |kind| match kind {
        IpType::Shared => IoMethod::SharedIp,
        IpType::Exclusive => IoMethod::Exclusive,
    };
    match row {
        Row::Method(method) => vec![method],
        Row::Device(flavour) => vec![flavour.method()],
        Row::Queue(_) => row.method().into_iter().collect(),
        // The switch outside the host is a bridge.
        Row::Zones { from, to } => vec![zone(from), zone(to), IoMethod::Bridge],
        Row::Path(_)
        | Row::Engine(_)
        | Row::Nic(_)
        | Row::Load(_)
        | Row::Pods(_)
        | Row::Disk(_)
        | Row::Migration(_)
        | Row::AsIs
        | Row::Tuned { .. } => vec![IoMethod::Native],
    }
}

/// Returns the rows of a study that have no endpoints. A row that has endpoints only at some MTUs is an error.
pub(super) fn without_endpoints(study: &Study) -> Result<Vec<UnavailableRow>, NoPairs> {
    let mut lacking = Vec::new();
    for row in &study.rows {
        let mtus = mtus_of(study.cells.iter().filter(|cell| cell.row == *row));
        let found: Vec<Result<_, NoPairs>> = mtus.iter().map(|mtu| pairs(study.endpoints(), *row, *mtu)).collect();
        let missing = |found: &Result<_, NoPairs>| matches!(found, Err(NoPairs::Missing { .. }));
        match found.iter().all(missing) {
            true => lacking.push(lacks(*row)),
            false => drop(found.into_iter().collect::<Result<Vec<_>, NoPairs>>()?),
        }
    }
    Ok(lacking)
}

fn lacks(row: Row) -> UnavailableRow {
    let why = "it has no endpoint".to_owned();
    let remedy = format!(
        "add [[endpoint]] tables with method = \"{row}\" and the location of a domain attached this \
        way"
    );
    UnavailableRow { method: row, unsupported: Unsupported { why, remedy } }
}

/// Returns the MTUs of cells, the smallest first.
pub(super) fn mtus_of<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Vec<Mtu> {
    let mtus: BTreeSet<Mtu> = cells.into_iter().filter_map(Cell::mtu).collect();
    mtus.into_iter().collect()
}

/// Returns the rows of a study that are not among these.
pub fn available(study: &Study, unavailable: &[UnavailableRow]) -> Vec<Row> {
    let missing = |row: &Row| unavailable.iter().any(|unavailable| unavailable.method == *row);
    study.rows.iter().copied().filter(|row| !missing(row)).collect()
}

#[cfg(test)]
mod tests {
    use vtax_model::endpoint::{Control, End, Endpoint};

    use super::*;

    fn on(endpoints: Vec<Endpoint>) -> Result<Vec<String>, String> {
        let mut study = Study::built_in("sparc-t7-1").expect("built in");
        study.network_mut().expect("of a network").endpoints = endpoints;
        let lacking = without_endpoints(&study).map_err(|error| error.to_string())?;
        Ok(lacking.into_iter().map(|row| row.method.to_string()).collect())
    }

    #[test]
    fn rows_without_endpoints_are_lacking_and_half_a_row_is_a_mistake() {
        let row = |name: &str| Some(name.parse::<Row>().expect("a row"));
        let end = |end, method| Endpoint { method, ..Endpoint::new(end, Control::Local) };
        let native = vec![end(End::Initiator, None), end(End::Responder, row("native"))];
        let lacking = on(native.clone()).expect("good");
        assert!(lacking.contains(&"sr-iov".to_owned()) && !lacking.contains(&"native".to_owned()), "{lacking:?}");
        assert_eq!(lacking.len(), 9);
        let half = Endpoint { mtu: Some(Mtu::ETHERNET), ..end(End::Responder, row("sr-iov")) };
        let told = on([native, vec![half]].concat()).expect_err("none at 9000");
        assert_eq!(told, "`sr-iov` has no responder at MTU 9000; add an [[endpoint]] with end = \"responder\"");
    }
}
