//! CPU time of programs that don't belong to vtax.
//!
//! The machine's busy time minus ours would also contain the interrupts of our own packets, which Linux charges to
//! whatever is running, to nobody, or to a separate column, depending on its build. The times of processes contain only
//! their own work. A process that has ended is in the times of the parent that waited for it (`cutime`,
//! proc_pid_stat(5)), so a compiler that starts a thousand short ones is included. Not included are the kernel's own
//! threads, processes of PID namespaces that aren't descendants of this one, and processes whose parent ignores their
//! end.

use std::{fs, path::PathBuf, time::Duration};

use super::machine::duration;
use crate::{
    error::{Result, SysError},
    process::{Pid, ProcessId, stat_field},
};

const PROC: &str = "/proc";
/// Flag of kernel threads among a process's flags (`include/linux/sched.h`).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Adds up the times of all processes except ours: this one, processes named by the caller, descendants of either, and
/// processes that work in a given directory.
#[derive(Debug)]
pub struct OtherProgramsMeter {
    own: Pid,
    working_in: Option<PathBuf>,
    /// Processes known to be ours, even after their parent has ended.
    ours: Vec<ProcessId>,
}

/// One process of `/proc`.
#[derive(Debug, PartialEq)]
struct Process {
    id: ProcessId,
    parent: Pid,
    /// Time of the process and of its children that have ended, in ticks.
    ticks: u64,
}

impl OtherProgramsMeter {
    /// Creates a meter that also counts processes working below this directory as ours: guests outlive the process that
    /// started them.
    pub fn new(working_in: Option<PathBuf>) -> OtherProgramsMeter {
        OtherProgramsMeter { own: Pid(std::process::id()), working_in, ours: Vec::new() }
    }

    /// Returns the CPU time of all others since they began; the processes of `named` are ours. Reads a file for each
    /// process, and a link for most of them.
    pub fn read(&mut self, named: &[Pid]) -> Result<Duration> {
        let entries = fs::read_dir(PROC).map_err(|e| SysError::os("read", PROC, e))?;
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid));
        // A process that has just ended is in its parent's time.
        let all: Vec<Process> = pids.filter_map(Process::read).collect();
        self.learn(&all, named);
        let others = all.iter().filter(|process| !self.ours.contains(&process.id));
        let ticks = others.map(|process| process.ticks).sum();
        Ok(duration(ticks, rustix::param::clock_ticks_per_second().max(1)))
    }

    /// Updates the set of our processes. `all` must be in numerical order, as listed in `/proc`.
    fn learn(&mut self, all: &[Process], named: &[Pid]) {
        let ours = all.iter().filter(|process| self.is_ours(process, all, named)).map(|process| process.id);
        self.ours = ours.collect();
    }

    fn is_ours(&self, process: &Process, all: &[Process], named: &[Pid]) -> bool {
        let parent = |process: &&Process| {
            all.binary_search_by_key(&process.parent.0, |one| one.id.pid.0).ok().and_then(|index| all.get(index))
        };
        // The list isn't a consistent snapshot, so it may contain a cycle.
        let mut ancestry = std::iter::successors(Some(process), parent).take(all.len());
        let is_root = |process: &Process| process.id.pid == self.own || named.contains(&process.id.pid);
        self.ours.contains(&process.id) || ancestry.any(is_root) || self.works_here(process)
    }

    fn works_here(&self, process: &Process) -> bool {
        let Some(directory) = &self.working_in else { return false };
        fs::read_link(format!("{PROC}/{}/cwd", process.id.pid)).is_ok_and(|cwd| cwd.starts_with(directory))
    }
}

impl Process {
    /// Reads a process. None if it has ended, or is a kernel thread.
    fn read(pid: Pid) -> Option<Process> {
        Process::parse(pid, &fs::read(format!("{PROC}/{pid}/stat")).ok()?)
    }

    /// Parses a line of proc_pid_stat(5).
    fn parse(pid: Pid, stat: &[u8]) -> Option<Process> {
        let field = |number| stat_field(stat, number)?.parse::<u64>().ok();
        let flags: u32 = stat_field(stat, 9)?.parse().ok()?;
        // The times of children are signed, and never below zero.
        let ticks = [14, 15, 16, 17].into_iter().map(field).try_fold(0, |sum: u64, ticks| sum.checked_add(ticks?))?;
        let parent = Pid(stat_field(stat, 4)?.parse().ok()?);
        let id = ProcessId { pid, start_ticks: field(22)? };
        (flags & PF_KTHREAD == 0).then_some(Process { id, parent, ticks })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        time::Instant,
    };

    use super::*;

    fn stat(parent: u32, flags: u32) -> String {
        format!("7 (a) b) S {parent} 7 7 0 -1 {flags} 900 0 0 0 10 20 300 4000 20 0 1 0 55 1000 200")
    }

    #[test]
    fn children_that_have_ended_count_and_the_kernels_threads_do_not() {
        let process = Process::parse(Pid(7), stat(3, 4_194_560).as_bytes()).expect("a process");
        let id = ProcessId { pid: Pid(7), start_ticks: 55 };
        assert_eq!(process, Process { id, parent: Pid(3), ticks: 4_330 });
        assert_eq!(Process::parse(Pid(7), stat(2, PF_KTHREAD | 64).as_bytes()), None);
        assert_eq!(Process::parse(Pid(7), b"7 (a) S 1"), None);
    }

    #[test]
    fn descendants_are_ours_also_when_their_parent_has_ended() {
        let process =
            |pid, parent| Process { id: ProcessId { pid: Pid(pid), start_ticks: 1 }, parent: Pid(parent), ticks: 1 };
        let mut meter = OtherProgramsMeter { own: Pid(10), working_in: None, ours: Vec::new() };
        let ours = |meter: &OtherProgramsMeter| meter.ours.iter().map(|id| id.pid.0).collect::<Vec<_>>();
        meter.learn(&[process(1, 0), process(10, 1), process(11, 10), process(12, 11), process(20, 1)], &[]);
        assert_eq!(ours(&meter), [10, 11, 12]);
        meter.learn(
            &[process(1, 0), process(10, 1), process(12, 1), process(20, 1), process(30, 31), process(31, 30)],
            &[],
        );
        assert_eq!(ours(&meter), [10, 12]);
        meter.learn(&[process(1, 0), process(10, 1), process(20, 1), process(21, 20)], &[Pid(20)]);
        assert_eq!(ours(&meter), [10, 20, 21], "an agent that sshd has started");
    }

    /// A shell that spends its time in the kernel, through children that end immediately.
    #[test]
    fn work_of_short_processes_in_the_kernel_is_seen_unless_it_is_ours() {
        const WORK: &str = "while :; do head -c 2000000 /dev/zero >/dev/null; done";
        let mut shell = Command::new("sh").args(["-c", WORK]).stdin(Stdio::null()).spawn().expect("sh");
        let mut others = OtherProgramsMeter::new(None);
        let mut all = OtherProgramsMeter { own: Pid(0), ..OtherProgramsMeter::new(None) };
        let mut read = || [&mut all, &mut others].map(|meter| meter.read(&[]).expect("/proc"));
        let ticks = || Process::read(Pid(shell.id())).expect("it runs").ticks;
        let (before, begun) = (read(), ticks());
        let until = Instant::now() + Duration::from_secs(300);
        while ticks() < begun + 50 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let worked = duration(ticks() - begun, rustix::param::clock_ticks_per_second());
        let [all, others] = [0, 1].map({
            let after = read();
            move |meter: usize| after[meter].saturating_sub(before[meter])
        });
        shell.kill().and_then(|()| shell.wait()).expect("ours");
        assert!(worked >= Duration::from_millis(400), "{worked:?}");
        // The two meters are read one after another, on a machine with other work.
        assert!(
            all >= worked && all - others.min(all) >= worked / 2,
            "{all:?}, {others:?} of others, {worked:?} of ours"
        );
    }
}
