//! Changes to a study.

mod congestion;
mod files;
mod pods;

use miette::{Context, bail, miette};
use serde::{Deserialize, Serialize};
use vtax_model::{
    address_family::AddressFamily,
    cell::{Cell, CellTest, Instrument},
    disk::{DiskSet, TargetCount},
    endpoint::Endpoint,
    method::DomainKind,
    options::Idle,
    study::{Row, SamplingPlan, SamplingPlanError, Slices, Study, StudyNetwork, StudySubject},
    topology::{Cable, Name, NicName},
    units::{ByteSize, Mtu, Span},
    workload::{Transport, Warmup},
};
use vtax_wire::limits::{LimitError, Load};

use super::{chosen_rounds::ChosenRounds, draft::mtus_of, runner::label};
use crate::stop::{Blamed, Stop};
pub use congestion::Congestion;
pub use files::{read_bounded, read_endpoints, read_file, read_text};
pub use pods::PodChanges;

/// Changes to a study.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Changes {
    /// Number and order of the rounds.
    pub rounds: ChosenRounds,
    /// Measured time of each sample.
    pub duration: Option<Span>,
    /// Traffic before it.
    pub warmup: Option<Warmup>,
    /// Attach by the method at both ends.
    pub both: bool,
    /// Row with which the others are compared.
    pub baseline: Option<Row>,
    /// Rows to measure besides the baseline. A method stands for all of its rows.
    pub methods: Vec<Row>,
    /// Number of concurrent pairs of a client and a guest.
    pub guests: Option<u32>,
    /// Kind of domain for methods that can attach guests and zones.
    pub domains: Option<DomainKind>,
    /// Address family of the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<AddressFamily>,
    /// Cables of this machine, in place of veth pairs.
    pub cable: Vec<Cable>,
    /// MTUs to measure.
    pub mtu: Vec<Mtu>,
    /// Disks of this machine for a study of disks, in place of files created for it.
    #[serde(default, skip_serializing_if = "DiskSet::is_empty")]
    pub disks: DiskSet,
    /// Disks whose NVMe controllers `assigned-nvme` assigns to a guest.
    #[serde(default, skip_serializing_if = "DiskSet::is_empty")]
    pub nvme: DiskSet,
    /// True if their contents may be lost.
    #[serde(default)]
    pub destroy_data: bool,
    /// Omit the rows that change settings.
    pub no_steps: bool,
    /// Endpoints to measure, in place of the study's.
    pub endpoints: Vec<Endpoint>,
    /// Pods of a study that creates some.
    #[serde(default)]
    pub pods: PodChanges,
    /// The only measurement mode.
    pub instrument: Option<Instrument>,
    /// CPU idle states.
    pub idle: Option<Idle>,
    /// TCP congestion control.
    pub congestion: Option<Congestion>,
    /// Size of the file of file tests.
    pub size: Option<ByteSize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChangedStudy {
    pub(crate) study: Study,
    pub(crate) plan: SamplingPlan,
    pub(crate) path_plan: Option<SamplingPlan>,
    pub(crate) rounds: ChosenRounds,
}

impl Changes {
    /// Returns the study with these changes, and its sampling plan.
    pub(crate) fn apply(&self, mut study: Study) -> Result<ChangedStudy, Stop> {
        self.change(&mut study).or_input()?;
        let (plan, path_plan) = self.plans(&study).or_input()?;
        let changed = ChangedStudy { study, plan, path_plan, rounds: self.rounds };
        self.check_limits(&changed).or_input()?;
        Ok(changed)
    }

    /// Refuses anything that no agent would do, before anything is built.
    fn check_limits(&self, changed: &ChangedStudy) -> miette::Result<()> {
        for cell in &changed.study.cells {
            let path = changed.path_plan.as_ref().filter(|_| cell.instrument == Instrument::Path);
            let Some(net) = cell.net() else { continue };
            if let Err(error) = Load::of(&net.spec(path.unwrap_or(&changed.plan))) {
                let chosen = matches!(error, LimitError::Time { .. }) && self.duration.is_some();
                let what = if chosen { "--duration".to_owned() } else { label(cell) };
                let told = format!("{what}: {error}");
                return Err(miette::Report::new(error).wrap_err(told));
            }
        }
        Ok(())
    }

    fn change(&self, study: &mut Study) -> miette::Result<()> {
        if !self.endpoints.is_empty() {
            stand_on(study, &self.endpoints)?;
        }
        if self.no_steps {
            leave_steps_out(study)?;
        }
        self.choose_baseline(study)?;
        self.keep_methods(study)?;
        if self.rounds.quick {
            study.shorten(!self.methods.is_empty());
        }
        self.choose_family(study)?;
        self.pods.change(study)?;
        self.cable(study)?;
        if let Some(domains) = self.domains {
            attach(study, domains)?;
        }
        self.keep_mtus(study)?;
        self.use_disks(study)?;
        self.keep_instrument(study)?;
        self.keep_planned(study);
        self.hold(study)?;
        let quick_file = study.network().and_then(|network| network.quick_file).filter(|_| self.rounds.quick);
        if let Some(size) = self.size.or(quick_file) {
            resize_files(study, size)?;
        }
        if self.both {
            attach_both(study)?;
        }
        self.guests.map_or(Ok(()), |guests| keep_guests(study, guests))
    }

    fn choose_baseline(&self, study: &mut Study) -> miette::Result<()> {
        let Some(baseline) = self.baseline else { return Ok(()) };
        if !study.rows.contains(&baseline) {
            return Err(no_row(study, "baseline", baseline));
        }
        study.baseline = baseline;
        if let Some(network) = study.network_mut() {
            network.extra.retain(|row| *row != baseline);
        }
        Ok(())
    }

    fn keep_methods(&self, study: &mut Study) -> miette::Result<()> {
        if self.methods.is_empty() {
            return Ok(());
        }
        let is = |row: &Row, asked: &Row| {
            row == asked || row.untuned() == *asked || row.method().map(Row::Method) == Some(*asked)
        };
        for asked in &self.methods {
            if !study.rows.iter().any(|row| is(row, asked)) {
                return Err(no_row(study, "methods", *asked));
            }
        }
        let baseline = study.baseline;
        let kept = |row: &Row| *row == baseline || self.methods.iter().any(|asked| is(row, asked));
        study.rows.retain(kept);
        study.cells.retain(|cell| kept(&cell.row));
        Ok(())
    }

    fn choose_family(&self, study: &mut Study) -> miette::Result<()> {
        let Some(family) = self.family else { return Ok(()) };
        let id = study.id.clone();
        let network = network_of(study, "family")?;
        if !network.endpoints.is_empty() || network.pods.is_some() {
            bail!(
                code = "option-not-for-this",
                "--family: `{id}` measures between existing endpoints, whose addresses vtax does not change; name an \
                 `address` of each endpoint instead"
            );
        }
        if network.family != family {
            (network.family, network.addresses) = (family, None);
        }
        Ok(())
    }

    /// Each row takes a cable, so the extra rows of a study are omitted unless the user names them.
    fn cable(&self, study: &mut Study) -> miette::Result<()> {
        if self.cable.is_empty() {
            return Ok(());
        }
        let has_wires = study.has_wires();
        let network = network_of(study, "cable")?;
        if !has_wires {
            let id = &study.id;
            bail!(code = "option-not-for-this", "--cable: the rows of `{id}` have no wire between two hosts; omit it");
        }
        let mut nics: Vec<&NicName> = self.cable.iter().flat_map(|Cable(nics)| nics).collect();
        nics.sort();
        if let Some([nic, _]) = nics.array_windows().find(|[one, other]| one == other) {
            bail!(code = "named-twice", "--cable: the NIC {nic} is in two cables; name each NIC once");
        }
        network.cables.clone_from(&self.cable);
        if self.methods.is_empty() {
            let extra = std::mem::take(&mut network.extra);
            study.rows.retain(|row| !extra.contains(row));
            study.cells.retain(|cell| !extra.contains(&cell.row));
        }
        Ok(())
    }

    fn keep_mtus(&self, study: &mut Study) -> miette::Result<()> {
        if !self.mtu.is_empty() {
            network_of(study, "mtu")?;
        }
        let has = |mtu: &Mtu| study.cells.iter().any(|cell| cell.mtu() == Some(*mtu));
        if let Some(missing) = self.mtu.iter().find(|mtu| !has(mtu)) {
            let (id, mtus) = (&study.id, listed(&mtus_of(&study.cells)));
            bail!(code = "not-in-study", "--mtu: `{id}` has no MTU {missing}; it has {mtus}");
        }
        study.cells.retain(|cell| self.mtu.is_empty() || cell.mtu().is_some_and(|mtu| self.mtu.contains(&mtu)));
        Ok(())
    }

    /// Each test uses as many disks as are named.
    fn use_disks(&self, study: &mut Study) -> miette::Result<()> {
        if self.disks.is_empty() && self.nvme.is_empty() {
            match self.destroy_data {
                true => bail!(code = "option-not-for-this", "--destroy-data: name the disks with --disk or --nvme"),
                false => return Ok(()),
            }
        }
        let id = study.id.clone();
        let Some(disks) = study.disks_mut() else {
            bail!(code = "option-not-for-this", "--disk and --nvme: `{id}` has no disk tests; omit them");
        };
        disks.backend.clone_from(&self.disks);
        disks.assigned.clone_from(&self.nvme);
        disks.destroy_data = self.destroy_data;
        if !self.nvme.is_empty() && self.nvme.0.len() != self.disks.0.len().max(1) {
            let (nvme, disks) = (self.nvme.0.len(), self.disks.0.len().max(1));
            bail!(
                code = "bad-disk-name",
                "--nvme names {nvme} disks, but all other rows have {disks}; name the same \
                number"
            );
        }
        if self.disks.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(self.disks.0.len()).unwrap_or(u32::MAX);
        let targets = TargetCount::try_from(count).map_err(|error| miette::Report::new(error).wrap_err("--disk"))?;
        let mut kept: Vec<Cell> = Vec::new();
        for cell in &study.cells {
            let mut cell = *cell;
            if let CellTest::Disk(disk) = &mut cell.test {
                disk.disk.targets = targets;
            }
            if !kept.contains(&cell) {
                kept.push(cell);
            }
        }
        study.cells = kept;
        Ok(())
    }

    fn keep_instrument(&self, study: &mut Study) -> miette::Result<()> {
        let Some(asked) = self.instrument else { return Ok(()) };
        if !study.cells.iter().any(|cell| cell.instrument == asked) {
            let mode = match asked {
                Instrument::Path => "controlled",
                Instrument::System => "host",
            };
            bail!(code = "not-in-study", "--mode {mode}: `{}` does not have this measurement mode; omit it", study.id);
        }
        study.cells.retain(|cell| cell.instrument == asked);
        if asked == Instrument::System {
            (study.path, study.quick_path) = (None, None);
        }
        Ok(())
    }

    /// `--quick` has no plan for controlled conditions where they do not answer the question.
    fn keep_planned(&self, study: &mut Study) {
        if study.plan_of(Instrument::Path, self.rounds.quick).is_none() {
            study.cells.retain(|cell| cell.instrument != Instrument::Path);
        }
    }

    fn hold(&self, study: &mut Study) -> miette::Result<()> {
        if let Some(idle) = self.idle {
            network_of(study, "idle")?;
            study.cells.iter_mut().filter_map(Cell::net_mut).for_each(|net| net.options.idle = idle);
        }
        let Some(Congestion(chosen)) = self.congestion else { return Ok(()) };
        let mut of_tcp =
            study.cells.iter_mut().filter_map(Cell::net_mut).filter(|net| net.transport == Transport::Tcp).peekable();
        if of_tcp.peek().is_none() {
            bail!(code = "option-not-for-this", "--congestion: `{}` has no TCP test; omit it", study.id);
        }
        of_tcp.for_each(|net| net.options.socket.congestion = chosen);
        Ok(())
    }

    /// The options change the plan of the mode that answers the study.
    fn plans(&self, study: &Study) -> miette::Result<(SamplingPlan, Option<SamplingPlan>)> {
        let system = if self.rounds.quick { study.quick } else { study.plan };
        let path = study.plan_of(Instrument::Path, self.rounds.quick);
        match study.answering() {
            Instrument::Path => Ok((system, path.map(|path| self.plan(path)).transpose()?)),
            Instrument::System => Ok((self.plan(system)?, path)),
        }
    }

    fn plan(&self, base: SamplingPlan) -> miette::Result<SamplingPlan> {
        let ChosenRounds { samples, goal, stopping, .. } = self.rounds;
        let chosen = samples.is_some() || goal.is_some() || stopping.is_some();
        let duration = self.duration.unwrap_or(base.duration);
        let longer = duration.0.as_secs_f64() / base.duration.0.as_secs_f64();
        let stretched = |slices: Slices| Slices { stream: Span(slices.stream.0.mul_f64(longer)), ..slices };
        let plan = SamplingPlan {
            samples: samples.unwrap_or(base.samples),
            duration,
            warmup: self.warmup.unwrap_or(base.warmup),
            slices: base.slices.map(stretched),
            limit: base.limit.filter(|_| !chosen),
        };
        plan.check().map_err(blaming)?;
        Ok(plan)
    }
}

pub(super) fn blaming(error: SamplingPlanError) -> miette::Report {
    let option = match error {
        SamplingPlanError::NoSamples | SamplingPlanError::TooManySamples(_) => "samples",
        SamplingPlanError::TooShort(_) | SamplingPlanError::ShortSlice(_) | SamplingPlanError::Passes(_) => "duration",
    };
    let told = format!("--{option}: {error}");
    miette::Report::new(error).wrap_err(told)
}

fn leave_steps_out(study: &mut Study) -> miette::Result<()> {
    if study.steps.is_empty() {
        bail!(code = "option-not-for-this", "--no-steps: `{}` changes no settings; omit it", study.id);
    }
    study.steps.clear();
    study.rows.retain(|row| row.step().is_none());
    study.cells.retain(|cell| cell.row.step().is_none());
    Ok(())
}

fn listed(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn no_row(study: &Study, option: &str, row: Row) -> miette::Report {
    let (id, rows) = (&study.id, listed(&study.rows));
    miette!(code = "not-in-study", "--{option}: `{id}` has no row `{row}`; it has {rows}")
}

fn not_for(option: &str, study: &Name, tests: &str) -> miette::Report {
    miette!(code = "option-not-for-this", "--{option} applies to network tests, and `{study}` has {tests}; omit it")
}

/// Returns the network of a study, for an option that changes it.
fn network_of<'a>(study: &'a mut Study, option: &str) -> miette::Result<&'a mut StudyNetwork> {
    match &mut study.subject {
        StudySubject::Network(network) => Ok(network),
        StudySubject::Disks(_) => Err(not_for(option, &study.id, "disk tests")),
        StudySubject::Migrations(_) => Err(not_for(option, &study.id, "migrations")),
    }
}

/// Makes methods that can attach either a guest or a zone attach this kind.
fn attach(study: &mut Study, domains: DomainKind) -> miette::Result<()> {
    let has_choice = study.rows.iter().filter_map(|row| row.method()).any(|method| method.domains().len() > 1);
    let network = network_of(study, "guest")?;
    if !has_choice {
        let id = &study.id;
        bail!(code = "option-not-for-this", "--guest: no row of `{id}` can attach both a guest and a zone; omit it");
    }
    network.domains = domains;
    Ok(())
}

/// Attaches by the method at both ends, if the rows describe one end.
fn attach_both(study: &mut Study) -> miette::Result<()> {
    let one_named = study.rows.iter().all(|row| row.may_be_both());
    let network = network_of(study, "both")?;
    if !one_named || network.pairs > 1 || !network.endpoints.is_empty() {
        let id = &study.id;
        bail!(code = "option-not-for-this", "--both: the rows of `{id}` already name both endpoints; omit it");
    }
    network.both = true;
    Ok(())
}

/// Changes the number of pairs, so that a study fits a small or a large machine.
fn keep_guests(study: &mut Study, guests: u32) -> miette::Result<()> {
    let network = network_of(study, "guests")?;
    if network.pairs < 2 || !network.endpoints.is_empty() {
        let what = format!("the rows of `{}` have no adjustable number of guests", study.id);
        bail!(code = "option-not-for-this", "--guests: {what}; omit it");
    }
    if !(1..=Study::MOST_PAIRS).contains(&guests) {
        bail!(code = "bad-option", "--guests {guests}: use 1 to {}", Study::MOST_PAIRS);
    }
    network.pairs = guests;
    Ok(())
}

/// Uses these endpoints. Each must belong to a row of the study.
fn stand_on(study: &mut Study, endpoints: &[Endpoint]) -> miette::Result<()> {
    let rows = endpoints.iter().filter_map(|endpoint| endpoint.method);
    if let Some(row) = { rows }.find(|row| !study.rows.contains(row)) {
        let (id, rows) = (&study.id, listed(&study.rows));
        bail!(
            code = "not-in-study",
            "--endpoints: an endpoint has the method `{row}`, which is not a row of `{id}`; \
            it has {rows}"
        );
    }
    let network = network_of(study, "endpoints")?;
    if network.pods.is_some() {
        let id = &study.id;
        bail!(
            code = "option-not-for-this",
            "--endpoints: `{id}` creates its endpoints; to measure between existing pods, use vtax measure"
        );
    }
    network.endpoints = endpoints.to_vec();
    Ok(())
}

fn resize_files(study: &mut Study, size: ByteSize) -> miette::Result<()> {
    let mut files = 0;
    for net in study.cells.iter_mut().filter_map(Cell::net_mut) {
        if let Some(resized) = net.workload.with_file(size) {
            net.workload = resized;
            files += 1;
            net.workload.check(net.transport, net.mtu).context("--size")?;
        }
    }
    if files == 0 {
        bail!(code = "option-not-for-this", "--size: `{}` sends no file; omit it", study.id);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
