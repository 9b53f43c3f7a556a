//! `vtax measure`.

mod values;

use std::{net::IpAddr, path::PathBuf};

use anyhow::anyhow;
use clap::Args;
use vtax_agent::ssh;
use vtax_model::{
    endpoint::{Control, End, Endpoint},
    options::{Arrivals, Burst, CongestionControl, Dscp, Idle, RequestRate, Segments, SocketOptions, TestOptions},
    study::SamplingPlan,
    units::{BitRate, ByteSize, Span},
    workload::Warmup,
};

use super::{Locations, arguments::whole, run};
use crate::{
    exit::{Blamed, Exit, Stop},
    study::{self, Conditions, GivenPlan, GivenSizes, MeasureRequest, RunSource, Test},
};
use values::{ArrivalSpread, Engines, Gap, Send, Switch};

/// The plan of `--quick`, where nothing else is said.
const QUICK_SAMPLES: u32 = 3;
const QUICK_DURATION: Span = Span::from_millis(200);
const DURATION: Span = Span::from_millis(1000);

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    ends: Ends,
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
    form: run::Form,
}

/// Between whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ends")]
struct Ends {
    /// Who answers or receives: local, ssh:HOST, libvirt:NAME of a virtual machine that
    /// libvirt runs, zone:NAME or zone:LAB/NAME of a lab that is up, also for a host or guest of it;
    /// given several times, as many pairs measure at the same time
    #[arg(long, value_name = "END", default_value = "local")]
    to: Vec<Control>,
    /// Who connects, asks or sends [default: local; for a zone, who is at the other end of its wire]
    #[arg(long, value_name = "END")]
    from: Vec<Control>,
    /// The address to measure on, one for each --to [default: the one that ssh came to, a zone's
    /// own, or by which this machine reaches the other end]
    #[arg(long, value_name = "ADDRESS")]
    to_address: Vec<IpAddr>,
    /// The same, one for each --from
    #[arg(long, value_name = "ADDRESS")]
    from_address: Vec<IpAddr>,
    /// vsock: the context identifier of each --to as the other end knows it; on one machine it needs
    /// none
    #[arg(long, value_name = "CID", value_parser = whole::<u32>)]
    to_cid: Vec<u32>,
    #[command(flatten)]
    pinned: run::Pinned,
}

/// What is sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Test")]
struct What {
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', default_value = "tcp-rr", help = values::tests_help())]
    test: Vec<Test>,
    /// rr, crr: bytes of each request [default: 1; UDP with several in flight: 8]
    #[arg(long, value_name = "SIZE")]
    request: Option<ByteSize>,
    /// rr, crr: bytes of each response [default: 1; UDP with several in flight: 8]
    #[arg(long, value_name = "SIZE")]
    response: Option<ByteSize>,
    /// Streams: bytes of each send call [default: 128KiB; UDP: what the path's MTU carries]
    #[arg(long, value_name = "SIZE")]
    message: Option<ByteSize>,
    /// Each of these in place of the three, one after the other
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', conflicts_with_all = ["request", "response", "message"])]
    sizes: Vec<ByteSize>,
    /// Flows at the same time; several numbers are swept
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1", value_parser = whole::<u32>)]
    streams: Vec<u32>,
    /// Threads that share the flows [default: one a flow (blocking), else one a CPU]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    threads: Option<u32>,
    /// blocking, epoll, busy-poll, io-uring, several of them, or all: in one run, interleaved and
    /// compared
    #[arg(long, value_name = "ENGINE,…", default_value = "blocking")]
    engine: Engines,
    /// What the CPUs of both machines do while they have nothing to do: poll keeps them from sleeping while a
    /// sample is measured, system leaves them alone
    #[arg(long, value_name = "poll|system", default_value = "system")]
    idle: Idle,
}

/// How much is sent, and when.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct Load {
    /// rr: requests of each flow in flight
    #[arg(long, value_name = "N", default_value = "1")]
    burst: Burst,
    /// rr: so many requests a second over all flows, as 500 or 10k, whether or not the responses came;
    /// times count from when a request was due
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<RequestRate>,
    /// How the requests of --rate are spread
    #[arg(long, value_enum, default_value_t = ArrivalSpread::Poisson, requires = "rate")]
    arrivals: ArrivalSpread,
    /// rr: each flow idles so long before each request, so that the path is cold; several are swept,
    /// as 0,1ms,10ms
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "0")]
    gap: Vec<Gap>,
    /// Streams: each flow sends at this rate, as 100M
    #[arg(long, value_name = "RATE")]
    bitrate: Option<BitRate>,
    /// TCP streams: how bytes get to the kernel
    #[arg(long, value_enum, default_value_t = Send::Copy)]
    send: Send,
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
    /// TCP_NODELAY [default: on for transactions, off for streams]
    #[arg(long, value_enum)]
    nodelay: Option<Switch>,
    /// SO_SNDBUF
    #[arg(long, value_name = "SIZE")]
    send_buffer: Option<ByteSize>,
    /// SO_RCVBUF
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<ByteSize>,
    /// TCP_CONGESTION, as cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<CongestionControl>,
    /// The code point of each packet, as ef or 46
    #[arg(long)]
    dscp: Option<Dscp>,
    /// SO_MAX_PACING_RATE, as 1G
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
    /// A figure for each interval of this length, as 100ms
    #[arg(long, value_name = "TIME")]
    interval: Option<Span>,
    /// rr: split the round trip by the kernel's time stamps (SO_TIMESTAMPING); it costs system calls
    #[arg(long)]
    stages: bool,
}

/// How often and how long.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
struct Sampling {
    /// Samples of each test [default: 5; of several engines as many as can show a difference]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    samples: Option<u32>,
    /// Measured time of each sample [default: 1s]
    #[arg(long)]
    duration: Option<Span>,
    /// Traffic before it: a time, as 10ms, or `steady`, until the figures are, or `steady:5s`, but
    /// not for longer
    #[arg(long, default_value = "steady")]
    warmup: Warmup,
    /// 3 samples of 200 ms
    #[arg(long)]
    quick: bool,
    /// Seed of the order of the samples [default: random, in the result]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    #[command(flatten)]
    precision: run::Precision,
    /// Folder of Unix sockets at both ends
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
}

pub(crate) fn measure(args: MeasureArgs, places: &Locations) -> Result<Exit, Stop> {
    let asked = args.asked()?;
    asked.check()?;
    let (directory, pins) = (args.sampling.dir.clone(), args.ends.pinned.pin.clone());
    // It builds no guests: those that it measures in have booted.
    let conditions = Conditions { directory, pins, kernel: None };
    let finished = study::run(RunSource::Measure(Box::new(asked)), &conditions, places)?;
    run::finish(finished, &args.form.options())
}

impl MeasureArgs {
    fn asked(&self) -> Result<MeasureRequest, Stop> {
        let What { request, response, message, .. } = self.what;
        Ok(MeasureRequest {
            endpoints: self.ends.endpoints()?,
            tests: distinct("test", &self.what.test)?,
            engines: self.what.engine.0.clone(),
            streams: distinct("streams", &self.what.streams)?,
            sizes: GivenSizes { request, response, message, swept: distinct("sizes", &self.what.sizes)? },
            gaps: distinct("gap", &self.load.gap)?.into_iter().map(|gap| gap.0).collect(),
            options: self.options(),
            plan: self.sampling.plan(),
            seed: self.sampling.seed,
            stopping: self.sampling.precision.rule()?,
        })
    }

    fn options(&self) -> TestOptions {
        let Load { burst, rate, arrivals, bitrate, send, gso, gro, .. } = self.load;
        let View { interval, stages } = self.view;
        TestOptions {
            threads: self.what.threads,
            idle: self.what.idle,
            burst,
            arrivals: rate.map(|per_second| Arrivals { per_second, process: arrivals.into() }),
            bitrate,
            sending: send.into(),
            gso,
            gro,
            socket: self.sockets.options(),
            interval,
            stages,
            ..TestOptions::default()
        }
    }
}

impl Ends {
    fn endpoints(&self) -> Result<Vec<Endpoint>, Stop> {
        for control in self.to.iter().chain(&self.from) {
            if let Control::Ssh(host) = control {
                ssh::check(host).or_input()?;
            }
        }
        check_count("to", "to-address", self.to.len(), self.to_address.len())?;
        check_count("to", "to-cid", self.to.len(), self.to_cid.len())?;
        check_count("from", "from-address", self.from.len().max(1), self.from_address.len())?;
        check_pairs(self.from.len(), self.to.len())?;
        let to = self.to.iter().enumerate().map(|(nth, control)| Endpoint {
            address: self.to_address.get(nth).copied(),
            cid: self.to_cid.get(nth).copied(),
            ..Endpoint::new(End::Responder, control.clone())
        });
        // An address is one of an end that was named.
        let named =
            if self.from.is_empty() && !self.from_address.is_empty() { &[Control::Local] } else { &self.from[..] };
        let from = named.iter().enumerate().map(|(nth, control)| Endpoint {
            address: self.from_address.get(nth).copied(),
            ..Endpoint::new(End::Initiator, control.clone())
        });
        Ok(to.chain(from).collect())
    }
}

fn check_count(ends: &str, option: &str, wanted: usize, given: usize) -> Result<(), Stop> {
    match given == 0 || given == wanted {
        true => Ok(()),
        false => {
            Err(Stop::input(anyhow!("--{option} is given {given} times for {wanted} --{ends}; give one for each")))
        }
    }
}

fn check_pairs(from: usize, to: usize) -> Result<(), Stop> {
    match from <= 1 || to == 1 || from == to {
        true => Ok(()),
        false => Err(Stop::input(anyhow!(
            "{from} --from and {to} --to don't pair off; give as many of one as of the other, or one that serves all"
        ))),
    }
}

impl Sockets {
    fn options(&self) -> SocketOptions {
        let Sockets { nodelay, send_buffer, receive_buffer, congestion, dscp, pacing, busy_poll } = *self;
        let nodelay = nodelay.map(|switch| switch == Switch::On);
        SocketOptions { nodelay, send_buffer, receive_buffer, congestion, dscp, pacing, busy_poll }
    }
}

impl Sampling {
    fn plan(&self) -> GivenPlan {
        let Sampling { samples, duration, warmup, quick, .. } = *self;
        let duration = duration.unwrap_or(if quick { QUICK_DURATION } else { DURATION });
        let samples = samples.or(quick.then_some(QUICK_SAMPLES));
        GivenPlan { samples, quick, sampling: SamplingPlan { samples: 0, duration, warmup, slices: None } }
    }
}

fn distinct<T: PartialEq + Clone>(option: &str, values: &[T]) -> Result<Vec<T>, Stop> {
    let twice = values.iter().enumerate().any(|(nth, value)| values[..nth].contains(value));
    match twice {
        true => Err(Stop::input(anyhow!("--{option} has a value twice; name each once"))),
        false => Ok(values.to_vec()),
    }
}
