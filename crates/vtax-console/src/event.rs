//! Interface to the server's owner: actions that only the owner can perform, and events.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use vtax_model::{foreign::ForeignText, topology::Name};
use vtax_sys::netlink::UserId;

/// Owner of the guests whose consoles are served.
pub trait Attendant: Send + Sync + 'static {
    /// Sends a break on the serial line of a domain. The requesting session waits for it, and learns the reason of a
    /// failure.
    ///
    /// # Errors
    /// Returns the reason why the break could not be sent.
    fn send_break(&self, domain: &Name) -> Result<(), ForeignText>;

    /// Receives an event. Threads of the server wait for this call, so it must not call the server.
    fn hear(&self, event: &ServerEvent);
}

/// Event of interest to the server's owner.
#[derive(Debug)]
pub enum ServerEvent {
    /// A port could not be opened. Retried every second.
    PortClosed {
        port: u16,
        why: io::Error,
    },
    PortOpen {
        port: u16,
    },
    /// A serial socket exists, but cannot be connected to. Retried several times per second. A missing socket is not an
    /// event: the guest doesn't run.
    NoSerial {
        domain: Name,
        why: io::Error,
    },
    /// A log could not be opened. The console is served without it until the guest starts again.
    NoLog {
        file: PathBuf,
        why: io::Error,
    },
    /// A thread could not be started. Retried every second.
    NoThread {
        domain: Name,
        why: io::Error,
    },
    NotAllowed {
        peer: SocketAddr,
        user: Option<UserId>,
        group: Name,
    },
    TooManySessions {
        peer: SocketAddr,
    },
}

impl fmt::Display for ServerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortClosed { port, why } => write!(f, "cannot open port {port} on 127.0.0.1: {why}"),
            Self::PortOpen { port } => write!(f, "port {port} on 127.0.0.1 is open"),
            Self::NoSerial { domain, why } => write!(f, "cannot reach the console of {domain}: {why}"),
            Self::NoLog { file, why } => {
                write!(f, "no log is written: {}: {why}", ForeignText::from(file.to_string_lossy()))
            }
            Self::NoThread { domain, why } => write!(f, "cannot start a thread for the console of {domain}: {why}"),
            Self::NotAllowed { peer, user: Some(UserId(user)), group } => {
                write!(f, "user {user} at {peer} may not use the console group {group}")
            }
            Self::NotAllowed { peer, user: None, group } => {
                write!(f, "an unknown user at {peer} may not use the console group {group}")
            }
            Self::TooManySessions { peer } => write!(f, "too many sessions: {peer} was refused"),
        }
    }
}
