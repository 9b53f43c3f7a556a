//! `vtax ldm --host` by a real ssh to a real sshd, from one host of a lab to the other.

use std::fs;

use super::{
    bench::printed,
    remote::{bench, programs, start, told},
};

#[test]
fn domains_of_another_host_are_configured_and_listed_over_ssh() {
    let bench = bench("t-ldm-ssh");
    let far = start(&bench, "t-ldm-ssh", programs());
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

    for (words, status, why) in [
        ("set-vcpu 2 pluto", 2, "pluto"),
        ("exec mars -- true", 2, "--host"),
        ("add-vnet net0 nowhere mars", 2, "nowhere"),
    ] {
        let refused = ldm(words);
        assert_eq!(refused.status.code(), Some(status), "{words}: {}", told(&refused));
        assert!(told(&refused).contains(why), "{words}: {}", told(&refused));
    }
    let stranger = ldm_at("ssh:stranger", "list");
    assert_eq!(stranger.status.code(), Some(69), "{}", told(&stranger));
    printed(&ldm("remove-domain mars"));
}
