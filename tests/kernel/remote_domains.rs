//! `vtax ldm --host` by a real ssh to a real sshd, from one host of a lab to the other.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use super::{
    Bench,
    bench::printed,
    remote::{bench, start, told, write_program},
};

/// A domain named zoo.
const LIBVIRT: &str = include_str!("../../crates/vtax-libvirt/src/fixtures/kinds.xml");

/// Returns the directory of the other host's programs: vtax, and a virsh that knows one domain. This side has none.
fn far_programs(bench: &Bench) -> PathBuf {
    let folder = bench.path().join("far-programs");
    fs::create_dir(&folder).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_vtax"), folder.join("vtax")).expect("a link of the test");
    let xml = folder.join("zoo.xml");
    fs::write(&xml, LIBVIRT).expect("a file of the test");
    write_program(&folder.join("virsh"), &format!("#!/bin/sh\nexec cat {}\n", xml.display()));
    folder
}

#[test]
fn domains_of_another_host_are_configured_and_listed_over_ssh() {
    let bench = bench("t-ldm-ssh");
    let far = start(&bench, "t-ldm-ssh", &far_programs(&bench));
    let ldm_at = |host: &str, words: &str| {
        let words: Vec<&str> = ["ldm", "--host", host].into_iter().chain(words.split(' ')).collect();
        far.near(&words)
    };
    let ldm = |words: &str| ldm_at("ssh:far", words);
    for words in ["add-domain mars", "set-vcpu 2 mars", "set-memory 256m mars"] {
        printed(&ldm(words));
    }
    let listed = printed(&ldm("list -p mars"));
    assert!(listed.contains("name=mars|state=inactive") && listed.contains("ncpu=2"), "{listed}");

    // It is the other host's: there it is listed likewise, and here there is none.
    let state = bench.path().join("far-state");
    let there = ["--state", state.to_str().expect("text"), "ldm", "list", "-p", "mars"];
    assert_eq!(far.far(&[&[env!("CARGO_BIN_EXE_vtax")], &there[..]].concat()), listed);
    assert_eq!(far.near(&["ldm", "list", "mars"]).status.code(), Some(2));

    // A file is one of this side.
    let constraints = printed(&ldm("list-constraints -x mars"));
    let file = bench.path().join("mars.xml");
    fs::write(&file, &constraints).expect("a file of the test");
    printed(&ldm("remove-domain mars"));
    printed(&ldm(&format!("add-domain -i {}", file.display())));
    assert_eq!(printed(&ldm("list-constraints -x mars")), constraints);

    let imported = printed(&ldm("import libvirt:zoo --as venus"));
    assert!(imported.starts_with("Imported libvirt domain zoo as venus:\n    2 vCPUs\n"), "{imported}");
    assert!(printed(&ldm("list -p venus")).contains("name=venus|state=inactive"));

    for (words, status, why) in [
        ("set-vcpu 2 pluto", 2, "pluto"),
        ("import libvirt:other", 2, "use libvirt:zoo"),
        ("import libvirt:zoo --as mars", 2, "`mars` already exists"),
        ("create-vf pci_99/slot1", 2, "pci_99/slot1"),
        ("destroy-vf -n max pci_99/slot1", 2, "pci_99/slot1"),
        ("exec mars -- true", 2, "this machine only"),
        ("add-vnet net0 nowhere mars", 2, "nowhere"),
    ] {
        let refused = ldm(words);
        assert_eq!(refused.status.code(), Some(status), "{words}: {}", told(&refused));
        assert!(told(&refused).contains(why), "{words}: {}", told(&refused));
    }
    let stranger = ldm_at("ssh:stranger", "list");
    assert_eq!(stranger.status.code(), Some(69), "{}", told(&stranger));
    printed(&ldm("remove-domain mars venus"));
}
