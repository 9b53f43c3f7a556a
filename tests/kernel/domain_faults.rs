//! `vtax ldm` commands that race, that cannot save their changes, or that find another domain broken.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use super::{
    Bench,
    bench::{printed, wait_until, wrapped},
    crash::{Ending, kill_at},
    domains::{Host, kill},
};

/// Number of races of one command against others.
const ROUNDS: usize = 3;

/// Returns the directory of domains' constraints on the host.
fn kept(host: &Host<'_>) -> PathBuf {
    host.bench.state().join(format!("ldm.{}.sut", host.lab))
}

/// Returns how many processes wait for a lock of this file (proc_locks(5)).
fn waiting(file: &File) -> usize {
    let inode = file.metadata().expect("it is there").ino();
    let locks = fs::read_to_string("/proc/locks").expect("locks");
    let is_wait = |line: &&str| line.contains("->") && line.contains(&format!(":{inode} "));
    locks.lines().filter(is_wait).count()
}

fn started(host: &Host<'_>, words: &str) -> Child {
    let mut command = host.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs")
}

/// Starts two commands that wait for the lock, the first one for longer. Both have read the state before they wait.
fn raced(host: &Host<'_>, verbs: [&str; 2]) -> [Output; 2] {
    let lock = File::options().write(true).open(kept(host).join(".lock")).expect("it is there");
    lock.lock().expect("nobody has it");
    let mut begun = 0;
    let children = verbs.map(|words| {
        begun += 1;
        let child = started(host, words);
        wait_until(&format!("`{words}` waits for the lock"), || waiting(&lock) == begun);
        child
    });
    drop(lock);
    children.map(|child| child.wait_with_output().expect("it ends"))
}

/// Runs `bind eris` at the same time as a command that requires eris to be inactive: only one of them succeeds.
#[test]
fn a_domain_is_not_bound_while_it_is_removed() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-race");
    host.ldm("create eris");
    host.ldm("set-vcpu 1 eris");
    host.ldm("set-memory 128m eris");
    host.ldm("add-spconfig with-eris");
    for verb in ["rm-domain eris", "set-spconfig factory-default", "rm-domain -a"] {
        for round in 0..ROUNDS {
            let verbs = if round % 2 == 0 { ["bind eris", verb] } else { [verb, "bind eris"] };
            let outputs = raced(&host, verbs);
            let done = outputs.each_ref().map(|output| output.status.success());
            let bound = !host.qemus().is_empty();
            let is_known = host.try_ldm("list eris").status.success();
            let told = outputs.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
            assert_eq!((bound, done.iter().filter(|done| **done).count()), (is_known, 1), "{verbs:?}: {told:?}");
            host.try_ldm("unbind eris");
            host.ldm("set-spconfig with-eris");
        }
    }
}

/// If the file system of the stored state is full, a change that cannot be saved is not made.
#[test]
fn a_change_that_cannot_be_kept_is_not_made() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-full");
    host.ldm("add-vsw vsw0 primary");
    let mtu = || mtu(&host);
    assert_eq!(mtu(), "1500");
    let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
    let full = bench.path().join("full");
    fs::create_dir_all(&full).expect("a folder of the test");
    let mount = ["-t", "tmpfs", "-o", "size=16k,mode=700", "full"].map(str::to_owned);
    assert!(Command::new("mount").args(mount).arg(&full).status().expect("mount runs").success());
    let _mounted = Mounted(&full);
    for name in ["state.json", ".lock"] {
        fs::copy(kept(&host).join(name), full.join(name)).expect("there is space");
    }
    // No block is free.
    let _ = fs::write(full.join("fill"), vec![1; 1 << 20]);
    for words in ["set-vsw mtu=9000 vsw0", "rm-vsw vsw0", "add-vsw vsw1 primary"] {
        let (plain, kept) = (host.command(words), kept(&host));
        let [full, kept] = [&full, &kept].map(|path| path.to_str().expect("text"));
        let wrapper = ["unshare", "--mount", "sh", "-c", script, full, kept];
        let output = wrapped(&wrapper, &plain).output().expect("unshare runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && told.contains("state.json") && told.contains("No space left"),
            "{words}: {told}"
        );
        assert_eq!(mtu(), "1500", "{words}");
        assert!(!host.links().contains("vsw1"), "{words}");
    }
}

/// Returns the MTU of vsw0 on the host.
fn mtu(host: &Host<'_>) -> String {
    let link = host.bench.printed(&["lab", "exec", host.lab, "sut", "--", "ip", "-o", "link", "show", "vsw0"]);
    link.split(" mtu ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it is shown").to_owned()
}

/// If a change of a switch is killed before any call that changes something, the host matches the stored state after
/// the next command, whichever it is.
#[test]
fn a_change_killed_at_any_call_is_made_or_not() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-half");
    host.ldm("create mars");
    host.ldm("add-vsw vsw0 primary");
    let (mut at, mut outcomes) = (1, BTreeSet::new());
    loop {
        let ending = kill_at(&host.command("set-vsw mtu=9000 vsw0"), at);
        host.ldm("set-domain failure-policy=ignore mars");
        let is_kept = host.ldm("list-constraints --json").contains("9000");
        assert_eq!(mtu(&host) == "9000", is_kept, "killed at call {at}: {ending:?}");
        outcomes.insert(is_kept);
        if matches!(ending, Ending::Itself { .. }) {
            break;
        }
        host.ldm("set-vsw mtu=1500 vsw0");
        at += 1;
    }
    println!("set-vsw: {} kills at {} calls", at - 1, at - 1);
    assert_eq!((outcomes.len(), at > 5), (2, true), "{at} calls");
}

struct Mounted<'a>(&'a PathBuf);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// A hung QEMU without a supervisor, a killed console service, a killed supervisor, and a bind that fails in part.
#[test]
fn one_broken_domain_stops_no_other() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-hang");
    host.ldm("add-vcc port-range=5000-5010 console primary");
    host.ldm("add-vsw vsw0 primary");
    ["mars", "venus"].iter().for_each(|domain| host.add(domain));
    let output = host.try_ldm("bind mars nosuch");
    assert!(!output.status.success());
    assert_eq!(host.state("mars"), "bound");
    let is_served = || {
        let words = ["lab", "exec", host.lab, "sut", "--", "busybox", "nc", "-w", "1", "127.0.0.1", "5000"];
        bench.vtax(&words).status.success()
    };
    wait_until("the console service serves mars", is_served);
    host.ldm("start mars");

    // Their absence is reported, and any command that changes something restarts them.
    kill(process(&host, "vntsd"));
    kill(process(&host, "mars/supervisor"));
    let told = told_by(&host.try_ldm("list"));
    assert!(told.contains("nothing listens on port 5000 of mars"), "{told}");
    assert!(told.contains("mars has no supervisor"), "{told}");
    host.ldm("set-vcpu 1 venus");
    wait_until("the console service serves mars again", is_served);
    assert_eq!(told_by(&host.try_ldm("list")), "");

    // The boot time differs in another time namespace.
    let list = host.command("list --json mars");
    let mut elsewhere = wrapped(&["unshare", "--time", "--boottime", "100000", "--fork"], &list);
    let seen = printed(&elsewhere.output().expect("unshare runs"));
    assert!(seen.contains("\"state\": \"active\""), "{seen}");

    let qemu = host.qemu("mars");
    kill(process(&host, "mars/supervisor"));
    assert!(Command::new("kill").args(["-STOP", &qemu.to_string()]).status().expect("kill runs").success());
    let output = host.try_ldm("bind venus");
    let told = told_by(&output);
    assert!(output.status.success() && told.contains("the QEMU of mars doesn't answer"), "{told}");
    let shown = told_by(&host.try_ldm("list mars"));
    assert!(shown.contains("the QEMU of mars is stopped"), "{shown}");
    host.ldm("stop -f mars");
    assert_eq!(host.state("mars"), "bound");
    assert_ne!(host.qemu("mars"), qemu);
    host.ldm("unbind mars venus");
    wait_until("no QEMU is left", || host.qemus().is_empty());
}

/// A bound domain whose journal, record of its supervisor, or constraints are missing.
#[test]
fn a_domain_without_records_is_found_by_its_marks() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-gone");
    host.ldm("add-vsw vsw0 primary");
    ["mars", "venus"].iter().for_each(|domain| host.add(domain));
    host.ldm("bind mars");
    host.ldm("start mars");
    let qemu = host.qemu("mars");

    // The first supervisor is found, and no second one is started.
    let supervisor = process(&host, "mars/supervisor");
    for left in [None, Some(format!("{supervisor}@1"))] {
        let file = host.folder().join("mars/supervisor");
        left.map_or_else(|| fs::remove_file(&file), |text| fs::write(&file, text)).expect("ours");
        let told = told_by(&host.try_ldm("set-vcpu 1 venus"));
        assert_eq!((told.as_str(), host.state("mars").as_str()), ("", "active"));
    }

    let state = kept(&host).join("state.json");
    let whole = fs::read(&state).expect("it is there");
    fs::remove_file(&state).expect("ours");
    let told = told_by(&host.try_ldm("list"));
    assert!(told.contains("mars is bound, but its constraints are missing"), "{told}");
    fs::write(&state, whole).expect("ours");

    fs::remove_file(host.folder().join("journals/mars.journal")).expect("ours");
    for words in ["list", "bind mars", "bind venus", "stop -f mars", "unbind mars", "set-vcpu 1 venus"] {
        let told = told_by(&host.try_ldm(words)).replace("\n  │ ", "");
        assert!(told.contains("mars.journal: it is missing, although the domain is bound"), "{words}: {told}");
    }
    assert_eq!(host.qemus(), [qemu], "nothing was bound, and nothing ended");
    let told = told_by(&host.try_ldm("release mars"));
    assert!(told.contains("found by their marks and released") && !told.contains("saved as"), "{told}");
    wait_until("no QEMU is left", || host.qemus().is_empty());
    assert!(!host.links().contains("vnet"), "{}", host.links());
    host.ldm("bind mars venus");
    fs::remove_dir_all(host.folder().join("journals")).expect("ours");
    bench.printed(&["lab", "down", "t-ldm-gone"]);
    wait_until("no QEMU is left", || host.qemus().is_empty());
}

/// A kernel without a first process reboots immediately, over and over.
#[test]
fn a_system_in_a_reboot_loop_is_slowed_down() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-loop");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("set-variable boot-args=rdinit=/nosuch mars");
    host.ldm("bind mars");
    for _ in 0..2 {
        host.ldm("start mars");
        // Between two QEMUs, the domain still counts as running.
        wait_until("there is a pause", || {
            let is_pause = host.qemus().is_empty();
            assert_eq!(host.state("mars"), "active");
            thread::sleep(Duration::from_millis(20));
            is_pause
        });
        assert_eq!(host.ldm("stop -f mars"), "LDom mars stopped\n");
        assert_eq!(host.state("mars"), "bound");
    }
}

fn told_by(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the process recorded in a file of the domains' directory.
fn process(host: &Host<'_>, file: &str) -> u32 {
    let text = fs::read_to_string(host.folder().join(file)).expect("there is one");
    text.split('@').next().and_then(|pid| pid.parse().ok()).expect("a process")
}
