//! Runs of a proof: the load as round trips or as I/Os, at a rate. If the target has networks and disks, one of them is
//! measured while the other has its load in the background, and then vice versa.

use serde::Serialize;
use vtax_model::{
    cpus::CpuSet,
    endpoint::Control,
    size::{ProofLabel, ProofLoad, ServiceLoad, SizeTarget, SizedService},
    topology::Name,
};

use super::super::{
    measurement::{SizeEnds, add, add_background, add_sampling, block_of, disk_test, payload_of, seconds, shown},
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
    /// Service whose response times are measured.
    pub(super) service: SizedService,
    #[serde(flatten)]
    pub(super) load: ProofLoad,
    /// CPUs of the cores, with siblings.
    pub(super) cpus: CpuSet,
    /// Requests or I/Os per second.
    pub(super) offered: f64,
    /// Words of the command.
    pub(super) command: Vec<String>,
    /// Words of the command that loads the other service in the meantime, if the target has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meanwhile: Option<Vec<String>>,
}

/// Returns the loads that a proof runs at the same time: those of networks and disks.
pub(super) fn loads_of(target: &SizeTarget) -> Result<Vec<ServiceLoad>, Stop> {
    let loads = target.loads().map_err(stopped)?;
    let runnable: Vec<ServiceLoad> = loads.into_iter().filter(|load| load.service != SizedService::Console).collect();
    match runnable.is_empty() {
        true => Err(lacking("a proof", "a load of networks or disks", "--net 10G")),
        false => Ok(runnable),
    }
}

impl ProofRun {
    /// Returns a run for each service of the full loads.
    pub(super) fn of_services(
        ends: &SizeEnds,
        full: &[ServiceLoad],
        load: ProofLoad,
        cpus: &CpuSet,
    ) -> Result<Vec<ProofRun>, Stop> {
        if full.len() > 1 {
            ends.check_apart()?;
        }
        let run = |measured: &ServiceLoad| {
            let service = measured.service;
            let (mut command, offered) = command_of(ends, measured, load.share)?;
            let label = ProofLabel { service, size: measured.message_size().round() as u64, load };
            add_sampling(&mut command, SAMPLES, label.to_string());
            let other = full.iter().find(|other| other.service != service);
            let meanwhile = other.map(|other| {
                let (mut words, _) = command_of(ends, other, load.share)?;
                add_background(&mut words);
                Ok::<_, Stop>(words)
            });
            Ok(ProofRun { service, load, cpus: cpus.clone(), offered, command, meanwhile: meanwhile.transpose()? })
        };
        full.iter().map(run).collect()
    }
}

/// Returns the command that runs this share of a load, without its samples, and the rate that it offers.
fn command_of(ends: &SizeEnds, full: &ServiceLoad, share: f64) -> Result<(Vec<String>, f64), Stop> {
    let messages = full.messages_per_s() * share;
    match full.service {
        SizedService::Vdisk => disk(ends, full, messages),
        SizedService::Vnet | SizedService::Console => network(ends, full, messages),
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
        let of_run = |run: &ProofRun| seconds(SAMPLES) + run.meanwhile.as_ref().map_or(0, |_| seconds(1));
        let seconds = runs.iter().map(of_run).sum();
        ProofPlan { domain, cores, runs, seconds, notes }
    }

    /// Returns each command after the CPUs of the I/O side, and the time of all.
    pub(super) fn told(&self) -> String {
        let line = |run: &ProofRun| {
            let ProofLoad { share, cores } = run.load;
            let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
            let meanwhile =
                run.meanwhile.as_ref().map_or_else(String::new, |words| format!("  meanwhile: {}\n", shown(words)));
            format!("{:.0} % on {cores}, CPUs {}:\n  {}\n{meanwhile}", share * 100.0, run.cpus, shown(&run.command))
        };
        let time = vtax_model::units::minutes(std::time::Duration::from_secs(self.seconds.into()));
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
        runs(words, target, share).remove(0)
    }

    fn runs(words: &str, target: &SizeTarget, share: f64) -> Vec<ProofRun> {
        let loads = loads_of(target).expect("a load");
        let cpus = "2-3".parse().expect("CPUs");
        ProofRun::of_services(&ends(words), &loads, ProofLoad { share, cores: 2 }, &cpus).expect("runs")
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
    fn networks_and_disks_are_loaded_at_the_same_time() {
        let words = "--to ldm:mars --disk ldm:venus/data --destroy-data";
        let [network, disk] =
            <[ProofRun; 2]>::try_from(runs(words, &target(Some("1G"), Some("40k")), 0.85)).expect("two");
        assert_eq!((network.service, disk.service), (SizedService::Vnet, SizedService::Vdisk));
        assert_eq!((network.offered, disk.offered), (63_750.0, 34_000.0));
        let meanwhile = network.meanwhile.clone().expect("the disk");
        assert_eq!(
            shown(&meanwhile),
            "vtax measure --disk ldm:venus/data --destroy-data --disk-test random:block=4096,depth=32,rate=34000 --samples 1 \
             --duration 600s --warmup 1s"
        );
        let of_disk = disk.meanwhile.clone().expect("the network");
        assert!(
            shown(&of_disk).contains("--test udp-rr") && shown(&disk.command).contains("size-prove:vdisk-4096B-85%")
        );
        for words in [meanwhile, of_disk] {
            job(&words).expect("a command");
        }
        let plan = ProofPlan::new("primary".parse().expect("a name"), 2, vec![network, disk], Vec::new());
        assert!(plan.told().contains("\n  meanwhile: vtax measure --disk ldm:venus/data"), "{}", plan.told());
        assert_eq!(plan.seconds, 2 * (20 + 8));
        assert_eq!(run("--to ldm:mars", &target(Some("1G"), None), 1.0).meanwhile, None);
    }

    #[test]
    fn missing_options_of_a_proof_are_named() {
        let told = |target: &SizeTarget| loads_of(target).expect_err("refused").to_string();
        assert!(told(&SizeTarget { consoles: 4, ..SizeTarget::default() }).contains("a load of networks or disks"));
        let cpus: CpuSet = "1".parse().expect("CPUs");
        let lacks = |words: &str, target: &SizeTarget| {
            let loads = loads_of(target).expect("a load");
            let load = ProofLoad { share: 1.0, cores: 1 };
            let lacks = ProofRun::of_services(&ends(words), &loads, load, &cpus).expect_err("refused");
            assert_eq!(lacks.status(), 2);
            lacks.to_string()
        };
        assert!(lacks("", &target(Some("1G"), None)).contains("--to ldm:mars"));
        let both = target(Some("1G"), Some("1k"));
        assert!(lacks("--to ldm:mars", &both).contains("--disk ldm:mars/data"));
        let same = lacks("--to ldm:venus --from ldm:mars --disk ldm:mars/data", &both);
        assert!(same.starts_with("the network and the disk of mars cannot be loaded at the same time"), "{same}");
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
