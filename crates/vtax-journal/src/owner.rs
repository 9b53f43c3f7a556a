//! Process that started a job.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Process that created a journal, for people to read. Only the lock shows whether it is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub pid: u32,
    /// Start of the process in clock ticks since boot (field 22 of `/proc/PID/stat`). The kernel reuses pids; pid and
    /// start together identify one process.
    pub started: u64,
    pub command: String,
    /// Creation time of the journal, in seconds since 1970.
    pub since: u64,
}

impl Owner {
    /// Returns this process as the owner.
    pub fn current() -> Owner {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Owner {
            pid: std::process::id(),
            started: start_ticks(&stat).unwrap_or(0),
            command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        }
    }
}

/// Parses the start time, after the last parenthesis. The second field, the program's name, is in parentheses and may
/// contain anything.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_spaces_and_parentheses_is_skipped() {
        let fields: Vec<String> = (3..=30).map(|n| n.to_string()).collect();
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        assert_eq!(start_ticks(&stat), Some(22));
        assert_eq!(start_ticks("no parenthesis"), None);
    }

    #[test]
    fn this_process_has_started() {
        assert!(Owner::current().started > 0);
    }
}
