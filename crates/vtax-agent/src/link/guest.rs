//! What an agent does for the guest that it is in.

use std::time::Duration;

use super::{AgentError, AgentLink};
use crate::protocol::{Attached, Attachment, Ran, Reply, Request};
use vtax_model::units::Span;

/// How long an agent takes to say that a link isn't there, or has no carrier, with a margin.
const ATTACHED: Duration = Duration::from_secs(20);
/// What a program may take beyond its time, on a busy machine.
const MARGIN: Duration = Duration::from_secs(10);

impl AgentLink {
    /// Sets up a link of the guest, and waits until it has a carrier. Again with another MTU or
    /// further addresses, only these change.
    pub fn attach(&self, attachment: &Attachment) -> Result<Attached, AgentError> {
        let request = Request::Attach { session: self.new_session(), attachment: attachment.clone() };
        match self.call(request)?.wait(ATTACHED)? {
            Reply::Link(attached) => Ok(attached),
            _ => Err(self.odd("set up its link")),
        }
    }

    /// Runs a program in the guest to its end, with this on its standard input, and kills it if it
    /// takes longer than `limit`.
    pub fn run(&self, argv: &[String], stdin: &[u8], limit: Span) -> Result<Ran, AgentError> {
        let (session, argv, stdin) = (self.new_session(), argv.to_vec(), stdin.to_vec());
        let request = Request::Run { session, argv, stdin, limit };
        match self.call(request)?.wait(limit.0.saturating_add(MARGIN))? {
            Reply::Ran(ran) => Ok(ran),
            _ => Err(self.odd("run a program")),
        }
    }

    /// Switches the guest off. It is off when its QEMU has ended: the answer, which may get lost on
    /// the way, only says that it will be.
    pub fn power_off(self, deadline: Duration) -> Result<(), AgentError> {
        match self.call(Request::PowerOff)?.wait(deadline) {
            Err(error) if !error.is_death() => Err(error),
            _ => Ok(()),
        }
    }
}
