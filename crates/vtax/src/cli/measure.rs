//! `vtax measure`.

mod disks;
pub(super) mod values;

use std::path::PathBuf;

use clap::Args;
use miette::miette;
use vtax_model::{
    cell::Instrument,
    endpoint::{Control, DeviceName, DomainEnd, End, Endpoint, LabHost, OtherPath},
    options::{
        ArrivalProcess, Arrivals, Burst, CongestionControl, Dscp, Idle, RequestRate, Segments, Sending, SocketOptions,
        TestOptions,
    },
    server::ServerSpec,
    study::{Row, SamplingPlan},
    topology::Name,
    units::{BitRate, ByteSize, Span},
    workload::{StreamLoad, Warmup},
};
use vtax_run::{
    Conditions, Job, NewRun, Work,
    study::{ChosenRounds, GivenSizes, MeasureRequest, Test},
};
use vtax_wire::ssh;

use super::{Locations, run};
use crate::{
    exit::{Blamed, Exit, Stop},
    one_of::{on_or_off, one_of},
    whole_number::whole,
};
use values::{ARRIVALS, AddressOnLink, Engines, Gap, SENDING};

/// The plan of `--quick`, unless other options change it.
const QUICK_SAMPLES: u32 = 3;
const QUICK_DURATION: Span = Span::from_millis(200);
const DURATION: Span = Span::from_millis(1000);
/// Test and load warm up for the same time, in which a stream leaves slow start and fills the path's queues.
const UNDER_LOAD: Warmup = Warmup::For(Span::from_millis(1000));
const STEADY: Warmup = Warmup::UntilSteady { most: Warmup::MOST };

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    ends: MeasuredEnds,
    /// NICs of the logical domain of --to to measure, e.g. net0,vf0: names of vnets, and vf0, vf1, … for its virtual
    /// functions. They are interleaved in one run, and each is compared with the first
    #[arg(long, value_name = "NIC,…", value_delimiter = ',', help_heading = "Endpoints")]
    nic: Vec<Name>,
    #[command(flatten)]
    disks: disks::DiskArgs,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    sockets: Sockets,
    #[command(flatten)]
    view: View,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    labelled: run::Labelled,
    #[command(flatten)]
    pub(super) form: run::Form,
}

/// The endpoints.
#[derive(Debug, Args)]
#[command(next_help_heading = "Endpoints")]
pub(super) struct MeasuredEnds {
    /// Responder, e.g. ssh:vm1: local, ssh:HOST, libvirt:NAME (a running virtual machine of libvirt), zone:NAME or
    /// zone:LAB/NAME (a zone, host or guest of a running lab), ldm:DOMAIN or ldm:DOMAIN/NIC (a running logical domain,
    /// over one of its virtual NICs), netns:NAME, netns:/PATH or pid:PID (a network namespace of this machine),
    /// container:NAME (a running container of this machine; docker:NAME, podman:NAME, nerdctl:NAME or crictl:NAME select
    /// its engine), pod:NAMESPACE/NAME or pod:NAMESPACE/NAME/CONTAINER (a running pod of Kubernetes, through kubectl).
    /// Given several times, that many pairs are measured simultaneously
    #[arg(long, value_name = "END", default_value = "local")]
    to: Vec<Control>,
    /// Initiator, e.g. zone:web: it connects, and sends requests or streams. The values are those of --to [default:
    /// local; with --to zone:NAME the other end of its wire; with --to ldm:DOMAIN the host of the domain]
    #[arg(long, value_name = "END")]
    from: Vec<Control>,
    /// Address of the responder, e.g. 192.0.2.1, one for each --to [default: the address that ssh connected to; the
    /// zone's address; or the address used to reach the other endpoint]. A link-local address names the link of --from,
    /// e.g. fe80::1%eth0
    #[arg(long, value_name = "ADDRESS")]
    to_address: Vec<AddressOnLink>,
    /// Address of the initiator, e.g. 192.0.2.2, one for each --from [default: as for --to-address]
    #[arg(long, value_name = "ADDRESS")]
    from_address: Vec<AddressOnLink>,
    /// Network device on the responder's machine to bind its sockets to, e.g. eth1, one for each --to. Without
    /// --to-address, vtax uses the device's first address
    #[arg(long, value_name = "DEVICE")]
    to_device: Vec<DeviceName>,
    /// Network device for the sockets of the initiator, e.g. eth1, like iperf3's --bind-dev
    #[arg(long, value_name = "DEVICE", visible_alias = "bind-device")]
    from_device: Vec<DeviceName>,
    /// vsock: context identifier of the responder, e.g. 3, one for each --to. Not needed if both endpoints are on one
    /// machine
    #[arg(long, value_name = "CID", value_parser = whole::<u32>)]
    to_cid: Vec<u32>,
    /// Host of a lab with the logical domains of ldm:DOMAIN, e.g. rack/sut, also for --disk; as for `vtax ldm --in`
    #[arg(long = "in", value_name = "LAB/HOST")]
    within: Option<LabHost>,
    #[command(flatten)]
    pub(super) pinned: run::Pinned,
}

/// The test.
#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct What {
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', default_value = "tcp-rr", help = values::tests_help())]
    test: Vec<Test>,
    #[command(flatten)]
    sizes: Sizes,
    /// Simultaneous flows, e.g. 8; with several numbers, e.g. 1,8, the test is run with each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = whole::<u32>)]
    streams: Vec<u32>,
    /// Threads that share the flows, e.g. 2 [default: one per flow with the blocking engine, else one per CPU]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    threads: Option<u32>,
    /// Socket I/O engine: blocking, epoll, busy-poll, io-uring, several of them, or all. Several are interleaved in one
    /// run and compared
    #[arg(long, value_name = "ENGINE,…", default_value = "blocking")]
    engine: Engines,
    /// CPU idle states of both machines: `poll` disables them while a sample is measured, `system` leaves them unchanged
    #[arg(long, value_name = "poll|system", default_value = "system")]
    idle: Idle,
}

/// Message sizes.
#[derive(Debug, Args)]
struct Sizes {
    /// rr, crr: bytes per request, e.g. 1KiB [default: 1; UDP with several in flight: 8]
    #[arg(long, value_name = "SIZE")]
    request: Option<ByteSize>,
    /// rr, crr: bytes per response, e.g. 16KiB [default: 1; UDP with several in flight: 8]
    #[arg(long, value_name = "SIZE")]
    response: Option<ByteSize>,
    /// Streams: bytes per send call, e.g. 64KiB [default: 128KiB; UDP: as large as the path's MTU allows]
    #[arg(long, value_name = "SIZE")]
    message: Option<ByteSize>,
    /// Message sizes to run the test with, e.g. 64,1KiB, instead of --request, --response and --message
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', conflicts_with_all = ["request", "response", "message"])]
    sizes: Vec<ByteSize>,
}

/// The load.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct Load {
    /// Also measure the test while a stream loads the path between the same endpoints, and report the added latency:
    /// tcp-stream, udp-stream, unix-stream or vsock-stream, and parameters, e.g.
    /// tcp-stream,streams=4,direction=both. The defaults are streams=1, direction=forward (from the initiator; or
    /// reverse, both) and no bitrate (of each stream, e.g. 50M). Idle and loaded samples alternate. If the option is
    /// repeated, each load is compared with the idle path
    #[arg(long, value_name = "STREAM")]
    under: Vec<StreamLoad>,
    /// rr: requests in flight per flow, e.g. 16
    #[arg(long, value_name = "N", default_value = "1")]
    burst: Burst,
    /// rr: total requests/s over all flows, e.g. 500 or 10k, sent whether or not responses have arrived (open loop). A
    /// request's round-trip time is measured from its scheduled time
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<RequestRate>,
    /// Arrival process of the requests of --rate
    #[arg(long, value_parser = one_of(&ARRIVALS), default_value = "poisson", requires = "rate")]
    arrivals: ArrivalProcess,
    /// rr: idle time of each flow before each request, so that the path is cold. With several times, e.g. 0,1ms,10ms,
    /// the test is run with each
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "0")]
    gap: Vec<Gap>,
    /// Streams: send rate of each flow, e.g. 100M
    #[arg(long, value_name = "RATE")]
    bitrate: Option<BitRate>,
    /// TCP streams: method of passing bytes to the kernel
    #[arg(long, value_parser = one_of(&SENDING), default_value = "copy")]
    send: Sending,
    /// UDP streams: datagrams per send call (UDP_SEGMENT), 2 to 64, e.g. 16
    #[arg(long, value_name = "N")]
    gso: Option<Segments>,
    /// UDP streams: receive several datagrams per call (UDP_GRO)
    #[arg(long)]
    gro: bool,
}

/// Options of the sockets at both endpoints.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets")]
struct Sockets {
    /// TCP_NODELAY: send small messages immediately [default: on for transactions, off for streams]
    #[arg(long, value_parser = on_or_off(), value_name = "on|off", hide_possible_values = true)]
    nodelay: Option<bool>,
    /// SO_SNDBUF: send buffer of a socket, e.g. 4MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    send_buffer: Option<ByteSize>,
    /// SO_RCVBUF: receive buffer of a socket, e.g. 4MiB [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<ByteSize>,
    /// TCP_CONGESTION: congestion control, e.g. cubic [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<CongestionControl>,
    /// DSCP of each packet, e.g. ef or 46
    #[arg(long)]
    dscp: Option<Dscp>,
    /// SO_MAX_PACING_RATE: maximum send rate of a socket, e.g. 1G
    #[arg(long, value_name = "RATE")]
    pacing: Option<BitRate>,
    /// SO_BUSY_POLL: time that a receive call polls the device before it sleeps, e.g. 50us
    #[arg(long, value_name = "TIME")]
    busy_poll: Option<Span>,
}

/// Additional records.
#[derive(Debug, Args)]
#[command(next_help_heading = "Series and stages")]
struct View {
    /// Also record a figure per interval of this length, e.g. 100ms
    #[arg(long, value_name = "TIME")]
    interval: Option<Span>,
    /// rr: split the round trip into stages by the kernel's timestamps (SO_TIMESTAMPING). This takes more system calls,
    /// so the round trip is longer
    #[arg(long)]
    stages: bool,
    /// Also count CPU cycles of the measuring threads (perf_event_open), which don't depend on the clock frequency. Each
    /// context switch takes longer
    #[arg(long)]
    cycles: bool,
}

/// The sampling plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
struct Sampling {
    /// Samples per test, e.g. 20 [default: 5; with several engines or --under, enough to detect a difference]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    samples: Option<u32>,
    /// Measured time per sample, e.g. 200ms [default: 1s; disks: 5s]
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Warm-up before the measured time: a time, e.g. 10ms; `steady`: until the figures are steady; or `steady:5s`: the
    /// same, but at most 5 s [default: steady; disks, --under: 1s]
    #[arg(long, value_name = "TIME|steady")]
    warmup: Option<Warmup>,
    /// Take 3 samples of 200 ms (disks: 1 s)
    #[arg(long)]
    quick: bool,
    /// Seed for the random order of samples, e.g. 1 [default: random; recorded in the result]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    #[command(flatten)]
    precision: run::Precision,
    /// Directory for Unix sockets at both endpoints
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
}

pub(crate) fn measure(args: MeasureArgs, places: &Locations, server: Option<ServerSpec>) -> Result<Exit, Stop> {
    run::carry_out(&args.job()?, || args.form.options(), places, server)
}

impl MeasureArgs {
    pub(super) fn job(&self) -> Result<Job, Stop> {
        let new = match self.disks.asked(&self.sampling, self.ends.within.as_ref())? {
            Some(asked) => NewRun::Disks(Box::new(asked)),
            None => NewRun::Measure(Box::new(self.asked()?)),
        };
        let (directory, pins) = (self.sampling.dir.clone(), self.ends.pinned.pin.clone());
        // It builds no guests; those that it measures are already running.
        let (label, command) = (self.labelled.label(), run::words());
        let conditions = Conditions { directory, pins, kernel: None, server_cables: false, label, command };
        Ok(Job { work: Work::New(new), conditions })
    }

    fn asked(&self) -> Result<MeasureRequest, Stop> {
        Ok(MeasureRequest {
            endpoints: self.compared(self.ends.endpoints()?)?,
            tests: distinct("test", &self.what.test)?,
            engines: self.what.engine.0.clone(),
            under: distinct("under", &self.load.under)?,
            streams: distinct("streams", &self.what.streams)?,
            sizes: self.what.sizes.given()?,
            gaps: distinct("gap", &self.load.gap)?.into_iter().map(|gap| gap.0).collect(),
            options: self.options(),
            rounds: self.sampling.chosen_rounds()?,
            sampling: self.sampling.plan(!self.load.under.is_empty()),
            steps: Vec::new(),
            guarded: Vec::new(),
            instrument: Instrument::System,
            margin: None,
            placed_as: None,
        })
    }

    /// Returns the responder, once for each NIC given.
    fn compared(&self, endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, Stop> {
        if self.nic.is_empty() {
            return Ok(endpoints);
        }
        let (to, from): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(|endpoint| endpoint.end == End::Responder);
        let [Endpoint { control: Control::Domain(DomainEnd { nic: None, .. }), address: None, .. }] = &to[..] else {
            return Err(Stop::input(miette!(
                code = "option-not-for-this",
                "--nic requires a single logical domain: give --to ldm:DOMAIN once, and omit --to-address"
            )));
        };
        let by_nic = distinct("nic", &self.nic)?.into_iter().map(|nic| {
            let mut end = to[0].clone();
            end.method = Some(Row::Nic(nic.as_str().parse().or_input()?));
            if let Control::Domain(domain) = &mut end.control {
                domain.nic = Some(nic);
            }
            Ok(end)
        });
        by_nic.chain(from.into_iter().map(Ok)).collect()
    }

    fn options(&self) -> TestOptions {
        let Load { burst, rate, arrivals, bitrate, send, gso, gro, .. } = self.load;
        let View { interval, stages, cycles } = self.view;
        TestOptions {
            threads: self.what.threads,
            idle: self.what.idle,
            burst,
            arrivals: rate.map(|per_second| Arrivals { per_second, process: arrivals }),
            bitrate,
            sending: send,
            gso,
            gro,
            socket: self.sockets.options(),
            interval,
            stages,
            cycles,
            ..TestOptions::default()
        }
    }
}

impl Sizes {
    fn given(&self) -> Result<GivenSizes, Stop> {
        let Sizes { request, response, message, ref sizes } = *self;
        Ok(GivenSizes { request, response, message, sizes: distinct("sizes", sizes)? })
    }
}

impl MeasuredEnds {
    pub(super) fn endpoints(&self) -> Result<Vec<Endpoint>, Stop> {
        check_ssh(self.to.iter().chain(&self.from))?;
        check_count("to", "to-address", self.to.len(), self.to_address.len())?;
        check_count("to", "to-cid", self.to.len(), self.to_cid.len())?;
        check_count("to", "to-device", self.to.len(), self.to_device.len())?;
        check_count("from", "from-device", self.from.len().max(1), self.from_device.len())?;
        check_count("from", "from-address", self.from.len().max(1), self.from_address.len())?;
        check_pairs(self.from.len(), self.to.len())?;
        let to = self.to.iter().enumerate().map(|(nth, control)| Endpoint {
            address: self.to_address.get(nth).map(|to| to.address),
            cid: self.to_cid.get(nth).copied(),
            device: self.to_device.get(nth).cloned(),
            ..Endpoint::new(End::Responder, control.clone())
        });
        // An address or a device belongs to an endpoint that was named.
        let links = self.links()?;
        let is_named = !self.from_address.is_empty() || links.iter().any(Option::is_some);
        let named = if self.from.is_empty() && is_named { &[Control::Local] } else { &self.from[..] };
        let from = named.iter().enumerate().map(|(nth, control)| Endpoint {
            address: self.from_address.get(nth).map(|from| from.address),
            device: links.get(nth).cloned().flatten(),
            ..Endpoint::new(End::Initiator, control.clone())
        });
        self.on_host(to.chain(from).collect())
    }

    /// Returns the link of each --from: from its option, or from a link-local address of either endpoint.
    fn links(&self) -> Result<Vec<Option<DeviceName>>, Stop> {
        let ends = self.from.len().max(1);
        let link = |nth: usize| {
            // A single --from applies to all of --to.
            let to = if ends == 1 { &self.to_address[..] } else { self.to_address.get(nth..=nth).unwrap_or_default() };
            let addresses = self.from_address.get(nth).into_iter().chain(to);
            let named = addresses.filter_map(|address| address.link.as_ref()).chain(self.from_device.get(nth));
            let mut named = named.collect::<Vec<_>>();
            named.dedup();
            match named[..] {
                [] => Ok(None),
                [link] => Ok(Some(link.clone())),
                [one, other, ..] => Err(Stop::input(miette!(
                    code = "named-twice",
                    "both {one} and {other} are given as an endpoint's link: give one (--from-device, or after the % \
                     of an address)"
                ))),
            }
        };
        (0..ends).map(link).collect()
    }

    /// Assigns the domains without a host to that of `--in`.
    fn on_host(&self, mut endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, Stop> {
        let Some(host) = &self.within else { return Ok(endpoints) };
        let mut named = false;
        for endpoint in &mut endpoints {
            named |= endpoint.control.place_in(host);
        }
        match named {
            true => Ok(endpoints),
            false => Err(Stop::input(miette!(
                code = "option-not-for-this",
                "--in {host}: no endpoint is a logical domain of that host: give --to ldm:DOMAIN, or omit --in"
            ))),
        }
    }

    /// Returns the same options for another path.
    pub(super) fn on_host_too(&self, path: &OtherPath) -> OtherPath {
        let mut path = path.clone();
        for control in path.from.iter_mut().chain([&mut path.to]) {
            if let Some(host) = &self.within {
                control.place_in(host);
            }
        }
        path
    }
}

/// Refuses names that ssh would interpret as an option.
pub(super) fn check_ssh<'a>(mut controls: impl Iterator<Item = &'a Control>) -> Result<(), Stop> {
    controls.try_for_each(|control| match control {
        Control::Ssh(host) => ssh::check(host).or_input(),
        Control::Local
        | Control::Zone { .. }
        | Control::Libvirt { .. }
        | Control::Domain(_)
        | Control::Namespace(_)
        | Control::Pod(_) => Ok(()),
    })
}

fn check_count(ends: &str, option: &str, wanted: usize, given: usize) -> Result<(), Stop> {
    match given == 0 || given == wanted {
        true => Ok(()),
        false => Err(Stop::input(miette!(
            code = "option-count",
            "--{option} is given {given} times for {wanted} --{ends}: give one for each"
        ))),
    }
}

fn check_pairs(from: usize, to: usize) -> Result<(), Stop> {
    match from <= 1 || to == 1 || from == to {
        true => Ok(()),
        false => Err(Stop::input(miette!(
            code = "ends-not-paired",
            "{from} --from and {to} --to cannot be paired: give the same number of each, or a single one for all"
        ))),
    }
}

impl Sockets {
    fn options(&self) -> SocketOptions {
        let Sockets { nodelay, send_buffer, receive_buffer, congestion, dscp, pacing, busy_poll } = *self;
        SocketOptions { nodelay, send_buffer, receive_buffer, congestion, dscp, pacing, busy_poll }
    }
}

impl Sampling {
    fn plan(&self, loaded: bool) -> SamplingPlan {
        let duration = self.duration.unwrap_or(if self.quick { QUICK_DURATION } else { DURATION });
        let warmup = self.warmup.unwrap_or(if loaded { UNDER_LOAD } else { STEADY });
        SamplingPlan { samples: 0, duration, warmup, slices: None, limit: None }
    }

    fn chosen_rounds(&self) -> Result<ChosenRounds, Stop> {
        Ok(ChosenRounds {
            quick: self.quick,
            samples: self.samples.or(self.quick.then_some(QUICK_SAMPLES)),
            goal: None,
            stopping: self.precision.rule()?,
            metric: self.precision.metric.0,
            seed: self.seed,
        })
    }
}

fn distinct<T: PartialEq + Clone>(option: &str, values: &[T]) -> Result<Vec<T>, Stop> {
    let twice = values.iter().enumerate().any(|(nth, value)| values[..nth].contains(value));
    match twice {
        true => Err(Stop::input(miette!(code = "named-twice", "--{option} has a duplicate value: give each once"))),
        false => Ok(values.to_vec()),
    }
}
