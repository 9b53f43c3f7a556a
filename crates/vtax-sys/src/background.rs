//! Background programs that outlive their starter and report when they are ready.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// First line that a background program prints.
const READY: &str = "ready";

/// Starts a program and waits until it reports that it is ready ([`say_ready`]). It outlives this process, and Ctrl-C
/// in this terminal doesn't end it.
///
/// # Errors
/// The reason why it cannot be started, or its exit status and output if it has ended instead.
pub fn start(mut command: Command) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("cannot be started ({error})"))?;
    let mut line = String::new();
    let output = child.stdout.take().map(BufReader::new);
    let heard = output.is_some_and(|mut output| output.read_line(&mut line).is_ok());
    if heard && line.trim() == READY {
        return Ok(());
    }
    let mut told = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // If this cannot be read, the exit status below is still informative.
        let _ = errors.read_to_string(&mut told);
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(format!("did not start ({status}): {}", told.trim()))
}

/// Reports readiness to the program that started this one, which may already have exited.
pub fn say_ready() {
    let _ = writeln!(std::io::stdout(), "{READY}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        start(command)
    }

    #[test]
    fn it_is_ready_or_reports_the_reason() {
        assert_eq!(shell("echo ready; sleep 0.2"), Ok(()));
        let error = shell("echo no luck >&2; exit 3").expect_err("it has ended");
        assert_eq!(error, "did not start (exit status: 3): no luck");
        let error = start(Command::new("/no/such/program")).expect_err("there is none");
        assert!(error.starts_with("cannot be started (No such file"), "{error}");
    }
}
