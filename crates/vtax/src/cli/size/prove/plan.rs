//! Runs of a proof: the load as round trips, or as I/Os, at a rate.

use serde::Serialize;
use vtax_model::{
    cpus::CpuSet,
    endpoint::Control,
    size::{ProofLabel, ProofLoad, ServiceLoad, SizeTarget, SizedService},
    topology::Name,
};

use super::super::{
    measurement::{SizeEnds, add, add_sampling, block_of, disk_test, payload_of, seconds, shown},
    refusal::{lacking, stopped},
};
use crate::exit::Stop;

/// Samples of each load. p99 has an interval from two, and a narrow one from more.
const SAMPLES: u32 = 5;
/// Round trips per second that one flow can send without being the bottleneck.
const FLOW_REQUESTS: f64 = 5_000.0;
const MOST_FLOWS: f64 = 16.0;
/// A request and its response.
const PACKETS: f64 = 2.0;
/// Bytes of a datagram that has a number.
const LEAST_PAYLOAD: f64 = 8.0;

/// Runs of a proof, and the CPUs of the I/O side in each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProofPlan {
    pub(super) domain: Name,
    pub(super) cores: u32,
    pub(super) runs: Vec<ProofRun>,
    /// Approximate time of all.
    pub(super) seconds: u32,
    pub(super) notes: Vec<String>,
}

/// Run of a proof.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProofRun {
    #[serde(flatten)]
    pub(super) load: ProofLoad,
    /// CPUs of the cores, with siblings.
    pub(super) cpus: CpuSet,
    /// Requests or I/Os per second.
    pub(super) offered: f64,
    /// Words of the command.
    pub(super) command: Vec<String>,
}

/// Returns the load that a proof runs: the one of networks, or the one of disks.
pub(super) fn load_of(target: &SizeTarget) -> Result<ServiceLoad, Stop> {
    let loads = target.loads().map_err(stopped)?;
    let mut runnable = loads.into_iter().filter(|load| load.service != SizedService::Console);
    match (runnable.next(), runnable.next()) {
        (Some(load), None) => Ok(load),
        (None, _) => Err(lacking("a proof", "a load of networks or disks", "--net 10G")),
        (Some(_), Some(_)) => Err(Stop::input(miette::miette!(
            code = "bad-target",
            "networks and disks cannot be loaded at the same time: prove one of them at its own size, e.g. vtax size prove \
             --net 10G, then the other"
        ))),
    }
}

impl ProofRun {
    pub(super) fn of(ends: &SizeEnds, full: &ServiceLoad, load: ProofLoad, cpus: CpuSet) -> Result<ProofRun, Stop> {
        let label = ProofLabel { service: full.service, size: full.message_size().round() as u64, load }.to_string();
        let messages = full.messages_per_s() * load.share;
        let (mut command, offered) = match full.service {
            SizedService::Vdisk => disk(ends, full, messages)?,
            SizedService::Vnet | SizedService::Console => network(ends, full, messages)?,
        };
        add_sampling(&mut command, SAMPLES, label);
        Ok(ProofRun { load, cpus, offered, command })
    }
}

fn network(ends: &SizeEnds, load: &ServiceLoad, packets: f64) -> Result<(Vec<String>, f64), Stop> {
    let mut words = ends.network("a proof of networks")?;
    let is_guest = |end: &Control| matches!(end, Control::Domain(_) | Control::Libvirt { .. });
    // A packet between two guests passes two NICs.
    let nics = if ends.from.as_ref().is_some_and(is_guest) { 2.0 } else { 1.0 };
    let rate = (packets / PACKETS / nics).round().max(1.0);
    let payload = payload_of(load).max(LEAST_PAYLOAD).to_string();
    let flows = (rate / FLOW_REQUESTS).ceil().clamp(1.0, MOST_FLOWS);
    let test = ("--test", "udp-rr".to_owned());
    add(&mut words, [test, ("--request", payload.clone()), ("--response", payload)]);
    add(&mut words, [("--rate", rate.to_string()), ("--streams", flows.to_string())]);
    Ok((words, rate))
}

fn disk(ends: &SizeEnds, load: &ServiceLoad, ios: f64) -> Result<(Vec<String>, f64), Stop> {
    let mut words = ends.disk("a proof of disks")?;
    let rate = (ios * load.message_size() / block_of(load) as f64).round().max(1.0);
    add(&mut words, [("--disk-test", disk_test(load, rate))]);
    Ok((words, rate))
}

impl ProofPlan {
    pub(super) fn new(domain: Name, cores: u32, runs: Vec<ProofRun>, notes: Vec<String>) -> ProofPlan {
        let seconds = runs.len() as u32 * seconds(SAMPLES);
        ProofPlan { domain, cores, runs, seconds, notes }
    }

    /// Returns each command after the CPUs of the I/O side, and the time of all.
    pub(super) fn told(&self) -> String {
        let line = |run: &ProofRun| {
            let ProofLoad { share, cores } = run.load;
            let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
            format!("{:.0} % on {cores}, CPUs {}:\n  {}\n", share * 100.0, run.cpus, shown(&run.command))
        };
        let time = vtax_run::study::minutes(std::time::Duration::from_secs(self.seconds.into()));
        let notes: String = self.notes.iter().map(|note| format!("- {note}\n")).collect();
        let lines: String = self.runs.iter().map(line).collect();
        format!("{lines}\nabout {time} in all\n{notes}")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::size::measurement::job;

    #[derive(Parser)]
    struct EndsLine {
        #[command(flatten)]
        ends: SizeEnds,
    }

    fn ends(words: &str) -> SizeEnds {
        EndsLine::try_parse_from(["prove"].into_iter().chain(words.split_whitespace())).expect("options").ends
    }

    fn target(net: Option<&str>, ios: Option<&str>) -> SizeTarget {
        SizeTarget {
            net: net.map(|net| net.parse().expect("a rate")),
            packets: net.map(|_| "150k".parse().expect("a rate")),
            ios: ios.map(|ios| ios.parse().expect("a rate")),
            ..SizeTarget::default()
        }
    }

    fn run(words: &str, target: &SizeTarget, share: f64) -> ProofRun {
        let load = load_of(target).expect("a load");
        let cpus = "2-3".parse().expect("CPUs");
        ProofRun::of(&ends(words), &load, ProofLoad { share, cores: 2 }, cpus).expect("a run")
    }

    #[test]
    fn a_round_trip_is_two_packets() {
        let proof = run("--to ldm:mars", &target(Some("1G"), None), 0.7);
        assert_eq!(
            shown(&proof.command),
            "vtax measure --to ldm:mars --test udp-rr --request 805 --response 805 --rate 52500 --streams 11 --samples 5 \
             --duration 2s --warmup 1s --label size-prove:vnet-833B-70%-2cores"
        );
        assert_eq!(proof.offered, 52_500.0);
        assert_eq!(job(&proof.command).expect("a command").conditions.command, proof.command);
        let between = run("--to ldm:mars --from ldm:venus", &target(Some("1G"), None), 1.0);
        assert_eq!(between.offered, 37_500.0, "each packet passes two NICs");
    }

    #[test]
    fn disks_are_read_at_the_rate() {
        let proof = run("--disk ldm:mars/data --destroy-data", &target(None, Some("40k")), 0.85);
        assert_eq!(
            shown(&proof.command),
            "vtax measure --disk ldm:mars/data --destroy-data --disk-test random:block=4096,depth=32,rate=34000 --samples 5 \
             --duration 2s --warmup 1s --label size-prove:vdisk-4096B-85%-2cores"
        );
        job(&proof.command).expect("a command");
    }

    #[test]
    fn what_a_proof_lacks_is_named() {
        let told = |target: &SizeTarget| load_of(target).expect_err("refused").to_string();
        assert!(told(&target(Some("1G"), Some("1k"))).contains("cannot be loaded at the same time"));
        assert!(told(&SizeTarget { consoles: 4, ..SizeTarget::default() }).contains("a load of networks or disks"));
        let load = load_of(&target(Some("1G"), None)).expect("a load");
        let cpus: CpuSet = "1".parse().expect("CPUs");
        let lacks = ProofRun::of(&ends(""), &load, ProofLoad { share: 1.0, cores: 1 }, cpus).expect_err("refused");
        assert_eq!(lacks.status(), 2);
        assert!(lacks.to_string().contains("--to ldm:mars"), "{lacks}");
    }

    #[test]
    fn a_plan_has_the_cpus_of_each_run() {
        let proof = run("--to ldm:mars", &target(Some("1G"), None), 1.0);
        let plan = ProofPlan::new("primary".parse().expect("a name"), 2, vec![proof], vec!["a note".to_owned()]);
        let told = plan.told();
        assert!(told.starts_with("100 % on 2 cores, CPUs 2-3:\n  vtax measure --to ldm:mars"), "{told}");
        assert!(told.ends_with("about 20 s in all\n- a note\n"), "{told}");
    }
}
