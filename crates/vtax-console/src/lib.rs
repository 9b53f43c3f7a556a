//! The console server of logical domains: the serial console of each guest, at a TCP port of 127.0.0.1, over telnet.
//!
//! It knows nothing of domains: its owner gives it a [`ConsoleTable`], and another one whenever consoles come or go.
//! Each guest's serial socket takes one connection. The server holds it, writes the console's log, and passes what
//! comes to all sessions. What users see and type is told in `docs/consoles.md`.
//!
//! One thread holds a console, one a session, one takes new connections. All have to wait for several things at once,
//! so none of them blocks but in `poll`. A session that doesn't read is given up, not waited for: see [`Bounds`].
//!
//! | module | for |
//! |---|---|
//! | `table` | which consoles there are |
//! | `telnet`, `escape`, `line`, `menu` | what a client's bytes mean, and what is answered; no I/O |
//! | `outbox`, `patience` | output that waits for a session, and how long a guest waits for it |
//! | `console`, `log` | the thread that holds a guest's serial socket |
//! | `registry` | which consoles, ports and sessions there are at the moment |
//! | `dialogue`, `session` | the thread of a session |
//! | `server` | the thread that takes connections |

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bounds;
mod console;
mod dialogue;
mod escape;
mod event;
#[cfg(test)]
mod fuzz;
mod line;
mod lock;
mod log;
mod menu;
mod outbox;
mod patience;
mod registry;
mod server;
mod session;
mod table;
mod telnet;
mod waker;

pub use bounds::Bounds;
pub use event::{Attendant, ServerEvent};
pub use server::{ConsoleServer, ConsoleServerError};
pub use table::{Console, ConsoleAccess, ConsoleGroup, ConsoleId, ConsoleTable, GroupName, TableError};
