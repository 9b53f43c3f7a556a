//! The server, and the thread that accepts connections.

use std::{
    io,
    net::TcpListener,
    os::fd::AsFd as _,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;

use crate::{
    bounds::Bounds,
    event::{Attendant, ServerEvent},
    registry::{Registry, start},
    session::{ConsoleSession, LAST_WORDS, NOT_ALLOWED, refuse, user},
    table::ConsoleTable,
};

/// Retry interval for a port that another program uses.
const RETRY: Duration = Duration::from_secs(1);

/// Delay before accepting again after a failure of the kernel, e.g. because of too many open files.
const BREATH: Duration = Duration::from_millis(100);

/// Error that prevents the server from starting.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ConsoleServerError {
    /// Error returned by the kernel.
    #[error("cannot start the console server: {0}")]
    #[diagnostic(code("kernel"))]
    Kernel(#[from] io::Error),
}

/// Running console server. It ends, with all its sessions, on drop.
pub struct ConsoleServer {
    registry: Arc<Registry>,
    accepts: Option<JoinHandle<()>>,
}

impl ConsoleServer {
    /// Starts a server without consoles. `host` is the host name shown in prompts.
    ///
    /// # Errors
    /// The kernel can't create a thread.
    pub fn start(
        host: &str,
        bounds: Bounds,
        attendant: Arc<dyn Attendant>,
    ) -> Result<ConsoleServer, ConsoleServerError> {
        let registry = Arc::new(Registry::new(host.to_owned(), bounds, attendant)?);
        let accepting = Arc::clone(&registry);
        let accepts = start("consoles", move || accept(&accepting))?;
        Ok(ConsoleServer { registry, accepts: Some(accepts) })
    }

    /// Serves these consoles, and no others. The ports are open when this returns, except those that can't be opened,
    /// which are reported to the [`Attendant`]. A session stays if its group stays, whatever the port, and stays on its
    /// console if that is still in the group. Does nothing if nothing has changed, so it may be called repeatedly.
    pub fn replace(&self, table: ConsoleTable) {
        self.registry.replace(table);
    }
}

impl Drop for ConsoleServer {
    fn drop(&mut self) {
        self.registry.stop(2 * LAST_WORDS);
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

/// Accepts connections until the server ends.
fn accept(registry: &Arc<Registry>) {
    let mut settled = Instant::now();
    while !registry.is_stopping() {
        let listeners = registry.listeners();
        let asked: Vec<_> = listeners.iter().map(|listener| (listener.as_fd(), PollFlags::IN)).collect();
        let Ok(happened) = registry.waker.wait(&asked, Some(RETRY)) else {
            thread::sleep(BREATH);
            continue;
        };
        let ready = listeners.iter().zip(&happened).filter(|(_, happened)| !happened.is_empty());
        let failed = ready.filter(|(listener, _)| take(registry, listener).is_err()).count();
        if failed > 0 {
            thread::sleep(BREATH);
        }
        if settled.elapsed() >= RETRY {
            registry.settle();
            settled = Instant::now();
        }
    }
}

/// Accepts one connection; other ports are served before the next one. Clients that may not use the console take no
/// slot.
fn take(registry: &Arc<Registry>, listener: &TcpListener) -> io::Result<()> {
    let (stream, peer) = match listener.accept() {
        // The client has already disconnected.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {
            return Ok(());
        }
        taken => taken?,
    };
    let port = listener.local_addr()?.port();
    // The group may just have been removed.
    let Some((group, access)) = registry.group_at(port) else { return Ok(()) };
    let user = user(&stream);
    if !access.allows(user) {
        registry.attendant.hear(&ServerEvent::NotAllowed { peer, user, group: group.name });
        refuse(&stream, NOT_ALLOWED);
        return Ok(());
    }
    let Some(ticket) = registry.admit(peer, user)? else {
        refuse(&stream, "\nThere are too many sessions; try again later.\n");
        return Ok(());
    };
    let session = ConsoleSession::new(stream, ticket, group, user)?;
    start("console-session", move || session.run()).map(drop)
}
