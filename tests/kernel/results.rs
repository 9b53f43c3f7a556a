//! Commands that only read results neither create nor change a file, and work on a read-only medium.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Stdio};

use super::{
    Bench,
    bench::{printed, wait_until, wrapped},
};

/// Every command that only reads.
const READING: [&[&str]; 9] = [
    &["results", "list"],
    &["results", "list", "--json"],
    &["results", "show"],
    &["results", "show", "last", "--format", "markdown"],
    &["results", "show", "last", "--format", "csv"],
    &["results", "show", "last", "--format", "json"],
    &["results", "export", "last", "--json"],
    &["results", "export", "last", "--csv"],
    &["results", "compare", "RUN", "last"],
];

/// Returns every file of the store with its contents.
fn files(bench: &Bench) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![bench.state()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(all.insert(path.clone(), fs::read(&path).expect("readable"))),
            }
        }
        all.insert(folder, Vec::new());
    }
    all
}

/// Mounts the store read-only, because root could write to it otherwise.
fn on_read_only_medium(bench: &Bench, arguments: &[&str]) -> String {
    const MOUNTED: &str =
        r#"mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/x" 2>/dev/null && exec "$@""#;
    let state = bench.state();
    let wrapper = ["unshare", "--mount", "sh", "-c", MOUNTED, state.to_str().expect("text")];
    printed(&wrapped(&wrapper, &bench.command(arguments)).output().expect("unshare runs"))
}

fn assert_only_reads(bench: &Bench, first: &str) {
    let before = files(bench);
    for verb in READING {
        let arguments: Vec<&str> = verb.iter().map(|word| if *word == "RUN" { first } else { *word }).collect();
        let text = bench.printed(&arguments);
        assert!(files(bench) == before, "{arguments:?} has changed {:?}", files(bench).keys());
        assert!(!text.is_empty() && text == on_read_only_medium(bench, &arguments), "{arguments:?}");
        assert!(files(bench) == before, "{arguments:?} on a read-only medium");
    }
}

fn newest(bench: &Bench) -> String {
    let list: serde_json::Value = serde_json::from_str(&bench.printed(&["results", "list", "--json"])).expect("JSON");
    list[0]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn verbs_that_read_results_change_no_file_and_need_none() {
    let bench = Bench::new();
    let short = ["measure", "--samples", "3", "--duration", "20ms", "--warmup", "1ms"];
    bench.printed(&short);
    let first = newest(&bench);
    bench.printed(&short);
    assert_only_reads(&bench, &first);
    // A killed run leaves the database's log behind.
    let long = ["measure", "--samples", "1000", "--duration", "20ms", "--warmup", "1ms"];
    let mut child = bench.command(&long).stdout(Stdio::null()).spawn().expect("vtax runs");
    wait_until("some samples have landed", || bench.landed() > 5);
    child.kill().expect("SIGKILL");
    child.wait().expect("dead");
    assert!(bench.state().join("results.db-wal").exists());
    assert_only_reads(&bench, &first);
    assert!(bench.printed(&["results", "list"]).contains("killed"));
}
