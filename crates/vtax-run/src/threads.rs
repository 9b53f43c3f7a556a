//! Starts threads. At the limit of processes, the kernel may refuse one; the standard library's `spawn` panics then.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::stop::Coded;

/// Starts a thread that ends within the scope.
pub fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> miette::Result<ScopedJoinHandle<'scope, T>> {
    let started = Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
    started.coded("no-thread", || format!("starting a thread: {name}"))
}

/// Starts a detached thread.
pub fn start(name: &'static str, work: impl FnOnce() + Send + 'static) -> miette::Result<()> {
    let started = Builder::new().name(name.to_owned()).spawn(work).map(drop);
    started.coded("no-thread", || format!("starting a thread: {name}"))
}
