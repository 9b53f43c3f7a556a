//! `vtax fleet`: plans, refused lists, reports of stored samples.

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
