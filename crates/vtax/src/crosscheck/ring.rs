//! The wire, and everyone's ends on it: our agents, the others' servers and clients.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use vtax_lab::World;
use vtax_model::{
    options::CongestionControl,
    result::{Disturbance, Metric},
};
use vtax_sys::deadline::finish_within;

use super::{
    contest::{Contest, Length},
    tool::{Tool, ToolCommand},
};
use crate::{
    calibrate::LoadMeter,
    cli::Locations,
    exit::{Blamed, Stop},
    rig::{PEER, Rig, SUT},
};

const WIRE: &str = "wire";

/// No tool says when it listens; this is what it is given.
const SERVER_START: Duration = Duration::from_millis(300);
/// What a client may take beyond the time that it measures.
const MARGIN: Duration = Duration::from_secs(15);

/// Two hosts on a wire; ours and theirs have the same two CPUs.
pub(super) struct Ring(Rig);

impl Ring {
    pub(super) fn build(
        world: &World,
        congestion: Option<CongestionControl>,
        places: &Locations,
    ) -> Result<Ring, Stop> {
        let wire = format!("[[wire]]\nname = \"{WIRE}\"\nends = [\"{SUT}\", \"{PEER}\"]\n");
        let ring = Ring(Rig::build(world, "crosscheck", &wire, places)?);
        if let Some(name) = congestion {
            ring.set_congestion(name).or_input()?;
        }
        Ok(ring)
    }

    fn set_congestion(&self, name: CongestionControl) -> anyhow::Result<()> {
        let ends = [self.0.endpoint(SUT, WIRE)?, self.0.endpoint(PEER, WIRE)?];
        self.0.lab.set_congestion(ends, name).with_context(|| {
            format!("--congestion {name} (those that are loaded: /proc/sys/net/ipv4/tcp_available_congestion_control)")
        })
    }

    pub(super) fn down(self) -> anyhow::Result<()> {
        self.0.down()
    }

    pub(super) fn cpus(&self) -> Option<[u32; 2]> {
        self.0.cpus()
    }

    /// Our figure, and what others took of the machine meanwhile.
    pub(super) fn ours(&self, contest: &Contest) -> anyhow::Result<(f64, Disturbance)> {
        let meter = LoadMeter::open(&self.0)?;
        let begun = meter.read()?;
        let figures = self.0.sample(&contest.spec(), WIRE)?;
        let figure = match contest.metric() {
            Metric::Goodput => figures.goodput_mbps(),
            Metric::Rtt | Metric::Real | Metric::Cpu => figures.rtt_us(),
        };
        Ok((figure, meter.since(&begun)?))
    }

    /// A server of another tool, at the far end.
    pub(super) fn serve(&self, tool: &Tool, contest: &Contest) -> anyhow::Result<ServerProcess> {
        let peer = self.0.endpoint(PEER, WIRE)?;
        let mut command = self.pinned((tool.server)(contest, peer.address), 1);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = ServerProcess(self.0.lab.spawn(peer, command)?);
        thread::sleep(SERVER_START);
        match server.0.try_wait()? {
            Some(status) => bail!("the server of {} ended at once: {status}", tool.name),
            None => Ok(server),
        }
    }

    /// What its client prints. It is ended if it takes far longer than it was told to.
    pub(super) fn client(&self, tool: &Tool, contest: &Contest, length: Length) -> anyhow::Result<String> {
        let peer = self.0.endpoint(PEER, WIRE)?.address;
        let mut command = self.pinned((tool.client)(contest, peer, length), 0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = self.0.lab.spawn(self.0.endpoint(SUT, WIRE)?, command)?;
        let most = contest.duration.0 + contest.warmup.0 + MARGIN;
        let output = finish_within(client, most).with_context(|| tool.name)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => bail!("{}: {}{}", tool.name, text.trim(), String::from_utf8_lossy(&output.stderr).trim()),
        }
    }

    fn pinned(&self, call: ToolCommand, side: usize) -> Command {
        let mut words = match self.0.cpus() {
            Some(cpus) => vec!["taskset".to_owned(), "-c".to_owned(), cpus[side].to_string()],
            None => Vec::new(),
        };
        words.extend(call);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command
    }
}

/// A process of ours, ended with the value.
pub(super) struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself, which the contest has noticed then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
