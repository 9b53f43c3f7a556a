//! The last messages of a guest and its QEMU, for errors.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use rustix::fs::statvfs;
use vtax_model::foreign::ForeignText;

use super::launch::Launch;

/// Maximum number of lines in an error.
const LINES: usize = 12;
const TAIL: u64 = 16 << 10;

/// Last output of a guest, for an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastWords {
    /// The last lines of its console.
    pub console: Vec<ForeignText>,
    /// True if the console's log is full, so that these lines aren't the last.
    pub is_full: bool,
    /// The last lines of QEMU's own messages.
    pub qemu: Vec<ForeignText>,
}

impl LastWords {
    pub(super) fn of(launch: &Launch) -> LastWords {
        let log = launch.console_log();
        let is_full = statvfs(&log).is_ok_and(|disk| disk.f_bavail == 0);
        LastWords { console: tail(&log), is_full, qemu: tail(&launch.stderr_log()) }
    }

    /// Returns true if QEMU ran out of memory, according to GLib's message.
    pub(super) fn lacks_memory(&self) -> bool {
        self.qemu.iter().any(|line| line.raw().contains("failed to allocate"))
    }

    /// Returns true if the guest's kernel reports that it waits for a processor whose timer has stopped.
    pub(super) fn has_lost_timer(&self) -> bool {
        self.console.iter().any(|line| line.raw().contains("kthread timer wakeup didn't happen"))
    }

    /// Returns the cause of the guest's end, if its kernel reports one, to follow "ended": Linux panics when it must
    /// kill the agent.
    pub(super) fn cause(&self) -> &'static str {
        let said = |part: &str| self.console.iter().any(|line| line.raw().contains(part));
        if said("Kernel panic - not syncing: System is deadlocked on memory") {
            " (it ran out of memory; increase `memory`)"
        } else if said("Kernel panic") {
            " (its kernel panicked)"
        } else {
            ""
        }
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let console = match self.is_full {
            true => "its console before its log was full",
            false => "its console",
        };
        for (who, lines) in [("QEMU", &self.qemu), (console, &self.console)] {
            if !lines.is_empty() {
                write!(f, "; last output of {who}:")?;
            }
            for line in lines {
                write!(f, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

/// The last lines of a log, without control sequences. A missing log has no lines.
fn tail(path: &Path) -> Vec<ForeignText> {
    let text = read_tail(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines: Vec<String> = text.lines().map(printable).filter(|line| !line.is_empty()).collect();
    // A register dump follows this line.
    if let Some(panic) = lines.iter().position(|line| line.contains("Kernel panic")) {
        lines.truncate(panic + 1);
    }
    lines.drain(..lines.len().saturating_sub(LINES));
    lines.into_iter().map(ForeignText::from).collect()
}

fn read_tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = fs::metadata(path)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Omits control characters and escape sequences: the firmware clears the screen.
fn printable(line: &str) -> String {
    let mut kept = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.peek() == Some(&'[') => {
                letters.next();
                // A sequence ends with a byte from `@` to `~` (ECMA-48, 5.4).
                while letters.next().is_some_and(|letter| !('@'..='~').contains(&letter)) {}
            }
            '\x1b' => {
                letters.next();
            }
            letter if letter.is_control() => {}
            letter => kept.push(letter),
        }
    }
    kept.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_timer_is_reported_by_the_guests_kernel() {
        let saying = |line: &str| LastWords { console: vec![line.into()], ..LastWords::default() };
        let report = "[   26.8] rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies!";
        assert!(saying(report).has_lost_timer());
        assert!(!saying("[   26.8] rcu: INFO: rcu_preempt self-detected stall on CPU").has_lost_timer());
    }

    #[test]
    fn escape_sequences_of_the_firmware_are_omitted() {
        assert_eq!(printable("\x1bc\x1b[?7l\x1b[2J\x1b[0mSeaBIOS (version 1.16)\r"), "SeaBIOS (version 1.16)");
        assert_eq!(printable("\x1b[12"), "");
        assert_eq!(printable("\x1b"), "");
    }
}
