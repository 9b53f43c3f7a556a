//! The state of the host, field by field.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Bench, processes_of};

/// Everything that a lab could leave behind or change, with its current value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Host(BTreeMap<String, String>);

impl Host {
    /// Reads the files and mounts below `run`, the processes of the bench, the links, addresses, routes, rules and
    /// network settings of this namespace, and those of each namespace that is pinned below `run`.
    pub(super) fn now(bench: &Bench, run: &Path) -> Host {
        let mut host = Host(BTreeMap::new());
        host.network("host", &[]);
        host.settings(Path::new("/proc/sys/net"));
        host.files(run, run);
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let here = run.to_str().expect("text");
        // The first fields are mount ids and the device number.
        let words = |line: &str| line.split(' ').skip(3).collect::<Vec<_>>().join(" ");
        host.extend("mount", mounts.lines().filter(|line| line.contains(here)).map(words));
        host.extend("process", processes_of(bench.path()).iter().map(|pid| process(*pid)));
        host.extend("guest", processes_with(here));
        for pin in pins(run) {
            let path = pin.to_str().expect("text").to_owned();
            host.network(&path, &["nsenter", &format!("--net={path}")]);
        }
        host
    }

    /// Fails and lists the differences, if there are any.
    pub(super) fn assert_is(&self, was: &Host, when: &str) {
        let differs = self.differs(was);
        assert!(differs.is_empty(), "{when}: the host isn't as it was:\n{}", differs.join("\n"));
    }

    /// Returns the differences.
    pub(super) fn differs(&self, was: &Host) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.keys().chain(was.0.keys()).collect();
        let differs = keys.into_iter().filter(|key| self.0.get(*key) != was.0.get(*key));
        differs.map(|key| format!("{key}: was {:?}, is {:?}", was.0.get(key), self.0.get(key))).collect()
    }

    fn extend(&mut self, kind: &str, things: impl IntoIterator<Item = String>) {
        self.0.extend(things.into_iter().map(|thing| (format!("{kind} {thing}"), String::new())));
    }

    fn network(&mut self, place: &str, enter: &[&str]) {
        for (what, keys) in
            [("-d link", "ifname"), ("addr", "ifname"), ("route show table all", "dst"), ("rule", "priority")]
        {
            let command = [enter, &["ip", "-j"], &what.split(' ').collect::<Vec<_>>()].concat();
            let output = Command::new(command[0]).args(&command[1..]).output().expect("iproute2");
            let text = if output.stdout.is_empty() { b"[]".to_vec() } else { output.stdout };
            let list: Value = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{command:?}: {error}"));
            for mut item in list.as_array().cloned().unwrap_or_default() {
                drop_volatile(&mut item);
                let name = item[keys].to_string();
                let entry = self.0.entry(format!("{place} {what} {name}")).or_default();
                *entry += &item.to_string();
            }
        }
    }

    /// Adds each readable setting below `folder`, except counts.
    fn settings(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.settings(&path);
            } else if !path.ends_with("nf_conntrack_count")
                && let Ok(value) = fs::read_to_string(&path)
            {
                self.0.insert(path.display().to_string(), value);
            }
        }
    }

    /// Adds the type, mode and content of each file, and the identity of each pinned namespace.
    fn files(&mut self, folder: &Path, run: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let about = fs::symlink_metadata(&path).expect("it is there");
            let content = match about.is_file() && about.dev() == fs::metadata(run).expect("a directory").dev() {
                true => String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned(),
                false if about.is_file() => format!("{}:{}", about.dev(), about.ino()),
                false => String::new(),
            };
            self.0.insert(path.display().to_string(), format!("{:o} {content}", about.mode()));
            if about.is_dir() {
                self.files(&path, run);
            }
        }
    }
}

/// Removes fields that change by themselves: times, and states that the kernel sets up to a second later (`linkwatch`).
fn drop_volatile(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let runs = |name: &str| name.ends_with("_timer") || name.ends_with("_life_time") || name == "operstate";
            fields.retain(|name, _| !runs(name));
            fields.values_mut().for_each(drop_volatile);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_volatile),
        _ => {}
    }
}

fn process(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " "))
}

/// Returns the processes whose arguments name this directory.
fn processes_with(folder: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(process).filter(|told| told.contains(&format!("{folder}/"))).collect()
}

/// Returns the namespaces that are pinned by labs of this run directory.
fn pins(run: &Path) -> Vec<PathBuf> {
    let labs = fs::read_dir(run.join("labs")).into_iter().flatten().flatten();
    let folders = labs.map(|lab| lab.path().join("netns"));
    let pins = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    pins.map(|pin| pin.path())
        .filter(|pin| fs::metadata(pin).is_ok_and(|about| about.mode() & 0o170_000 == 0o100_000))
        .collect()
}
