//! Console server of logical domains: the serial console of each guest, on a TCP port of 127.0.0.1, over telnet.
//!
//! It has no knowledge of domains: its owner passes it a [`ConsoleTable`], and a new one whenever consoles are added or
//! removed. Each guest's serial socket accepts one connection. The server holds it, writes the console's log, and
//! passes the output to all sessions. `docs/consoles.md` describes the user interface.
//!
//! Each console and each session has a thread, and one thread accepts connections. All of them must wait for several
//! things at the same time, so they only block in `poll`. A session that doesn't read loses output instead of delaying
//! the others: see [`Bounds`].
//!
//! | module | purpose |
//! |---|---|
//! | `table` | the served consoles |
//! | `telnet`, `escape`, `line`, `menu` | meaning of a client's bytes, and the responses; no I/O |
//! | `outbox`, `patience` | buffered output of a session, and how long a guest waits for it |
//! | `console`, `log` | the thread that holds a guest's serial socket |
//! | `registry` | current consoles, ports and sessions |
//! | `dialogue`, `session` | the thread of a session |
//! | `server` | the thread that accepts connections |

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
