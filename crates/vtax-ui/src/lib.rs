//! `vtax ui`: the results of one store in a browser on this machine.
//!
//! It listens on 127.0.0.1 only, and responds only to clients with the key in the address that it prints. It changes
//! nothing, except that it starts a built-in study if a reader confirms its plan. A run in progress is followed through
//! the store, so any vtax process may measure it.
//!
//! The key is in the path and not in a cookie: a browser sends the cookies of 127.0.0.1 to every port, hence also to
//! programs of other users of this machine.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod chosen;
mod connections;
mod guard;
mod key;
mod latest;
mod launch;
mod list;
mod live;
mod machine;
mod pages;
mod start;
#[cfg(test)]
mod tests;
mod trends;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
};

use key::AccessKey;
use launch::Launcher;

/// Reason why the pages cannot be served.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum UiError {
    /// Another program uses the port.
    #[error("port {0} of 127.0.0.1 is in use by another program: choose another one, or 0 for any free port")]
    #[diagnostic(code("port-taken"))]
    Taken(u16),
    /// Another operation was refused by the kernel.
    #[error("cannot serve results on 127.0.0.1: {0}")]
    #[diagnostic(code("kernel"))]
    Kernel(#[from] io::Error),
}

/// Pages about the results in one directory.
#[derive(Debug)]
pub struct Ui {
    listener: TcpListener,
    address: SocketAddr,
    key: AccessKey,
    state_dir: PathBuf,
    program: PathBuf,
    launcher: Launcher,
}

impl Ui {
    /// Binds the port; 0 is any free one. Requests are not answered before [`Ui::serve`]. `program` is the vtax binary,
    /// which lists the domains, labs and settings of this machine, and runs studies with the present priority, whatever
    /// the caller's is later.
    pub fn bind(state_dir: PathBuf, program: PathBuf, port: u16) -> Result<Ui, UiError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UiError::Taken(port),
            _ => UiError::Kernel(error),
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Ui { listener, address, key: AccessKey::random()?, state_dir, program, launcher: Launcher::new()? })
    }

    /// Uses this agent program for studies, if the user has named one.
    #[must_use]
    pub fn with_agent(mut self, agent: Option<PathBuf>) -> Ui {
        self.launcher.agent = agent;
        self
    }

    /// Returns the address to open in a browser. Anyone who knows it can read the results and start studies.
    pub fn address(&self) -> String {
        format!("http://{}{}/", self.address, self.key.base())
    }

    /// Serves requests until this process ends.
    pub fn serve(self) -> Result<(), UiError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(pages::DRAWN_TOGETHER + live::WATCHERS)
            .build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            connections::serve(listener, pages::router(self.state_dir, self.program, self.key, self.launcher)).await
        })
    }
}
