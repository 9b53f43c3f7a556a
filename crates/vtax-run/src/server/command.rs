//! Runs a program in the server, usually this one.

use std::{env, ffi::OsString, path::Path};

use vtax_wire::{guest::STATE, protocol::Stream};

use super::{
    EmulatedServerUp, ServerRequest, Stay,
    programs::{PROGRAM, PROGRAMS},
};
use crate::{
    remote_command::word,
    stop::{Blamed, Coded, Stop},
};

/// Verb of this program that executes the job in a file and writes events as lines.
pub const JOB_VERB: &str = "job";
/// Environment variables passed to a program in the server.
const PASSED: [&str; 7] = ["HOME", "PATH", "XDG_CACHE_HOME", "VTAX_KERNEL", "VTAX_QEMU", "NO_COLOR", "TERM"];

/// Words that run a program in the server as it would run here: in this directory, with this environment.
#[derive(Debug, Clone)]
pub struct ServerCommand(Vec<String>);

impl ServerCommand {
    /// Any program.
    pub fn of(program: impl IntoIterator<Item = OsString>) -> miette::Result<ServerCommand> {
        let folder = env::current_dir().coded("file", || "finding the current directory")?;
        ServerCommand::within(text(folder.into_os_string())?, program)
    }

    fn within(folder: String, program: impl IntoIterator<Item = OsString>) -> miette::Result<ServerCommand> {
        let state = format!("VTAX_STATE={STATE}");
        let mut command = vec!["/usr/bin/env".to_owned(), "-C".to_owned(), folder, state];
        for name in PASSED {
            if let Some(value) = env::var_os(name) {
                // The server's own programs come first: its `reboot` belongs to the agent, not to this machine's init.
                let own = if name == "PATH" { format!("{PROGRAMS}:") } else { String::new() };
                command.push(format!("{name}={own}{}", text(value)?));
            }
        }
        let program = program.into_iter().map(text).collect::<miette::Result<Vec<String>>>()?;
        Ok(ServerCommand([command, program].concat()))
    }

    /// This program with these arguments.
    pub fn of_vtax(arguments: impl IntoIterator<Item = OsString>) -> miette::Result<ServerCommand> {
        ServerCommand::of([PROGRAM.into()].into_iter().chain(arguments))
    }

    /// Does the same in another directory.
    pub(super) fn of_vtax_in(
        folder: &str,
        arguments: impl IntoIterator<Item = OsString>,
    ) -> miette::Result<ServerCommand> {
        ServerCommand::within(folder.to_owned(), [PROGRAM.into()].into_iter().chain(arguments))
    }

    pub(super) fn of_job(file: &Path) -> miette::Result<ServerCommand> {
        ServerCommand::of_vtax([JOB_VERB.into(), file.into()])
    }

    pub(super) fn words(&self) -> &[String] {
        &self.0
    }
}

impl ServerRequest<'_> {
    /// Runs a command in the server, and returns its exit status. None if the user asked to stop before it began.
    pub fn carry_out(
        &self,
        command: &ServerCommand,
        input: &[u8],
        mut on_output: impl FnMut(Stream, &[u8]),
    ) -> Result<Option<i32>, Stop> {
        let site = self.enter()?;
        let Some(mut server) = self.server(&site)? else { return Ok(None) };
        let ran = server.run(command.words(), input, &site.interrupt, |stream, bytes| {
            on_output(stream, bytes);
            true
        });
        let done = matches!(ran, Ok(0)) && self.stay == Stay::Kept;
        if done && !server.found {
            server.keep()?;
            self.events.tell(format_args!(
                "server: {} stays up with everything built in it; use it with --server emulated, remove it with: vtax \
                 server down",
                server.machine.spec
            ));
        } else {
            self.leave(server, &ran)?;
        }
        ran.map(Some).or_infrastructure()
    }

    /// Leaves the server. If the command failed as well, an error of leaving is only reported.
    fn leave(&self, server: EmulatedServerUp, ran: &miette::Result<i32>) -> Result<(), Stop> {
        match (server.leave(), ran) {
            (Err(error), Err(_)) => {
                self.events.tell(format_args!("vtax: {error:#}"));
                Ok(())
            }
            (left, _) => left.or_infrastructure(),
        }
    }
}

pub(super) fn text(text: OsString) -> miette::Result<String> {
    word(text, "server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_run_in_this_directory_with_its_state_on_the_disk() {
        let ServerCommand(words) = ServerCommand::of_vtax(["io", "list"].map(OsString::from)).expect("all is UTF-8");
        let folder = env::current_dir().expect("there is one").to_string_lossy().into_owned();
        assert_eq!(words[..4], ["/usr/bin/env", "-C", &folder, "VTAX_STATE=/run/vtax-state"]);
        assert!(words.iter().any(|word| word.starts_with("PATH=/run/vtax-programs:")), "{words:?}");
        assert_eq!(words[words.len() - 3..], [PROGRAM, "io", "list"]);
    }
}
