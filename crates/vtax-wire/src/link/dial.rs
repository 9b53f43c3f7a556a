//! Connecting to a unix socket that may not be there yet.

use std::{
    io::{self, ErrorKind},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with};

/// The time between two attempts.
const PACE: Duration = Duration::from_millis(5);
/// The socket doesn't exist yet, nobody listens there, or the listener's queue is full.
const EARLY: [ErrorKind; 3] = [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::WouldBlock];

/// Tries until a listener accepts, or until the deadline.
pub(super) fn connect(path: &Path, until: Instant) -> io::Result<UnixStream> {
    loop {
        match try_connect(path) {
            Err(error) if EARLY.contains(&error.kind()) && Instant::now() < until => thread::sleep(PACE),
            connected => return connected,
        }
    }
}

/// Tries without blocking: connect(2) would block while the listener's queue is full.
fn try_connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}
