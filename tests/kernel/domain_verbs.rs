//! Less common forms of `vtax ldm`, on hosts of labs: domains from a file, kernels that panic, systems that don't shut
//! down, and selected cores.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). No test touches a link of the machine.

use std::fs;

use serde_json::{Value, json};

use super::{
    Bench,
    bench::{printed, wait_until},
    domains::Host,
};

/// Writes a file with two domains; the CPUs of venus are `cpus`.
fn file(bench: &Bench, cpus: &Value) {
    let mars = json!({ "cpus": { "vcpus": 1 }, "memory": 134_217_728, "failure_policy": "reset" });
    let venus = json!({ "cpus": cpus, "memory": 134_217_728, "masters": ["mars"] });
    let mut all: Value = serde_json::from_str(&bench.printed(&["ldm", "list-constraints", "--json"])).expect("JSON");
    all["domains"] = json!({ "mars": mars, "venus": venus });
    fs::write(bench.path().join("domains.json"), all.to_string()).expect("a file of the test");
}

#[test]
fn domains_of_a_file_are_bound_and_started_all_or_none() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-f");
    let states = || {
        let list: Value = serde_json::from_str(&host.ldm("list --json")).expect("JSON");
        let states = list.as_array().expect("a list").iter().skip(1);
        states.map(|row| row["state"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    for (cpus, why) in [
        (json!({ "vcpus": 250 }), "venus: 250 CPUs requested"),
        (json!({ "cids": [4000] }), "venus cannot have core 4000: this host has cores 0 to "),
    ] {
        file(&bench, &cpus);
        for verb in ["bind", "start"] {
            let told = host.refused(&format!("{verb} -i domains.json"));
            assert!(told.contains(why), "{told}");
            assert_eq!(states(), [""; 0], "{verb}: neither of them is left");
        }
    }
    assert!(host.refused("bind -i nothing.json").contains("cannot read nothing.json"));
    file(&bench, &json!({ "vcpus": 1 }));
    host.ldm("bind -i domains.json");
    assert_eq!(states(), ["bound", "bound"]);
    assert!(host.refused("start -i domains.json").contains("the domain `mars` already exists"));
    assert_eq!(states(), ["bound", "bound"], "what was there stays");
    host.ldm("unbind mars venus");
    host.ldm("remove-domain -a");
    assert_eq!(host.ldm("start -i domains.json"), "LDom mars started\nLDom venus started\n");
    assert_eq!(states(), ["active", "active"]);
}

#[test]
fn a_domain_panics_and_moves_to_another_switch_at_its_next_boot() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-v");
    host.ldm("add-vcc console primary");
    host.ldm("add-vsw -q net-dev=wire0 vsw0 primary");
    host.ldm("add-vsw vsw1 primary");
    host.add("mars");
    host.ldm("bind mars");
    assert!(host.refused("panic mars").contains("mars is bound; start it first"));
    host.ldm("start mars");
    host.wait_for_boot("mars");
    let switch = |form: &str| host.domain("mars")[form]["vnets"][0]["switch"].clone();
    let told = host.try_ldm("set-vnet vswitch=vsw1 net0 mars");
    assert!(String::from_utf8_lossy(&told.stderr).contains("started or reboots"), "{told:?}");
    assert_eq!(printed(&told), "");
    assert_eq!((switch("now"), switch("constraints")), ("vsw0".into(), "vsw1".into()));
    host.ldm("set-vnet alt-mac-addrs=auto net0 mars");
    assert_eq!((switch("now"), host.domain("mars")["pending"].clone()), ("vsw0".into(), json!(["network"])));
    assert!(host.ldm("panic mars").contains("non-maskable interrupt"));
    let log = || fs::read_to_string(host.folder().join("mars/console.log")).unwrap_or_default();
    wait_until("its console says why", || log().contains("Kernel panic - not syncing: NMI"));
    wait_until("it has booted again", || switch("now") == "vsw1");
    assert!(host.refused("panic primary").contains("sysrq-trigger"));
}

#[test]
fn a_system_that_is_only_asked_to_shut_down_runs_on() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-h");
    // The domain's system is a jump to itself, which ignores the power button.
    let mut image = vec![0; 1 << 20];
    image[..2].copy_from_slice(&[0xeb, 0xfe]);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(bench.path().join("busy.img"), image).expect("a file of the test");
    for words in ["create mars", "set-vcpu 1 mars", "set-memory 128m mars"] {
        host.ldm(words);
    }
    host.ldm(&format!("set-variable image={} mars", bench.path().join("busy.img").display()));
    host.ldm("bind mars");
    host.ldm("start mars");
    let stopped = host.try_ldm("stop -h -t 1 mars");
    let told = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert_eq!(stopped.status.code(), Some(69), "{told}");
    assert!(told.contains("error[not-shut-down]: LDom mars stop timed out"), "{told}");
    assert_eq!(host.domain("mars")["state"], "active");
    assert_eq!(host.ldm("stop -t 1 mars"), "LDom mars stopped\n");
    assert_eq!(host.domain("mars")["state"], "bound");
}

/// The host keeps one core, so a machine with a single core has none for domains.
#[test]
fn a_domain_has_the_core_that_it_names_and_no_other_domain_has_it() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-c");
    let cores: Value = serde_json::from_str(&host.ldm("list-devices -a --json core")).expect("JSON");
    let core = cores["cores"].as_array().and_then(|cores| cores.last()).expect("a core").clone();
    let id = &core["id"];
    for domain in ["mars", "venus"] {
        host.ldm(&format!("create {domain}"));
        host.ldm(&format!("set-core cid={id} {domain}"));
        host.ldm(&format!("set-memory 128m {domain}"));
    }
    if id == 0 {
        assert!(host.refused("bind mars").contains("mars: 1 cores requested, 0 available"));
        return;
    }
    host.ldm("bind mars");
    let bindings: Value = serde_json::from_str(&host.ldm("list-bindings --json mars")).expect("JSON");
    assert_eq!(bindings[0]["bindings"]["cpus"], core["cpus"]);
    let told = host.refused("bind venus");
    assert!(told.contains(&format!("venus cannot have core {id}: mars has it")), "{told}");
}
