//! The command that starts an agent on a remote host.
//!
//! The user's own ssh configuration rules: names, keys, ports, jump hosts. What is fixed is
//! what a control stream needs: no terminal (it would change bytes), and no questions, as
//! nobody is there to answer them on it.

use std::process::Command;

/// A host that ssh must not be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshHostError {
    /// No name.
    #[error("the name of the remote host is empty; give it as ssh takes it: HOST or USER@HOST")]
    Empty,
    /// ssh would take it for an option, and some options run commands here.
    #[error("`{host}` is no remote host: neither a user's name nor a host's begins with `-`")]
    Option {
        /// As given.
        host: String,
    },
    /// Spaces and control characters have no place in a name.
    #[error("`{}` is no remote host: there is a space or a control character in it", host.escape_debug())]
    Character {
        /// As given.
        host: String,
    },
}

/// The agent on `host` (as ssh takes it), found there on the PATH. Start it with
/// [`AgentLink::spawn`](crate::link::AgentLink::spawn).
pub fn command(host: &str) -> Result<Command, SshHostError> {
    check(host)?;
    let mut command = Command::new("ssh");
    command.args(["-T", "-o", "BatchMode=yes", host, "vtax-agent", "--stdio"]);
    Ok(command)
}

fn check(host: &str) -> Result<(), SshHostError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_as_documented() {
        let command = command("root@sut.example").expect("a host");
        let line: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        assert_eq!(line, ["ssh", "-T", "-o", "BatchMode=yes", "root@sut.example", "vtax-agent", "--stdio"]);
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_refused() {
        for host in ["-oProxyCommand=reboot", "root@-oProxyCommand=reboot"] {
            assert_eq!(command(host).map(drop), Err(SshHostError::Option { host: host.into() }));
        }
        assert_eq!(command("").map(drop), Err(SshHostError::Empty));
        assert!(matches!(command("a b"), Err(SshHostError::Character { .. })));
        assert!(matches!(command("a\n"), Err(SshHostError::Character { .. })));
    }
}
