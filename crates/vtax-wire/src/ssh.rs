//! Starts an agent on a remote host by the user's own ssh (see [`carry`](crate::carry)).
//!
//! Names, keys, ports and jump hosts come from `~/.ssh/config`. Only what a control stream requires is set: no terminal,
//! because it would alter bytes, and no prompts.

mod error;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::Command,
    time::Duration,
};

pub use error::{SshError, SshHostError};

use crate::{carry::CarriedAgent, link::AgentLink};

/// Logs in to `host`, as ssh interprets it, and starts an agent there. It uses the agent in the PATH if that has this
/// version, or else a copy of `program` that leaves no trace.
///
/// `deadline` applies to each stage, and starts again with every part of the copy that is sent.
pub fn connect(host: &str, program: &Path, deadline: Duration) -> Result<AgentLink, SshError> {
    Ssh::user().connect(host, program, deadline)
}

/// Checks that it is safe to pass this name to ssh.
pub fn check(host: &str) -> Result<(), SshHostError> {
    let owned = || host.to_owned();
    if host.is_empty() {
        return Err(SshHostError::Empty);
    }
    if host.split('@').any(|part| part.starts_with('-')) {
        return Err(SshHostError::Option { host: owned() });
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(SshHostError::Character { host: owned() });
    }
    Ok(())
}

/// A program that runs a command on another host.
#[derive(Debug, Clone)]
pub struct Ssh {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Ssh {
    /// The user's own ssh.
    pub fn user() -> Ssh {
        Ssh::by("ssh", ["-T", "-o", "BatchMode=yes"])
    }

    /// Another program. After these arguments it gets the host and the command, like ssh.
    pub fn by<A: Into<OsString>>(program: impl Into<OsString>, arguments: impl IntoIterator<Item = A>) -> Ssh {
        Ssh { program: program.into(), arguments: arguments.into_iter().map(Into::into).collect() }
    }

    /// Returns an ssh that gives up within 10 s if the host doesn't answer, or stops answering. Otherwise TCP would
    /// wait for about a quarter of an hour.
    pub fn noticing_cuts(mut self) -> Ssh {
        let options = ["ConnectTimeout=10", "ServerAliveInterval=3", "ServerAliveCountMax=3"];
        self.arguments.extend(options.iter().flat_map(|option| ["-o".into(), option.into()]));
        self
    }

    /// Returns ssh with a command for the remote host's login shell.
    pub fn remote(&self, host: &str, words: impl AsRef<OsStr>) -> Result<Command, SshHostError> {
        check(host)?;
        Ok(self.command(host, words))
    }

    fn command(&self, host: &str, words: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(host).arg(words);
        command
    }

    /// See [`connect`].
    pub fn connect(&self, host: &str, program: &Path, deadline: Duration) -> Result<AgentLink, SshError> {
        check(host)?;
        let name = format!("ssh:{host}");
        let agent = CarriedAgent { place: host, name: &name, program, deadline };
        agent.start(|script| self.command(host, script.login_command())).map_err(|error| SshError::at(host, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carry::CarryScript;

    #[test]
    fn the_command_is_as_documented() {
        let script = CarryScript::new("vtax-agent 1", 7);
        let command = Ssh::user().remote("root@sut.example", script.login_command()).expect("a host");
        let line: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        assert_eq!(line[..5], ["ssh", "-T", "-o", "BatchMode=yes", "root@sut.example"]);
        assert_eq!(line[5..], [&*script.login_command()]);
    }

    #[test]
    fn a_host_that_ssh_would_read_as_an_option_is_refused() {
        for host in ["-oProxyCommand=reboot", "root@-oProxyCommand=reboot"] {
            assert_eq!(check(host), Err(SshHostError::Option { host: host.into() }));
        }
        assert_eq!(check(""), Err(SshHostError::Empty));
        assert!(matches!(check("a b"), Err(SshHostError::Character { .. })));
        assert!(matches!(check("a\n"), Err(SshHostError::Character { .. })));
        assert_eq!(check("root@sut.example"), Ok(()));
    }
}
