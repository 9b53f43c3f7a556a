//! `vtax size prove`.

mod plan;

use std::{collections::BTreeSet, path::Path, time::Duration};

use clap::Args;
use miette::miette;
use vtax_host::{
    inspect::SystemRoot,
    pin::{Machine, WholeCores},
};
use vtax_model::{
    guest::Accelerator,
    result::{CellRecord, ResultDocument},
    run::RunState,
    size::{ProofLoad, ProofRow, ProofVerdict, SizeProof, SizeProposal},
};
use vtax_report::proved_size;
use vtax_run::{
    BackgroundJob, FinishedJob, Interrupt, IoConfinement, IoThreads, Job, Locations, RanJob, RunEvents, TuningGuard,
};

use super::{
    asked::{AskedSize, INPUT, WantedSize},
    evidence::io_cores,
    measurement::{SizeEnds, job, shown},
};
use crate::{
    cli::{
        answer, print_json,
        run::{self, print_view},
    },
    exit::{Exit, Stop},
    progress,
    whole_number::whole,
};
use plan::{ProofPlan, ProofRun, loads_of};

#[derive(Debug, Args)]
pub(crate) struct ProveSizeArgs {
    #[command(flatten)]
    wanted: WantedSize,
    /// Prove the last proposal of `vtax size`, with its load and domain
    #[arg(long, conflicts_with_all = LOAD, help_heading = "Load")]
    last: bool,
    /// Whole cores of the I/O side, e.g. 2 [default: those of the proposal]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, help_heading = "Measurement")]
    cores: Option<u32>,
    #[command(flatten)]
    ends: SizeEnds,
    /// Print the commands, the CPUs and the duration, without running anything
    #[arg(long, help_heading = "Measurement")]
    dry_run: bool,
    /// Print the proof as JSON (vtax.size-proof/v1)
    #[arg(long)]
    json: bool,
}

/// Options that the last proposal already has.
const LOAD: [&str; 11] =
    ["net", "pps", "iops", "block", "p99", "consoles", "migrate", "guests", "file_cache", "domain", "method"];

/// The guard waits this many times as long as the runs should take, and then ends this process.
const PATIENCE: u32 = 10;
/// Time to inspect slow guests.
const LEAST_PATIENCE: Duration = Duration::from_secs(600);

/// Jobs of a run.
struct ProofJobs {
    measured: Job,
    meanwhile: Option<Job>,
}

/// A size to prove.
struct ProvedSize {
    asked: AskedSize,
    plan: ProofPlan,
    proposal: Option<SizeProposal>,
    jobs: Vec<ProofJobs>,
    /// Guests at the ends.
    guests: Vec<String>,
}

pub(super) fn prove(args: &ProveSizeArgs, places: &Locations) -> Result<Exit, Stop> {
    let size = args.planned(places)?;
    if args.dry_run {
        return answer(args.json, &size.plan, ProofPlan::told);
    }
    size.check_threads()?;
    let patience = Duration::from_secs(u64::from(size.plan.seconds * PATIENCE)).max(LEAST_PATIENCE);
    TuningGuard::start(&places.tuning_dir()?, patience)?;
    let proof = match size.measure(places)? {
        Ok(proof) => proof,
        Err(exit) => return Ok(exit),
    };
    if args.json {
        print_json(&proof)?;
    } else {
        print_view(&proved_size(&proof))?;
    }
    Ok(if proof.verdict == ProofVerdict::Holds { Exit::Done } else { Exit::NotReached })
}

impl ProveSizeArgs {
    fn planned(&self, places: &Locations) -> Result<ProvedSize, Stop> {
        let dir = places.state_dir()?;
        let asked = if self.last { AskedSize::last(&dir)? } else { self.wanted.asked() };
        let loads = loads_of(&asked.target)?;
        let (proposal, without) = self.proposal(&asked, &dir)?;
        let cores = self.cores.or(proposal.as_ref().map(|proposal| proposal.cores)).unwrap_or_default();
        let machine = Machine::read(&SystemRoot::live());
        let mut runs = Vec::new();
        for load in ProofLoad::of_size(cores) {
            let chosen = whole_cores(&machine, load.cores)?;
            runs.extend(ProofRun::of_services(&self.ends, &loads, load, &chosen.inside)?);
        }
        let jobs = runs.iter().map(ProofJobs::of).collect::<Result<Vec<ProofJobs>, Stop>>()?;
        let notes = without.into_iter().chain(notes(&whole_cores(&machine, cores)?, cores)).collect();
        let plan = ProofPlan::new(asked.name()?, cores, runs, notes);
        Ok(ProvedSize { asked, plan, proposal, jobs, guests: self.ends.guests() })
    }
}

impl ProveSizeArgs {
    /// Returns the proposal. A size that was specified needs none if no cost is known: a note gives the reason.
    fn proposal(&self, asked: &AskedSize, dir: &Path) -> Result<(Option<SizeProposal>, Option<String>), Stop> {
        match asked.proposal(dir) {
            Ok(proposal) => Ok((Some(proposal), None)),
            Err(stop) if self.cores.is_some() && stop.status() != INPUT => {
                Ok((None, Some(format!("no need is predicted: {stop}"))))
            }
            Err(stop) => Err(stop),
        }
    }
}

impl ProofJobs {
    fn of(run: &ProofRun) -> Result<ProofJobs, Stop> {
        let meanwhile = run.meanwhile.as_ref().map(|words| job(words)).transpose()?;
        Ok(ProofJobs { measured: job(&run.command)?, meanwhile })
    }
}

fn whole_cores(machine: &Machine, wanted: u32) -> Result<WholeCores, Stop> {
    let refused = || {
        let usable = WholeCores::usable(machine);
        let what = match wanted {
            0 => "a size has at least 1 core".to_owned(),
            _ => format!("{wanted} cores for the I/O side leave none for the guests and the load"),
        };
        let remedy = match usable {
            0 | 1 => "a proof requires a machine with at least 2".to_owned(),
            usable => format!("use --cores 1 to {}", usable - 1),
        };
        Stop::input(miette!(code = "bad-target", "{what}; this process may use {usable} whole cores: {remedy}"))
    };
    WholeCores::choose(machine, wanted).ok_or_else(refused)
}

fn notes(chosen: &WholeCores, cores: u32) -> Vec<String> {
    let shared = (chosen.outside.len() == 1)
        .then(|| format!("only CPU {} is left for the guests' virtual CPUs and the load", chosen.outside));
    let least = (cores == 1).then(|| "one core is the smallest size, so no smaller one was run".to_owned());
    shared.into_iter().chain(least).collect()
}

impl ProvedSize {
    fn threads(&self) -> IoThreads {
        IoThreads::find(self.asked.served_by(), &self.guests)
    }

    fn check_threads(&self) -> Result<(), Stop> {
        if !self.threads().inside.is_empty() {
            return Ok(());
        }
        let named = self.asked.served_by().map(str::to_owned).into_iter().chain(self.guests.clone());
        // The domain to size may also be the one that is measured.
        let named: BTreeSet<String> = named.collect();
        let named: Vec<String> = named.into_iter().collect();
        let what = match named.is_empty() {
            true => "no guest runs on this machine".to_owned(),
            false => format!("no guest {} runs on this machine (zones have no I/O domain)", named.join(" or ")),
        };
        Err(Stop::infrastructure(miette!(
            code = "no-io-side",
            "{what}, so there is no I/O side to confine; start a guest"
        )))
    }

    /// Runs all loads. An exit is that of a run without figures.
    fn measure(&self, places: &Locations) -> Result<Result<SizeProof, Exit>, Stop> {
        let mut notes = self.plan.notes.clone();
        let mut rows = Vec::new();
        let runs: Vec<(&ProofRun, &ProofJobs)> = self.plan.runs.iter().zip(&self.jobs).collect();
        // Each run handles Ctrl-C itself. This catches it between two runs.
        let interrupt = Interrupt::catch(&RunEvents::default()).map_err(Stop::infrastructure)?;
        for of_cores in runs.chunk_by(|(one, _), (other, _)| one.load.cores == other.load.cores) {
            let confined = self.confine(of_cores[0].0, places, &mut notes)?;
            for (run, jobs) in of_cores {
                let nth = rows.len() + 1;
                tell!("load {nth} of {}: {}", runs.len(), shown(&run.command));
                run.meanwhile.iter().for_each(|words| tell!("meanwhile: {}", shown(words)));
                let row = self.row(run, jobs, places, &mut notes);
                if interrupt.asked() {
                    return Ok(Err(Exit::Interrupted));
                }
                match row? {
                    Ok(row) => rows.push(row),
                    Err(exit) => return Ok(Err(exit)),
                }
            }
            let left = confined.end()?;
            if !left.foreign.is_empty() {
                tell!("{left}");
            }
        }
        Ok(Ok(self.judged(rows, notes)?))
    }

    fn confine(&self, run: &ProofRun, places: &Locations, notes: &mut Vec<String>) -> Result<IoConfinement, Stop> {
        let cores = whole_cores(&Machine::read(&SystemRoot::live()), run.load.cores)?;
        let threads = self.threads();
        let confined = IoConfinement::begin(&places.tuning_dir()?, &threads, cores)?;
        confined.recovered().iter().for_each(|recovered| tell!("{recovered}"));
        let by = confined.without_cpuset().map(|why| {
            format!("{why}: threads were confined by their affinity, and workers started in the meantime keep it until they exit")
        });
        let idle = threads
            .vcpus
            .filter(|vcpus| *vcpus < run.load.cores as usize)
            .map(|vcpus| format!("the domain has {vcpus} virtual CPUs, which cannot use {} cores", run.load.cores));
        let elsewhere = (threads.elsewhere > 0).then(|| {
            format!("{} guests of other hosts on this machine may have used these CPUs, too", threads.elsewhere)
        });
        by.into_iter().chain(idle).chain(elsewhere).for_each(|note| add_note(notes, note));
        Ok(confined)
    }

    fn row(
        &self,
        run: &ProofRun,
        jobs: &ProofJobs,
        places: &Locations,
        notes: &mut Vec<String>,
    ) -> Result<Result<ProofRow, Exit>, Stop> {
        let meanwhile = jobs.meanwhile.as_ref().map(|job| BackgroundJob::begin(job, places)).transpose()?;
        let FinishedJob { ran, store, .. } = vtax_run::carry_out(&jobs.measured, None, places, &progress::terminal())?;
        run::keep_brief(&store, &ran.run)?;
        let id = ran.run.header.id.clone();
        if let Some(exit) = unfinished(ran)? {
            tell!("no proof: the run {id} has no figures; `vtax results show {id}` shows the reason");
            return Ok(Err(exit));
        }
        meanwhile.map_or(Ok(()), BackgroundJob::end)?;
        let document = store.document(&id)?;
        let record = measured(&document)?;
        let strays = self.threads().strays(&run.cpus);
        if strays > 0 {
            add_note(notes, format!("{strays} threads of the I/O side were not confined in {id}"));
        }
        if is_translated(record) {
            add_note(notes, "the guests ran under TCG: this proof is not valid for KVM".to_owned());
        }
        let used = |host: &_| io_cores(host, self.asked.served_by()).ok();
        Ok(Ok(ProofRow::of((run.service, run.load), run.offered, self.asked.target.p99, (&id, record), used)))
    }

    fn judged(&self, rows: Vec<ProofRow>, notes: Vec<String>) -> Result<SizeProof, Stop> {
        let cpus = self.plan.runs[0].cpus.clone();
        let named = (self.asked.name()?, self.asked.target);
        let proof = SizeProof::of(named, (self.plan.cores, cpus), rows, notes);
        Ok(match &self.proposal {
            Some(proposal) => SizeProof { needs: Some(proposal.needs), predicted_knee: Some(proposal.knee), ..proof },
            None => proof,
        })
    }
}

fn add_note(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// Returns how a run ended that has no figures. A rate that was not reached is a figure.
fn unfinished(ran: RanJob) -> Result<Option<Exit>, Stop> {
    let has_figures = ran.error.is_none() && ran.run.state == RunState::Complete && ran.run.failures.is_empty();
    if has_figures { Ok(None) } else { run::ended(ran).map(Some) }
}

/// Returns the only test of a run.
fn measured(document: &ResultDocument) -> Result<&CellRecord, Stop> {
    let record = document.cells.iter().find(|record| !record.samples.is_empty());
    record.ok_or_else(|| {
        Stop::infrastructure(miette!(code = "sample-failed", "the run {} has no samples; measure again", document.id))
    })
}

fn is_translated(record: &CellRecord) -> bool {
    let guests = record.samples.iter().filter_map(|sample| sample.host_cpu.as_deref()).flat_map(|host| &host.guests);
    guests.into_iter().any(|guest| guest.accel == Accelerator::Tcg)
}
