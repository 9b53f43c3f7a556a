//! `vtax size --measure`: measurements near the load, each as `vtax measure` takes it.

use std::time::Duration;

use clap::{Args, Parser};
use miette::miette;
use serde::Serialize;
use vtax_model::{
    disk::DiskPlace,
    domain::PRIMARY,
    endpoint::{Control, LabHost},
    size::{ServiceLoad, SizeTarget, SizedService, plan_rates},
    units::{BitRate, minutes},
};
use vtax_run::{FinishedJob, Job, Locations};

use super::refusal::{lacking, stopped};
use crate::{
    cli::{measure::MeasureArgs, run},
    exit::{Exit, Stop},
    progress,
};

/// Prefix of the labels of its runs.
pub(super) const LABEL: &str = "size:";
/// Samples of each rate: the noise of a cost is unknown unless rates are repeated.
const SAMPLES: u32 = 3;
const DURATION_SECONDS: u32 = 2;
const WARMUP_SECONDS: u32 = 1;
/// Longest time of a load in the background. It is stopped when the measurement is complete.
const BACKGROUND_SECONDS: u32 = 600;
/// Time to connect to a guest and to inspect it.
const SETUP_SECONDS: u32 = 5;
/// Packets per second that one flow can send without being the bottleneck.
const FLOW_PACKETS: f64 = 50_000.0;
const MOST_FLOWS: f64 = 16.0;
/// To the guest and from it: a load is in both directions, and their costs differ.
const DIRECTIONS: u32 = 2;
/// Bytes of an IPv4 and a UDP header.
const HEADERS: f64 = 28.0;
/// I/Os in flight, so that the rate is that of the load and not that of a single I/O at a time.
const DEPTH: u32 = 32;
/// Bytes of a sector, of which blocks are multiples.
const SECTOR: f64 = 512.0;

/// Options of `--measure`.
#[derive(Debug, Args)]
#[command(
    mut_arg("to", |to| to.requires("measure")),
    mut_arg("disk", |disk| disk.requires("measure")),
    mut_arg("within", |host| host.requires("measure"))
)]
pub(super) struct SizeMeasuring {
    /// Measure the costs near the load first, in a running guest, and store them as runs
    #[arg(long, help_heading = "Measurement")]
    pub(super) measure: bool,
    #[command(flatten)]
    ends: SizeEnds,
    /// Print the commands of --measure and their duration, without running them
    #[arg(long, requires = "measure", help_heading = "Measurement")]
    pub(super) dry_run: bool,
}

/// Guests and disks to measure.
#[derive(Debug, Args)]
pub(super) struct SizeEnds {
    /// Guest to measure networks with, e.g. ldm:mars, in the syntax of `vtax measure --to`
    #[arg(long, value_name = "END", help_heading = "Measurement")]
    pub(super) to: Option<Control>,
    /// Initiator, e.g. ldm:venus [default: as for `vtax measure --from`]
    #[arg(long, value_name = "END", requires = "to", help_heading = "Measurement")]
    pub(super) from: Option<Control>,
    /// Disk of a guest to measure, e.g. ldm:mars/data, in the syntax of `vtax measure --disk`
    #[arg(long, value_name = "DISK", help_heading = "Measurement")]
    pub(super) disk: Option<DiskPlace>,
    /// Allow the data on the disk of --disk to be overwritten, as in `vtax measure`
    #[arg(long, requires = "disk", help_heading = "Measurement")]
    pub(super) destroy_data: bool,
    /// Host of a lab with the logical domains of ldm:DOMAIN, e.g. rack/sut; as for `vtax ldm --in`
    #[arg(long = "in", value_name = "LAB/HOST", help_heading = "Measurement")]
    pub(super) within: Option<LabHost>,
}

/// Measurements to take, in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SizeMeasurements {
    /// The words of each command.
    pub(super) commands: Vec<Vec<String>>,
    /// Approximate time of all.
    pub(super) seconds: u32,
}

/// The command line of `vtax measure` alone.
#[derive(Parser)]
struct MeasureLine {
    #[command(flatten)]
    args: MeasureArgs,
}

impl SizeMeasuring {
    /// Plans the measurements that a target requires.
    pub(super) fn planned(&self, target: &SizeTarget) -> Result<SizeMeasurements, Stop> {
        let planned = plan_rates(target).map_err(stopped)?;
        let mut plan = SizeMeasurements { commands: Vec::new(), seconds: 0 };
        let of = |service: SizedService| planned.iter().filter(move |rate| rate.load.service == service);
        // Consoles cannot be measured, and the proposal reports that they are not included.
        for rate in of(SizedService::Vnet) {
            plan.add(self.network(&rate.load, rate.share)?, DIRECTIONS);
        }
        let disks: Vec<ServiceLoad> = of(SizedService::Vdisk).map(|rate| rate.load).collect();
        for loads in disks.chunk_by(|one, other| block_of(one) == block_of(other)) {
            plan.add(self.blocks(loads)?, loads.len() as u32);
        }
        match plan.commands.is_empty() {
            true => Err(lacking("--measure", "a load of networks or disks", "--net 10G")),
            false => Ok(plan),
        }
    }

    /// Streams of datagrams in either direction, whose number and size are those of the load.
    fn network(&self, load: &ServiceLoad, share: f64) -> Result<Vec<String>, Stop> {
        let payload = payload_of(load);
        let flows = (load.packets_per_s / FLOW_PACKETS).ceil().clamp(1.0, MOST_FLOWS);
        let bits = (load.packets_per_s / flows * payload * 8.0 / 1e3).round().max(1.0) * 1e3;
        let bitrate = BitRate::new(bits as u64).map_or_else(String::new, |rate| rate.to_string());
        let bitrate = bitrate.replace(' ', "").replace("bit/s", "");
        let label = format!("{LABEL}vnet-{:.0}%-{payload}B", share * 100.0);
        let mut words = self.ends.network("--measure")?;
        let (message, streams) = (payload.to_string(), flows.to_string());
        let test = ("--test", "udp-stream,udp-maerts".to_owned());
        add(&mut words, [test, ("--message", message), ("--streams", streams), ("--bitrate", bitrate)]);
        add_sampling(&mut words, SAMPLES, label);
        Ok(words)
    }

    /// Loads with blocks of one size, each as a test of one run.
    fn blocks(&self, loads: &[ServiceLoad]) -> Result<Vec<String>, Stop> {
        let mut words = self.ends.disk("--measure")?;
        let block = loads.first().map_or(0, block_of);
        let rate = |load: &ServiceLoad| load.ios_per_s.round().max(1.0);
        add(&mut words, loads.iter().map(|load| ("--disk-test", disk_test(load, rate(load)))));
        add_sampling(&mut words, SAMPLES, format!("{LABEL}vdisk-{block}B"));
        Ok(words)
    }
}

impl SizeEnds {
    /// Returns the command that measures a network, without its test. `by` is the option or command that requires it.
    pub(super) fn network(&self, by: &str) -> Result<Vec<String>, Stop> {
        let to = self.to.as_ref().ok_or_else(|| lacking(by, "a running guest for networks", "--to ldm:mars"))?;
        let mut words = command([("--to", to.to_string())]);
        add(&mut words, self.from.iter().map(|from| ("--from", from.to_string())));
        self.add_host(&mut words);
        Ok(words)
    }

    /// Returns the command that measures a disk, without its tests.
    pub(super) fn disk(&self, by: &str) -> Result<Vec<String>, Stop> {
        let disk =
            self.disk.as_ref().ok_or_else(|| lacking(by, "a guest's disk for --iops", "--disk ldm:mars/data"))?;
        let mut words = command([("--disk", disk.to_string())]);
        if self.destroy_data {
            words.push("--destroy-data".to_owned());
        }
        self.add_host(&mut words);
        Ok(words)
    }

    /// Returns the names of the ends that may be guests.
    pub(super) fn guests(&self) -> Vec<String> {
        self.guests_of_networks().chain(self.guest_of_disk()).collect()
    }

    fn guests_of_networks(&self) -> impl Iterator<Item = String> {
        let of_end = |end: &Control| match end {
            Control::Local | Control::Ssh(_) | Control::Namespace(_) | Control::Pod(_) => None,
            Control::Zone { domain, .. } => Some(domain.to_string()),
            Control::Libvirt { domain, .. } => Some(domain.clone()),
            Control::Domain(end) => Some(end.domain.to_string()).filter(|name| name != PRIMARY),
        };
        self.to.iter().chain(&self.from).filter_map(of_end)
    }

    fn guest_of_disk(&self) -> Option<String> {
        match self.disk.as_ref()? {
            DiskPlace::Here(_) => None,
            DiskPlace::Zone { zone, .. } => Some(zone.to_string()),
            DiskPlace::Domain { domain, .. } => Some(domain.to_string()),
        }
    }

    /// Refuses a guest whose network and disk would be measured at the same time.
    pub(super) fn check_apart(&self) -> Result<(), Stop> {
        let disk = self.guest_of_disk().filter(|guest| self.guests_of_networks().any(|other| other == *guest));
        disk.map_or(Ok(()), |guest| {
            Err(Stop::input(miette!(
                code = "bad-target",
                "the network and the disk of {guest} cannot be loaded at the same time, since a guest serves one \
                 measurement: use a disk of another guest, e.g. --disk ldm:venus/data"
            )))
        })
    }

    fn add_host(&self, words: &mut Vec<String>) {
        add(words, self.within.iter().map(|host| ("--in", host.to_string())));
    }
}

impl SizeMeasurements {
    fn add(&mut self, words: Vec<String>, tests: u32) {
        self.commands.push(words);
        self.seconds += seconds(tests * SAMPLES);
    }

    /// Runs the measurements, and stops at the first that fails.
    pub(super) fn take(&self, places: &Locations) -> Result<Exit, Stop> {
        let jobs = self.commands.iter().map(|words| job(words)).collect::<Result<Vec<Job>, Stop>>()?;
        for (nth, (job, words)) in jobs.iter().zip(&self.commands).enumerate() {
            tell!("measurement {} of {}: {}", nth + 1, jobs.len(), shown(words));
            let FinishedJob { ran, store, .. } = vtax_run::carry_out(job, None, places, &progress::terminal())?;
            run::keep_brief(&store, &ran.run)?;
            let id = ran.run.header.id.clone();
            match run::ended(ran)? {
                Exit::Done => {}
                other => {
                    tell!("no proposal: the run {id} is incomplete; `vtax results show {id}` shows the reason");
                    return Ok(other);
                }
            }
        }
        Ok(Exit::Done)
    }

    /// Returns a command per line, and the time of all.
    pub(super) fn told(&self) -> String {
        let time = minutes(Duration::from_secs(self.seconds.into()));
        let lines: String = self.commands.iter().map(|words| shown(words) + "\n").collect();
        format!("{lines}\nabout {time} in all\n")
    }
}

/// Approximate time of a run with this many samples.
pub(super) fn seconds(samples: u32) -> u32 {
    SETUP_SECONDS + samples * (DURATION_SECONDS + WARMUP_SECONDS)
}

/// Returns the job of a command line.
pub(super) fn job(words: &[String]) -> Result<Job, Stop> {
    let read = MeasureLine::try_parse_from(&words[1..]);
    let line = read.map_err(|error| Stop::input(miette!(code = "bad-target", "{}: {error}", shown(words))))?;
    let mut job = line.args.job()?;
    job.conditions.command = words.to_vec();
    Ok(job)
}

fn command<const N: usize>(options: [(&str, String); N]) -> Vec<String> {
    let mut words = ["vtax", "measure"].map(str::to_owned).to_vec();
    add(&mut words, options);
    words
}

pub(super) fn add<'a>(words: &mut Vec<String>, options: impl IntoIterator<Item = (&'a str, String)>) {
    words.extend(options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
}

pub(super) fn add_sampling(words: &mut Vec<String>, samples: u32, label: String) {
    let (duration, warmup) = (format!("{DURATION_SECONDS}s"), format!("{WARMUP_SECONDS}s"));
    let sampling = [("--samples", samples.to_string()), ("--duration", duration), ("--warmup", warmup)];
    add(words, sampling);
    add(words, [("--label", label)]);
}

/// Adds a single sample that lasts longer than whatever is measured in the meantime.
pub(super) fn add_background(words: &mut Vec<String>) {
    let (duration, warmup) = (format!("{BACKGROUND_SECONDS}s"), format!("{WARMUP_SECONDS}s"));
    add(words, [("--samples", "1".to_owned()), ("--duration", duration), ("--warmup", warmup)]);
}

/// Returns a command as a shell reads it.
pub(super) fn shown(words: &[String]) -> String {
    let quoted = |word: &String| match word.contains(char::is_whitespace) {
        true => format!("'{word}'"),
        false => word.clone(),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Bytes of a datagram without headers.
pub(super) fn payload_of(load: &ServiceLoad) -> f64 {
    (load.message_size() - HEADERS).round().max(1.0)
}

/// Random reads at a rate, with enough of them in flight.
pub(super) fn disk_test(load: &ServiceLoad, rate: f64) -> String {
    format!("random:block={},depth={DEPTH},rate={rate}", block_of(load))
}

/// Size of the blocks of a load, in whole sectors.
pub(super) fn block_of(load: &ServiceLoad) -> u64 {
    ((load.message_size() / SECTOR).round().max(1.0) * SECTOR) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct MeasuringLine {
        #[command(flatten)]
        measuring: SizeMeasuring,
    }

    fn measuring(words: &str) -> SizeMeasuring {
        MeasuringLine::try_parse_from(["size"].into_iter().chain(words.split(' '))).expect("options").measuring
    }

    fn target(net: &str, packets: &str, ios: Option<&str>) -> SizeTarget {
        let ios = ios.map(|ios| ios.parse().expect("a rate"));
        SizeTarget {
            net: Some(net.parse().expect("a rate")),
            packets: Some(packets.parse().expect("a rate")),
            ios,
            ..SizeTarget::default()
        }
    }

    #[test]
    fn planned_commands_have_the_load_and_are_read() {
        let options = measuring("--measure --to ldm:mars --disk ldm:mars/data --destroy-data");
        let plan = options.planned(&target("1G", "150k", Some("40k"))).expect("a plan");
        let lines: Vec<String> = plan.commands.iter().map(|words| shown(words)).collect();
        assert_eq!(
            lines[0],
            "vtax measure --to ldm:mars --test udp-stream,udp-maerts --message 805 --streams 2 --bitrate 241500k \
             --samples 3 --duration 2s --warmup 1s --label size:vnet-50%-805B"
        );
        assert_eq!(lines.len(), 5 + 2, "{lines:#?}");
        assert_eq!(
            lines[5],
            "vtax measure --disk ldm:mars/data --destroy-data --disk-test random:block=4096,depth=32,rate=20000 \
             --disk-test random:block=4096,depth=32,rate=32000 --disk-test random:block=4096,depth=32,rate=44000 \
             --samples 3 --duration 2s --warmup 1s --label size:vdisk-4096B"
        );
        assert!(lines[6].contains("random:block=65536,depth=32,rate=1250 --disk-test "), "{}", lines[6]);
        assert_eq!(plan.seconds, 5 * (5 + 2 * 9) + (5 + 3 * 9) + (5 + 2 * 9));
        for words in &plan.commands {
            let job = job(words).expect("a command");
            assert_eq!(&job.conditions.command, words);
        }
        assert!(plan.told().ends_with("about 2 min 50 s in all\n"), "{}", plan.told());
    }

    #[test]
    fn missing_options_of_a_measurement_are_named() {
        let told =
            |words: &str, target: &SizeTarget| measuring(words).planned(target).expect_err("refused").to_string();
        assert!(told("--measure", &target("1G", "150k", None)).contains("--to ldm:mars"));
        assert!(told("--measure --to ldm:mars", &target("1G", "150k", Some("1k"))).contains("--disk ldm:mars/data"));
        let consoles = SizeTarget { consoles: 4, ..SizeTarget::default() };
        assert!(told("--measure", &consoles).contains("a load of networks or disks"));
        assert!(told("--measure", &SizeTarget::default()).contains("nothing to size"));
    }
}
