//! The source's side of disk copies: QEMU mirrors the disks to its target over NBD until the guest is suspended.
//!
//! QEMU connects to a socket in its own directory, and this process forwards everything: QEMU's NBD client doesn't
//! accept a descriptor.

use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use vtax_model::{topology::Name, units::ByteSize};

use super::{
    LOOK, MigrationCancel, MigrationError, MigrationOptions, SILENCE_MOST, copy_node,
    key::{DISK_KEY_ID, give_key},
};
use crate::{
    error::GuestError,
    process::Qemu,
    qmp::{BlockJob, JobStatus, Monitor, PATIENCE, TlsEndpoint},
    storage,
};

/// The name of the socket in QEMU's directory.
const SOCKET: &str = "copy.sock";
/// Bytes forwarded at a time.
const PIECE: usize = 256 << 10;
/// Time limit for the target's first answer.
const ANSWERED: Duration = Duration::from_secs(30);
/// Polling interval of jobs that are about to end.
const GLANCE: Duration = Duration::from_millis(1);

/// A disk to be copied.
#[derive(Debug)]
pub struct DiskToCopy {
    pub name: Name,
    /// The number of its port.
    pub port: u32,
    /// Connection to the target's NBD server ([`serve_disks`](super::serve_disks)).
    pub wire: OwnedFd,
}

/// Bytes of all disks being copied. The total grows as the guest writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskProgress {
    pub copied: ByteSize,
    pub total: ByteSize,
}

/// Disks that QEMU mirrors to the target. When this is dropped, the connections and so the mirrors end; [`end_mirrors`]
/// then removes what is left of them.
#[derive(Debug)]
pub struct DiskMirrors {
    guest: Name,
    mirrors: Vec<DiskMirror>,
    /// Bytes forwarded, in both directions.
    moved: Arc<AtomicU64>,
}

#[derive(Debug)]
struct DiskMirror {
    disk: Name,
    node: String,
    carrier: Carrier,
}

impl DiskMirrors {
    /// Connects QEMU to the target, and starts copying. The disks share the bandwidth of the options.
    pub fn start(
        qemu: &mut Qemu,
        disks: Vec<DiskToCopy>,
        options: &MigrationOptions,
    ) -> Result<DiskMirrors, MigrationError> {
        let (guest, moved) = (qemu.launch().name.clone(), Arc::default());
        let share = options.limits.bandwidth.map(|limit| ByteSize((limit.0 / disks.len().max(1) as u64).max(1)));
        for disk in &disks {
            await_bytes(&disk.wire).map_err(|error| failed(&guest, &disk.name, &error))?;
        }
        let mut monitor = qemu.monitor(PATIENCE)?;
        let key = give_key(&mut monitor, qemu.launch(), options.key.as_ref(), (DISK_KEY_ID, TlsEndpoint::Client));
        let key = key.map_err(MigrationError::of_command)?;
        let creds = key.as_ref().map(|_| DISK_KEY_ID);
        let mut mirrors = DiskMirrors { guest, mirrors: Vec::new(), moved };
        for disk in disks {
            let carrier = mirrors.connect(&mut monitor, (&qemu.launch().directory, creds), &disk)?;
            let (node, source) = (copy_node(disk.port), crate::vdisk::node(disk.port));
            mirrors.mirrors.push(DiskMirror { disk: disk.name, node: node.clone(), carrier });
            monitor.mirror_blocks(&source, &node, share).map_err(MigrationError::of_command)?;
        }
        Ok(mirrors)
    }

    fn connect(
        &self,
        monitor: &mut Monitor,
        (directory, creds): (&Path, Option<&str>),
        disk: &DiskToCopy,
    ) -> Result<Carrier, MigrationError> {
        let wrong = |error: io::Error| failed(&self.guest, &disk.name, &error);
        let path = directory.join(SOCKET);
        let listener = storage::listen(&path)?;
        let target = UnixStream::from(disk.wire.try_clone().map_err(wrong)?);
        monitor.begin_nbd_client(&copy_node(disk.port), SOCKET, disk.name.as_str(), creds)?;
        let carried = accept(&listener).and_then(|qemu| Carrier::start(qemu, target, &self.moved));
        let _ = std::fs::remove_file(&path);
        let added = monitor.blocks_added().map_err(|error| said(&self.guest, &disk.name, error));
        added.and(carried.map_err(wrong))
    }

    /// Waits until all disks are in sync. They stay in sync, as each write of the guest goes to both sides.
    pub fn copy(
        &self,
        qemu: &mut Qemu,
        cancel: &MigrationCancel,
        hear: &mut dyn FnMut(DiskProgress),
    ) -> Result<(), MigrationError> {
        let (mut last, mut at) = (0, Instant::now());
        loop {
            // The monitor is released in between for others.
            let jobs = qemu.monitor(PATIENCE)?.block_jobs()?;
            let own = self.mirrors.iter().map(|mirror| self.job(mirror, &jobs)).collect::<Result<Vec<_>, _>>()?;
            let sum = |bytes: fn(&BlockJob) -> u64| ByteSize(own.iter().map(|job| bytes(job)).sum());
            hear(DiskProgress { copied: sum(|job| job.current_progress), total: sum(|job| job.total_progress) });
            if own.iter().all(|job| job.status == JobStatus::Ready) {
                return Ok(());
            }
            if cancel.is_cancelled() {
                return Err(MigrationError::Cancelled { guest: self.guest.clone() });
            }
            let moved = self.moved.load(Ordering::Relaxed);
            if moved != last {
                (last, at) = (moved, Instant::now());
            } else if at.elapsed() >= SILENCE_MOST {
                return Err(MigrationError::WireCut { guest: self.guest.clone(), silent: at.elapsed() });
            }
            thread::sleep(LOOK);
        }
    }

    /// Completes the copies for a guest whose vCPUs are stopped, and disconnects. Afterwards both sides have the same
    /// blocks.
    pub fn complete(&self, monitor: &mut Monitor) -> Result<(), MigrationError> {
        let jobs = monitor.block_jobs()?;
        for mirror in &self.mirrors {
            self.job(mirror, &jobs)?;
            monitor.end_block_job(&mirror.node, false).map_err(|error| said(&self.guest, &mirror.disk, error))?;
        }
        let deadline = Instant::now() + SILENCE_MOST;
        for mirror in &self.mirrors {
            self.await_end(monitor, mirror, deadline)?;
            monitor.dismiss_job(&mirror.node)?;
            monitor.remove_blocks(&mirror.node)?;
        }
        Ok(())
    }

    fn await_end(&self, monitor: &mut Monitor, mirror: &DiskMirror, deadline: Instant) -> Result<(), MigrationError> {
        loop {
            let jobs = monitor.block_jobs()?;
            match jobs.iter().find(|job| job.id == mirror.node) {
                Some(job) if job.status == JobStatus::Concluded && job.error.is_none() => return Ok(()),
                Some(_) if Instant::now() >= deadline => {
                    return Err(MigrationError::WireCut { guest: self.guest.clone(), silent: SILENCE_MOST });
                }
                _ => drop(self.job(mirror, &jobs)?),
            }
            thread::sleep(GLANCE);
        }
    }

    /// Returns the job of a mirror, unless it has failed.
    fn job<'a>(&self, mirror: &DiskMirror, jobs: &'a [BlockJob]) -> Result<&'a BlockJob, MigrationError> {
        let (guest, disk) = (self.guest.clone(), mirror.disk.clone());
        let job = jobs.iter().find(|job| job.id == mirror.node);
        let why = match job.map(|job| (job, &job.error)) {
            Some((_, Some(error))) => error.clone(),
            Some((job, None)) if job.status == JobStatus::Concluded => "the copy has ended early".into(),
            // With a bandwidth limit, QEMU notices it late.
            Some((job, None)) if job.status == JobStatus::Other && mirror.carrier.has_ended() => {
                "the target has closed the connection".into()
            }
            Some((job, None)) => return Ok(job),
            None => "QEMU no longer has this job".into(),
        };
        Err(MigrationError::DiskNotCopied { guest, disk, said: why })
    }
}

/// Removes remaining copies of the disks at these ports, whoever started them. The guest continues with its own disks.
pub fn end_mirrors(qemu: &mut Qemu, ports: &[u32]) -> Result<(), GuestError> {
    if ports.is_empty() {
        return Ok(());
    }
    let nodes: Vec<String> = ports.iter().copied().map(copy_node).collect();
    let mut monitor = qemu.monitor(PATIENCE)?;
    let deadline = Instant::now() + SILENCE_MOST;
    loop {
        let jobs = monitor.block_jobs()?;
        let own: Vec<&BlockJob> = jobs.iter().filter(|job| nodes.contains(&job.id)).collect();
        for job in &own {
            // It may end by itself in the meantime, since its connection has ended.
            let _ = match job.status {
                JobStatus::Concluded => monitor.dismiss_job(&job.id),
                _ => monitor.end_block_job(&job.id, true),
            };
        }
        if own.is_empty() || Instant::now() >= deadline {
            break;
        }
        thread::sleep(GLANCE);
    }
    // A refusal means that it doesn't exist.
    nodes.iter().for_each(|node| drop(monitor.remove_blocks(node)));
    let _ = monitor.remove_object(DISK_KEY_ID);
    Ok(())
}

/// Waits for the other side's first bytes: before QEMU waits for them, with its guest's devices blocked.
fn await_bytes(wire: &OwnedFd) -> io::Result<()> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "the target does not answer");
    let limit = Timespec { tv_sec: ANSWERED.as_secs().cast_signed(), tv_nsec: 0 };
    let mut polled = [PollFd::new(wire, PollFlags::IN)];
    loop {
        match poll(&mut polled, Some(&limit)) {
            Ok(0) => return Err(late()),
            Ok(_) if polled[0].revents().contains(PollFlags::IN) => break,
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut byte = [0; 1];
    let (_, count) = rustix::net::recv(wire.as_fd(), &mut byte, rustix::net::RecvFlags::PEEK)?;
    match count {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the target has closed the connection")),
        _ => Ok(()),
    }
}

fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                thread::sleep(GLANCE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Forwards data between QEMU and its target until one of them disconnects or this is dropped.
#[derive(Debug)]
struct Carrier {
    streams: [UnixStream; 2],
    has_ended: Arc<AtomicBool>,
}

impl Carrier {
    fn start(qemu: UnixStream, target: UnixStream, moved: &Arc<AtomicU64>) -> io::Result<Carrier> {
        let streams = [qemu.try_clone()?, target.try_clone()?];
        let carrier = Carrier { streams, has_ended: Arc::default() };
        for (from, to) in [(qemu.try_clone()?, target.try_clone()?), (target, qemu)] {
            let (moved, has_ended) = (Arc::clone(moved), Arc::clone(&carrier.has_ended));
            let pass = move || {
                // Whatever the cause of its end, the job reports it.
                let _ = pass(&from, &to, &moved);
                has_ended.store(true, Ordering::Release);
            };
            thread::Builder::new().name("disk".into()).spawn(pass)?;
        }
        Ok(carrier)
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // An error means that it is closed.
        self.streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

/// Copies until the end of `from`, then closes the other direction.
fn pass(mut from: &UnixStream, mut to: &UnixStream, moved: &AtomicU64) -> io::Result<()> {
    use io::{Read, Write};
    let mut piece = vec![0; PIECE];
    let passed = loop {
        match from.read(&mut piece) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                moved.fetch_add(count as u64, Ordering::Relaxed);
                if let Err(error) = to.write_all(&piece[..count]) {
                    break Err(error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
    passed
}

fn failed(guest: &Name, disk: &Name, error: &io::Error) -> MigrationError {
    MigrationError::DiskNotCopied { guest: guest.clone(), disk: disk.clone(), said: error.to_string().into() }
}

fn said(guest: &Name, disk: &Name, error: GuestError) -> MigrationError {
    match error {
        GuestError::Refused { description, .. } => {
            MigrationError::DiskNotCopied { guest: guest.clone(), disk: disk.clone(), said: description }
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        sync::mpsc::{Receiver, channel},
    };

    use serde_json::{Value, json};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// A stand-in for QEMU with one job, which passes through these states; the last one persists. It returns the
    /// commands.
    fn stand_in(states: &[Value]) -> (Monitor, Receiver<String>) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (commands, asked) = channel();
        let mut states = states.to_vec();
        thread::spawn(move || {
            let mut lines = BufReader::new(theirs.try_clone().expect("a copy")).lines();
            let say = |text: &str| writeln!(&theirs, "{text}").expect("the test reads");
            say(r#"{"QMP": {"version": {}, "capabilities": []}}"#);
            while let Some(Ok(line)) = lines.next() {
                let command: Value = serde_json::from_str(&line).expect("a command");
                let answer = match command["execute"].as_str().expect("a name") {
                    "query-jobs" => {
                        let mut job = json!({ "id": "copy3", "current-progress": 5, "total-progress": 7 });
                        let now = if states.len() > 1 { states.remove(0) } else { states[0].clone() };
                        job.as_object_mut().expect("a job").extend(now.as_object().expect("a state").clone());
                        json!([job])
                    }
                    other => {
                        let _ = commands.send(format!("{other} {}", command["arguments"]));
                        json!({})
                    }
                };
                say(&json!({ "id": command["id"], "return": answer }).to_string());
            }
        });
        let monitor = Monitor::greet(&name("mars"), ours, Instant::now() + PATIENCE).expect("greeted");
        assert!(asked.recv().expect("it greets").starts_with("qmp_capabilities"));
        (monitor, asked)
    }

    /// A mirror with the other ends of its connections.
    fn mirrors() -> (DiskMirrors, [UnixStream; 2]) {
        let moved = Arc::default();
        let ((qemu, ours), (target, theirs)) =
            (UnixStream::pair().expect("a pair"), UnixStream::pair().expect("a pair"));
        let carrier = Carrier::start(ours, theirs, &moved).expect("two threads");
        let mirror = DiskMirror { disk: name("data"), node: copy_node(3), carrier };
        (DiskMirrors { guest: name("mars"), mirrors: vec![mirror], moved }, [qemu, target])
    }

    #[test]
    fn a_copy_is_completed_before_its_connection_ends() {
        let states = [json!({ "status": "ready" }), json!({ "status": "pending" }), json!({ "status": "concluded" })];
        let (mut monitor, asked) = stand_in(&states);
        mirrors().0.complete(&mut monitor).expect("it completes");
        drop(monitor);
        let commands: Vec<String> = asked.iter().collect();
        let expected = [
            r#"block-job-cancel {"device":"copy3","force":false}"#,
            r#"job-dismiss {"id":"copy3"}"#,
            r#"blockdev-del {"node-name":"copy3"}"#,
        ];
        assert_eq!(commands, expected);
    }

    #[test]
    fn a_copy_that_fails_at_the_end_is_an_error() {
        let failed = json!({ "status": "concluded", "error": "No space left on device" });
        for states in
            [vec![failed.clone()], vec![json!({ "status": "ready" }), json!({ "status": "aborting" }), failed]]
        {
            let (mut monitor, asked) = stand_in(&states);
            let error = mirrors().0.complete(&mut monitor).expect_err("it has failed");
            assert!(error.is_undone(), "{error}");
            assert!(error.to_string().contains("disk `data` of guest `mars` could not be copied: No space"), "{error}");
            drop(monitor);
            assert!(
                asked.iter().all(|command| !command.starts_with("job-dismiss")),
                "it is not removed as if it were done"
            );
        }
    }

    #[test]
    fn a_target_that_has_closed_the_connection_is_noticed_before_qemu_does() {
        let (mirrors, [_qemu, target]) = mirrors();
        let job = BlockJob {
            id: copy_node(3),
            status: JobStatus::Other,
            current_progress: 5,
            total_progress: 7,
            error: None,
        };
        mirrors.job(&mirrors.mirrors[0], std::slice::from_ref(&job)).expect("it is under way");
        drop(target);
        let deadline = Instant::now() + PATIENCE;
        while !mirrors.mirrors[0].carrier.has_ended() && Instant::now() < deadline {
            thread::sleep(GLANCE);
        }
        let error = mirrors.job(&mirrors.mirrors[0], &[job]).expect_err("it is closed");
        assert!(error.to_string().contains("the target has closed the connection"), "{error}");
        mirrors.job(&mirrors.mirrors[0], &[]).expect_err("there is no job");
    }

    #[test]
    fn both_directions_are_forwarded_until_the_copy_is_abandoned() {
        let (mirrors, [mut qemu, mut target]) = mirrors();
        qemu.write_all(b"blocks").expect("open");
        target.write_all(b"ok").expect("open");
        let mut answer = [0; 2];
        qemu.read_exact(&mut answer).expect("open");
        let mut blocks = [0; 6];
        target.read_exact(&mut blocks).expect("open");
        assert_eq!((&answer, &blocks), (b"ok", b"blocks"));
        assert_eq!(mirrors.moved.load(Ordering::Relaxed), 8);
        drop(mirrors);
        assert_eq!(qemu.read(&mut answer).expect("the end"), 0);
        assert_eq!(target.read(&mut blocks).expect("the end"), 0);
    }

    #[test]
    fn qemu_gets_a_connection_only_once_the_target_has_answered() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"NBD").expect("open");
        let wire = OwnedFd::from(ours);
        await_bytes(&wire).expect("it has answered");
        let mut greeting = [0; 3];
        UnixStream::from(wire.try_clone().expect("a copy")).read_exact(&mut greeting).expect("all is still there");
        assert_eq!(&greeting, b"NBD");
        drop(theirs);
        await_bytes(&wire).expect_err("it has gone");
    }
}
