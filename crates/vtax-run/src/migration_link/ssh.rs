//! Link to another machine, over ssh.

use std::{
    io::Read,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use vtax_domain::{BindError, DomainOrder, DomainReply, MigrationId, TargetLink};
use vtax_guest::migration::{MigrationCancel, MigrationChannel, OutgoingChannels};
use vtax_model::{foreign::ForeignText, topology::Name};
use vtax_sys::process::{Pid, ProcessId, Signal};
use vtax_wire::{link::AgentLink, ssh::Ssh};

use super::{Hear, ReachableTarget, channels::ChannelGroup, of_target, reception::Reception};
use crate::{
    ldm_remote::RemoteLdm,
    stop::{Blamed, Coded, Stop},
    threads::start,
};

/// Time limit for an answer of the agent in a domain there.
const LOGIN: Duration = Duration::from_secs(30);
/// Maximum number of bytes read from the other side's standard error.
const ERRORS_MOST: u64 = 4 << 10;

/// Machine that a domain is migrated to.
pub struct SshTarget {
    login: SshLogin,
    /// None before the first order, and after the connection was lost.
    orders: Option<RemoteLdm>,
    receptions: Vec<(Reception, ProcessId)>,
    channels: ChannelGroup,
}

/// The login that is repeated for each part of the domain.
#[derive(Clone)]
struct SshLogin {
    ssh: Ssh,
    host: String,
    hear: Hear,
    cancel: MigrationCancel,
}

impl SshTarget {
    /// Addresses a host in ssh's notation. `cancel` is the user's switch, and `hear` receives the host's notices.
    pub fn new(host: &str, cancel: MigrationCancel, hear: Hear) -> SshTarget {
        let login = SshLogin { ssh: Ssh::user().noticing_cuts(), host: host.to_owned(), hear, cancel };
        SshTarget { login, orders: None, receptions: Vec::new(), channels: ChannelGroup::default() }
    }

    fn give(&mut self, order: &DomainOrder) -> Result<DomainReply, Stop> {
        let mut orders = match self.orders.take() {
            Some(orders) => orders,
            None => {
                let hear = Arc::clone(&self.login.hear);
                RemoteLdm::connect(&self.login.ssh, &self.login.host, None, move |notice| hear(notice))?
            }
        };
        let answer = orders.exchange(order)?;
        self.orders = Some(orders);
        Ok(answer?)
    }

    /// Starts a process there that receives a part of the domain. Returns a socket connected to it.
    fn receive(&mut self, verb: &str, name: &Name, id: &MigrationId) -> Result<OwnedFd, Stop> {
        let sockets = UnixStream::pair().coded("kernel", || "connecting the two ends of a migration");
        let (here, there) = sockets.or_infrastructure()?;
        let reception = self.login.receive(there.into(), &format!("{verb} {name} {id}"), || {})?;
        self.receptions.push(reception);
        Ok(here.into())
    }

    fn fail(&self, stop: &Stop) -> BindError {
        of_target(&self.login.host, stop)
    }
}

impl SshLogin {
    /// Starts a process there that receives what this socket sends. `ended` is called when ssh has exited.
    fn receive(
        &self,
        socket: OwnedFd,
        words: &str,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<(Reception, ProcessId), Stop> {
        let copied = socket.try_clone().coded("kernel", || "connecting the two ends of a migration");
        let mut command = self.ssh.remote(&self.host, format!("vtax ldm {words}")).or_input()?;
        command.stdin(copied.or_infrastructure()?).stdout(socket).stderr(Stdio::piped());
        // Ctrl-C cancels the migration in order.
        command.process_group(0);
        self.start(command, ended)
    }

    /// Starts ssh and follows it in a thread. The command is dropped, and with it our copies of its ends of the socket.
    fn start(
        &self,
        mut command: Command,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<(Reception, ProcessId), Stop> {
        let child = command.spawn().coded("no-ssh-client", || format!("cannot start ssh to {}", self.host));
        let mut child = child.or_infrastructure()?;
        let process = ProcessId::of(Pid(child.id())).or_infrastructure()?;
        let (reception, end) = Reception::new(&self.hear, &self.cancel);
        start("migration", move || {
            let failed = failure(&mut child);
            ended();
            if let Some(why) = failed {
                end.fail(&why);
            }
        })
        .or_infrastructure()?;
        Ok((reception, process))
    }
}

/// Waits until ssh has exited, and returns its standard error if it failed.
fn failure(ssh: &mut Child) -> Option<ForeignText> {
    let mut told = Vec::new();
    if let Some(mut errors) = ssh.stderr.take() {
        let _ = errors.by_ref().take(ERRORS_MOST).read_to_end(&mut told);
        // It must not block on the rest.
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
    }
    let has_failed = !ssh.wait().is_ok_and(|status| status.success());
    has_failed.then(|| String::from_utf8_lossy(&told).trim().into())
}

impl TargetLink for SshTarget {
    fn order(&mut self, order: DomainOrder) -> Result<DomainReply, BindError> {
        self.give(&order).map_err(|stop| self.fail(&stop))
    }

    fn connect(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError> {
        self.receive("receive-guest", name, id).map_err(|stop| self.fail(&stop))
    }

    /// ssh itself reads from QEMU's sockets and writes to them. Each login encrypts in its own process.
    fn carry_channels(&mut self, name: &Name, id: &MigrationId, opened: OutgoingChannels) -> Result<(), BindError> {
        let (login, group, words) = (self.login.clone(), self.channels.clone(), format!("receive-channel {name} {id}"));
        let carry = move |channel: MigrationChannel, socket| {
            let of_all = group.clone();
            let (_, ssh) = login.receive(socket, &format!("{words} {channel}"), move || of_all.ended(channel))?;
            // It may have ended in the meantime.
            group.add(move || drop(ssh.signal(Signal::KILL)));
            Ok(())
        };
        let (_, end) = Reception::new(&self.login.hear, &self.login.cancel);
        self.channels.accept(opened, carry, end).map_err(|stop| self.fail(&stop))
    }

    fn close_channels(&mut self) {
        self.channels.close();
    }

    fn connect_disks(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError> {
        self.receive("receive-disk", name, id).map_err(|stop| self.fail(&stop))
    }

    /// The other side notices the bytes that arrive.
    fn beat(&mut self) {}
}

impl ReachableTarget for SshTarget {
    fn guest_agent(&mut self, domain: &Name) -> Option<AgentLink> {
        let command = self.login.ssh.remote(&self.login.host, format!("vtax ldm reach-agent {domain}")).ok()?;
        AgentLink::spawn(&format!("domain {domain} at {}", self.login.host), command, LOGIN).ok()
    }
}

impl Drop for SshTarget {
    fn drop(&mut self) {
        self.channels.close();
        for (reception, ssh) in &self.receptions {
            if !reception.wait() {
                // It may have ended in the meantime.
                let _ = ssh.signal(Signal::KILL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_in_the_words_of_the_other_side_up_to_a_limit() {
        let run = |script: &str| {
            let mut command = Command::new("sh");
            let child = command.args(["-c", script]).stderr(Stdio::piped()).spawn();
            failure(&mut child.expect("a shell")).map(|why| why.raw().to_owned())
        };
        assert_eq!(run("echo warning >&2"), None);
        assert_eq!(run("echo no such domain >&2; exit 2"), Some("no such domain".to_owned()));
        let long = run("yes x | head -c 1000000 >&2; exit 1").expect("it fails");
        assert!(long.len() <= 4096, "{}", long.len());
    }
}
