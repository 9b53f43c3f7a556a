//! Runs this program in the server with the same arguments, passes its output on, and ends with its status.

use std::{env, ffi::OsString, path::Path};

use super::{EmulatedServerUp, ServerRequest, Stay, programs::PROGRAM};
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    remote_command::{read_input_for, show, word},
};

/// The environment variables that a program in the server gets from here.
const PASSED: [&str; 7] = ["HOME", "PATH", "XDG_CACHE_HOME", "VTAX_KERNEL", "VTAX_QEMU", "NO_COLOR", "TERM"];
/// Results stay in the memory of the server; the vtax outside keeps them.
const STATE: &str = "VTAX_STATE=/run/vtax-state";

/// Has the command line of this process carried out in the server, and ends with its status.
pub(crate) fn relay(request: &ServerRequest<'_>, has_input: bool) -> Result<Exit, Stop> {
    carry_out(request, &command(None, own_arguments().or_input()?).or_input()?, has_input)
}

pub(crate) fn exec(request: &ServerRequest<'_>, program: &[OsString]) -> Result<Exit, Stop> {
    let program = program.iter().cloned().map(text).collect::<miette::Result<_>>().or_input()?;
    carry_out(request, &with_environment(program).or_input()?, true)
}

fn carry_out(request: &ServerRequest<'_>, command: &[String], has_input: bool) -> Result<Exit, Stop> {
    let input = if has_input { read_input_for("a command in the emulated server")? } else { Vec::new() };
    let site = request.enter()?;
    let Some(mut server) = request.server(&site)? else { return Ok(Exit::Interrupted) };
    let ran = server.run(command, &input, &site.interrupt, |stream, bytes| {
        // If nobody reads any more, the program in the server goes on all the same.
        let _ = show(stream, bytes);
        true
    });
    let done = matches!(ran, Ok(0)) && request.stay == Stay::Kept;
    if done && !server.found {
        server.keep()?;
        tell!(
            "server: {} stays up with what was built in it; reach it with --server emulated, remove it with: vtax server down",
            server.machine.spec
        );
    } else {
        leave(server, &ran)?;
    }
    Ok(Exit::Child(u8::try_from(ran.or_infrastructure()?).unwrap_or(u8::MAX)))
}

/// Leaves the server. If the command failed too, an error of leaving is only printed.
fn leave(server: EmulatedServerUp, ran: &miette::Result<i32>) -> Result<(), Stop> {
    match (server.leave(), ran) {
        (Err(error), Err(_)) => {
            tell!("vtax: {error:#}");
            Ok(())
        }
        (left, _) => left.or_infrastructure(),
    }
}

/// The words that run this program in the server. `from` is the file of the run that is to go on.
pub(super) fn command(from: Option<&Path>, arguments: Vec<String>) -> miette::Result<Vec<String>> {
    let mut words = vec![PROGRAM.to_owned(), "--relay".to_owned()];
    if let Some(from) = from {
        words.extend(["--relay-from".to_owned(), text(from.as_os_str().to_owned())?]);
    }
    with_environment([words, arguments].concat())
}

/// The words that run a program in the current directory with the environment that is passed on.
fn with_environment(program: Vec<String>) -> miette::Result<Vec<String>> {
    let folder = text(env::current_dir().coded("file", || "finding the current directory")?.into_os_string())?;
    let mut command = vec!["/usr/bin/env".to_owned(), "-C".to_owned(), folder, STATE.to_owned()];
    for name in PASSED {
        if let Some(value) = env::var_os(name) {
            command.push(format!("{name}={}", text(value)?));
        }
    }
    command.extend(program);
    Ok(command)
}

pub(super) fn own_arguments() -> miette::Result<Vec<String>> {
    let arguments: Vec<String> = env::args_os().skip(1).map(text).collect::<miette::Result<_>>()?;
    Ok(without_server(arguments))
}

fn without_server(arguments: Vec<String>) -> Vec<String> {
    let mut left = arguments.into_iter();
    let mut kept = Vec::new();
    while let Some(argument) = left.next() {
        match argument.as_str() {
            "--" => {
                kept.push(argument);
                kept.extend(left.by_ref());
            }
            "--server" => drop(left.next()),
            with_value if with_value.starts_with("--server=") => {}
            _ => kept.push(argument),
        }
    }
    kept
}

fn text(text: OsString) -> miette::Result<String> {
    word(text, "server")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::CommandLine;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_option_is_taken_out_wherever_it_is_but_not_of_a_command() {
        for (given, left) in [
            ("io list --server emulated", "io list"),
            ("--server emulated:nics=2 io list -l", "io list -l"),
            ("io --server=emulated list", "io list"),
            ("lab exec --server emulated a b -- vtax --server x", "lab exec a b -- vtax --server x"),
        ] {
            assert_eq!(without_server(words(given)), words(left), "{given}");
        }
    }

    #[test]
    fn this_program_is_run_in_this_directory_with_results_in_memory() {
        let command = command(None, words("io list")).expect("all is UTF-8");
        let folder = env::current_dir().expect("there is one").to_string_lossy().into_owned();
        assert_eq!(command[..4], ["/usr/bin/env", "-C", &folder, "VTAX_STATE=/run/vtax-state"]);
        assert!(command.iter().any(|word| word.starts_with("PATH=")), "{command:?}");
        assert_eq!(command[command.len() - 3..], ["--relay", "io", "list"]);
    }

    #[test]
    fn this_program_understands_it() {
        let understood = |from, arguments| {
            let command = command(from, words(arguments)).expect("all is UTF-8");
            let own = command.into_iter().skip_while(|word| word != PROGRAM);
            CommandLine::try_parse_from(own).unwrap_or_else(|error| panic!("{arguments}: {error}"))
        };
        understood(None, "io list");
        understood(None, "lab exec a b -- vtax --server x");
        understood(None, "run sparc-t7-1 --quick --cable 02:76:74:00:00:01,02:76:74:00:00:02");
        understood(Some(Path::new("/run/old.json")), "run --resume last");
    }
}
