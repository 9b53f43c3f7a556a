//! Sockets of every transport: creating, binding and listening.

use std::{
    fs::{self, DirBuilder, File},
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
    net::sockopt,
};
use socket2::{Domain, SockAddr, Socket, Type};
use vtax_model::{
    station::{EndSetup, Station, Target},
    workload::{TestSpec, Transport},
};
use vtax_sys::{
    sock::{NoVsock, set_bind_address_no_port},
    token::Token,
};

use crate::{
    error::{EngineError, Result},
    options,
};

/// Checks that the station has the kind of address that the transport needs; over IP, the target too.
pub(crate) fn check_family(transport: Transport, station: &Station, target: Option<&Target>) -> Result<()> {
    let mismatch = |why| {
        let target = target.map_or("anywhere".to_owned(), Target::to_string);
        Err(EngineError::FamilyMismatch { transport, station: station.clone(), target, why })
    };
    match (transport, station, target) {
        (_, Station::Ip(own) | Station::Device { address: own, .. }, Some(Target::Ip(other)))
            if transport.is_ip() && own.is_ipv4() != other.is_ipv4() =>
        {
            mismatch("one is IPv4, the other IPv6: give both endpoints addresses of one family")
        }
        (_, Station::Ip(_) | Station::Device { .. }, None | Some(Target::Ip(_))) if transport.is_ip() => Ok(()),
        (Transport::Unix, Station::Unix(_), None | Some(Target::Unix(_)))
        | (Transport::Vsock, Station::Vsock(_), None | Some(Target::Vsock { .. })) => Ok(()),
        (Transport::Unix, ..) => mismatch("requires a directory, and a socket in one as the target"),
        (Transport::Vsock, ..) => mismatch("requires context identifiers at both endpoints"),
        _ => mismatch("requires IP addresses at both endpoints"),
    }
}

/// A new socket of the station's family.
pub(crate) fn create(transport: Transport, station: &Station) -> Result<Socket> {
    let domain = match station {
        Station::Ip(address) | Station::Device { address, .. } => Domain::for_address(SocketAddr::new(*address, 0)),
        Station::Unix(_) => Domain::UNIX,
        Station::Vsock(_) => Domain::VSOCK,
    };
    let kind = if transport == Transport::Udp { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(domain, kind, None).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::AFNOSUPPORT) if domain == Domain::VSOCK => NoVsock::Absent.into(),
        _ => EngineError::socket("socket", &any_port(station), error),
    })?;
    bind_device(&socket, station)?;
    Ok(socket)
}

/// Binds a socket to the device of its station, if it has one.
pub(crate) fn bind_device(socket: &Socket, station: &Station) -> Result<()> {
    let Station::Device { device, .. } = station else { return Ok(()) };
    let failed = |error| EngineError::Device { device: device.clone(), source: error };
    socket.bind_device(Some(device.as_str().as_bytes())).map_err(failed)
}

/// The address of a responder, with its port if specified.
fn own_port(setup: &EndSetup) -> Target {
    match any_port(&setup.station) {
        Target::Ip(address) => Target::Ip(SocketAddr::new(address.ip(), setup.port.unwrap_or(0))),
        target => target,
    }
}

/// The station as an address whose port is chosen by the kernel.
fn any_port(station: &Station) -> Target {
    match station {
        Station::Ip(address) | Station::Device { address, .. } => Target::Ip(SocketAddr::new(*address, 0)),
        Station::Unix(directory) => Target::Unix(directory.clone()),
        // VMADDR_PORT_ANY.
        Station::Vsock(cid) => Target::Vsock { cid: *cid, port: u32::MAX },
    }
}

/// The address in the kernel's form.
pub(crate) fn address(target: &Target) -> Result<SockAddr> {
    match target {
        Target::Ip(address) => Ok((*address).into()),
        Target::Vsock { cid, port } => Ok(SockAddr::vsock(*cid, *port)),
        Target::Unix(path) => SockAddr::unix(path).map_err(|error| EngineError::socket("name a socket", target, error)),
    }
}

/// A socket for connecting an initiator to `target`.
pub(crate) fn dialling(spec: &TestSpec, station: &Station, target: &Target) -> Result<Socket> {
    let socket = create(spec.transport, station)?;
    options::apply(&socket, spec, target)?;
    if spec.transport == Transport::Tcp {
        set_bind_address_no_port(&socket)?;
    }
    bind_to(&socket, station)?;
    Ok(socket)
}

/// Binds an initiator's socket to its station. A Unix domain socket needs no name, and a vsock socket has
/// only one possible address.
pub(crate) fn bind_to(socket: &Socket, station: &Station) -> Result<()> {
    match station {
        Station::Ip(_) | Station::Device { .. } => bind(socket, &any_port(station)),
        Station::Unix(_) | Station::Vsock(_) => Ok(()),
    }
}

pub(crate) fn bind(socket: &Socket, to: &Target) -> Result<()> {
    socket.bind(&address(to)?).map_err(|error| EngineError::local("bind", to, error))
}

pub(crate) fn read_address(address: &SockAddr) -> Option<Target> {
    let vsock = || address.as_vsock_address().map(|(cid, port)| Target::Vsock { cid, port });
    address.as_socket().map(Target::Ip).or_else(vsock)
}

/// A listening socket. If it has a name, dropping it removes the name.
pub(crate) struct Listener {
    pub(crate) socket: Arc<Socket>,
    pub(crate) target: Target,
    /// Address that it and the sockets of its flows are bound to.
    pub(crate) station: Station,
    _room: Option<Room>,
}

impl Listener {
    /// Binds to a port or a name. Flows may connect from then on.
    pub(crate) fn bind(spec: &TestSpec, setup: &EndSetup, backlog: u32) -> Result<Listener> {
        let station = &setup.station;
        let socket = create(spec.transport, station)?;
        let (place, room) = match station {
            Station::Unix(directory) => {
                let room = Room::below(directory.clone())?;
                (Target::Unix(room.path.join("s")), Some(room))
            }
            _ => (own_port(setup), None),
        };
        options::apply(&socket, spec, &place)?;
        match spec.transport {
            Transport::Udp => bind_shared(&socket, &place)?,
            _ => {
                // Connections of the previous sample may still be in TIME_WAIT on a fixed port.
                if setup.port.is_some() {
                    let reused = socket.set_reuse_address(true);
                    reused.map_err(|error| EngineError::local("SO_REUSEADDR", &place, error))?;
                }
                bind(&socket, &place)?;
                let backlog = i32::try_from(backlog).unwrap_or(i32::MAX).max(128);
                socket.listen(backlog).map_err(|error| EngineError::local("listen", &place, error))?;
                socket.set_nonblocking(true).map_err(|error| EngineError::local("O_NONBLOCK", &place, error))?;
            }
        }
        let bound = socket.local_addr().map_err(|error| EngineError::local("getsockname", &place, error))?;
        // A Unix domain socket has the name to which it was bound.
        let target = read_address(&bound).unwrap_or(place);
        Ok(Listener { socket: Arc::new(socket), target, station: station.clone(), _room: room })
    }
}

/// Sets `SO_REUSEPORT`. `SO_REUSEADDR` would let any user's program bind the port too.
pub(crate) fn bind_shared(socket: &Socket, place: &Target) -> Result<()> {
    sockopt::set_socket_reuseport(socket, true)
        .map_err(|errno| EngineError::local("SO_REUSEPORT", place, errno.into()))?;
    bind(socket, place)
}

/// A directory that only this user may enter, so that nobody else sees the socket's name. It is locked while its
/// process lives; if a killed process has left it, another test removes it.
struct Room {
    path: PathBuf,
    _lock: File,
}

const ROOM_PREFIX: &str = ".vtax-";

impl Room {
    fn below(directory: PathBuf) -> Result<Room> {
        remove_left_rooms(&directory);
        // Another test may remove it before it is locked.
        const TRIES: usize = 10;
        let room = (0..TRIES).find_map(|_| Room::make(&directory).transpose());
        let room = room.unwrap_or_else(|| Err(Errno::BUSY.into()));
        room.map_err(|source| EngineError::File { operation: "create the socket's directory", directory, source })
    }

    /// None if another test has removed it.
    fn make(directory: &Path) -> io::Result<Option<Room>> {
        let path = directory.join(format!("{ROOM_PREFIX}{}", &Token::random().to_string()[..16]));
        DirBuilder::new().mode(0o700).create(&path)?;
        match lock(&path) {
            Ok(lock) => Ok(lock.map(|lock| Room { path, _lock: lock })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // A failure can't be reported here; the next test tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes directories left by killed processes. Those that can't be removed, e.g. another user's, stay.
fn remove_left_rooms(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_room = entry.file_name().as_encoded_bytes().starts_with(ROOM_PREFIX.as_bytes());
        if is_room && let Ok(Some(_lock)) = lock(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Locks a directory. None if another process holds the lock.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    let file = openat(CWD, directory, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file.into())),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::{
        units::{ByteSize, Span},
        workload::{Warmup, Workload},
    };

    fn spec(transport: Transport) -> TestSpec {
        let workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };
        let options = vtax_model::options::TestOptions::default();
        TestSpec {
            transport,
            workload,
            streams: 1,
            warmup: Warmup::NONE,
            duration: Span::from_millis(1),
            slices: None,
            options,
        }
    }

    #[test]
    fn the_name_of_a_socket_is_removed_with_its_listener() {
        let directory = tempfile::tempdir().unwrap();
        let setup = EndSetup::new(Station::Unix(directory.path().to_owned()));
        let listener = Listener::bind(&spec(Transport::Unix), &setup, 1).unwrap();
        let Target::Unix(path) = listener.target.clone() else { panic!("{}", listener.target) };
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.parent().unwrap().metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        assert!(path.exists());
        drop(listener);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn the_directory_of_a_killed_test_is_removed_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let setup = EndSetup::new(Station::Unix(directory.path().to_owned()));
        let left = directory.path().join(".vtax-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("s"), "").unwrap();
        let living = Listener::bind(&spec(Transport::Unix), &setup, 1).unwrap();
        let another = Listener::bind(&spec(Transport::Unix), &setup, 1).unwrap();
        assert!(!left.exists());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "those of living tests stay");
        drop((living, another));
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(100));
        fs::create_dir(&deep).unwrap();
        let refused =
            Listener::bind(&spec(Transport::Unix), &EndSetup::new(Station::Unix(deep.clone())), 1).err().unwrap();
        assert!(refused.to_string().contains("name a socket"), "{refused}");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
    }

    #[test]
    fn every_socket_of_an_end_is_bound_to_its_device() {
        let on =
            |device: &str| Station::Device { address: "127.0.0.1".parse().unwrap(), device: device.parse().unwrap() };
        for transport in [Transport::Tcp, Transport::Udp] {
            let listener = Listener::bind(&spec(transport), &EndSetup::new(on("lo")), 1).unwrap();
            assert_eq!(listener.socket.device().unwrap().as_deref(), Some(&b"lo"[..]));
            let dialling = dialling(&spec(transport), &on("lo"), &listener.target).unwrap();
            assert_eq!(dialling.device().unwrap().as_deref(), Some(&b"lo"[..]));
        }
        let told = create(Transport::Tcp, &on("nothing0")).err().unwrap().to_string();
        assert!(told.contains("the device nothing0"), "{told}");
    }

    #[test]
    fn a_fixed_port_can_be_bound_again_after_a_connection() {
        let mut setup = EndSetup::new(Station::Ip("127.0.0.1".parse().unwrap()));
        let first = Listener::bind(&spec(Transport::Tcp), &setup, 1).unwrap();
        let Target::Ip(free) = first.target else { panic!("{}", first.target) };
        setup.port = Some(free.port());
        drop(first);
        for _ in 0..2 {
            let listener = Listener::bind(&spec(Transport::Tcp), &setup, 1).unwrap();
            assert_eq!(listener.target, Target::Ip(free));
            let taken = Listener::bind(&spec(Transport::Tcp), &setup, 1).err().unwrap().to_string();
            assert!(taken.starts_with(&format!("{free} or every port")), "{taken}");
            let client = std::net::TcpStream::connect(free).unwrap();
            listener.socket.set_nonblocking(false).unwrap();
            // The end that closes first keeps the port in TIME_WAIT.
            drop(listener.socket.accept().unwrap());
            drop(client);
        }
        let over_udp = Listener::bind(&spec(Transport::Udp), &setup, 1).unwrap();
        assert_eq!(over_udp.target, Target::Ip(free));
    }

    #[test]
    fn mismatched_address_kinds_are_named() {
        let v4 = Station::Ip("127.0.0.1".parse().unwrap());
        let refused = check_family(Transport::Udp, &v4, Some(&Target::Ip("[::1]:7".parse().unwrap()))).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "UDP from 127.0.0.1 to [::1]:7: one is IPv4, the other IPv6: give both endpoints addresses of one family"
        );
        assert!(check_family(Transport::Unix, &v4, None).is_err());
        assert!(check_family(Transport::Tcp, &v4, Some(&Target::Unix("/s".into()))).is_err());
        assert!(check_family(Transport::Vsock, &Station::Vsock(1), Some(&Target::Vsock { cid: 3, port: 1 })).is_ok());
    }

    #[test]
    fn vsock_is_bound_if_the_kernel_supports_it() {
        match Listener::bind(&spec(Transport::Vsock), &EndSetup::new(Station::Vsock(u32::MAX)), 1) {
            Ok(listener) => assert!(matches!(listener.target, Target::Vsock { port, .. } if port != u32::MAX)),
            Err(error) => assert!(matches!(error, EngineError::NoVsock(NoVsock::Absent)), "{error}"),
        }
    }
}
