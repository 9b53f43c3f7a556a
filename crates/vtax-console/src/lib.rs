//! The console server of logical domains, as `vntsd` is: each group of consoles has a TCP port of this host.
//!
//! It knows nothing of domains but what a [`ConsoleTable`] says: their names, and the Unix sockets behind their serial
//! ports. For each console, one thread reads what the domain prints, keeps a log, and hands it to everybody who is
//! connected. One who doesn't read loses bytes and is told so; nobody else waits for that, least of all the domain.
//!
//! There is no well-kept crate that reads telnet as a server needs it, so `telnet` does; it needs five commands of the
//! protocol.

#![forbid(unsafe_code)]

mod escape;
#[cfg(test)]
mod fuzz;
mod hub;
mod log;
mod menu;
mod outbox;
mod server;
mod session;
mod table;
mod telnet;

pub use server::{ConsoleError, ConsoleOptions, serve};
pub use table::{Console, ConsoleGroup, ConsoleTable};
