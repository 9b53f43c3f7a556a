//! Setup of flows: each must show the token before the responder sends it anything.

pub(crate) mod connections;
pub(crate) mod datagrams;

use std::time::Duration;

use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use vtax_model::station::Target;
use vtax_sys::process::raise_open_files;

use crate::{
    cancel::Cancel,
    error::{EngineError, Result},
};

/// Returns the time that a responder waits for its flows; a little longer for many.
pub(crate) fn arrival(flows: u32) -> Duration {
    Duration::from_secs(10) + Duration::from_millis(2) * flows
}

/// Returns the time that an initiator waits until it is admitted. This is longer than the responder waits: the
/// responder knows more about the cause, so it should give up first.
pub(crate) fn admission(flows: u32) -> Duration {
    arrival(flows) + Duration::from_secs(2)
}

/// Interval at which waits before the test check [`Cancel`]; they are not on the measured path.
const TICK: Duration = Duration::from_millis(50);

/// File descriptors that a process needs besides those of its flows.
const OTHERS: u64 = 64;

/// The default maximum of open files in a process (fs.nr_open).
const WANTED: u64 = 1 << 20;

/// Raises the limit of open files as far as possible, because this process may run several ends. Fails if this many
/// flows don't fit.
pub(crate) fn make_room(flows: u32) -> Result<()> {
    let needed = u64::from(flows) + OTHERS;
    let limit = raise_open_files(WANTED)?;
    if limit < needed {
        let remedy = format!(
            "{flows} flows need {needed}, but this process's hard limit is {limit}: raise it \
             (ulimit -Hn, LimitNOFILE= of systemd, /etc/security/limits.conf), or use fewer streams"
        );
        return Err(EngineError::Descriptors { operation: "admit flows", remedy });
    }
    Ok(())
}

/// Sockets that are waited for together; a number identifies each.
struct Watched {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Watched {
    fn new() -> Result<Watched> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        Ok(Watched { epoll, events: Vec::with_capacity(256) })
    }

    fn add(&self, socket: impl AsFd, number: u64, flags: EventFlags) -> Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), flags).map_err(failed)
    }

    fn remove(&self, socket: impl AsFd) -> Result<()> {
        epoll::delete(&self.epoll, socket).map_err(failed)
    }

    /// The numbers of the sockets that are ready. Empty after a tick, an error after a cancellation.
    fn wait(&mut self, most: Duration, cancel: &Cancel) -> Result<Vec<u64>> {
        if cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        self.events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: TICK.min(most).subsec_nanos().into() };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.iter().map(|event| event.data.u64()).collect()),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn failed(errno: Errno) -> EngineError {
    EngineError::socket("epoll", &Target::NOWHERE, errno.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_cannot_be_enough_is_named_with_the_remedy() {
        make_room(1).unwrap();
        let error = make_room(u32::MAX).unwrap_err().to_string();
        assert!(error.contains("4294967295 flows need") && error.contains("ulimit -Hn"), "{error}");
    }
}
