//! Labs with guests, on the running kernel. These tests require root, QEMU, a kernel for guests (`make kernel`, or
//! `VTAX_KERNEL`), `/dev/net/tun` and the agent (`cargo build`, or `VTAX_AGENT`); without them they fail.

#[path = "../../vtax-guest/tests/shared/agent.rs"]
mod agent;
#[path = "shared/build.rs"]
mod build;
#[path = "shared/run_directory.rs"]
mod run_directory;
#[path = "shared/traces.rs"]
mod traces;

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agent::agent;
use build::try_up;
use run_directory::in_run_directory;
use traces::{assert_nothing_left, processes};
use vtax_lab::{Facts, GuestNeeds, GuestState, Lab, LabError, LabState, Lifetime, World, clean, list, plan};
use vtax_model::{
    located::Source,
    topology::{Name, Topology},
    units::{ByteSize, Mtu},
};
use vtax_sys::process::Signal;

/// Set for the process that is going to be killed: the name of its lab.
const ACTOR: &str = "VTAX_TEST_ACTOR";
/// Set for it if its guest has disks: the file behind them.
const DISK: &str = "VTAX_TEST_DISK";
/// A guest under TCG on a machine that is busy with other tests.
const BOOT: Duration = Duration::from_secs(600);
const END: Duration = Duration::from_secs(30);

fn world() -> World {
    World::enter(Lifetime::Kept).expect("these tests need root")
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A guest at each end of a wire.
fn topology(lab: &str, more: &str) -> Topology {
    let text = format!(
        r#"
[lab]
name = "{lab}"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[guest]]
name = "web"
host = "sut"
method = "paravirtual"
backend = "userspace"
memory = "192 MiB"
{more}
[[guest]]
name = "db"
host = "peer"
method = "emulated"
memory = "192 MiB"
"#
    );
    Topology::parse(Source { name: "lab.toml", text: &text }).expect("a good file")
}

fn facts(world: &World, topology: &Topology) -> Facts {
    let needs = GuestNeeds::new(&agent(), None).of_lab(topology);
    Facts::gather(world).expect("facts").with_guests(world, &needs)
}

fn up(world: &World, topology: &Topology, lifetime: Lifetime) -> Lab {
    try_up(world, topology, || facts(world, topology), lifetime).expect("a lab")
}

#[test]
fn guests_start_and_end_with_their_lab() {
    let world = world();
    let topology = topology("guests", "vcpus = 2\nqueues = 2\ncpus = [0]");
    let mut lab = up(&world, &topology, Lifetime::Kept);

    let summary = list(&world).expect("a list").into_iter().find(|lab| lab.name == name("guests")).expect("it is up");
    let [web, db] = summary.guests() else { panic!("two guests: {:?}", summary.guests()) };
    assert_eq!((&web.name, web.state, web.memory), (&name("web"), GuestState::Running, ByteSize(192 << 20)));
    assert_eq!((web.vcpus, web.cpus.as_slice(), db.host.as_str()), (2, &[0][..], "peer"));
    assert_eq!(processes("guests").len(), 2);

    let end = |guest: &str| lab.blueprint().guest(&name(guest)).expect("a guest");
    for bytes in [1500, 9000] {
        lab.set_mtu(Mtu::try_from(bytes).expect("an MTU")).expect("every link takes it");
        let hops = lab.path(end("web"), end("db")).expect("a path");
        let kinds: Vec<&str> = hops.iter().map(|hop| hop.kind.raw()).collect();
        assert_eq!(kinds, ["tun", "bridge", "veth", "veth", "bridge", "tun"]);
        assert!(hops.iter().all(|hop| i64::from(hop.mtu) == bytes), "{hops:?}");
    }
    let mut web = lab.guest(&name("web")).expect("it was started");
    assert_eq!(web.threads(END).expect("its monitor answers").vcpus.len(), 2);
    web.wait_agent(BOOT).expect("the agent opens its port");
    lab.keep().expect("the disk has room");
    drop(lab);

    // Another process finds the same guests through the journal.
    let lab = Lab::open(&world, &name("guests")).expect("it is kept");
    assert_eq!(lab.guest(&name("web")).expect("known").process(), web.process());
    assert!(lab.guest(&name("web")).expect("known").launch().agent_socket().exists());
    assert!(matches!(lab.guest(&name("nobody")), Err(LabError::NoGuest { .. })));
    lab.down().expect("all goes");
    assert!(!web.is_alive());
    assert_nothing_left("guests");
}

#[test]
fn a_guest_that_is_killed_is_named_with_its_last_words() {
    let world = world();
    let lab = up(&world, &topology("shot", ""), Lifetime::Ephemeral);
    lab.check_guests().expect("all run");
    let db = lab.guest(&name("db")).expect("it was started");
    assert!(db.process().signal(Signal::KILL).expect("ours"));
    assert!(db.process().wait_end(END).expect("ours"));
    for error in [lab.check_guests(), lab.set_mtu(Mtu::try_from(9000).expect("an MTU"))].map(Result::unwrap_err) {
        assert!(error.to_string().starts_with("guest `db` exited: QEMU was killed by signal 9"), "{error}");
    }
    lab.down().expect("the rest goes");
    assert_nothing_left("shot");
}

#[test]
fn a_guest_that_cannot_start_takes_the_lab_back() {
    let world = world();
    let topology = topology("failed", "hugepages = true");
    // The plan would refuse it: the huge pages have gone since.
    let facts = || {
        let mut facts = facts(&world, &topology);
        facts.guests.as_mut().expect("guests are needed").huge_pages = ByteSize(u64::MAX);
        facts
    };
    let error = try_up(&world, &topology, facts, Lifetime::Ephemeral).expect_err("no huge pages").to_string();
    assert!(error.contains("guest `web`") && error.contains("last output of QEMU"), "{error}");
    assert_nothing_left("failed");
}

/// A guest that has one file as a disk in several ways, two of them by storage daemons.
fn with_disks(lab: &str, file: &Path) -> Topology {
    let disk = |attach: &str| format!("[[guest.disk]]\npath = \"{}\"\nattach = \"{attach}\"\n", file.display());
    let ways =
        ["virtio-blk:iothread", "nbd", "vhost-user-blk", "nvme:aio=io_uring", "ahci:aio=native", "ide", "virtio-scsi"];
    topology(lab, &ways.map(disk).concat())
}

fn file_of_a_disk() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
    file.as_file().set_len(8 << 20).expect("room");
    file
}

/// The programs that work below the lab's directory: QEMUs and storage daemons.
fn workers(lab: &str) -> usize {
    let directory = in_run_directory("labs").join(lab);
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    all.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&directory)))
        .count()
}

#[test]
fn disks_of_a_guest_are_created_and_removed_with_their_lab() {
    let world = world();
    let file = file_of_a_disk();
    let topology = with_disks("disked", file.path());
    let lab = up(&world, &topology, Lifetime::Ephemeral);
    assert_eq!(workers("disked"), 4, "two guests and two storage daemons");
    let mut web = lab.guest(&name("web")).expect("it was started");
    web.wait_agent(BOOT).expect("the agent opens its port");
    lab.down().expect("all goes");
    assert_eq!(workers("disked"), 0);
    assert_nothing_left("disked");
}

#[test]
fn storage_daemons_of_a_killed_process_are_removed() {
    let world = world();
    let file = file_of_a_disk();
    for lost in [false, true] {
        let lab = if lost { "disked-lost" } else { "disked-orphan" };
        let mut actor = start_actor_with(lab, Some(file.path()));
        let output = BufReader::new(actor.0.stdout.take().expect("it is piped"));
        assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("up")));
        actor.0.kill().expect("it is ours");
        actor.0.wait().expect("it is ours");
        assert_eq!(workers(lab), 4);
        if lost {
            std::fs::remove_file(in_run_directory(&format!("journals/{lab}.journal"))).expect("it is there");
        }
        let report = clean(&world, Some(&name(lab))).expect("a report");
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(workers(lab), 0);
        assert_nothing_left(lab);
    }
}

#[test]
fn a_missing_disk_is_reported_before_anything_is_built() {
    let world = world();
    let topology = with_disks("no-disk", Path::new("/no/such/disk"));
    let error = plan(&topology, &facts(&world, &topology)).expect_err("no disk").to_string();
    assert!(error.starts_with("guest `web`: the disk /no/such/disk: it cannot be used: No such file"), "{error}");
}

/// The process that the next tests kill, with seven guests of the first host and one of the other.
#[test]
#[ignore = "started by another test"]
fn actor() {
    let Ok(lab) = env::var(ACTOR) else { return };
    let topology = match env::var_os(DISK) {
        Some(file) => with_disks(&lab, Path::new(&file)),
        None => topology(&lab, "count = 7"),
    };
    let lab = up(&world(), &topology, Lifetime::Ephemeral);
    println!("up");
    for guest in lab.guests() {
        lab.guest(&guest.name).and_then(|mut qemu| Ok(qemu.wait_agent(2 * BOOT)?)).expect("the agent opens its port");
    }
    println!("running");
    std::thread::sleep(2 * BOOT);
}

struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_actor(lab: &str) -> Reaped {
    start_actor_with(lab, None)
}

/// Gives it the disks of a guest on this file, if there is one.
fn start_actor_with(lab: &str, file: Option<&Path>) -> Reaped {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.envs(file.map(|file| (DISK, file)));
    command.args(["--exact", "actor", "--ignored", "--nocapture"]).env(ACTOR, lab);
    Reaped(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this test again"))
}

/// Kills the creator of eight guests when it has printed this, and cleans up.
fn guests_of_a_killed_process_go(lab: &str, when: &str) {
    let world = world();
    let mut actor = start_actor(lab);
    let output = BufReader::new(actor.0.stdout.take().expect("it is piped"));
    assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with(when)));
    actor.0.kill().expect("it is ours");
    actor.0.wait().expect("it is ours");
    let guests = processes(lab);
    assert_eq!(guests.len(), 8, "guests outlive who made them");
    let summary = list(&world).expect("a list").into_iter().find(|known| known.name == name(lab)).expect("known");
    assert_eq!((&summary.state, summary.guests().len()), (&LabState::Abandoned, 8));
    let report = clean(&world, Some(&name(lab))).expect("a report");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_eq!(report.removed, [name(lab)]);
    assert_nothing_left(lab);
    assert!(guests.iter().all(|pid| !Path::new("/proc").join(pid).join("exe").exists()), "{guests:?}");
}

#[test]
fn eight_guests_of_a_killed_process_are_removed_while_they_boot() {
    guests_of_a_killed_process_go("orphans", "up");
}

#[test]
fn eight_guests_of_a_killed_process_are_removed_while_they_run() {
    guests_of_a_killed_process_go("orphans-up", "running");
}

/// Killed between the start of QEMU and the line that records it, only the mark is known.
#[test]
fn a_guest_that_was_never_written_down_is_found_by_its_mark() {
    let world = world();
    let lab = "unwritten";
    let mut actor = start_actor(lab);
    let begun = std::time::Instant::now();
    while processes(lab).is_empty() {
        assert!(begun.elapsed() < BOOT, "no QEMU was started");
        std::thread::sleep(Duration::from_millis(1));
    }
    actor.0.kill().expect("it is ours");
    actor.0.wait().expect("it is ours");
    let report = clean(&world, Some(&name(lab))).expect("a report");
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    assert_nothing_left(lab);
}

#[test]
fn a_missing_kernel_is_reported_before_anything_is_built() {
    let world = world();
    let text = "kernel = \"/no/such/vmlinuz\"";
    let topology = topology("no-kernel", text);
    let error = plan(&topology, &facts(&world, &topology)).expect_err("no kernel").to_string();
    assert!(
        error.starts_with("guest `web`: paravirtual is unavailable: ") && error.contains("/no/such/vmlinuz"),
        "{error}"
    );
}
