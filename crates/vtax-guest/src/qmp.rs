//! QEMU's monitor: the QEMU Machine Protocol over its socket.
//!
//! Both sides send one JSON object per line. QEMU greets, and the client answers with `qmp_capabilities`. Each command
//! then has a reply with the command's `id`, with events in between (docs/interop/qmp-spec in QEMU). The socket serves
//! one client at a time; others wait without any answer. So a [`Monitor`] should be short-lived, and every wait has a
//! deadline.

mod blocks;
mod devices;
mod migration;
mod migration_info;
#[cfg(test)]
mod tests;
mod time;

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

pub use blocks::{BlockJob, JobStatus};
pub use devices::Pulled;
pub use migration::{CPU_THROTTLE_MOST, MigrationCapabilities, MigrationParameters, Throttling, TlsEndpoint};
pub use migration_info::{DirtyRate, MigrationInfo, MigrationRam, MigrationSocket, MigrationStatus};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use socket2::{Domain, SockAddr, Socket, Type};
pub use time::HostTime;
use time::QmpTimestamp;
use vtax_model::{foreign::ForeignText, topology::Name};

use super::{arguments::CONSOLE_CHARDEV, error::GuestError};

/// Timeout for QEMU's answer, which takes microseconds unless its main loop is starved.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line accepted. No reply to the commands here is nearly as long.
const LONGEST: usize = 1 << 20;
/// Maximum number of buffered events. Older ones are dropped.
const KEPT: usize = 256;

/// A connection to a guest's monitor. A command fails if QEMU refuses it, times out, or has closed the monitor.
#[derive(Debug)]
pub struct Monitor {
    guest: Name,
    stream: UnixStream,
    pending: Vec<u8>,
    events: VecDeque<QmpEvent>,
    last: u64,
}

/// Ends a connection to a monitor when dropped, while another thread reads from it.
#[derive(Debug)]
pub struct HangUp(UnixStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// An event in QEMU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct QmpEvent {
    /// Its name, such as `SHUTDOWN` or `VSERPORT_CHANGE`.
    #[serde(rename = "event")]
    pub name: String,
    #[serde(default)]
    pub data: Map<String, Value>,
    #[serde(default)]
    timestamp: Option<QmpTimestamp>,
}

impl QmpEvent {
    /// The time of the event, on the clock of QEMU's host, if QEMU knows it.
    pub fn at(&self) -> Option<HostTime> {
        self.timestamp.and_then(QmpTimestamp::time)
    }
}

/// Reply to `query-status`: whether the guest's processors run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// True if they run.
    pub running: bool,
    /// The state in QEMU's words: `running`, `paused`, `internal-error` ….
    pub status: String,
}

impl Status {
    /// The state of a guest whose processors haven't started.
    const STARTING: &str = "prelaunch";

    /// Returns true if the guest's processors haven't started.
    pub fn is_starting(&self) -> bool {
        self.status == Status::STARTING
    }
}

/// A virtual CPU (`query-cpus-fast`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Vcpu {
    /// Its number in the guest, from 0.
    #[serde(rename = "cpu-index")]
    pub index: u32,
    /// The host thread that runs it.
    #[serde(rename = "thread-id")]
    pub thread: u32,
}

/// A line from QEMU. The greeting has none of these fields.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "return")]
    answer: Option<Value>,
    error: Option<Refusal>,
    id: Option<u64>,
    #[serde(flatten)]
    event: Option<QmpEvent>,
}

#[derive(Deserialize)]
struct Refusal {
    class: ForeignText,
    desc: ForeignText,
}

#[derive(Deserialize)]
struct Port {
    label: String,
    filename: String,
    #[serde(rename = "frontend-open")]
    open: bool,
}

impl Monitor {
    /// Connects and greets. This fails if nobody listens, if QEMU hangs, or if another client is connected.
    pub fn connect(guest: &Name, socket: &Path, patience: Duration) -> Result<Monitor, GuestError> {
        let deadline = Instant::now() + patience;
        let fail =
            |why: String| GuestError::Monitor { guest: guest.clone(), command: "greeting".to_owned(), why: why.into() };
        let stream = connect(socket, patience).map_err(|error| fail(format!("cannot be reached: {error}")))?;
        Monitor::greet(guest, stream, deadline)
    }

    pub(super) fn greet(guest: &Name, stream: UnixStream, deadline: Instant) -> Result<Monitor, GuestError> {
        let guest = guest.clone();
        let mut monitor = Monitor { guest, stream, pending: Vec::new(), events: VecDeque::new(), last: 0 };
        let greeting: Value = monitor.line("greeting", deadline)?;
        if greeting.get("QMP").is_none() {
            return Err(monitor.fail("greeting", format!("is not a QMP monitor: it sent {greeting}")));
        }
        monitor.ask::<Value>("qmp_capabilities", json!({}), deadline)?;
        Ok(monitor)
    }

    /// Returns the run state of the guest's processors.
    pub fn status(&mut self) -> Result<Status, GuestError> {
        self.query("query-status")
    }

    /// The virtual CPUs and their threads.
    pub fn vcpus(&mut self) -> Result<Vec<Vcpu>, GuestError> {
        self.query("query-cpus-fast")
    }

    /// Returns true if a program in the guest has opened the serial port of a character device.
    pub fn is_port_open(&mut self, chardev: &str) -> Result<bool, GuestError> {
        let ports: Vec<Port> = self.query("query-chardev")?;
        Ok(ports.iter().any(|port| port.label == chardev && port.open))
    }

    /// Returns true if the serial console's socket has a client; it serves one at a time.
    pub fn is_console_taken(&mut self) -> Result<bool, GuestError> {
        let ports: Vec<Port> = self.query("query-chardev")?;
        // For a socket without a client, QEMU adds this to its name (`char-socket.c`).
        let free = |port: &Port| port.filename.starts_with("disconnected:");
        Ok(ports.iter().any(|port| port.label == CONSOLE_CHARDEV && !free(port)))
    }

    /// Disconnects or reconnects the cable of a NIC ([`nic_id`](super::arguments::nic_id)).
    pub fn set_link(&mut self, nic: &str, up: bool) -> Result<(), GuestError> {
        self.command("set_link", json!({ "name": nic, "up": up }))
    }

    /// Starts the guest's processors, after a start with [`paused`](super::launch::Launch::paused) or after
    /// [`Monitor::pause`].
    pub fn resume(&mut self) -> Result<(), GuestError> {
        self.command("cont", json!({}))
    }

    /// Stops the guest's processors. The guest only notices a jump of its clocks.
    pub fn pause(&mut self) -> Result<(), GuestError> {
        self.command("stop", json!({}))
    }

    /// Presses the guest's power button. Its system may then power itself off, which ends QEMU, or ignore the button.
    pub fn power_down(&mut self) -> Result<(), GuestError> {
        self.command("system_powerdown", json!({}))
    }

    /// Ends QEMU, as if the plug were pulled.
    pub fn quit(&mut self) -> Result<(), GuestError> {
        self.command("quit", json!({}))
    }

    /// Resets the guest, as its reset button would.
    pub fn reset(&mut self) -> Result<(), GuestError> {
        self.command("system_reset", json!({}))
    }

    /// Lets the guest reboot when it resets itself. Otherwise QEMU exits (`-no-reboot`).
    pub fn let_reboot(&mut self) -> Result<(), GuestError> {
        self.command("set-action", json!({ "reboot": "reset" }))
    }

    /// Makes QEMU exit again when the guest resets itself.
    pub(super) fn end_at_reboot(&mut self) -> Result<(), GuestError> {
        self.command("set-action", json!({ "reboot": "shutdown" }))
    }

    /// Sends all processors of the guest a non-maskable interrupt. Linux panics on it if so configured
    /// (`unknown_nmi_panic`).
    pub fn inject_nmi(&mut self) -> Result<(), GuestError> {
        self.command("inject-nmi", json!({}))
    }

    /// Sends a break to the guest's serial port.
    pub fn send_break(&mut self) -> Result<(), GuestError> {
        self.command("chardev-send-break", json!({ "id": CONSOLE_CHARDEV }))
    }

    /// The next event before the deadline. `None` means that there was none.
    pub fn event(&mut self, deadline: Instant) -> Result<Option<QmpEvent>, GuestError> {
        while self.events.is_empty() {
            let Some(line) = self.receive("event", deadline)? else { return Ok(None) };
            self.keep(self.parse::<Line>("event", &line)?.event);
        }
        Ok(self.events.pop_front())
    }

    /// A handle that, when dropped, wakes a waiter for events with an error.
    pub fn hang_up(&self) -> io::Result<HangUp> {
        self.stream.try_clone().map(HangUp)
    }

    pub(crate) fn query<T: DeserializeOwned>(&mut self, command: &str) -> Result<T, GuestError> {
        self.ask(command, json!({}), Instant::now() + PATIENCE)
    }

    fn command(&mut self, command: &str, arguments: Value) -> Result<(), GuestError> {
        self.ask::<Value>(command, arguments, Instant::now() + PATIENCE).map(|_| ())
    }

    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        command: &str,
        arguments: Value,
        by: Instant,
    ) -> Result<T, GuestError> {
        let request = self.request(command, &arguments);
        self.send(command, request.as_bytes(), by)?;
        self.answer(command, by)
    }

    /// Sends a command; the caller has to do something before QEMU can answer.
    fn begin(&mut self, command: &str, arguments: &Value) -> Result<(), GuestError> {
        let request = self.request(command, arguments);
        self.send(command, request.as_bytes(), Instant::now() + PATIENCE)
    }

    /// Waits for the answer to the command that was sent last.
    fn end<T: DeserializeOwned>(&mut self, command: &str) -> Result<T, GuestError> {
        self.answer(command, Instant::now() + PATIENCE)
    }

    /// The line of a command, with a unique number.
    fn request(&mut self, command: &str, arguments: &Value) -> String {
        self.last += 1;
        format!("{}\n", json!({ "execute": command, "arguments": arguments, "id": self.last }))
    }

    /// The answer to the last command.
    fn answer<T: DeserializeOwned>(&mut self, command: &str, by: Instant) -> Result<T, GuestError> {
        loop {
            let line: Line = self.line(command, by)?;
            match line {
                Line { event: Some(event), .. } => self.keep(Some(event)),
                // The reply to an abandoned command.
                Line { id, .. } if id != Some(self.last) => {}
                Line { error: Some(Refusal { class, desc: description }), .. } => {
                    let (guest, command) = (self.guest.clone(), command.to_owned());
                    return Err(GuestError::Refused { guest, command, class, description });
                }
                Line { answer, .. } => {
                    return serde_json::from_value(answer.unwrap_or_default())
                        .map_err(|error| self.fail(command, format!("answers in an unknown format: {error}")));
                }
            }
        }
    }

    fn send(&mut self, command: &str, request: &[u8], deadline: Instant) -> Result<(), GuestError> {
        let sent = self.write_until(deadline).and_then(|()| self.stream.write_all(request));
        sent.map_err(|error| self.takes_nothing(command, &error))
    }

    fn write_until(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.stream.set_write_timeout(Some(left))
    }

    fn takes_nothing(&self, command: &str, error: &io::Error) -> GuestError {
        self.fail(command, format!("does not accept commands: {error}"))
    }

    fn keep(&mut self, event: Option<QmpEvent>) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.extend(event);
    }

    fn line<T: DeserializeOwned>(&mut self, command: &str, deadline: Instant) -> Result<T, GuestError> {
        match self.receive(command, deadline)? {
            Some(line) => self.parse(command, &line),
            None => Err(self.fail(command, "does not answer in time, or serves another client".to_owned())),
        }
    }

    fn parse<T: DeserializeOwned>(&self, command: &str, line: &[u8]) -> Result<T, GuestError> {
        serde_json::from_slice(line).map_err(|error| {
            let line = String::from_utf8_lossy(line);
            self.fail(command, format!("sent {:?}, which is not QMP: {error}", line.trim_end()))
        })
    }

    /// The next line. `None` means that the time ran out before the line ended.
    fn receive(&mut self, command: &str, deadline: Instant) -> Result<Option<Vec<u8>>, GuestError> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.pending.drain(..=end).collect()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            match self.fill(left) {
                Ok(0) => return Err(self.fail(command, "is closed".to_owned())),
                Ok(_) if self.pending.len() > LONGEST => {
                    return Err(self.fail(command, "sends an endless line".to_owned()));
                }
                Ok(_) => {}
                Err(error) if is_late(&error) => {}
                Err(error) => return Err(self.fail(command, format!("is lost: {error}"))),
            }
        }
    }

    fn fill(&mut self, patience: Duration) -> io::Result<usize> {
        // Zero would mean no timeout.
        self.stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes)?;
        self.pending.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn fail(&self, command: &str, why: String) -> GuestError {
        GuestError::Monitor { guest: self.guest.clone(), command: command.to_owned(), why: why.into() }
    }
}

/// Connects. While the queue of waiting clients is full, this blocks as long as sending may (`SO_SNDTIMEO`).
fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(patience.max(Duration::from_millis(1))))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket.into())
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
