//! `vtax fleet`: plans, refused lists, and reports of stored samples.

use std::{fmt::Write as _, fs};

use serde_json::Value;

use super::bench::Bench;

fn rack(hosts: usize) -> String {
    let mut text = String::new();
    for host in 0..hosts {
        let _ = write!(text, "[[host]]\nname = \"gpu{host}\"\nrack = \"rack{}\"\n", host / 8);
    }
    text
}

fn plan(bench: &Bench, words: &str) -> String {
    let words: Vec<&str> = ["fleet", "mesh", "--dry-run", "--seed", "7"].into_iter().chain(words.split(' ')).collect();
    bench.printed(&words)
}

#[test]
fn a_plan_is_printed_without_contacting_a_host() {
    let bench = Bench::new();
    let list = bench.path().join("fleet.toml").display().to_string();
    fs::write(&list, rack(200)).expect("ours");
    insta::assert_snapshot!(plan(&bench, &format!("--hosts {list} --within rack3")));
    let needed = plan(&bench, &format!("--hosts {list} --show 5%"));
    assert!(
        needed.starts_with("tcp-stream between 200 hosts, ")
            && needed.contains("detects a host that is 5.0 % slow with 99 %"),
        "{needed}"
    );
    let json: Value = serde_json::from_str(&plan(&bench, &format!("--hosts {list} --budget 1m --json"))).expect("JSON");
    assert_eq!(json["schema"], "vtax.mesh-plan/v1");
    let waves = json["waves"].as_array().expect("waves");
    assert!(waves.iter().all(|wave| wave.as_array().is_some_and(|pairs| pairs.len() == 100)));
    let seconds = json["seconds"].as_f64().expect("a time");
    assert!(seconds <= 60.0 && seconds > 50.0, "{seconds}");
}

#[test]
fn lists_that_cannot_be_measured_are_refused() {
    let bench = Bench::new().with("two.toml", &rack(2)).with("bad.toml", "[[host]]\nname = \"a\"\nrank = 1\n");
    let bench = bench.with("inventory", "[a]\nx\ngpu[9:1]\n").with(
        "zones.toml",
        "[[host]]\nname = \"a\"\ncontrol = \"zone:a\"\n[[host]]\nname = \"b\"\n[[host]]\nname = \"c\"\n",
    );
    let file = |name: &str| bench.path().join(name).display().to_string();
    for (list, more, told) in [
        ("two.toml", "--dry-run", "too-few-hosts"),
        ("bad.toml", "--dry-run", "bad.toml:3: unknown key `rank`"),
        ("inventory", "--dry-run", "inventory:3: invalid range in `gpu[9:1]`"),
        ("missing", "--dry-run", "--hosts: cannot read "),
        ("two.toml", "--show 0%", "invalid share `0%`"),
        ("two.toml", "--within rack9", "no host, rack, uplink, rail or group is named `rack9`"),
        ("two.toml", "--ports 0", "1 to 64 source ports"),
        ("zones.toml", "--seed 1", "zone:a: a mesh measures hosts"),
    ] {
        let list = file(list);
        let words = ["fleet", "mesh", "--hosts", &list].into_iter().chain(more.split(' '));
        let refused = bench.refused(&words.collect::<Vec<_>>());
        assert!(refused.contains(told), "{list} {more}: {refused}");
    }
    let refused = bench.refused(&["fleet", "show", &file("missing")]);
    assert!(refused.contains("does not exist"), "{refused}");
    let refused = bench.refused(&["fleet", "show", &file("two.toml")]);
    assert!(refused.contains("damaged-record") && refused.contains("two.toml:1: "), "{refused}");
}

/// Three hosts with each other in both directions.
const MESH: &str = r#"{"schema":"vtax.mesh-samples/v1","test":{"kind":"tcp-rr","duration":"400ms","ports":1},"ends":[
{"name":"<a>","host":0,"control":"ssh:a"},{"name":"b","host":1,"control":"ssh:b"},{"name":"c","host":2,"control":"ssh:c"}],
"rounds":3,"all_rounds":3,"waves":3,"show":0.1,"seed":7}"#;

fn mesh() -> String {
    let mut text = MESH.replace('\n', "") + "\n";
    for (wave, [from, to]) in [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1]].into_iter().enumerate() {
        let wave = wave / 2;
        let _ = writeln!(text, r#"{{"stage":"rounds","wave":{wave},"from":{from},"to":{to},"values":[0.00005]}}"#);
    }
    text
}

#[test]
fn a_stored_mesh_is_listed_compared_and_drawn() {
    let bench = Bench::new();
    let meshes = bench.state().join("fleet");
    fs::create_dir_all(&meshes).expect("ours");
    fs::write(meshes.join("mesh-20260102-000000-01.jsonl"), mesh()).expect("ours");
    fs::write(meshes.join("mesh-20260103-000000-02.jsonl"), "{}\n").expect("ours");
    insta::assert_snapshot!(bench.printed(&["fleet", "list"]));
    let page = bench.path().join("mesh.html");
    let shown = bench.printed(&["fleet", "show", "mesh-20260102", "--html", page.to_str().expect("text")]);
    assert!(
        shown.contains("usual round trip over TCP 50.0 µs") && shown.contains("no host, uplink or pair is slow"),
        "{shown}"
    );
    let page = fs::read_to_string(page).expect("written");
    for part in ["<h1>None of 3 hosts is slow</h1>", "default-src 'none'", "&lt;a&gt;", "<h2>All pairs</h2>"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let compared = bench.printed(&["fleet", "compare", "mesh-20260102", "mesh-20260102"]);
    assert!(compared.contains("no host has changed"), "{compared}");
    let refused = bench.refused(&["fleet", "compare", "mesh-20260102", "mesh-2025"]);
    assert!(refused.contains("no-such-run"), "{refused}");
}
