//! A session that panics.
//!
//! A panic is a defect of one session. It must not take the others with it, nor leave the coordinator
//! waiting, nor end a guest, whose first process the agent may be. The agent is built with
//! `panic = "abort"`, as the code that unwinds takes a tenth of its size, so no panic can be caught. But the
//! hook runs before the process would be aborted: it tells the owner of the sessions, and doesn't return.
//! What the thread held it holds until the agent ends.

use std::{
    any::Any,
    cell::RefCell,
    panic,
    sync::{Mutex, Once, PoisonError, mpsc::SyncSender},
    thread,
};

use super::desk::OwnerEvent;
use crate::protocol::{CallOutcome, Fault, FaultKind, SessionId};

type Events = SyncSender<OwnerEvent>;

thread_local! {
    /// The session whose thread this is.
    static SESSION: RefCell<Option<(SessionId, Events)>> = const { RefCell::new(None) };
}

/// Where the sessions of this process are owned. A process has one conversation at a time.
static OWNER: Mutex<Option<Events>> = Mutex::new(None);

/// The engine's threads, which work for a session, have names that begin so.
const WORKER: &str = "flows-";

/// From now on a panic in a thread of a session is told to the owner.
pub(super) fn tell_owner(events: Events) {
    static HOOK: Once = Once::new();
    *OWNER.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            usual(info);
            tell(said(info.payload()));
        }));
    });
}

/// This thread is the session's.
pub(super) fn watch(session: SessionId, events: Events) {
    SESSION.set(Some((session, events)));
}

/// Returns if the thread belongs to no session.
fn tell(why: &str) {
    let why = format!("the session panicked: {why}; this is a defect of vtax, please report it");
    let outcome = CallOutcome::Failed(Fault::new(FaultKind::Panicked, "defect", why));
    if let Some((session, events)) = SESSION.take() {
        let _ = events.send(OwnerEvent::SessionEnded { session, outcome });
    } else if thread::current().name().is_some_and(|name| name.starts_with(WORKER)) {
        // Nobody knows for which session it works.
        let owner = OWNER.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let _ = owner.map(|events| events.send(OwnerEvent::AllEnded(outcome)));
    } else {
        return;
    }
    loop {
        thread::park();
    }
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
