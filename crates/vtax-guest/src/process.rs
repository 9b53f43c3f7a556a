//! A running QEMU, from its start to its end.

mod plug;

use std::{
    fs::{self, File},
    mem,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use vtax_model::{foreign::ForeignText, guest::Accelerator, units::ByteSize};
use vtax_sys::{
    SysError,
    cpu::process_time,
    inherit::{die_with_parent, inherit},
    netns::Outlive,
    process::{Pid, ProcessId, Signal, all_pids, kill_all},
};

use super::{
    arguments::{AGENT_CHARDEV, arguments_with},
    error::GuestError,
    files::QemuFiles,
    home::{self, Home},
    last_words::LastWords,
    launch::{Boot, Launch},
    limits::Limits,
    memory, paths,
    qmp::Monitor,
    threads::{GuestPins, Threads},
};

/// `sun_path` with its zero, unix(7).
const LONGEST_PATH: usize = 107;
/// Time for a guest to exit when it is removed. It has saved its data before.
pub const STOP: Duration = Duration::from_secs(4);
/// With a PCI device, QEMU needs seconds to map all memory in the IOMMU, page by page in an emulated server.
const READY: Duration = Duration::from_secs(180);
/// Polling interval for a socket that QEMU hasn't created yet.
const PAUSE: Duration = Duration::from_millis(5);
/// Shortest and longest interval between looks whether a guest's agent has opened its port.
const LOOKS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The interval grows by this part of the elapsed time, so that looks use much less CPU time than a booting guest
/// ([`IDLE`]).
const LOOKS_SLOW_DOWN: u32 = 50;
/// Interval of messages about a guest that is being waited for.
const OFTEN: Duration = Duration::from_secs(15);
/// A booting guest uses more CPU time than this per [`OFTEN`], even next to ten other busy programs. A waiting one uses
/// about a tenth of it.
const IDLE: Duration = Duration::from_millis(500);
/// Time for a process to exit after SIGKILL; part of it frees the guest's memory.
const KILLED: Duration = Duration::from_secs(10);
/// The kernel frees a guest's memory within this time, even if VFIO has locked it.
const FREED: Duration = Duration::from_secs(60);
/// Time for QEMU to exit after it closes its monitor.
const CLOSING: Duration = Duration::from_secs(2);

/// A guest's QEMU. Dropping this value doesn't end QEMU: a lab outlives the process that created it.
#[derive(Debug)]
pub struct Qemu {
    launch: Launch,
    process: ProcessId,
    /// True if this value started QEMU, and so has to reap it.
    started_here: bool,
}

impl Qemu {
    /// Starts a guest, as a dedicated user and without privilege. `queues` are queue descriptors for QEMU: for each NIC
    /// as many as [`Launch::handed_queues`] returns. No other program inherits them. `prepare` may add privileged steps
    /// to the command, such as entering a namespace. [`home::remove`] cleans up when the guest has exited, or if this
    /// fails.
    pub fn start(
        launch: Launch,
        queues: Vec<Vec<OwnedFd>>,
        outlive: Outlive,
        prepare: impl FnOnce(&mut Command) -> Result<(), SysError>,
    ) -> Result<Qemu, GuestError> {
        let sockets = [launch.agent_socket(), launch.console_socket(), launch.qmp_socket()];
        if let Some(path) = sockets.into_iter().find(|socket| socket.as_os_str().len() > LONGEST_PATH) {
            return Err(GuestError::SocketPath { guest: launch.name, path, longest: LONGEST_PATH });
        }
        let files = QemuFiles::open(&launch, queues)?;
        let Home { confinement, messages, other_tmpdir } = home::make(&launch)?;
        launch.disks.disks.iter().try_for_each(|disk| paths::begin(&launch, disk))?;
        let mut command = command(&launch, files, messages)?;
        if other_tmpdir {
            command.env_remove("TMPDIR");
        }
        let spawn = || {
            prepare(&mut command)?;
            confinement.apply(&mut command);
            if outlive == Outlive::No {
                die_with_parent(&mut command);
            }
            let program = launch.qemu.path.display();
            let child = command.spawn().map_err(|errno| SysError::plain("start", program, errno))?;
            ProcessId::of(Pid(child.id()))
        };
        let guest = launch.name.clone();
        let process = spawn().map_err(|error| GuestError::Start { guest, error: Box::new(error) })?;
        Ok(Qemu { launch, process, started_here: true })
    }

    /// A guest that was started by another process, or by this one earlier.
    pub fn attach(launch: Launch, process: ProcessId) -> Qemu {
        Qemu { launch, process, started_here: false }
    }

    /// Its launch parameters.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// QEMU's process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Returns true if QEMU is running.
    pub fn is_alive(&self) -> bool {
        matches!(self.process.wait_end(Duration::ZERO), Ok(false))
    }

    /// Returns its exit status with its last messages, if it has exited or exits in time.
    pub fn death(&self, patience: Duration) -> Option<GuestError> {
        self.process.wait_end(patience).unwrap_or(false).then(|| self.ended())
    }

    /// Waits until QEMU answers at its monitor and the guest starts to boot. An error includes the last messages.
    pub fn wait_ready(&mut self, patience: Duration) -> Result<(), GuestError> {
        self.first_monitor(Instant::now() + patience, patience).map(|_| ())
    }

    /// Waits until it is ready, and pins its threads.
    pub fn settle(&mut self, pins: &GuestPins) -> Result<(), GuestError> {
        self.wait_ready(READY)?;
        match pins.is_empty() {
            true => Ok(()),
            false => self.pin(pins, READY),
        }
    }

    /// Waits until the agent in the guest has opened its port. An error includes the last messages.
    pub fn wait_agent(&mut self, patience: Duration) -> Result<(), GuestError> {
        self.wait_agent_telling(patience, |_, _| {})
    }

    /// Like [`Qemu::wait_agent`]. Every 15 seconds `tell` receives the elapsed time and the console's last line. If
    /// QEMU seems to have lost the timer of a processor, the guest is reset once. Between looks the monitor is free for
    /// others: the supervisor of a domain may have to start the guest's processors.
    pub fn wait_agent_telling(
        &mut self,
        patience: Duration,
        mut tell: impl FnMut(Duration, &ForeignText),
    ) -> Result<(), GuestError> {
        let begun = Instant::now();
        let deadline = begun + patience;
        let mut telling = begun + OFTEN;
        let mut used = self.cpu_time();
        let mut is_reset = false;
        loop {
            let looked = Instant::now();
            // The last look has time for an answer.
            let mut monitor = self.first_monitor(deadline.max(looked + LOOKS.1), patience)?;
            let now = monitor.is_port_open(AGENT_CHARDEV).and_then(|open| Ok((open, monitor.status()?)));
            match now.map_err(|error| self.explain(error))? {
                (true, _) if is_reset => return monitor.end_at_reboot().map_err(|error| self.explain(error)),
                (true, _) => return Ok(()),
                (_, status) if !status.running && !status.is_starting() => return Err(self.stopped(status.status)),
                _ => {}
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(self.late("has no agent on its port", patience));
            }
            if now >= telling {
                telling = now + OFTEN;
                let mut words = self.last_words();
                let before = mem::replace(&mut used, self.cpu_time());
                let is_idle = used.saturating_sub(before) < IDLE;
                if !is_reset && self.may_lose_timers() && (is_idle || words.has_lost_timer()) {
                    is_reset = true;
                    // The BIOS resets the machine a second time, which mustn't end QEMU either.
                    monitor.let_reboot().and_then(|()| monitor.reset()).map_err(|error| self.explain(error))?;
                }
                tell(begun.elapsed(), &words.console.pop().unwrap_or_default());
            }
            drop(monitor);
            // In an emulated server, looks use the CPU of the guest that is waited for.
            let pause = (begun.elapsed() / LOOKS_SLOW_DOWN).clamp(LOOKS.0, LOOKS.1).max(3 * looked.elapsed());
            thread::sleep(pause.min(deadline.min(telling).saturating_duration_since(Instant::now())));
        }
    }

    /// Under TCG, about one boot in several hundred hangs: a processor no longer receives timer interrupts. (Seen in
    /// QEMU 10.0; the cause is unknown.) Whatever waits for that processor waits forever. Late in the boot, the kernel
    /// reports it; early, all processors are idle and nothing is reported. A guest that boots its own system isn't
    /// reset: its disk could suffer.
    fn may_lose_timers(&self) -> bool {
        self.launch.accel == Accelerator::Tcg && matches!(self.launch.boot, Boot::Kernel { .. })
    }

    /// Returns the CPU time used by QEMU, or 0 if it has exited.
    fn cpu_time(&self) -> Duration {
        process_time(self.process.pid.0).unwrap_or_default()
    }

    /// A connection to the monitor. No other client can connect until it is dropped.
    pub fn monitor(&mut self, patience: Duration) -> Result<Monitor, GuestError> {
        let monitor = Monitor::connect(&self.launch.name, &self.launch.qmp_socket(), patience);
        monitor.map_err(|error| self.explain(error))
    }

    /// Host threads of the guest.
    pub fn threads(&mut self, patience: Duration) -> Result<Threads, GuestError> {
        let mut monitor = self.monitor(patience)?;
        Threads::of(&self.launch.name, self.process, &mut monitor).map_err(|error| self.explain(error))
    }

    /// Pins its threads, once QEMU is [ready](Qemu::wait_ready). Missing vhost threads are an error.
    pub fn pin(&mut self, pins: &GuestPins, patience: Duration) -> Result<(), GuestError> {
        let threads = self.threads(patience)?;
        threads.pin(&self.launch.name, pins)?;
        let (wanted, found) = (self.launch.vhost_threads() as usize, threads.vhost.len());
        if !pins.vhost_cpus.is_empty() && found < wanted {
            return Err(GuestError::NoVhost { guest: self.launch.name.clone(), wanted, found });
        }
        Ok(())
    }

    /// Memory of QEMU in addition to the guest's RAM, see [`memory::overhead`].
    pub fn overhead(&self) -> Result<ByteSize, GuestError> {
        memory::overhead(&self.launch, self.process)
    }

    /// RAM used by the guest, see [`memory::used_ram`].
    pub fn used_ram(&self) -> Result<ByteSize, GuestError> {
        memory::used_ram(&self.launch, self.process)
    }

    /// Stops QEMU: a request to quit, SIGTERM after half of `patience`, and finally SIGKILL. A guest whose disk is kept
    /// should be powered off first. It is not an error if QEMU has already exited. This fails only if not even SIGKILL
    /// ends it.
    pub fn stop(&mut self, patience: Duration) -> Result<(), GuestError> {
        let start = Instant::now();
        if self.is_alive() {
            let quit = self.monitor(patience / 4).and_then(|mut monitor| monitor.quit());
            // If QEMU doesn't accept the command, there is nothing to wait for.
            let left = (patience / 2).saturating_sub(start.elapsed());
            let ended = quit.is_ok() && self.wait_end(left)?;
            if !ended && !self.end_by(Signal::TERM, patience.saturating_sub(start.elapsed()))? {
                self.kill()?;
            }
        }
        if self.started_here {
            self.process.reap();
        }
        Ok(())
    }

    /// Last output of the guest and its QEMU.
    pub fn last_words(&self) -> LastWords {
        LastWords::of(&self.launch)
    }

    fn first_monitor(&mut self, deadline: Instant, patience: Duration) -> Result<Monitor, GuestError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(monitor) = Monitor::connect(&self.launch.name, &self.launch.qmp_socket(), left) {
                return Ok(monitor);
            }
            if let Some(death) = self.death(Duration::ZERO) {
                return Err(death);
            }
            if left.is_zero() {
                return Err(self.late("has a QEMU that does not answer on its monitor", patience));
            }
            thread::sleep(PAUSE);
        }
    }

    /// If the monitor fails because QEMU has just exited, its exit is the better error.
    pub(super) fn explain(&self, error: GuestError) -> GuestError {
        let by_death = matches!(error, GuestError::Monitor { .. } | GuestError::Process { .. });
        if by_death { self.death(CLOSING).unwrap_or(error) } else { error }
    }

    fn ended(&self) -> GuestError {
        let (guest, status, words) = (self.launch.name.clone(), self.process.ending(), Box::new(self.last_words()));
        match home::over_memory(&self.launch, &words) {
            Some(by) => GuestError::OverMemory { guest, limit: Limits::of(&self.launch).memory, by, words },
            None => GuestError::Ended { guest, status, words },
        }
    }

    fn stopped(&self, state: String) -> GuestError {
        GuestError::Stopped { guest: self.launch.name.clone(), state: state.into(), words: Box::new(self.last_words()) }
    }

    fn late(&self, missing: &'static str, waited: Duration) -> GuestError {
        let words = Box::new(self.last_words());
        GuestError::Late { guest: self.launch.name.clone(), missing, waited, words }
    }

    fn end_by(&self, signal: Signal, patience: Duration) -> Result<bool, GuestError> {
        self.process.signal(signal).map_err(GuestError::process(&self.launch.name))?;
        self.wait_end(patience)
    }

    fn wait_end(&self, patience: Duration) -> Result<bool, GuestError> {
        self.process.wait_end(patience).map_err(GuestError::process(&self.launch.name))
    }

    fn kill(&self) -> Result<(), GuestError> {
        if self.end_by(Signal::KILL, KILLED)? {
            return Ok(());
        }
        Err(GuestError::Unkillable { guest: self.launch.name.clone(), pid: self.process.pid.0 })
    }
}

/// Stops a guest. If its QEMU is unknown, it is found by the guest's directory. Returns true if it was running.
pub fn end(launch: &Launch, known: Option<Qemu>) -> Result<bool, GuestError> {
    let Some(mut qemu) = known else {
        return end_below(&launch.directory).map_err(GuestError::process(&launch.name));
    };
    let was_alive = qemu.is_alive();
    qemu.stop(STOP)?;
    Ok(was_alive)
}

/// Kills the QEMUs whose working directory is this one or below it: a guest's QEMU never leaves the guest's directory.
/// They may hold a device, whose driver would wait. Returns true if there was one.
pub fn end_below(directory: &Path) -> Result<bool, SysError> {
    let killed = kill_below(directory)?;
    kill_all(&killed, FREED)?;
    Ok(!killed.is_empty())
}

/// Like [`end_below`], but doesn't wait for them to exit. Returns the killed processes.
pub fn kill_below(directory: &Path) -> Result<Vec<ProcessId>, SysError> {
    let is_guest = |pid: &Pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word.starts_with(b"guest="))
            && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(directory))
    };
    // A process that has exited in the meantime is omitted.
    let running: Vec<ProcessId> =
        all_pids()?.into_iter().filter(is_guest).filter_map(|pid| ProcessId::of(pid).ok()).collect();
    kill_all(&running, Duration::ZERO)?;
    Ok(running)
}

/// QEMU has a separate process group, so that Ctrl-C in the terminal reaches only vtax.
fn command(launch: &Launch, files: QemuFiles<OwnedFd>, messages: File) -> Result<Command, GuestError> {
    let copy = messages.try_clone().map_err(GuestError::file("use", launch.stderr_log()))?;
    let mut command = Command::new(&launch.qemu.path);
    command.args(arguments_with(launch, &files.numbers())).process_group(0);
    command.stdin(Stdio::null()).stdout(messages).stderr(copy);
    inherit(&mut command, files.into_all());
    Ok(command)
}

#[cfg(test)]
mod tests;
