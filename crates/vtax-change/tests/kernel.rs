//! Changes to the running kernel, in network namespaces and on processes that end with the test. Requires root.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use vtax_change::{Change, ChangeError, CpusetHierarchy, HostAccess, LinkAt, NamespaceRef};
use vtax_journal::{Journal, Step, StepCause, Undone};
use vtax_model::cpus::CpuSet;
use vtax_sys::{
    cpu,
    ethtool::DriverSetting,
    netlink::{IfName, LinkChange, LinkKind, NewLink, NewTap, Rtnl},
    netns::NetNs,
    process::{Pid, ProcessId, Signal},
};

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

/// A pinned namespace with a veth pair, and a directory for its pin and for journals.
struct Lab {
    folder: tempfile::TempDir,
    rtnl: Rtnl,
}

impl Lab {
    fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let (_, rtnl) = NetNs::create_at(&folder.path().join("ns"), Rtnl::open).expect("these tests need root");
        let mut lab = Lab { folder, rtnl };
        lab.add_veth();
        lab
    }

    fn add_veth(&mut self) {
        let kind = LinkKind::Veth { peer: name("t1"), peer_ns: None, peer_mtu: None };
        self.rtnl.create_link(&NewLink::new(name("t0"), kind)).unwrap();
    }

    fn namespace(&self) -> Option<NamespaceRef> {
        Some(NamespaceRef::at(&self.folder.path().join("ns")).unwrap())
    }

    fn link(&self) -> LinkAt {
        LinkAt::find(&mut host(), self.namespace(), &name("t0")).unwrap()
    }

    fn create(&self) -> Journal<Change> {
        Journal::create(&self.folder.path().join("journals"), "tuning", "tuning", &()).unwrap()
    }

    fn sysctl(&self, host: &mut HostAccess, key: &str, value: &str) -> Change {
        Change::plan_sysctl(host, self.namespace(), key.parse().unwrap(), value).unwrap()
    }

    fn rps(&self, host: &mut HostAccess, file: &str, value: &str) -> Change {
        Change::plan_sysfs(host, self.namespace(), &format!("class/net/t0/queues/rx-0/{file}"), value).unwrap()
    }

    /// Plans one change of each kind that a namespace supports.
    fn plan(&self, host: &mut HostAccess) -> Vec<Change> {
        vec![
            self.sysctl(host, "net.ipv4.tcp_rmem", "4096 65536 1000000"),
            self.rps(host, "rps_cpus", "1"),
            self.rps(host, "rps_flow_cnt", "4096"),
            Change::plan_mtu(host, self.link(), 9000).unwrap(),
            Change::plan_tx_queue(host, self.link(), 500).unwrap(),
            Change::plan_feature(host, self.link(), "rx-gro", true).unwrap(),
            Change::plan_feature(host, self.link(), "tx-tcp-segmentation", false).unwrap(),
        ]
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = NetNs::remove_at(&self.folder.path().join("ns"), None);
    }
}

fn host() -> HostAccess {
    HostAccess::live().unwrap()
}

/// Returns the values that the same plan would find now.
fn found(lab: &Lab) -> Vec<String> {
    let changes = lab.plan(&mut host());
    changes.iter().map(|change| change.to_string().split(" -> ").next().unwrap().to_owned()).collect()
}

#[test]
fn each_kind_of_change_is_made_and_undone_in_a_namespace() {
    let lab = Lab::new();
    let before = found(&lab);
    let steps = lab.plan(&mut host());
    // Whether GRO of a veth link is initially on depends on the kernel.
    let needed = steps.iter().filter(|step| !step.changes_nothing()).count();
    assert!(needed >= 6, "{steps:?}");
    let mut journal = lab.create();
    journal.execute(steps, &mut host()).unwrap();
    let changed: Vec<String> = found(&lab);
    assert!(before.iter().zip(&changed).filter(|(one, other)| one != other).count() == needed, "{changed:#?}");
    assert!(lab.plan(&mut host()).iter().all(Change::changes_nothing), "{changed:#?}");
    let report = journal.undo(&mut host()).unwrap();
    assert_eq!((report.reverted, report.foreign.len()), (needed, 0));
    assert_eq!(found(&lab), before);
}

/// The kernel rounds the value to 1024. The change is still vtax's, and is reverted.
#[test]
fn a_value_that_the_kernel_rounds_is_an_error_and_is_reverted() {
    let lab = Lab::new();
    let host = &mut host();
    let steps = vec![lab.rps(host, "rps_flow_cnt", "1000")];
    let mut journal = lab.create();
    let error = journal.execute(steps, host).expect_err("1000 is no power of two");
    assert!(
        matches!(error.cause, StepCause::ReadBack(ChangeError::NotTaken { .. })) && error.left.is_none(),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("did not accept 1000: it reads back as 1024"), "{text}");
    assert!(lab.rps(host, "rps_flow_cnt", "0").changes_nothing());
}

/// The driver of taps limits the value to 64.
#[test]
fn a_number_that_a_driver_limits_is_an_error_and_is_reverted() {
    let lab = Lab::new();
    let host = &mut host();
    let namespace = NetNs::open(&lab.folder.path().join("ns")).unwrap();
    NewTap { name: name("tap0"), multi_queue: false }.create_in(&namespace).unwrap();
    let link = LinkAt::find(host, lab.namespace(), &name("tap0")).unwrap();
    let frames =
        |host: &mut HostAccess, value| Change::plan_driver(host, link.clone(), DriverSetting::RxFrames, value).unwrap();
    let (good, bad) = (vec![frames(host, 16)], vec![frames(host, 100)]);
    let mut journal = lab.create();
    let error = journal.execute(bad, host).expect_err("it is too much").to_string();
    assert!(error.contains("did not accept 100: it reads back as 64"), "{error}");
    assert!(frames(host, 0).changes_nothing());
    journal.execute(good, host).unwrap();
    assert!(frames(host, 16).changes_nothing());
    assert_eq!(journal.undo(host).unwrap().reverted, 1);
    assert!(frames(host, 0).changes_nothing());
}

#[test]
fn another_owner_of_an_mtu_is_left_alone() {
    let mut lab = Lab::new();
    let host = &mut host();
    let change = Change::plan_mtu(host, lab.link(), 9000).unwrap();
    let receipt = change.apply(host).unwrap();
    lab.rtnl.set_link(&name("t0"), &LinkChange { mtu: Some(4000), ..LinkChange::default() }).unwrap();
    assert_eq!(change.undo(Some(&receipt), host).unwrap(), Undone::Foreign { found: "4000".to_owned() });
    assert_eq!(lab.rtnl.existing_link(&name("t0")).unwrap().mtu, 4000);
}

#[test]
fn a_renamed_link_is_found_and_a_removed_one_is_not() {
    let mut lab = Lab::new();
    let host = &mut host();
    let mtu = Change::plan_mtu(host, lab.link(), 9000).unwrap();
    let gro = Change::plan_feature(host, lab.link(), "tx-tcp-segmentation", false).unwrap();
    let rps = lab.rps(host, "rps_cpus", "1");
    let receipts = [&mtu, &gro, &rps].map(|change| change.apply(host).unwrap());
    lab.rtnl.set_link(&name("t0"), &LinkChange { rename: Some(name("moved")), ..LinkChange::default() }).unwrap();
    assert_eq!(mtu.undo(Some(&receipts[0]), host).unwrap(), Undone::Reverted);
    assert_eq!(gro.undo(Some(&receipts[1]), host).unwrap(), Undone::Reverted);
    let receipts = [&mtu, &gro].map(|change| change.apply(host).unwrap());
    lab.rtnl.delete_link(&name("moved")).unwrap();
    // The new link has the old one's name and another index.
    lab.add_veth();
    lab.rtnl.set_link(&name("t0"), &LinkChange { mtu: Some(9000), ..LinkChange::default() }).unwrap();
    for (change, receipt) in [(&mtu, &receipts[0]), (&gro, &receipts[1])] {
        assert_eq!(change.undo(Some(receipt), host).unwrap(), Undone::AlreadyGone);
    }
    lab.rps(host, "rps_cpus", "1").apply(host).unwrap();
    assert_eq!(rps.undo(None, host).unwrap(), Undone::AlreadyGone);
    assert_eq!(lab.rtnl.existing_link(&name("t0")).unwrap().mtu, 9000);
}

/// The kernel often reuses the number of the old namespace for the new one.
#[test]
fn a_new_namespace_at_the_same_path_is_not_touched() {
    let lab = Lab::new();
    let pin = lab.folder.path().join("ns");
    let mut first = host();
    let change = lab.sysctl(&mut first, "net.ipv4.ip_forward", "1");
    change.apply(&mut first).unwrap();
    drop(first);
    assert!(NetNs::remove_at(&pin, None).unwrap());
    assert_eq!(change.undo(None, &mut host()).unwrap(), Undone::AlreadyGone);
    for _ in 0..3 {
        NetNs::create_at(&pin, Rtnl::open).unwrap();
        lab.sysctl(&mut host(), "net.ipv4.ip_forward", "1").apply(&mut host()).unwrap();
        assert_eq!(change.undo(None, &mut host()).unwrap(), Undone::AlreadyGone);
        assert!(lab.sysctl(&mut host(), "net.ipv4.ip_forward", "1").changes_nothing());
        assert!(NetNs::remove_at(&pin, None).unwrap());
    }
}

struct Sleeper(Child);

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn id(&self) -> ProcessId {
        ProcessId::of(Pid(self.0.id())).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn first_cpu() -> CpuSet {
    cpu::allowed_cpus().unwrap().iter().take(1).collect()
}

#[test]
fn a_thread_is_pinned_and_set_free() {
    let (sleeper, host) = (Sleeper::new(), &mut host());
    let (id, all) = (sleeper.id(), cpu::allowed_cpus().unwrap());
    let change = Change::plan_thread(host, id, id.pid, &first_cpu()).unwrap();
    let pid = id.pid;
    assert_eq!(change.to_string(), format!("CPUs of thread {pid} (sleep) of process {pid}: {all} -> {}", first_cpu()));
    let receipt = change.apply(host).unwrap();
    change.read_back(&receipt, host).unwrap();
    assert_eq!(cpu::thread_cpus(pid).unwrap(), Some(first_cpu()));
    assert_eq!(change.undo(Some(&receipt), host).unwrap(), Undone::Reverted);
    assert_eq!(cpu::thread_cpus(pid).unwrap(), Some(all));
}

#[test]
fn a_thread_that_has_ended_and_one_with_its_number_are_left_alone() {
    let (sleeper, host) = (Sleeper::new(), &mut host());
    let id = sleeper.id();
    let change = Change::plan_thread(host, id, id.pid, &first_cpu()).unwrap();
    // The same PID with another start time, as in the journal of an earlier process.
    let other = serde_json::to_string(&change).unwrap().replace(&format!("@{}", id.start_ticks), "@1");
    let other: Change = serde_json::from_str(&other).unwrap();
    assert!(matches!(other.apply(host), Err(ChangeError::Missing { .. })));
    cpu::pin_thread(id.pid, &first_cpu()).unwrap();
    assert_eq!(other.undo(None, host).unwrap(), Undone::AlreadyGone);
    assert_eq!(cpu::thread_cpus(id.pid).unwrap(), Some(first_cpu()));
    drop(sleeper);
    assert_eq!(change.undo(None, host).unwrap(), Undone::AlreadyGone);
    let error = Change::plan_thread(host, id, id.pid, &first_cpu()).expect_err("it has ended").to_string();
    assert_eq!(error, format!("cannot find thread {} of process {}", id.pid, id.pid));
}

/// A process has only one group at a time, and both tests run in this process.
static ONE_GROUP: Mutex<()> = Mutex::new(());

/// Returns the group of a thread in the hierarchy of cpusets.
fn cpuset(sets: &CpusetHierarchy, id: ProcessId) -> String {
    sets.group_of(&mut host(), id, id.pid).unwrap().expect("it runs")
}

/// A group and a thread in it are one batch, so both are restored after a kill.
#[test]
fn a_thread_is_confined_to_a_cpuset_with_what_it_starts_and_set_free() {
    let _alone = ONE_GROUP.lock();
    let (lab, host) = (Lab::new(), &mut host());
    let sets = CpusetHierarchy::find(host).unwrap().expect("this kernel has cpusets");
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; sleep 60 & echo $!; wait"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let (id, all) = (ProcessId::of(Pid(shell.id())).unwrap(), cpu::allowed_cpus().unwrap());
    let before = cpuset(&sets, id);
    assert!(sets.can_confine(&before), "{before}");
    let group = Change::plan_cpuset_group(host, &sets, &before, &first_cpu()).unwrap();
    let moved = Change::plan_thread_cpuset(host, &sets, id, id.pid, &first_cpu()).unwrap();
    let mut journal = lab.create();
    let batch = journal.execute(vec![group.clone(), moved], host).unwrap();
    assert_eq!(cpuset(&sets, id), format!("{}/vtax-confined-{}", before.trim_end_matches('/'), Pid::own()));
    assert_eq!(cpu::thread_cpus(id.pid).unwrap(), Some(first_cpu()));
    writeln!(shell.stdin.take().unwrap()).unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let child = ProcessId::of(Pid(line.trim().parse().unwrap())).unwrap();
    assert_eq!(cpu::thread_cpus(child.pid).unwrap(), Some(first_cpu()));
    drop(journal);

    let mut journal = Journal::<Change>::open(&lab.folder.path().join("journals"), "tuning").unwrap();
    assert_eq!(journal.undo_batch(batch, host).unwrap().reverted, 2);
    for id in [id, child] {
        assert_eq!((cpuset(&sets, id), cpu::thread_cpus(id.pid).unwrap()), (before.clone(), Some(all.clone())));
    }
    let found = group.found(host).unwrap();
    assert_eq!((found.value.as_deref(), found.is_ours), (Some("absent"), false));
    for id in [child, id] {
        id.signal(Signal::KILL).unwrap();
    }
    shell.wait().unwrap();
}

/// An affinity within the group's CPUs is replaced, and is restored afterwards.
#[test]
fn the_affinity_of_a_confined_thread_is_restored() {
    let _alone = ONE_GROUP.lock();
    let (lab, host, sleeper) = (Lab::new(), &mut host(), Sleeper::new());
    let sets = CpusetHierarchy::find(host).unwrap().expect("this kernel has cpusets");
    let (id, all) = (sleeper.id(), cpu::allowed_cpus().unwrap());
    cpu::pin_thread(id.pid, &first_cpu()).unwrap();
    let before = cpuset(&sets, id);
    let group = Change::plan_cpuset_group(host, &sets, &before, &all).unwrap();
    let moved = Change::plan_thread_cpuset(host, &sets, id, id.pid, &all).unwrap();
    let mut journal = lab.create();
    let batch = journal.execute(vec![group, moved], host).unwrap();
    assert_eq!(cpu::thread_cpus(id.pid).unwrap(), Some(all));
    journal.undo_batch(batch, host).unwrap();
    assert_eq!((cpuset(&sets, id), cpu::thread_cpus(id.pid).unwrap()), (before, Some(first_cpu())));
}

/// Planning reads only; no interrupt of the machine is moved here.
#[test]
fn the_interrupts_of_this_machine_can_be_planned() {
    let host = &mut host();
    let numbers = fs::read_dir("/proc/irq").unwrap().flatten();
    let mut irqs = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let irq = irqs.find(|irq| fs::exists(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap()).unwrap();
    let change = Change::plan_irq(host, irq, &first_cpu()).unwrap();
    assert!(change.name().starts_with(&format!("CPUs of interrupt {irq}")));
    assert_eq!(change.undo(None, host).unwrap(), Undone::AlreadyGone);
}

/// The kernel distributes the interrupts of a disk's queues itself, if the driver requests it. The test writes the
/// current value, so nothing changes otherwise.
#[test]
fn an_interrupt_that_the_kernel_manages_is_named_as_such() {
    let host = &mut host();
    let numbers = fs::read_dir("/sys/kernel/irq").unwrap().flatten().filter(|entry| {
        fs::read_to_string(entry.path().join("actions")).is_ok_and(|actions| actions.contains("-req."))
    });
    for irq in numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let cpus = fs::read_to_string(format!("/proc/irq/{irq}/smp_affinity_list")).unwrap().trim().parse().unwrap();
        let change = Change::plan_irq(host, irq, &cpus).unwrap();
        assert!(change.changes_nothing());
        match change.apply(host) {
            Ok(_) | Err(ChangeError::ManagedIrq { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_change_that_a_driver_lacks_cannot_be_planned() {
    let lab = Lab::new();
    let host = &mut host();
    let link = lab.link();
    let rings = Change::plan_driver(host, link.clone(), DriverSetting::RxRing, 512).expect_err("veth has none");
    assert!(rings.to_string().starts_with("cannot find rx-ring of link t0 (number "), "{rings}");
    assert!(Change::plan_driver(host, link.clone(), DriverSetting::RxUsecs, 10).is_err());
    let queues = Change::plan_driver(host, link, DriverSetting::RxChannels, 1).unwrap();
    assert!(queues.changes_nothing() && queues.apply(host).is_ok());
}
