//! What the server can't do by itself, and what it tells.

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use vtax_model::{foreign::ForeignText, topology::Name};
use vtax_sys::netlink::UserId;

/// Whoever runs the guests whose consoles are served.
pub trait Attendant: Send + Sync + 'static {
    /// Sends a break on the serial line of a domain. The session that asked waits for it, and is told why it failed.
    ///
    /// # Errors
    /// What keeps the domain from getting it.
    fn send_break(&self, domain: &Name) -> Result<(), ForeignText>;

    /// Hears what happens. Threads of the server wait meanwhile, so it must not call the server.
    fn hear(&self, event: &ServerEvent);
}

/// What the server's owner may want to know.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum ServerEvent {
    /// It is tried again every second.
    PortClosed {
        port: u16,
        why: io::Error,
    },
    PortOpen {
        port: u16,
    },
    /// It is tried again several times a second. A socket that isn't there is no event: the guest isn't either.
    NoSerial {
        domain: Name,
        why: io::Error,
    },
    /// The console is served without a log, until the guest is there anew.
    NoLog {
        file: PathBuf,
        why: io::Error,
    },
    /// It is tried again every second.
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
            Self::PortClosed { port, why } => write!(f, "port {port} of 127.0.0.1 can't be opened: {why}"),
            Self::PortOpen { port } => write!(f, "port {port} of 127.0.0.1 is open"),
            Self::NoSerial { domain, why } => write!(f, "the console of {domain} can't be reached: {why}"),
            Self::NoLog { file, why } => {
                write!(f, "no log is written: {}: {why}", ForeignText::from(file.to_string_lossy()))
            }
            Self::NoThread { domain, why } => write!(f, "the console of {domain} gets no thread: {why}"),
            Self::NotAllowed { peer, user: Some(UserId(user)), group } => {
                write!(f, "user {user} at {peer} may not use the console group {group}")
            }
            Self::NotAllowed { peer, user: None, group } => {
                write!(f, "an unknown user at {peer} may not use the console group {group}")
            }
            Self::TooManySessions { peer } => write!(f, "there are too many sessions: {peer} was refused"),
        }
    }
}
