//! Programs that go on beside the one that starts them, and say when they are ready.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// What such a program prints first.
const READY: &str = "ready";

/// Starts a program, and waits until it says that it is ready ([`say_ready`]). It outlives this one, and Ctrl-C in this
/// terminal doesn't end it.
///
/// # Errors
/// Why it can't be started, or how it has ended instead and what it said.
pub fn start(mut command: Command) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("can't be started ({error})"))?;
    let mut line = String::new();
    let output = child.stdout.take().map(BufReader::new);
    let heard = output.is_some_and(|mut output| output.read_line(&mut line).is_ok());
    if heard && line.trim() == READY {
        return Ok(());
    }
    let mut told = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // If this can't be read, the exit status below still says something.
        let _ = errors.read_to_string(&mut told);
    }
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(format!("did not start ({status}): {}", told.trim()))
}

/// Tells the program that started this one that it needn't wait any more. That may be gone already.
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
    fn it_is_ready_or_says_why_not() {
        assert_eq!(shell("echo ready; sleep 0.2"), Ok(()));
        let error = shell("echo no luck >&2; exit 3").expect_err("it has ended");
        assert_eq!(error, "did not start (exit status: 3): no luck");
        let error = start(Command::new("/no/such/program")).expect_err("there is none");
        assert!(error.starts_with("can't be started (No such file"), "{error}");
    }
}
