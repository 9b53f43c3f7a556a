//! `vtax ldm --host` and `migrate-domain` over a real ssh and a real sshd, from one host of a lab to the other.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    Bench,
    bench::{printed, wait_for_boot, wait_until},
    remote::{Far, bench, programs, start, told, write_program},
};

/// XML of a libvirt domain named `zoo`.
const LIBVIRT: &str = include_str!("../../crates/vtax-libvirt/src/fixtures/kinds.xml");

/// Returns the directory of the far host's programs: vtax, and a virsh that knows one domain. The near host has no
/// virsh.
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

    // The domain belongs to the far host: it is listed there, and not on this side.
    let state = bench.path().join("far-state");
    let there = ["--state", state.to_str().expect("text"), "ldm", "list", "-p", "mars"];
    assert_eq!(far.far(&[&[env!("CARGO_BIN_EXE_vtax")], &there[..]].concat()), listed);
    assert_eq!(far.near(&["ldm", "list", "mars"]).status.code(), Some(2));

    // Files are read on this side.
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

/// vtax on both hosts.
struct Pair<'a> {
    bench: &'a Bench,
    far: Far<'a>,
}

impl Pair<'_> {
    fn near(&self, words: &str) -> String {
        let words: Vec<&str> = ["ldm"].into_iter().chain(words.split(' ')).collect();
        printed(&self.far.near(&words))
    }

    fn far(&self, words: &str) -> String {
        let (state, run) = (self.bench.path().join("far-state"), self.bench.path().join("far-run"));
        let run = format!("VTAX_RUN={}", run.display());
        let vtax = ["env", &run, env!("CARGO_BIN_EXE_vtax"), "--state", state.to_str().expect("text"), "ldm"];
        self.far.far(&vtax.into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    /// Returns the number of arriving domains that the far host has a record of.
    fn arrivals(&self) -> usize {
        fs::read_dir(self.bench.path().join("far-state/ldm/arrivals")).map_or(0, Iterator::count)
    }
}

/// Returns true if there is a process of vtax with this verb.
fn runs(verb: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
    processes.into_iter().any(|process| {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == verb.as_bytes())
    })
}

#[test]
fn a_running_domain_moves_over_ssh_and_stays_when_the_wire_is_cut() {
    let bench = bench("t-ssh-mv");
    let pair = Pair { bench: &bench, far: start(&bench, "t-ssh-mv", programs()) };
    pair.near("add-vsw vsw0 primary");
    pair.far("add-vsw vsw0 primary");
    for words in
        ["create mars", "set-vcpu 1 mars", "set-memory 128m mars", "add-vnet net0 vsw0 mars", "bind mars", "start mars"]
    {
        pair.near(words);
    }
    wait_for_boot("mars", || pair.near("list mars").contains("-n----"), String::new);
    pair.near("exec mars -- touch /marker");

    let wire = |state: &str| {
        bench.printed(&["lab", "exec", "t-ssh-mv", "near", "--", "ip", "link", "set", "wire0", state]);
    };
    // The wire is cut once the target is prepared, then once memory is being transferred.
    for (moment, channels) in [(Duration::ZERO, "1"), (Duration::from_secs(2), "1"), (Duration::from_secs(4), "2")] {
        // The migration is slow, so that the wire can be cut while memory is being transferred.
        let moving = ["ldm", "migrate-domain", "--bandwidth", "2M", "--channels", channels, "mars", "ssh:far"];
        let mut moving = pair.far.near_command(&moving);
        let moving = moving.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
        wait_until("mars arrives", || pair.arrivals() == 1);
        thread::sleep(moment);
        wire("down");
        let cut = moving.wait_with_output().expect("vtax runs");
        assert_eq!(cut.status.code(), Some(69), "{}", told(&cut));
        // vtax notices the silence after 10 s, and ssh after 9 to 12 s: either may report it.
        assert!(told(&cut).contains("migration-unsettled"), "{}", told(&cut));
        pair.near("exec mars -- ls /marker");
        // The target does so without any command there.
        wait_until("the target has given mars up", || {
            pair.arrivals() == 0 && !runs("receive-guest") && !runs("receive-channel")
        });
        assert!(!pair.far("list").contains("mars"));
        wire("up");
        wait_until("the migration is settled", || pair.near("list mars").contains("-n---- "));
    }

    let moved = pair.near("migrate-domain --channels 3 mars ssh:far");
    assert!(moved.starts_with("mars now runs on far; suspended for "), "{moved}");
    assert!(!runs("receive-channel"), "the migration has ended");
    // The agent in mars was reached on both hosts.
    assert!(moved.ends_with(" (guest clock)\n"), "{moved}");
    pair.far("exec mars -- ls /marker");
    assert!(!pair.near("list").contains("mars"));
    let stored: Value = serde_json::from_str(&bench.printed(&["results", "export", "last", "--json"])).expect("JSON");
    let cell = &stored["cells"][0];
    assert_eq!(cell["method"], "migrate:tls,multifd=3");
    let figures = &cell["samples"][0]["migration"];
    assert!(["suspend_ms", "suspend_by_guest_clock_ms"].iter().all(|name| figures[*name].is_number()), "{figures:#}");
    let far = &cell["ends"]["pairs"][0]["responder"];
    assert!(far["name"] == "ssh:far" && far["environment"]["cpus"].as_u64() > Some(0), "{far:#}");
    pair.far("stop -f mars");
    pair.far("unbind mars");
}

#[test]
fn a_disk_is_copied_over_ssh_and_the_copy_ends_when_the_wire_is_cut() {
    const SIZE: u64 = 32 << 20;
    let bench = bench("t-ssh-cd");
    let pair = Pair { bench: &bench, far: start(&bench, "t-ssh-cd", programs()) };
    let image = |name: &str| {
        let path = bench.path().join(name);
        fs::File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a file of the test");
        path
    };
    let (here, there) = (image("here.img"), image("there.img"));
    let has_data = || fs::metadata(&there).expect("a file of the test").blocks() > 0;
    let export = |path: &Path| ["add-vds vds0 primary".to_owned(), format!("add-vdsdev {} data@vds0", path.display())];
    export(&here).iter().for_each(|words| drop(pair.near(words)));
    export(&there).iter().for_each(|words| drop(pair.far(words)));
    for words in [
        "create mars",
        "set-vcpu 1 mars",
        "set-memory 128m mars",
        "add-vdisk data data@vds0 mars",
        "bind mars",
        "start mars",
    ] {
        pair.near(words);
    }
    wait_for_boot("mars", || pair.near("list mars").contains("-n----"), String::new);
    pair.near("exec mars -- dd if=/dev/urandom of=/dev/vda bs=1M count=16 conv=fsync");

    let moving = ["ldm", "migrate-domain", "--copy-disks", "--bandwidth", "8M", "mars", "ssh:far"];
    let mut moving = pair.far.near_command(&moving);
    let moving = moving.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    wait_until("its disk is on the way", has_data);
    assert!(runs("receive-disk") && pair.far("list").contains("-----t"));
    let wire = |state: &str| {
        bench.printed(&["lab", "exec", "t-ssh-cd", "near", "--", "ip", "link", "set", "wire0", state]);
    };
    wire("down");
    let cut = moving.wait_with_output().expect("vtax runs");
    assert_eq!(cut.status.code(), Some(69), "{}", told(&cut));
    assert!(told(&cut).contains("it keeps running here"), "{}", told(&cut));
    // The domain's writes no longer wait for the target.
    pair.near("exec mars -- dd if=/dev/urandom of=/dev/vda bs=1M seek=20 count=1 conv=fsync");
    // The target does so without any command there.
    wait_until("the target has given mars up", || pair.arrivals() == 0 && !has_data() && !runs("receive-disk"));
    assert!(!pair.far("list").contains("mars"));
    wire("up");
    wait_until("the migration is settled", || pair.near("list mars").contains("-n----"));

    let moved = pair.near("migrate-domain --copy-disks mars ssh:far");
    assert!(moved.starts_with("mars now runs on far; suspended for "), "{moved}");
    pair.far("exec mars -- sync");
    assert!(fs::read(&here).expect("a file of the test") == fs::read(&there).expect("a file of the test"));
    assert!(!runs("receive-disk") && !pair.near("list").contains("mars"));
    pair.far("stop -f mars");
    pair.far("unbind mars");
}
