//! An agent's watch over an address.

use std::time::Duration;

use vtax_model::measurement::{EchoWatch, EndReport};

use super::{AgentError, AgentLink, PendingReply};
use crate::protocol::{Reply, Request, SessionId};

impl AgentLink {
    /// Makes the agent watch an address until it is stopped or the time is up. Doesn't wait.
    pub fn watch(&self, watch: &EchoWatch) -> Result<Watching<'_>, AgentError> {
        let session = self.new_session();
        let pending = self.call(Request::Watch { session, watch: watch.clone() })?;
        Ok(Watching { link: self, session, pending: Some(pending) })
    }
}

/// A watch that is running. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watching<'link> {
    link: &'link AgentLink,
    session: SessionId,
    pending: Option<PendingReply<'link>>,
}

impl Watching<'_> {
    /// Ends the watch and returns its report. If it couldn't start, the error says why.
    pub fn stop(mut self, deadline: Duration) -> Result<EndReport, AgentError> {
        let pending = self.pending.take().expect("only this takes it");
        self.link.cancel(self.session)?.wait(deadline)?;
        match pending.wait(deadline)? {
            Reply::Report(report) => Ok(*report),
            _ => Err(self.link.odd("watch an address")),
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if self.pending.is_some() {
            // Without the agent, the watch has ended.
            let _ = self.link.cancel(self.session);
        }
    }
}
