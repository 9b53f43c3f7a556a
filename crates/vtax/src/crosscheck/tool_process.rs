//! Servers and clients of other tools, on the rig and the CPUs of vtax's own agents.

use std::{
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use miette::bail;
use vtax_run::rig::{PEER, Rig, SUT};
use vtax_sys::deadline::finish_within;

use super::{
    contest::{Contest, Length},
    tool::{Tool, ToolCommand},
};
use crate::exit::Coded;

/// The wire of all tests.
pub(super) const WIRE: &str = "wire";

/// The time that vtax waits for a server, since no tool reports when it listens.
const SERVER_START: Duration = Duration::from_millis(300);
/// The time that a client may take in addition to its measured time.
const MARGIN: Duration = Duration::from_secs(15);

/// A process of another tool. It is killed when this is dropped.
pub(super) struct ToolProcess(Child);

impl ToolProcess {
    pub(super) fn server(rig: &Rig, tool: &Tool, contest: &Contest) -> miette::Result<ToolProcess> {
        let peer = rig.endpoint(PEER, WIRE)?;
        let mut command = pinned(rig, (tool.server)(contest, peer.address), 1);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = ToolProcess(rig.lab.spawn(peer, command)?);
        thread::sleep(SERVER_START);
        match server.0.try_wait().coded("tool-failed", || tool.name)? {
            Some(status) => bail!(code = "tool-failed", "the server of {} exited immediately: {status}", tool.name),
            None => Ok(server),
        }
    }

    /// Runs a client at the initiator, and returns its output. A client that takes far too long is killed.
    pub(super) fn client(rig: &Rig, tool: &Tool, contest: &Contest, length: Length) -> miette::Result<String> {
        let peer = rig.endpoint(PEER, WIRE)?.address;
        let mut command = pinned(rig, (tool.client)(contest, peer, length), 0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = rig.lab.spawn(rig.endpoint(SUT, WIRE)?, command)?;
        let output =
            finish_within(client, contest.duration.0 + contest.warmup.0 + MARGIN).coded("tool-failed", || tool.name)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => bail!(
                code = "tool-failed",
                "{}: {}{}",
                tool.name,
                text.trim(),
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }
    }
}

fn pinned(rig: &Rig, call: ToolCommand, side: usize) -> Command {
    let mut words = match rig.cpus() {
        Some(cpus) => vec!["taskset".to_owned(), "-c".to_owned(), cpus[side].to_string()],
        None => Vec::new(),
    };
    words.extend(call);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

impl Drop for ToolProcess {
    fn drop(&mut self) {
        // The process may have exited, which the contest has noticed then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
