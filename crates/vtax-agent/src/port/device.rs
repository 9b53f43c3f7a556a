//! A virtio-serial port, as implemented by Linux (`drivers/char/virtio_console.c`).
//!
//! - Reads return 0 bytes for as long as nobody is connected on the host.
//! - poll(2) reports a hang-up all that time, so it cannot wait for a connection. But an
//!   edge-triggered epoll(7) reports each event on the port.
//! - Without `O_NONBLOCK`, a write to a full port loops in the kernel, on a CPU that is being measured. If
//!   nobody is connected, it waits for the next coordinator, which would get the bytes for the last one. So
//!   the port is opened with `O_NONBLOCK`.
//! - Data and connection events use two queues, and the kernel serves the data queue first. So a coordinator's
//!   first bytes may have arrived while the port still reports that nobody is connected. The agent believes
//!   this only when the port has reported it for a while.
//! - QEMU buffers what it reads from its socket until the guest has opened the port, so nothing is lost.
//! - QEMU (10.0) loses one of the port's 128 output buffers each time a coordinator closes its side while an answer to
//!   it is half sent. When all of them are lost, the port looks full forever. Only a reset of the device restores them,
//!   which its driver does when it is unbound and bound again.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    fs::OFlags,
    io::Errno,
};

use super::{PortError, Renew};

const PORTS: &str = "/sys/class/virtio-ports";
/// Interval between two looks for the port in sysfs, which reports no changes.
const PACE: Duration = Duration::from_millis(2);
/// Time for which the port must report that nobody is connected before the agent believes it.
const GRACE: Duration = Duration::from_millis(500);
/// Time limit for the port to reappear after a reset of its device.
const RENEWED: Duration = Duration::from_secs(10);
/// Time for which one call waits for a full port.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Opens the port with this name for reading and writing. Waits until the port's device appears.
pub fn open(name: &'static str, deadline: Duration) -> Result<(PortReader, PortWriter), PortError> {
    let file = open_file(name, deadline)?;
    let opened = Arc::new(Mutex::new(file.clone()));
    let writer = PortWriter { name, opened: opened.clone(), file: file.clone(), absence: Absence::default() };
    Ok((PortReader::new(opened, file)?, writer))
}

/// The port as it was opened last. The reader and the writer share it, and the writer may reopen it.
type Opened = Arc<Mutex<Arc<File>>>;

fn open_file(name: &str, deadline: Duration) -> Result<Arc<File>, PortError> {
    let until = Instant::now() + deadline;
    loop {
        match try_open(name) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) if Instant::now() < until => thread::sleep(PACE),
            Ok(None) => return Err(missing(name, deadline)),
            // sysfs shows the port before devtmpfs does, and both do before udev allows access.
            Err(error) if is_early(&error) && Instant::now() < until => thread::sleep(PACE),
            Err(error) => return Err(error),
        }
    }
}

fn try_open(name: &str) -> Result<Option<Arc<File>>, PortError> {
    let Some(device) = device(Path::new(PORTS), name) else { return Ok(None) };
    let device = format!("/dev/{device}");
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&device);
    let unusable = |source| PortError::Unusable { name: name.to_owned(), device, source };
    opened.map(|file| Some(Arc::new(file))).map_err(unusable)
}

/// Returns the device's name, e.g. `vport2p1`. A port gets its name some time after its directory.
fn device(ports: &Path, name: &str) -> Option<String> {
    let ports = fs::read_dir(ports).ok()?.flatten();
    let named = |path: &Path| fs::read_to_string(path.join("name")).is_ok_and(|found| found.trim_end() == name);
    ports.filter(|port| named(&port.path())).find_map(|port| port.file_name().into_string().ok())
}

/// Unbinds the device of a port from its driver and binds it again. The device must not have another port, which would
/// be lost to the program that has it open.
fn reset(ports: &Path, name: &str) -> io::Result<()> {
    let device_of = |port: &str| fs::canonicalize(ports.join(port).join("device"));
    let port = device(ports, name).ok_or(io::ErrorKind::NotFound)?;
    let device = device_of(&port)?;
    let others = fs::read_dir(ports)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let others = others.filter(|other| *other != port && device_of(other).is_ok_and(|other| other == device));
    let others: Vec<String> = others.collect();
    if !others.is_empty() {
        return Err(io::Error::other(format!(
            "QEMU has lost the port's buffers, and only a reset of its device restores them, but it has other ports \
             ({}); reboot the guest",
            others.join(", ")
        )));
    }
    let driver = fs::canonicalize(device.join("driver"))?;
    let id = device.file_name().ok_or(io::ErrorKind::NotFound)?.as_encoded_bytes();
    fs::write(driver.join("unbind"), id)?;
    fs::write(driver.join("bind"), id)
}

fn is_early(error: &PortError) -> bool {
    matches!(error, PortError::Unusable { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn missing(name: &str, waited: Duration) -> PortError {
    let ports = fs::read_dir(PORTS).into_iter().flatten().flatten();
    let names = ports.filter_map(|port| fs::read_to_string(port.path().join("name")).ok());
    let names: Vec<String> = names.map(|name| name.trim_end().to_owned()).collect();
    let present = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    PortError::Missing { name: name.to_owned(), waited, present }
}

/// Time since which the port reports that nobody is connected.
#[derive(Debug, Default)]
struct Absence(Option<Instant>);

impl Absence {
    /// Returns the time until that is certain; none if it is certain now.
    fn doubt(&mut self) -> Option<Duration> {
        let passed = self.0.get_or_insert_with(Instant::now).elapsed();
        GRACE.checked_sub(passed).filter(|left| !left.is_zero())
    }

    fn end(&mut self) {
        self.0 = None;
    }
}

/// The reading side. Returns 0 bytes when nobody is connected on the host any more; the next read then waits for a
/// connection.
#[derive(Debug)]
pub struct PortReader {
    opened: Opened,
    file: Arc<File>,
    /// Reports each event on the port once.
    events: OwnedFd,
    absence: Absence,
    /// True if the reader has already returned 0 bytes for this.
    told: bool,
}

impl PortReader {
    fn new(opened: Opened, file: Arc<File>) -> io::Result<PortReader> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&events, &file, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(PortReader { opened, file, events, absence: Absence::default(), told: false })
    }

    /// Follows the writer to the reopened port after this one is gone.
    fn follow(&mut self, gone: io::Error) -> io::Result<()> {
        let until = Instant::now() + 2 * RENEWED;
        while Instant::now() < until {
            let file = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !Arc::ptr_eq(&file, &self.file) {
                *self = PortReader::new(self.opened.clone(), file)?;
                return Ok(());
            }
            thread::sleep(PACE);
        }
        Err(gone)
    }

    /// Waits for the next event of any kind.
    fn wait(&self, most: Option<Duration>) -> io::Result<()> {
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        match epoll::wait(&self.events, &mut [MaybeUninit::uninit(); 1], most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn has_company(&mut self) {
        self.absence.end();
        self.told = false;
    }
}

impl Read for PortReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&*self.file).read(buffer) {
                Ok(0) if self.told => self.wait(None)?,
                Ok(0) => match self.absence.doubt() {
                    Some(doubt) => self.wait(Some(doubt))?,
                    None => {
                        self.told = true;
                        return Ok(0);
                    }
                },
                Ok(count) => {
                    self.has_company();
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.has_company();
                    self.wait(None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => self.follow(error)?,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The writing side. Fails with `BrokenPipe` when nobody is connected on the host any more, and with `WouldBlock` if
/// nothing could be written for a short time.
#[derive(Debug)]
pub struct PortWriter {
    name: &'static str,
    opened: Opened,
    file: Arc<File>,
    absence: Absence,
}

impl PortWriter {
    /// Waits briefly for room, and returns why nothing could be written.
    fn wait(&mut self) -> io::Error {
        let mut port = [PollFd::new(&self.file, PollFlags::OUT)];
        match poll(&mut port, Some(&MOMENT)) {
            Ok(_) if port[0].revents().contains(PollFlags::HUP) => {
                if self.absence.doubt().is_none() {
                    return io::ErrorKind::BrokenPipe.into();
                }
                // poll doesn't wait while it reports a hang-up.
                thread::sleep(PACE);
            }
            Ok(_) | Err(Errno::INTR) => self.absence.end(),
            Err(errno) => return errno.into(),
        }
        io::ErrorKind::WouldBlock.into()
    }
}

impl Write for PortWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (&*self.file).write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.wait()),
            written => {
                self.absence.end();
                written
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Renew for PortWriter {
    fn renew(&mut self) -> io::Result<()> {
        let mut port = [PollFd::new(&self.file, PollFlags::OUT)];
        let polled = poll(&mut port, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        // A slow guest learns late that someone has connected. Until then its port isn't full.
        if polled.is_err() || port[0].revents().intersects(PollFlags::HUP | PollFlags::OUT) {
            return Ok(());
        }
        reset(Path::new(PORTS), self.name)?;
        self.file = open_file(self.name, RENEWED).map_err(io::Error::other)?;
        self.absence.end();
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = self.file.clone();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_port_is_known_by_its_name() {
        let tree = tempfile::tempdir().expect("made");
        for (port, name) in [("vport1p1", "org.qemu.guest_agent.0\n"), ("vport1p2", "org.vtax.agent.0\n")] {
            fs::create_dir(tree.path().join(port)).expect("made");
            fs::write(tree.path().join(port).join("name"), name).expect("written");
        }
        fs::create_dir(tree.path().join("vport1p3")).expect("made");
        assert_eq!(device(tree.path(), "org.vtax.agent.0").as_deref(), Some("vport1p2"));
        assert_eq!(device(tree.path(), "org.vtax.agent"), None);
        assert_eq!(device(&tree.path().join("none"), "org.vtax.agent.0"), None);
    }

    /// Other ports would be lost to the programs that have them open.
    #[test]
    fn a_device_with_other_ports_isnt_reset() {
        let tree = tempfile::tempdir().expect("made");
        let (ports, device) = (tree.path().join("ports"), tree.path().join("virtio2"));
        let driver = tree.path().join("virtio_console");
        for folder in [&ports, &device, &driver] {
            fs::create_dir(folder).expect("made");
        }
        symlink(&driver, device.join("driver")).expect("made");
        let add = |port: &str, name: &str| {
            fs::create_dir(ports.join(port)).expect("made");
            fs::write(ports.join(port).join("name"), name).expect("written");
            symlink(&device, ports.join(port).join("device")).expect("made");
        };
        add("vport2p1", "org.vtax.agent.0");
        reset(&ports, "org.vtax.agent.0").expect("it has one port");
        for file in ["unbind", "bind"] {
            assert_eq!(fs::read_to_string(driver.join(file)).expect("written"), "virtio2");
            fs::remove_file(driver.join(file)).expect("ours");
        }
        add("vport2p2", "org.qemu.guest_agent.0");
        let refused = reset(&ports, "org.vtax.agent.0").expect_err("another port").to_string();
        assert!(refused.contains("vport2p2") && !driver.join("unbind").exists(), "{refused}");
    }

    #[test]
    fn a_port_that_doesnt_come_is_named() {
        let missing = open("org.vtax.nobody", Duration::from_millis(20)).expect_err("no such port").to_string();
        assert!(missing.contains("org.vtax.nobody") && missing.contains("virtio_console"), "{missing}");
    }
}
