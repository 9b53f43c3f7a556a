//! What the command line changes of a study.

use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use vtax_model::{
    cell::Instrument,
    endpoint::Endpoint,
    located::Source,
    method::DomainKind,
    options::{CongestionControl, Idle, OptionError},
    run::Goal,
    stats::StoppingRule,
    study::{Row, SamplingPlan, Slices, Study},
    topology::{Cable, NicName},
    units::{ByteSize, Mtu, Span},
    workload::{Transport, Warmup, Workload},
};

use crate::exit::{Blamed, Stop};

/// Changes to a study.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    pub(crate) quick: bool,
    pub(crate) samples: Option<u32>,
    pub(crate) duration: Option<Span>,
    pub(crate) warmup: Option<Warmup>,
    pub(crate) both: bool,
    /// The row that the others are held against, in place of the study's.
    pub(crate) baseline: Option<Row>,
    /// Pairs of each row, in place of what the study says.
    pub(crate) guests: Option<u32>,
    /// Rows; a method is all kinds of it.
    pub(crate) methods: Vec<Row>,
    pub(crate) mtus: Vec<Mtu>,
    /// Where to measure, in place of what the study says.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Cables between NICs, in place of wires that are made.
    pub(crate) cables: Vec<Cable>,
    /// What methods attach that can attach guests and zones.
    pub(crate) domains: Option<DomainKind>,
    pub(crate) size: Option<ByteSize>,
    pub(crate) seed: Option<u64>,
    pub(crate) stopping: Option<StoppingRule>,
    /// What the number of rounds is chosen for.
    pub(crate) goal: Option<Goal>,
    /// Only the cells of this instrument.
    pub(crate) instrument: Option<Instrument>,
    /// What CPUs do while they have nothing to do, in place of what each instrument has them do.
    pub(crate) idle: Option<Idle>,
    /// TCP's congestion control, in place of what each instrument uses.
    pub(crate) congestion: Option<Congestion>,
}

/// A congestion control that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// The machine's own, written `system`.
    System,
    /// By its name.
    Named(CongestionControl),
}

impl FromStr for Congestion {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        if text == "system" { Ok(Congestion::System) } else { text.parse().map(Congestion::Named) }
    }
}

/// A study as it will be run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) study: Study,
    pub(crate) plan: SamplingPlan,
    pub(crate) path_plan: Option<SamplingPlan>,
    pub(crate) quick: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) stopping: Option<StoppingRule>,
    pub(crate) goal: Option<Goal>,
}

impl Changes {
    /// The study with these changes.
    pub(crate) fn apply(&self, mut study: Study) -> Result<Wanted, Stop> {
        self.change(&mut study).or_input()?;
        let (plan, path_plan) = self.plans(&study).or_input()?;
        let Changes { quick, seed, stopping, goal, .. } = *self;
        Ok(Wanted { study, plan, path_plan, quick, seed, stopping, goal })
    }

    fn change(&self, study: &mut Study) -> anyhow::Result<()> {
        if !self.endpoints.is_empty() {
            stand_on(study, &self.endpoints)?;
        }
        self.choose_baseline(study)?;
        self.keep_methods(study)?;
        self.cable(study)?;
        study.domains = self.domains.unwrap_or(study.domains);
        self.keep_mtus(study)?;
        self.keep_instrument(study)?;
        self.hold(study);
        if let Some(size) = self.size.or(study.quick_file.filter(|_| self.quick)) {
            resize_files(study, size)?;
        }
        let both_named = study.pairs > 1 || !study.rows.iter().all(|row| row.may_be_both());
        if self.both && (both_named || !study.endpoints.is_empty()) {
            bail!("--both: the rows of `{}` name both of their ends already; leave it out", study.id);
        }
        study.both |= self.both;
        self.guests.map_or(Ok(()), |guests| keep_guests(study, guests))
    }

    fn choose_baseline(&self, study: &mut Study) -> anyhow::Result<()> {
        let Some(baseline) = self.baseline else { return Ok(()) };
        if !study.rows.contains(&baseline) {
            bail!("--baseline: `{}` has no row `{baseline}`; it has {}", study.id, listed(&study.rows));
        }
        study.baseline = baseline;
        study.extra.retain(|row| *row != baseline);
        Ok(())
    }

    fn keep_methods(&self, study: &mut Study) -> anyhow::Result<()> {
        if self.methods.is_empty() {
            return Ok(());
        }
        let is = |row: &Row, asked: &Row| row == asked || row.method().map(Row::Method) == Some(*asked);
        for asked in &self.methods {
            if !study.rows.iter().any(|row| is(row, asked)) {
                bail!("--methods: `{}` has no row `{asked}`; it has {}", study.id, listed(&study.rows));
            }
        }
        let baseline = study.baseline;
        let kept = |row: &Row| *row == baseline || self.methods.iter().any(|asked| is(row, asked));
        study.rows.retain(kept);
        study.cells.retain(|cell| kept(&cell.row));
        Ok(())
    }

    /// Each row takes a cable, so rows that the study only adds are left out unless they are asked for.
    fn cable(&self, study: &mut Study) -> anyhow::Result<()> {
        if self.cables.is_empty() {
            return Ok(());
        }
        let on_one_host = study.rows.iter().any(|row| matches!(row, Row::Zones { .. }));
        if on_one_host || !study.endpoints.is_empty() {
            bail!("--cable: the rows of `{}` have no wire between two hosts; leave it out", study.id);
        }
        let mut nics: Vec<&NicName> = self.cables.iter().flat_map(|Cable(nics)| nics).collect();
        nics.sort();
        if let Some([nic, _]) = nics.array_windows().find(|[one, other]| one == other) {
            bail!("--cable: the NIC {nic} is at the end of two cables; name each once");
        }
        study.cables.clone_from(&self.cables);
        if self.methods.is_empty() {
            let extra = std::mem::take(&mut study.extra);
            study.rows.retain(|row| !extra.contains(row));
            study.cells.retain(|cell| !extra.contains(&cell.row));
        }
        Ok(())
    }

    fn keep_mtus(&self, study: &mut Study) -> anyhow::Result<()> {
        let has = |mtu: &Mtu| study.cells.iter().any(|cell| cell.mtu == *mtu);
        if let Some(missing) = self.mtus.iter().find(|mtu| !has(mtu)) {
            let mut mtus: Vec<Mtu> = study.cells.iter().map(|cell| cell.mtu).collect();
            mtus.sort_unstable();
            mtus.dedup();
            let mtus: Vec<String> = mtus.iter().map(Mtu::to_string).collect();
            bail!("--mtu: `{}` has nothing at {missing}; it has {}", study.id, mtus.join(", "));
        }
        study.cells.retain(|cell| self.mtus.is_empty() || self.mtus.contains(&cell.mtu));
        Ok(())
    }

    fn keep_instrument(&self, study: &mut Study) -> anyhow::Result<()> {
        let Some(asked) = self.instrument else { return Ok(()) };
        if !study.cells.iter().any(|cell| cell.instrument == asked) {
            bail!("--instrument {asked}: `{}` has no such part; leave it out", study.id);
        }
        study.cells.retain(|cell| cell.instrument == asked);
        if asked == Instrument::System {
            (study.path, study.quick_path) = (None, None);
        }
        Ok(())
    }

    fn hold(&self, study: &mut Study) {
        for cell in &mut study.cells {
            cell.options.idle = self.idle.unwrap_or(cell.options.idle);
            if cell.transport == Transport::Tcp {
                cell.options.socket.congestion = match self.congestion {
                    None => cell.options.socket.congestion,
                    Some(Congestion::System) => None,
                    Some(Congestion::Named(name)) => Some(name),
                };
            }
        }
    }

    /// What was asked for changes the plan that answers the study: that of the path's own cost, if it has one.
    fn plans(&self, study: &Study) -> anyhow::Result<(SamplingPlan, Option<SamplingPlan>)> {
        let system = if self.quick { study.quick } else { study.plan };
        match study.plan_of(Instrument::Path, self.quick) {
            Some(path) => Ok((system, Some(self.plan(path)?))),
            None => Ok((self.plan(system)?, None)),
        }
    }

    fn plan(&self, base: SamplingPlan) -> anyhow::Result<SamplingPlan> {
        let duration = self.duration.unwrap_or(base.duration);
        let longer = duration.0.as_secs_f64() / base.duration.0.as_secs_f64();
        let stretched = |slices: Slices| Slices { stream: Span(slices.stream.0.mul_f64(longer)), ..slices };
        let plan = SamplingPlan {
            samples: self.samples.unwrap_or(base.samples),
            duration,
            warmup: self.warmup.unwrap_or(base.warmup),
            slices: base.slices.map(stretched),
        };
        plan.check().map_err(|error| anyhow!("{error}"))?;
        Ok(plan)
    }
}

fn listed(rows: &[Row]) -> String {
    rows.iter().map(Row::to_string).collect::<Vec<_>>().join(", ")
}

/// Fewer on a small machine, more on a large one.
fn keep_guests(study: &mut Study, guests: u32) -> anyhow::Result<()> {
    if study.pairs < 2 || !study.endpoints.is_empty() {
        bail!("--guests: the rows of `{}` have no number of guests that could be changed; leave it out", study.id);
    }
    if !(1..=Study::MOST_PAIRS).contains(&guests) {
        bail!("--guests {guests}: a row has 1 to {}", Study::MOST_PAIRS);
    }
    study.pairs = guests;
    Ok(())
}

/// Every endpoint is one of the study's rows'.
fn stand_on(study: &mut Study, endpoints: &[Endpoint]) -> anyhow::Result<()> {
    let rows = endpoints.iter().filter_map(|endpoint| endpoint.method);
    if let Some(row) = { rows }.find(|row| !study.rows.contains(row)) {
        bail!(
            "--endpoints: an endpoint stands for `{row}`, which `{}` hasn't; it has {}",
            study.id,
            listed(&study.rows)
        );
    }
    study.endpoints = endpoints.to_vec();
    Ok(())
}

fn resize_files(study: &mut Study, size: ByteSize) -> anyhow::Result<()> {
    let mut files = 0;
    for cell in &mut study.cells {
        if let Workload::File { size: current } = &mut cell.workload {
            *current = size;
            files += 1;
            cell.workload.check(cell.transport, cell.mtu).context("--size")?;
        }
    }
    if files == 0 {
        bail!("--size: `{}` sends no file; leave it out", study.id);
    }
    Ok(())
}

/// Reads a study file.
pub(crate) fn read_file(path: &str) -> Result<Study, Stop> {
    let known: Vec<&str> = Study::BUILT_IN.iter().map(|(id, _)| *id).collect();
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("`{path}` is neither a built-in study ({}) nor a file that can be read", known.join(", "))
    });
    Study::parse(Source { name: path, text: &text.or_input()? }).or_input()
}

/// Reads a file of endpoints.
pub(crate) fn read_endpoints(path: &str) -> Result<Vec<Endpoint>, Stop> {
    let text = std::fs::read_to_string(path).with_context(|| format!("--endpoints: `{path}` can't be read"));
    Endpoint::parse_file(Source { name: path, text: &text.or_input()? }).or_input()
}

#[cfg(test)]
mod tests {
    use vtax_model::endpoint::{Control, End};

    use super::*;

    fn apply(study: &str, changes: Changes) -> Result<Wanted, String> {
        changes.apply(Study::built_in(study).expect("built in")).map_err(|stop| stop.to_string())
    }

    fn row(name: &str) -> Row {
        name.parse().expect("a row")
    }

    #[test]
    fn quick_takes_the_short_plan_and_single_values_go_over_it() {
        let changes = Changes { quick: true, samples: Some(3), ..Changes::default() };
        let wanted = apply("sparc-t7-1", changes).expect("good changes");
        assert_eq!((wanted.plan.samples, wanted.plan.duration), (3, Span::from_millis(180)));
    }

    /// Three rounds of the whole file took 105 s and could show nothing.
    #[test]
    fn quick_files_are_smaller_unless_a_size_is_given() {
        let sizes = |size| {
            let changes = Changes { quick: true, size, ..Changes::default() };
            let wanted = apply("ip-instances", changes).expect("good changes");
            (wanted.plan.samples, wanted.study.cells[0].workload)
        };
        assert_eq!(sizes(None), (30, Workload::File { size: ByteSize(100 << 20) }));
        assert_eq!(sizes(Some(ByteSize(1 << 20))), (30, Workload::File { size: ByteSize(1 << 20) }));
    }

    #[test]
    fn methods_keep_the_baseline() {
        let changes = Changes { methods: vec![row("bridge")], ..Changes::default() };
        let wanted = apply("demo", changes).expect("good changes");
        let rows: Vec<String> = wanted.study.rows.iter().map(Row::to_string).collect();
        assert_eq!(rows, ["native", "bridge"]);
        assert_eq!(wanted.study.cells.len(), 2 * 8 + 2 * 2, "the path's cost of all, and some as the machine runs");
    }

    #[test]
    fn what_is_asked_for_changes_the_plan_that_answers_the_study() {
        let changes = Changes { samples: Some(9), duration: Some(Span::from_millis(8)), ..Changes::default() };
        let demo = Study::built_in("demo").expect("built in");
        let wanted = apply("demo", changes.clone()).expect("good changes");
        let path = wanted.path_plan.expect("the demo has one");
        assert_eq!((path.samples, path.duration), (9, Span::from_millis(8)));
        assert_eq!(path.slices.map(|slices| slices.stream), Some(Span::from_millis(16)), "as much longer");
        assert_eq!(wanted.plan, demo.plan);
        let refused = apply("demo", Changes { instrument: Some(Instrument::System), ..changes });
        assert!(refused.is_err(), "8 ms are too short for a sample in one piece");
        let system = Changes { samples: Some(9), instrument: Some(Instrument::System), ..Changes::default() };
        let wanted = apply("demo", system).expect("good changes");
        assert_eq!((wanted.plan.samples, wanted.path_plan), (9, None));
        assert!(wanted.study.cells.iter().all(|cell| cell.instrument == Instrument::System));
    }

    #[test]
    fn idle_and_congestion_are_of_every_cell_if_asked_for() {
        let changes = Changes { idle: Some(Idle::System), congestion: Some(Congestion::System), ..Changes::default() };
        let cells = apply("demo", changes).expect("good changes").study.cells;
        assert!(cells.iter().all(|cell| cell.options.is_plain()));
        let cubic = |cell: &vtax_model::cell::Cell| cell.options.socket.congestion.is_some();
        let demo = Study::built_in("demo").expect("built in").cells;
        assert!(
            demo.iter()
                .all(|cell| cubic(cell) == (cell.instrument == Instrument::Path && cell.transport == Transport::Tcp))
        );
    }

    #[test]
    fn rows_of_a_method_go_by_its_name_and_by_their_own() {
        let kept = |asked: &str| {
            let changes = Changes { methods: vec![row(asked)], ..Changes::default() };
            let rows = apply("vmdq", changes).expect("good changes").study.rows;
            rows.iter().map(Row::to_string).collect::<Vec<_>>()
        };
        assert_eq!(kept("native"), ["native", "shared-queue"]);
        assert_eq!(kept("paravirtual"), ["shared-queue", "queue-per-guest"]);
    }

    #[test]
    fn a_baseline_of_ones_choice_is_kept_whatever_methods_are() {
        let changes = |methods: &[&str]| Changes {
            baseline: Some(row("veth")),
            methods: methods.iter().map(|method| row(method)).collect(),
            ..Changes::default()
        };
        let study = apply("demo", changes(&["bridge"])).expect("good changes").study;
        assert_eq!((study.baseline, study.rows), (row("veth"), vec![row("veth"), row("bridge")]));
        let all = apply("demo", changes(&[])).expect("good changes").study;
        assert_eq!((all.baseline, all.rows.len()), (row("veth"), 7));
    }

    /// `extra` rows are left out on cables, and a baseline must not be.
    #[test]
    fn a_baseline_of_ones_choice_is_kept_on_cables() {
        let cables = vec!["eno1,eno2".parse().expect("a cable")];
        let changes = Changes { baseline: Some(row("bridge")), cables, ..Changes::default() };
        let rows = apply("sparc-t7-1", changes).expect("good changes").study.rows;
        assert_eq!(rows, ["native", "assigned", "sr-iov", "paravirtual", "bridge"].map(row));
    }

    #[test]
    fn vmdq_holds_a_queue_per_guest_against_the_shared_queue() {
        assert_eq!(apply("vmdq", Changes::default()).expect("as it is").study.baseline, row("shared-queue"));
    }

    #[test]
    fn cables_leave_out_what_a_study_only_adds() {
        let cables = vec!["eno1,eno2".parse().expect("a cable")];
        let rows = |methods: &[&str]| {
            let methods = methods.iter().map(|method| row(method)).collect();
            let changes = Changes { cables: cables.clone(), methods, ..Changes::default() };
            let study = apply("sparc-t7-1", changes).expect("good changes").study;
            study.rows.iter().map(Row::to_string).collect::<Vec<_>>()
        };
        assert_eq!(rows(&[]), ["native", "assigned", "sr-iov", "paravirtual"]);
        assert_eq!(rows(&["bridge"]), ["native", "bridge"]);
        let twice = ["eno1,eno2", "eno3,eno1"].map(|cable| cable.parse().expect("a cable")).into();
        let refused = |study, cables| apply(study, Changes { cables, ..Changes::default() }).expect_err("refused");
        assert!(refused("sparc-t7-1", twice).contains("eno1 is at the end of two"));
        assert!(refused("ip-instances", cables.clone()).contains("no wire between two hosts"));
    }

    #[test]
    fn guests_are_as_many_as_asked_for() {
        let asked = |guests| Changes { guests: Some(guests), ..Changes::default() };
        assert_eq!(apply("vmdq", asked(4)).expect("good changes").study.pairs, 4);
        assert_eq!(apply("vmdq", asked(1)).expect("good changes").study.pairs, 1);
    }

    #[test]
    fn changes_that_make_no_sense_are_refused() {
        let refused = |study, changes| insta::assert_snapshot!(apply(study, changes).expect_err("refused"));
        refused("demo", Changes { methods: vec![row("emulated")], ..Changes::default() });
        refused("demo", Changes { size: Some(ByteSize(1)), ..Changes::default() });
        refused("ip-instances", Changes { size: Some(ByteSize(0)), ..Changes::default() });
        refused("ip-instances", Changes { both: true, ..Changes::default() });
        refused("demo", Changes { samples: Some(0), ..Changes::default() });
        refused("ovm3-tuning", Changes { duration: Some(Span::from_millis(1)), ..Changes::default() });
        refused("demo", Changes { mtus: vec!["1492".parse().expect("an MTU")], ..Changes::default() });
        let vms = |method: &str| {
            vec![Endpoint {
                method: Some(method.parse().expect("a row")),
                ..Endpoint::new(End::Initiator, Control::Local)
            }]
        };
        refused("demo", Changes { endpoints: vms("sr-iov"), ..Changes::default() });
        refused("demo", Changes { endpoints: vms("native"), both: true, ..Changes::default() });
        refused("vmdq", Changes { both: true, ..Changes::default() });
        refused("vmdq", Changes { guests: Some(0), ..Changes::default() });
        refused("vmdq", Changes { guests: Some(65), ..Changes::default() });
        refused("demo", Changes { guests: Some(4), ..Changes::default() });
        refused("demo", Changes { baseline: Some(row("sr-iov")), ..Changes::default() });
    }
}
