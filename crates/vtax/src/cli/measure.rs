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
    workload::Warmup,
};
use vtax_run::{
    Conditions, Job, Work,
    study::{GivenSizes, MeasureRequest, Test},
};
use vtax_wire::ssh;

use super::{Locations, run};
use crate::{
    exit::{Blamed, Exit, Stop},
    one_of::{on_or_off, one_of},
    whole_number::whole,
};
use values::{ARRIVALS, AddressOnLink, Engines, Gap, SENDING};

/// The plan of `--quick`, where nothing else is said.
const QUICK_SAMPLES: u32 = 3;
const QUICK_DURATION: Span = Span::from_millis(200);
const DURATION: Span = Span::from_millis(1000);
const STEADY: Warmup = Warmup::UntilSteady { most: Warmup::MOST };

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    ends: MeasuredEnds,
    /// Measure the logical domain of --to by these of its NICs: vnets by their names, and vf0, vf1, … for its virtual
    /// functions. They take turns in one run, and each is compared with the first
    #[arg(long, value_name = "NIC,…", value_delimiter = ',', help_heading = "Ends")]
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

/// Between whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ends")]
pub(super) struct MeasuredEnds {
    /// The end that answers or receives: local, ssh:HOST, libvirt:NAME (a virtual machine that libvirt runs),
    /// zone:NAME or zone:LAB/NAME (a zone, host or guest of a lab that is up), ldm:DOMAIN or ldm:DOMAIN/NIC (a logical
    /// domain that runs, by one of its virtual NICs). `vtax measure` takes the option several times, and as many pairs
    /// measure at the same time
    #[arg(long, value_name = "END", default_value = "local")]
    to: Vec<Control>,
    /// The end that connects, asks or sends [default: local; with --to zone:NAME the other end of its wire; with
    /// --to ldm:DOMAIN the host of the domain]
    #[arg(long, value_name = "END")]
    from: Vec<Control>,
    /// The address that --to measures on; one for each --to [default: the address that ssh connected to; that of
    /// the zone; or that by which this machine reaches the other end]. A link-local one names the link of --from, as
    /// fe80::1%eth0
    #[arg(long, value_name = "ADDRESS")]
    to_address: Vec<AddressOnLink>,
    /// The address that --from measures on; one for each --from [default: as for --to-address]
    #[arg(long, value_name = "ADDRESS")]
    from_address: Vec<AddressOnLink>,
    /// Bind the sockets of --to to this network device of its machine, as eth1; one for each --to. Without --to-address,
    /// vtax measures on the device's first address
    #[arg(long, value_name = "DEVICE")]
    to_device: Vec<DeviceName>,
    /// The same for --from, as iperf3's --bind-dev
    #[arg(long, value_name = "DEVICE", visible_alias = "bind-device")]
    from_device: Vec<DeviceName>,
    /// vsock: the context identifier by which --from reaches --to; one for each --to. Two ends on one machine need none
    #[arg(long, value_name = "CID", value_parser = whole::<u32>)]
    to_cid: Vec<u32>,
    /// The host of a lab that has the logical domains of ldm:DOMAIN, also those of --disk, as for `vtax ldm --in`
    #[arg(long = "in", value_name = "LAB/HOST")]
    within: Option<LabHost>,
    #[command(flatten)]
    pub(super) pinned: run::Pinned,
}

/// What is sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct What {
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', default_value = "tcp-rr", help = values::tests_help())]
    test: Vec<Test>,
    #[command(flatten)]
    sizes: Sizes,
    /// How many flows run at the same time; with several numbers the test is run with each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = whole::<u32>)]
    streams: Vec<u32>,
    /// How many threads share the flows [default: one a flow with the engine blocking, else one a CPU]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    threads: Option<u32>,
    /// How the ends wait for their sockets: blocking, epoll, busy-poll, io-uring, several of them, or all.
    /// Several take turns in one run and are compared
    #[arg(long, value_name = "ENGINE,…", default_value = "blocking")]
    engine: Engines,
    /// What the CPUs of both machines do while they have nothing to do: poll keeps them awake while a sample is
    /// measured, system changes nothing
    #[arg(long, value_name = "poll|system", default_value = "system")]
    idle: Idle,
}

/// How large it is.
#[derive(Debug, Args)]
struct Sizes {
    /// rr, crr: bytes of each request [default: 1; UDP with several in flight: 8]
    #[arg(long, value_name = "SIZE")]
    request: Option<ByteSize>,
    /// rr, crr: bytes of each response [default: 1; UDP with several in flight: 8]
    #[arg(long, value_name = "SIZE")]
    response: Option<ByteSize>,
    /// Streams: bytes of each send call [default: 128KiB; UDP: what the path's MTU carries]
    #[arg(long, value_name = "SIZE")]
    message: Option<ByteSize>,
    /// Run the test once with each of these sizes, in place of --request, --response and --message
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', conflicts_with_all = ["request", "response", "message"])]
    sizes: Vec<ByteSize>,
}

/// How much is sent, and when.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct Load {
    /// rr: how many requests of each flow are in flight
    #[arg(long, value_name = "N", default_value = "1")]
    burst: Burst,
    /// rr: send so many requests a second over all flows, as 500 or 10k, whether or not the responses came. The
    /// time of a request counts from the moment when it was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<RequestRate>,
    /// How the requests of --rate are spread
    #[arg(long, value_parser = one_of(&ARRIVALS), default_value = "poisson", requires = "rate")]
    arrivals: ArrivalProcess,
    /// rr: how long each flow idles before each request, so that the path is cold. With several times, as
    /// 0,1ms,10ms, the test is run with each
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "0")]
    gap: Vec<Gap>,
    /// Streams: each flow sends at this rate, as 100M
    #[arg(long, value_name = "RATE")]
    bitrate: Option<BitRate>,
    /// TCP streams: how bytes get to the kernel
    #[arg(long, value_parser = one_of(&SENDING), default_value = "copy")]
    send: Sending,
    /// UDP streams: datagrams that one send call hands over (UDP_SEGMENT), 2 to 64
    #[arg(long, value_name = "N")]
    gso: Option<Segments>,
    /// UDP streams: take several datagrams with one receive call (UDP_GRO)
    #[arg(long)]
    gro: bool,
}

/// What is set on the sockets of both ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets")]
struct Sockets {
    /// TCP_NODELAY: send small messages at once [default: on for transactions, off for streams]
    #[arg(long, value_parser = on_or_off())]
    nodelay: Option<bool>,
    /// SO_SNDBUF: bytes that may wait in a socket to be sent [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    send_buffer: Option<ByteSize>,
    /// SO_RCVBUF: bytes that may wait in a socket to be read [default: the kernel's]
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<ByteSize>,
    /// TCP_CONGESTION: the congestion control, as cubic [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<CongestionControl>,
    /// The DSCP of each packet, as ef or 46
    #[arg(long)]
    dscp: Option<Dscp>,
    /// SO_MAX_PACING_RATE: the rate at which a socket sends at most, as 1G
    #[arg(long, value_name = "RATE")]
    pacing: Option<BitRate>,
    /// SO_BUSY_POLL: how long a receive call polls the device before it sleeps, as 50us
    #[arg(long, value_name = "TIME")]
    busy_poll: Option<Span>,
}

/// What else is recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Series and stages")]
struct View {
    /// Also record a figure for each interval of this length, as 100ms
    #[arg(long, value_name = "TIME")]
    interval: Option<Span>,
    /// rr: split the round trip into stages by the kernel's time stamps (SO_TIMESTAMPING). This takes more system
    /// calls, so the round trip is longer
    #[arg(long)]
    stages: bool,
}

/// How often and how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
struct Sampling {
    /// How many samples to take of each test [default: 5; of several engines as many as can show a difference]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    samples: Option<u32>,
    /// Measured time of each sample [default: 1s; of disks 5s]
    #[arg(long)]
    duration: Option<Span>,
    /// Traffic before the measured time: a time, as 10ms; or `steady`, which waits until the figures are steady;
    /// or `steady:5s`, which waits 5 s at most [default: steady; of disks 1s]
    #[arg(long)]
    warmup: Option<Warmup>,
    /// Take 3 samples of 200 ms; of disks, of 1 s
    #[arg(long)]
    quick: bool,
    /// Seed of the random order of the samples [default: random; the result has it]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    #[command(flatten)]
    precision: run::Precision,
    /// Folder of Unix sockets at both ends
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
}

pub(crate) fn measure(args: MeasureArgs, places: &Locations, server: Option<ServerSpec>) -> Result<Exit, Stop> {
    run::carry_out(&args.job()?, || args.form.options(), places, server)
}

impl MeasureArgs {
    pub(super) fn job(&self) -> Result<Job, Stop> {
        let work = match self.disks.asked(&self.sampling, self.ends.within.as_ref())? {
            Some(asked) => Work::Disks(Box::new(asked)),
            None => Work::Measure(Box::new(self.asked()?)),
        };
        let (directory, pins) = (self.sampling.dir.clone(), self.ends.pinned.pin.clone());
        // It builds no guests: those that it measures in have booted.
        let (label, command) = (self.labelled.label(), run::words());
        let conditions = Conditions { directory, pins, kernel: None, server_cables: false, label, command };
        Ok(Job { work, conditions })
    }

    fn asked(&self) -> Result<MeasureRequest, Stop> {
        Ok(MeasureRequest {
            endpoints: self.compared(self.ends.endpoints()?)?,
            tests: distinct("test", &self.what.test)?,
            engines: self.what.engine.0.clone(),
            streams: distinct("streams", &self.what.streams)?,
            sizes: self.what.sizes.given()?,
            gaps: distinct("gap", &self.load.gap)?.into_iter().map(|gap| gap.0).collect(),
            options: self.options(),
            samples: self.sampling.rounds(),
            sampling: self.sampling.plan(),
            quick: self.sampling.quick,
            seed: self.sampling.seed,
            stopping: self.sampling.precision.rule()?,
            steps: Vec::new(),
            guarded: Vec::new(),
            instrument: Instrument::System,
            goal: None,
            margin: None,
            placed_as: None,
        })
    }

    /// The end that answers, once by each NIC that is named.
    fn compared(&self, endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, Stop> {
        if self.nic.is_empty() {
            return Ok(endpoints);
        }
        let (to, from): (Vec<_>, Vec<_>) = endpoints.into_iter().partition(|endpoint| endpoint.end == End::Responder);
        let [Endpoint { control: Control::Domain(DomainEnd { nic: None, .. }), address: None, .. }] = &to[..] else {
            return Err(Stop::input(miette!(
                code = "option-not-for-this",
                "--nic names NICs of one logical domain: give --to once, as --to ldm:DOMAIN, and no --to-address"
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
        let View { interval, stages } = self.view;
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
        // An address or a device is one of an end that was named.
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

    /// Returns the link of each --from: that of its option, or that of a link-local address at either end.
    fn links(&self) -> Result<Vec<Option<DeviceName>>, Stop> {
        let ends = self.from.len().max(1);
        let link = |nth: usize| {
            // One --from serves all of --to.
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
                    "an end is bound to one link, and both {one} and {other} are named; name one (--from-device, or after the % \
                     of an address)"
                ))),
            }
        };
        (0..ends).map(link).collect()
    }

    /// The domains that name no host are those of `--in`.
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
                "--in {host}: no end is a logical domain of it; name one as --to ldm:DOMAIN, or leave --in out"
            ))),
        }
    }

    /// The same for another path.
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

/// Refuses what ssh would take for an option.
pub(super) fn check_ssh<'a>(mut controls: impl Iterator<Item = &'a Control>) -> Result<(), Stop> {
    controls.try_for_each(|control| match control {
        Control::Ssh(host) => ssh::check(host).or_input(),
        Control::Local | Control::Zone { .. } | Control::Libvirt { .. } | Control::Domain(_) => Ok(()),
    })
}

fn check_count(ends: &str, option: &str, wanted: usize, given: usize) -> Result<(), Stop> {
    match given == 0 || given == wanted {
        true => Ok(()),
        false => Err(Stop::input(miette!(
            code = "option-count",
            "--{option} is given {given} times for {wanted} --{ends}; give one for each"
        ))),
    }
}

fn check_pairs(from: usize, to: usize) -> Result<(), Stop> {
    match from <= 1 || to == 1 || from == to {
        true => Ok(()),
        false => Err(Stop::input(miette!(
            code = "ends-not-paired",
            "{from} --from and {to} --to don't pair off; give as many of one as of the other, or one that serves all"
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
    fn plan(&self) -> SamplingPlan {
        let duration = self.duration.unwrap_or(if self.quick { QUICK_DURATION } else { DURATION });
        SamplingPlan { samples: 0, duration, warmup: self.warmup.unwrap_or(STEADY), slices: None, limit: None }
    }

    fn rounds(&self) -> Option<u32> {
        self.samples.or(self.quick.then_some(QUICK_SAMPLES))
    }
}

fn distinct<T: PartialEq + Clone>(option: &str, values: &[T]) -> Result<Vec<T>, Stop> {
    let twice = values.iter().enumerate().any(|(nth, value)| values[..nth].contains(value));
    match twice {
        true => Err(Stop::input(miette!(code = "named-twice", "--{option} has a value twice; name each once"))),
        false => Ok(values.to_vec()),
    }
}
