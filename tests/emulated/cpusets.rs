//! Threads confined by cpusets of control groups version 2. This machine may have the controller only in version 1.

use std::{
    fs, io,
    process::{Child, Command},
};

use vtax_change::{Change, CpusetHierarchy, HostAccess};
use vtax_journal::Journal;
use vtax_model::cpus::CpuSet;
use vtax_sys::{
    cpu,
    process::{Pid, ProcessId, Signal},
};

use super::Server;

/// Set in the environment of this program in the server to confine threads.
pub(crate) const CONFINE: &str = "VTAX_CONFINE";

/// A guest's group as vtax creates it, and a group of systemd whose parent limits memory. Each has the controller only
/// if the groups above it enable it.
const GROUPS: &str = r"cd /sys/fs/cgroup
mkdir -p guest slice/scope
echo 500M > guest/memory.max
try() { sh -c 'echo $$ > $1/cgroup.procs && exec $2' sh $1 $PROGRAM; }
try guest
echo +cpuset > cgroup.subtree_control
echo '+cpuset +memory' > slice/cgroup.subtree_control
try guest
try slice/scope
try .
cat guest/cgroup.type guest/cgroup.subtree_control
rmdir slice/scope slice guest
echo -cpuset > cgroup.subtree_control";

pub(crate) fn confined(server: &Server) {
    let program = std::env::current_exe().expect("this program");
    let told = server.shell(&format!("export {CONFINE}=1 PROGRAM={}\n{GROUPS}", program.display()));
    let lines: Vec<&str> = told.lines().collect();
    let held = "confined, with what was started there, and restored";
    assert_eq!(lines, ["no cpuset here", held, held, held, "domain"], "{told}");
}

/// Runs in the server.
pub(crate) fn confine_here() {
    let host = &mut HostAccess::live().expect("this machine");
    let sets = CpusetHierarchy::find(host).expect("readable").expect("control groups");
    let sleeper = Sleeper(sleep().expect("a process"));
    let id = ProcessId::of(Pid(sleeper.0.id())).expect("it runs");
    let before = place(host, &sets, id);
    if !sets.can_confine(&before.0) {
        return println!("no cpuset here");
    }
    let cpus: CpuSet = cpu::allowed_cpus().expect("known").iter().take(1).collect();
    let folder = tempfile::tempdir().expect("a directory");
    let mut journal = Journal::<Change>::create(folder.path(), "tuning", "tuning", &()).expect("new");
    let group = Change::plan_cpuset_group(host, &sets, &before.0, &cpus).expect("planned");
    let thread = Change::plan_thread_cpuset(host, &sets, id, id.pid, &cpus).expect("planned");
    let batch = journal.execute(vec![group, thread], host).expect("confined");
    let inside = place(host, &sets, id).0;
    assert_eq!(inside, format!("{}/vtax-confined-{}", before.0.trim_end_matches('/'), Pid::own()));
    let started = Sleeper(start_in(&inside).expect("a process there"));
    let other = ProcessId::of(Pid(started.0.id())).expect("it runs");
    assert_eq!(place(host, &sets, other).1, cpus);
    drop(journal);
    let mut journal = Journal::<Change>::open(folder.path(), "tuning").expect("there");
    assert_eq!(journal.undo_batch(batch, host).expect("undone").reverted, 2);
    assert_eq!(place(host, &sets, id), before);
    assert_eq!(place(host, &sets, other).0, before.0, "what was started there leaves it, too");
    println!("confined, with what was started there, and restored");
}

/// Returns the control group and the CPUs of a process.
fn place(host: &mut HostAccess, sets: &CpusetHierarchy, id: ProcessId) -> (String, CpuSet) {
    let group = sets.group_of(host, id, id.pid).expect("readable").expect("it runs");
    (group, cpu::thread_cpus(id.pid).expect("readable").expect("it runs"))
}

fn sleep() -> io::Result<Child> {
    Command::new("sleep").arg("100").spawn()
}

/// Starts a process whose only thread enters a threaded group.
fn start_in(group: &str) -> io::Result<Child> {
    let child = sleep()?;
    let list = format!("/sys/fs/cgroup/{}/cgroup.threads", group.trim_start_matches('/'));
    fs::write(list, child.id().to_string()).map(|()| child)
}

/// A process that is killed when the value is dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = ProcessId::of(Pid(self.0.id())).map(|id| id.signal(Signal::KILL));
        let _ = self.0.wait();
    }
}
