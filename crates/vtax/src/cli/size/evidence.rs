//! Costs of an I/O domain, from stored runs: each sample in guests whose host was observed is one point.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use jiff::Timestamp;
use vtax_model::{
    analysis::analyse_readings,
    cell::Cell,
    evidence::{EvidenceSetting, standing},
    guest::Accelerator,
    metric::{Metric, SampleFigure},
    result::{CellRecord, ResultDocument},
    run::{EndLocation, HostCpu, SampleReading},
    size::{CostPoint, Knee, KneePoint, MigrationPoint, ProofLabel, ServiceLoad, SizeError, SizeTarget, SizedService},
    study::{MigrationWay, Row},
};
use vtax_store::{FindingFilter, Store, StoreError};

use super::measurement::LABEL;

/// Maximum number of runs whose samples are read, the newest ones.
const MOST_RUNS: usize = 100;
/// Relative difference of the sizes of messages up to which a proof is one of the same load.
const SAME_SIZE: f64 = 0.1;

/// Criteria for evidence: measurements on this machine, and of a domain unless the machine itself is sized.
pub(super) struct EvidenceSearch<'a> {
    pub(super) here: &'a EvidenceSetting,
    pub(super) domain: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// Costs found, and what was omitted.
#[derive(Debug, Default)]
pub(super) struct SizeEvidence {
    pub(super) costs: Vec<CostPoint>,
    /// Migrations of `vtax run migration` by rows that confine QEMU to some cores.
    pub(super) migrations: Vec<MigrationPoint>,
    /// Samples of proofs, with the load of each. They are no costs: a thread that is always busy handles more packets at once.
    proof: Vec<(ProofLabel, KneePoint)>,
    /// Runs among them that were taken by `--measure`.
    planned: BTreeSet<String>,
    /// Remarks about samples that count.
    pub(super) remarks: BTreeSet<String>,
    /// Reasons why samples don't count, and how many.
    pub(super) refused: BTreeMap<String, usize>,
    /// Reasons why migrations don't count, and how many.
    refused_migrations: BTreeMap<String, usize>,
    /// Number of complete runs that couldn't be searched yet.
    pub(super) unsearched: usize,
}

/// Reads the newest runs on this machine whose guests' host was observed, and the newest migrations.
pub(super) fn find(dir: &Path, search: &EvidenceSearch<'_>) -> Result<SizeEvidence, StoreError> {
    Store::reading(dir, |store| {
        let mut ids = runs_with(store, search, Metric::HostCpu)?;
        ids.extend(runs_with(store, search, Metric::Suspend)?);
        let mut found = SizeEvidence { unsearched: store.runs_without_findings()?, ..SizeEvidence::default() };
        let of_run = |run| SizeEvidence::of(&analyse_readings(&run), search);
        store.each(&ids, of_run)?.into_iter().for_each(|of_run| found.add(of_run));
        found.prefer_planned();
        Ok(found)
    })
}

/// Returns the newest runs on this machine with a metric.
fn runs_with(store: &Store, search: &EvidenceSearch<'_>, metric: Metric) -> Result<Vec<String>, StoreError> {
    let machine = Some(search.here.machine.raw().to_owned());
    let filter = FindingFilter { metric: Some(metric), machine, ..FindingFilter::default() };
    let mut ids: Vec<String> = Vec::new();
    for finding in store.findings(&filter)? {
        if ids.len() < MOST_RUNS && ids.last() != Some(&finding.run) && !ids.contains(&finding.run) {
            ids.push(finding.run);
        }
    }
    Ok(ids)
}

impl SizeEvidence {
    /// Returns the costs that the samples of a run show.
    fn of(run: &ResultDocument, search: &EvidenceSearch<'_>) -> SizeEvidence {
        let is_planned = run.label.raw().starts_with(LABEL);
        let planned = is_planned.then(|| run.id.clone()).into_iter().collect();
        let mut found = SizeEvidence { planned, ..SizeEvidence::default() };
        let proved = run.label.raw().parse::<ProofLabel>().ok();
        let samples = run.cells.iter().flat_map(|record| record.samples.iter().map(move |sample| (record, sample)));
        for (record, sample) in samples {
            if let Some(migrated) = search.migration(run, record, sample) {
                match migrated {
                    Ok(point) => found.migrations.push(point),
                    Err(why) => *found.refused_migrations.entry(why).or_default() += 1,
                }
                continue;
            }
            match (search.point(run, record, sample), proved) {
                (Ok(_), Some(label)) => {
                    let point = KneePoint::of(sample, label.load.cores, |host| io_cores(host, search.domain).ok());
                    found.proof.extend(point.map(|point| (label, point)));
                }
                (Ok((point, remarks)), None) => {
                    found.costs.push(point);
                    found.remarks.extend(remarks);
                }
                (Err(why), _) => *found.refused.entry(why).or_default() += 1,
            }
        }
        found
    }

    fn add(&mut self, other: SizeEvidence) {
        self.costs.extend(other.costs);
        self.migrations.extend(other.migrations);
        self.proof.extend(other.proof);
        self.planned.extend(other.planned);
        self.remarks.extend(other.remarks);
        let sum = |into: &mut BTreeMap<String, usize>, from: BTreeMap<String, usize>| {
            from.into_iter().for_each(|(why, count)| *into.entry(why).or_default() += count);
        };
        sum(&mut self.refused, other.refused);
        sum(&mut self.refused_migrations, other.refused_migrations);
    }

    /// Keeps the costs that `--measure` took for a service, if there are any. Other runs had other purposes, and e.g. large
    /// segments of TCP cost less per packet than datagrams.
    fn prefer_planned(&mut self) {
        let is_planned = |point: &CostPoint| self.planned.contains(&point.run);
        let services: Vec<SizedService> =
            self.costs.iter().filter(|point| is_planned(point)).map(|point| point.load.service).collect();
        let is_kept = |point: &CostPoint| is_planned(point) || !services.contains(&point.load.service);
        self.costs.retain(is_kept);
    }

    /// Keeps the costs of these methods, of the services that have any of them. A method without costs is an error with the
    /// known methods.
    pub(super) fn choose(&mut self, methods: &[Row]) -> Result<(), BTreeSet<String>> {
        let is_chosen = |point: &CostPoint| methods.iter().any(|wanted| is_of(*wanted, &point.method));
        let is_known = |wanted: &Row| self.costs.iter().any(|point| is_of(*wanted, &point.method));
        if !methods.iter().all(is_known) {
            return Err(self.costs.iter().map(|point| point.method.clone()).collect());
        }
        let services: Vec<SizedService> =
            self.costs.iter().filter(|point| is_chosen(point)).map(|point| point.load.service).collect();
        self.costs.retain(|point| is_chosen(point) || !services.contains(&point.load.service));
        Ok(())
    }

    /// Returns the samples of proofs with messages of a target's size, by service, if they have a knee. Otherwise, there is a
    /// remark.
    pub(super) fn proof_of(&mut self, target: &SizeTarget) -> BTreeMap<SizedService, Vec<KneePoint>> {
        let loads = target.loads().unwrap_or_default();
        let is_same = |label: &ProofLabel| {
            let size = |load: &ServiceLoad| (load.message_size() / label.size as f64 - 1.0).abs() <= SAME_SIZE;
            loads.iter().any(|load| load.service == label.service && size(load))
        };
        let mut points: BTreeMap<SizedService, Vec<KneePoint>> = BTreeMap::new();
        for (label, point) in self.proof.iter().filter(|(label, _)| is_same(label)) {
            points.entry(label.service).or_default().push(*point);
        }
        match target.p99.filter(|_| !points.is_empty()).map(|limit| Knee::of_services(&points, limit)) {
            Some(Err(error @ (SizeError::TooFewUtilizations { .. } | SizeError::NotRepeated))) => {
                self.remarks.insert(format!("the samples of `vtax size prove` show no knee: {error}"));
                BTreeMap::new()
            }
            _ => points,
        }
    }

    /// Returns why no migration counts, if there are any.
    pub(super) fn without_migrations(&self) -> Option<String> {
        let told = listed("migrations that don't count", &self.refused_migrations);
        told.filter(|_| self.migrations.is_empty())
    }

    /// Returns why other samples don't count, for an error; empty if there are none.
    pub(super) fn told(&self) -> String {
        let refused = listed("samples that don't count", &self.refused);
        let unsearched = (self.unsearched > 0)
            .then(|| format!("{} older runs are searched after vtax next stores a run", self.unsearched));
        refused.into_iter().chain(unsearched).collect::<Vec<_>>().join("; ")
    }
}

fn listed(what: &str, reasons: &BTreeMap<String, usize>) -> Option<String> {
    let reason = |(why, count): (&String, &usize)| format!("{count} {why}");
    let reasons: Vec<String> = reasons.iter().map(reason).collect();
    (!reasons.is_empty()).then(|| format!("{what}: {}", reasons.join("; ")))
}

/// Returns true if a method is the one wanted, which is with all its devices unless it names one.
fn is_of(wanted: Row, method: &str) -> bool {
    match wanted {
        Row::Method(of) => method.parse::<Row>().is_ok_and(|row| row.method() == Some(of)),
        row => row.to_string() == method,
    }
}

impl EvidenceSearch<'_> {
    /// Returns the cost that a sample shows, with remarks, or the reason why it shows none.
    fn point(
        &self,
        run: &ResultDocument,
        record: &CellRecord,
        sample: &SampleReading,
    ) -> Result<(CostPoint, Vec<String>), String> {
        let Some(host) = sample.host_cpu.as_deref() else {
            return Err("without an observed guest (zones have no I/O domain)".to_owned());
        };
        let measured = setting(run, record, host);
        // The remote endpoint is not part of the cost, and a target is the sum over all guests.
        let wanted =
            EvidenceSetting { peers: measured.peers.clone(), together: measured.together, ..self.here.clone() };
        let verdict = standing(&measured, &wanted, self.age(run)).verdict();
        let remarks = verdict.map_err(|refusals| refusals.first().map(ToString::to_string).unwrap_or_default())?;
        let cores = io_cores(host, self.domain)?;
        let load = load(&record.cell, sample)?;
        let (method, run) = (method(record).to_string(), run.id.clone());
        Ok((CostPoint { load, method, cores, run }, remarks.iter().map(ToString::to_string).collect()))
    }

    /// Returns a migration of a row that confines QEMU to some cores, or the reason why it does not count. None for any
    /// other sample.
    fn migration(
        &self,
        run: &ResultDocument,
        record: &CellRecord,
        sample: &SampleReading,
    ) -> Option<Result<MigrationPoint, String>> {
        let guest = *record.cell.migration()?;
        // As `vtax ldm migrate-domain` does it.
        let Row::Migration(MigrationWay { tls: true, channels: None, post_copy: false, cores: Some(cores) }) =
            record.cell.row
        else {
            return Some(Err("by other rows than `migrate:tls,cores=N`".to_owned()));
        };
        let verdict = standing(&EvidenceSetting::of(run, record), self.here, self.age(run)).verdict();
        if let Err(refusals) = verdict {
            return Some(Err(refusals.first().map(ToString::to_string).unwrap_or_default()));
        }
        let suspended_ms = sample.values.get(SampleFigure::Suspend);
        let point =
            MigrationPoint { cores: cores.get().into(), guest, round: (run.id.clone(), sample.round), suspended_ms };
        let is_suspended = suspended_ms.is_finite() && suspended_ms > 0.0;
        Some(is_suspended.then_some(point).ok_or_else(|| "without a suspend time".to_owned()))
    }

    fn age(&self, run: &ResultDocument) -> Option<Duration> {
        let started = run.started.parse::<Timestamp>().ok()?;
        Some(Duration::from_secs(self.now.duration_since(started).as_secs().max(0).unsigned_abs()))
    }
}

/// Returns the CPU time per second of the I/O side. On this machine that is all that serves the guests without the guests'
/// own instructions; of a domain that serves others, it is the domain.
pub(super) fn io_cores(host: &HostCpu, domain: Option<&str>) -> Result<f64, String> {
    let spent = match domain {
        None => host.vhost() + host.iothread() + host.daemon() + host.qemu(),
        Some(name) => {
            let domain = host.guests.iter().find(|guest| guest.name.raw() == name);
            let domain = domain.ok_or_else(|| format!("without the domain {name}"))?;
            domain.guest + domain.vhost + domain.iothread + domain.daemon + domain.qemu
        }
    };
    let cores = spent / host.seconds;
    if cores.is_finite() { Ok(cores) } else { Err("without an observed time".to_owned()) }
}

/// Returns the conditions of a sample. Its guests are known more exactly than those of its run.
fn setting(run: &ResultDocument, record: &CellRecord, host: &HostCpu) -> EvidenceSetting {
    let translated = host.guests.iter().any(|guest| guest.accel == Accelerator::Tcg);
    let accelerator = if translated { Accelerator::Tcg } else { Accelerator::Kvm };
    EvidenceSetting { accelerator: Some(accelerator), ..EvidenceSetting::of(run, record) }
}

/// Returns the method with the kind of NIC that the guests really had, so that a study's guest and a domain are one.
fn method(record: &CellRecord) -> Row {
    match (record.cell.row, record.backend) {
        (Row::Method(_) | Row::Path(_) | Row::Engine(_) | Row::Nic(_) | Row::Load(_) | Row::AsIs, Some(flavour)) => {
            Row::Device(flavour)
        }
        (row, _) => row,
    }
}

/// Returns the load on the guests' NICs or disks. A packet between two guests passes two NICs.
fn load(cell: &Cell, sample: &SampleReading) -> Result<ServiceLoad, String> {
    let ends = [sample.locations.initiator, sample.locations.responder];
    if ends.contains(&EndLocation::Unknown) {
        return Err("whose endpoints' locations are unknown".to_owned());
    }
    let guests = ends.iter().filter(|end| **end == EndLocation::Guest).count() as f64;
    let (service, messages, bytes) = match (cell.net(), sample.packets, sample.wire_bytes) {
        (None, ..) => (SizedService::Vdisk, sample.transactions, sample.bytes),
        (Some(_), Some(packets), Some(bytes)) => (SizedService::Vnet, packets, bytes),
        (Some(_), ..) => return Err("without a count of packets".to_owned()),
    };
    let per_second = |count: u64| guests * count as f64 / sample.seconds;
    let load = ServiceLoad::of(service, per_second(messages), per_second(bytes));
    let is_load = load.messages_per_s() > 0.0 && load.messages_per_s().is_finite() && load.bytes_per_s.is_finite();
    if is_load { Ok(load) } else { Err("without a load on guests".to_owned()) }
}

#[cfg(test)]
mod tests;
