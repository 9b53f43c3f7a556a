//! The server, and the thread that takes connections.

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

/// How often a port is tried again that another program has.
const RETRY: Duration = Duration::from_secs(1);

/// How long connections wait when the kernel can't give one, for example because of too many open files.
const BREATH: Duration = Duration::from_millis(100);

/// What keeps the server from starting.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ConsoleServerError {
    /// The kernel refuses something.
    #[error("the console server can't be started: {0}")]
    #[diagnostic(code("kernel"))]
    Kernel(#[from] io::Error),
}

/// A running console server. It ends, with all its sessions, when this is dropped.
pub struct ConsoleServer {
    registry: Arc<Registry>,
    accepts: Option<JoinHandle<()>>,
}

impl ConsoleServer {
    /// A server that has no consoles yet. `host` is what this host is called in prompts.
    ///
    /// # Errors
    /// The kernel gives no thread.
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

    /// Serves these consoles, and no others. The ports are open when this returns, except those that can't be: the
    /// [`Attendant`] hears of them. A session stays if its group stays, whatever the port, and stays at its console if
    /// that is still in the group. If nothing has changed, nothing is done: it may be called again and again.
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

/// Takes connections until the server ends.
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

/// Takes one connection. The others' ports get their turn before the next one. Whoever may not use the console takes no place.
fn take(registry: &Arc<Registry>, listener: &TcpListener) -> io::Result<()> {
    let (stream, peer) = match listener.accept() {
        // The client has gone already.
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {
            return Ok(());
        }
        taken => taken?,
    };
    let port = listener.local_addr()?.port();
    // The group may have gone a moment ago.
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
