//! The processes that live in a lab: those of the lab, which end with it, and foreign ones.
//!
//! A process is the lab's if it is in a namespace of the lab's journal *and* has the lab's mark in its environment.
//! Every program that is started through the lab has the mark, and passes it on to its children.

use std::{collections::HashSet, fs, os::unix::fs::MetadataExt, thread, time::Duration};

use vtax_model::topology::Name;
use vtax_step::PROCESS_MARK;
use vtax_sys::{
    SysError,
    netns::{NetNs, NsId},
    process::{Pid, ProcessId, kill_all},
};

/// Time for a killed process to exit, unless the kernel blocks it.
const PATIENCE: Duration = Duration::from_secs(2);
/// A process may fork during the search, so the search is repeated.
const ROUNDS: usize = 3;
/// A process being started by a killed vtax has no mark until it executes its program.
const STARTING: Duration = Duration::from_millis(50);

/// Namespaces with processes, found by one skip all: a thousand zones must not take a thousand passes.
#[derive(Debug)]
pub(crate) struct Census {
    occupied: HashSet<String>,
}

impl Census {
    pub(crate) fn take() -> Census {
        let mut occupied = HashSet::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_process = entry.file_name().to_string_lossy().parse::<u32>().is_ok();
            if let (true, Ok(namespace)) = (is_process, fs::metadata(entry.path().join("ns/net"))) {
                occupied.insert(format!("{}:{}", namespace.dev(), namespace.ino()));
            }
        }
        Census { occupied }
    }

    pub(crate) fn is_occupied(&self, namespace: NsId) -> bool {
        self.occupied.contains(&namespace.to_string())
    }
}

/// Ends the lab's processes in a namespace. Returns those that vtax did not start, each with its program.
pub(crate) fn evict(namespace: &NetNs, lab: &Name) -> Result<Vec<String>, SysError> {
    for _ in 0..ROUNDS {
        let (ours, strangers): (Vec<_>, Vec<_>) =
            namespace.processes()?.into_iter().partition(|process| is_marked(process.pid, lab));
        match (ours.is_empty(), strangers.is_empty()) {
            (true, true) => return Ok(Vec::new()),
            (true, false) => thread::sleep(STARTING),
            (false, _) => kill_all(&ours, PATIENCE)?,
        }
    }
    Ok(namespace.processes()?.into_iter().map(holder).collect())
}

fn is_marked(pid: Pid, lab: &Name) -> bool {
    let wanted = format!("{PROCESS_MARK}={lab}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn holder(process: ProcessId) -> String {
    let program = fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
    format!("process {} ({})", process.pid, program.trim_end())
}
