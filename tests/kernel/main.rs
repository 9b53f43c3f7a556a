//! vtax end to end, on the real kernel: studies, labs, and every kind of failure.
//!
//! Requires root. Every lab consists of separate namespaces; no test touches a link of the machine.

mod advice;
#[path = "../bench.rs"]
#[allow(dead_code, reason = "the tests of the command line use more of it")]
mod bench;
mod container_networks;
mod containers;
#[path = "../crash.rs"]
mod crash;
mod crashes;
mod deaths;
mod disks;
mod domain_disk_copies;
mod domain_disk_crashes;
mod domain_disks;
mod domain_exec;
mod domain_faults;
mod domain_images;
mod domain_labs;
mod domain_measured_disks;
mod domain_migration_results;
mod domain_migrations;
mod domain_own_fio;
mod domain_paths;
mod domain_switches;
mod domain_verbs;
mod domains;
mod ends;
mod fleet;
mod guests;
mod halted;
mod host;
mod journals;
mod lab_guests;
mod labs;
mod measure;
mod migrations;
mod modes;
mod multicast;
mod packages;
mod plans;
mod pod_study;
mod pods;
mod proofs;
mod queues;
mod reboots;
mod remote;
mod remote_domains;
mod results;
mod rootless;
mod size_proofs;
mod studies;
mod system_boots;
#[path = "../transcript.rs"]
mod transcript;
mod transcripts;
mod truths;
mod tuning;
mod tuning_crashes;
mod tuning_guests;
mod tuning_persist;
mod tuning_planted;
mod tuning_remote;
mod under_load;

use std::{fs, path::Path};

use bench::Bench;
use serde_json::Value;

/// Runs vtax, which must succeed, and parses the JSON that it prints.
fn json(bench: &Bench, arguments: &[&str]) -> Value {
    serde_json::from_str(&bench.printed(arguments)).expect("JSON")
}

/// Fails if this bench's vtax processes left anything behind: a process, or a lab of a run.
fn assert_nothing_left(bench: &Bench) {
    bench::wait_until("no process is left", || processes_of(bench.path()).is_empty());
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    for run in runs(bench) {
        let lab = lab_of(&run);
        assert!(!mounts.contains(&format!("/{lab}/")), "{lab} is still mounted");
        assert!(!labs(bench).contains(&lab), "{lab} is still there");
    }
}

/// Removes what an earlier, failed test has left on this bench.
fn empty(bench: &Bench) {
    bench.vtax(&["lab", "clean"]);
    for lab in labs(bench) {
        bench.vtax(&["lab", "down", &lab]);
    }
    let journals = fs::read_dir(bench.labs().join("journals")).expect("a directory").flatten();
    for damaged in journals.filter(|entry| entry.file_name().to_string_lossy().contains(".damaged")) {
        fs::remove_file(damaged.path()).expect("ours");
    }
}

fn runs(bench: &Bench) -> Vec<String> {
    names(&json(bench, &["results", "list", "--json"]), "id")
}

fn labs(bench: &Bench) -> Vec<String> {
    names(&json(bench, &["lab", "list", "--json"]), "name")
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let name = |item: &Value| item[key].as_str().expect("a name").to_owned();
    list.as_array().expect("a list").iter().map(name).collect()
}

/// Returns the name of the lab that a run uses.
fn lab_of(run: &str) -> String {
    format!("run-{}", run.rsplit('-').next().expect("an id"))
}

/// Returns the processes whose environment contains the directory of this bench.
fn processes_of(folder: &Path) -> Vec<u32> {
    bench::processes_marked(folder.as_os_str().as_encoded_bytes())
}
