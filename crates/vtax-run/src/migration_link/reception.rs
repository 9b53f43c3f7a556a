//! The part of a link that receives a domain's memory at the target, in the background.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use vtax_domain::DomainNotice;
use vtax_guest::migration::MigrationCancel;
use vtax_model::foreign::ForeignText;

use super::Hear;

/// Time limit for ending a useless reception. It may have to wait for the lock of the target's domains.
const ENDED: Duration = Duration::from_secs(10);

/// Reception that runs in the background.
#[derive(Debug)]
pub(super) struct Reception(Receiver<()>);

/// The background thread's side.
pub(super) struct ReceptionEnd {
    hear: Hear,
    /// The user's switch: after a cancellation, the target's error is irrelevant.
    cancel: MigrationCancel,
    _ended: Sender<()>,
}

impl Reception {
    pub(super) fn new(hear: &Hear, cancel: &MigrationCancel) -> (Reception, ReceptionEnd) {
        let (sender, receiver) = channel();
        (Reception(receiver), ReceptionEnd { hear: hear.clone(), cancel: cancel.clone(), _ended: sender })
    }

    /// Waits a while for the end. Returns false if the reception hasn't ended.
    pub(super) fn wait(&self) -> bool {
        // Nothing is ever sent: the other end is dropped.
        !matches!(self.0.recv_timeout(ENDED), Err(std::sync::mpsc::RecvTimeoutError::Timeout))
    }
}

impl ReceptionEnd {
    /// Reports why the target has not received the domain.
    pub(super) fn fail(self, why: &ForeignText) {
        if !self.cancel.is_cancelled() && !why.is_empty() {
            (self.hear)(DomainNotice::Trouble(format!("at the target: {why}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_target_s_reason_is_reported_unless_the_user_has_cancelled() {
        let heard: Arc<Mutex<Vec<DomainNotice>>> = Arc::default();
        let sink = Arc::clone(&heard);
        let hear: Hear = Arc::new(move |notice| sink.lock().expect("no panic").push(notice));
        let cancel = MigrationCancel::default();
        let fail = || {
            let (reception, end) = Reception::new(&hear, &cancel);
            end.fail(&"its memory\u{7} differs".into());
            assert!(reception.wait(), "it has ended");
        };
        fail();
        cancel.cancel();
        fail();
        let told = "at the target: its memory\\u0007 differs".to_owned();
        assert_eq!(*heard.lock().expect("no panic"), [DomainNotice::Trouble(told)]);
    }
}
