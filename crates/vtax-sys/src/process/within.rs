//! Processes in PID namespaces below this one.

use std::fs;

use super::{Pid, all_pids};

/// Returns the processes with this name that have this pid in the innermost PID namespace that they are in
/// (pid_namespaces(7)). There may be several, because each namespace counts for itself.
pub fn named_within(name: &str, inner: Pid) -> Vec<Pid> {
    let all = all_pids().unwrap_or_default().into_iter();
    all.filter(|pid| is_within(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default(), name, inner))
        .collect()
}

/// Reads a status of proc_pid_status(5).
fn is_within(status: &str, name: &str, inner: Pid) -> bool {
    let field = |key: &str| status.lines().find_map(|line| Some(line.strip_prefix(key)?.trim()));
    let innermost = field("NSpid:").and_then(|pids| pids.split_ascii_whitespace().last()?.parse().ok());
    field("Name:") == Some(name) && innermost == Some(inner.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_name_and_its_innermost_pid() {
        let status = |pids: &str| format!("Name:\tvtax-agent\nPid:\t4711\nNSpid:\t{pids}\nThreads:\t1\n");
        assert!(is_within(&status("4711\t12\t7"), "vtax-agent", Pid(7)));
        assert!(is_within(&status("7"), "vtax-agent", Pid(7)));
        for (pids, name) in [("4711\t7\t12", "vtax-agent"), ("7", "vtax"), ("", "vtax-agent")] {
            assert!(!is_within(&status(pids), name, Pid(7)), "{pids} {name}");
        }
    }

    #[test]
    fn this_process_is_found() {
        let name = fs::read_to_string("/proc/self/comm").expect("it has a name");
        assert!(named_within(name.trim_end(), Pid::own()).contains(&Pid::own()));
    }
}
