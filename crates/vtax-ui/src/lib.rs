//! `vtax ui`: the results of one store in a browser on this machine.
//!
//! It answers on 127.0.0.1 only, and only to who knows the key in the address that it prints. It shows and changes
//! nothing. A run that goes on is followed by what lands in the store, so it doesn't matter which vtax measures.
//!
//! The key is in the path and in no cookie: a browser sends the cookies of 127.0.0.1 to every port, so to the
//! programs of other users of this machine too.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod chosen;
mod connections;
mod guard;
mod key;
mod list;
mod live;
mod pages;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
};

use key::AccessKey;

/// What keeps the pages from being served.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum UiError {
    /// Another program has the port.
    #[error("port {0} of 127.0.0.1 is taken by another program; give another one, or 0 for any that is free")]
    #[diagnostic(code("port-taken"))]
    Taken(u16),
    /// The kernel refuses something else.
    #[error("the results can't be served on 127.0.0.1: {0}")]
    #[diagnostic(code("kernel"))]
    Kernel(#[from] io::Error),
}

/// Pages about the results in one folder.
#[derive(Debug)]
pub struct Ui {
    listener: TcpListener,
    address: SocketAddr,
    key: AccessKey,
    state_dir: PathBuf,
}

impl Ui {
    /// Takes the port, or with 0 any free one. Nothing is answered before [`Ui::serve`].
    pub fn bind(state_dir: PathBuf, port: u16) -> Result<Ui, UiError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UiError::Taken(port),
            _ => UiError::Kernel(error),
        })?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Ui { listener, address, key: AccessKey::random()?, state_dir })
    }

    /// What to open in a browser. Whoever knows it can read the results.
    pub fn address(&self) -> String {
        format!("http://{}{}/", self.address, self.key.base())
    }

    /// Answers until this program ends.
    pub fn serve(self) -> Result<(), UiError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(pages::DRAWN_TOGETHER + live::WATCHERS)
            .build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            connections::serve(listener, pages::router(self.state_dir, self.key)).await
        })
    }
}
