//! The agent: the process in each domain that does the measuring, and the coordinator's
//! side of the stream that it is ordered by.
//!
//! One crate holds both sides of the protocol, so that they can't drift apart:
//!
//! - [`frame`] and [`protocol`] are what goes over the control stream;
//! - [`server`] is the agent: it takes orders until the stream ends, and then is gone;
//! - in a guest it stays instead: [`port`] serves one coordinator after another, whose
//!   [`conversations`] follow each other on one stream, and [`guest`] is what the agent does as
//!   process 1;
//! - [`link`] is the coordinator's side of one agent, [`measure`] samples on pairs of them, and
//!   [`clock`] what their clocks have to do with ours;
//! - [`locate`] says what to start here, and [`ssh`] starts it on other hosts, where it is
//!   [`carried`] to if need be.
//!
//! The program `vtax-agent` is [`server::serve`] on its standard input and output, or
//! [`guest::live`].
//!
//! Nothing here writes to standard output but frames: it *is* the control stream.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod carried;
pub mod clock;
pub mod conversations;
pub mod frame;
pub mod guest;
pub mod limits;
pub mod link;
pub mod locate;
pub mod measure;
pub mod port;
pub mod protocol;
pub mod server;
pub mod ssh;
