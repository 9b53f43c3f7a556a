//! A study of live migration: real guests between two QEMUs of this machine, over a wire of a lab.

use serde_json::Value;
use vtax_guest::{launch::QemuProgram, userfaultfd};

use super::{Bench, assert_nothing_left, json, studies::assert_schema};

const STUDY: &str = r#"
id = "moves"
title = "Moves"
baseline = "migrate:plain"

[matrix]
methods = ["migrate:plain", "migrate:tls,multifd=2,cores=1", "migrate:tls,post-copy", "migrate:tls,cores=200"]

[migration_test]
memory = ["256 MiB"]
dirty_rates = [20]

[plan]
samples = 1
timeout = "60s"
warmup = "200ms"
"#;

fn samples<'a>(result: &'a Value, method: &str) -> &'a Vec<Value> {
    let cells = result["cells"].as_array().expect("cells");
    let cell = cells.iter().find(|cell| cell["method"] == method).expect("a cell");
    cell["samples"].as_array().unwrap_or_else(|| panic!("{cell}"))
}

/// One guest boots and migrates: to the other QEMU, back, and there again.
#[test]
fn a_guest_migrates_there_and_back_for_each_sample() {
    let bench = Bench::new().with("moves.toml", STUDY);
    let result = json(&bench, &["run", "moves.toml", "--json"]);
    assert_schema(&result);
    let (plain, other) = (samples(&result, "migrate:plain"), samples(&result, "migrate:tls,multifd=2,cores=1"));
    assert_eq!((plain.len(), other.len()), (2, 1), "the baseline has two samples a round");
    let cells = result["cells"].as_array().expect("cells");
    let cell = |method: &str| cells.iter().find(|cell| cell["method"] == method).expect("a cell");
    let early: &[Value] = match userfaultfd::is_available(&QemuProgram::find().expect("QEMU")) {
        true => samples(&result, "migrate:tls,post-copy"),
        false => &[],
    };
    let is_lacking = cell("migrate:tls,post-copy")["status"] == "unavailable";
    assert_eq!((early.len(), is_lacking), if early.is_empty() { (0, true) } else { (1, false) });
    for sample in plain.iter().chain(other).chain(early) {
        let figure = |name: &str| sample["migration"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {sample}"));
        // Either may be longer: the guest may run before or after its source learns that it was loaded.
        assert!(figure("suspend_ms") > 0.0 && figure("suspend_by_qemu_ms") > 0.0, "{sample}");
        assert!(figure("total_s") * 1e3 >= figure("suspend_by_qemu_ms"), "{sample}");
        // Half of the memory is in use. A guest that gets little CPU time changes less of it than configured.
        assert!(figure("sent_mb") > 128.0 && figure("passes") >= 2.0, "{sample}");
        assert!((1.0..60.0).contains(&figure("dirty_mb_per_s")), "{sample}");
    }
    assert_eq!(cell("migrate:tls,cores=200")["status"], "unavailable");
    assert_nothing_left(&bench);
}
