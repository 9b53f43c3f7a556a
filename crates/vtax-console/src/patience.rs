//! Time that a guest waits for slow sessions.
//!
//! A guest's output can't be dropped as soon as one session has no space, because a burst of output is faster than any
//! session's thread. So the guest waits briefly. But no session can delay it for long: the time is used up, and only
//! further output of the guest restores it. In the long run, a guest can write [`Bounds::output`] in each
//! [`Bounds::patience`], whatever the sessions do: with the default bounds that is 320 KiB/s, 28 times the rate of a
//! serial line at 115,200 baud. A session whose output is being dropped doesn't delay the guest until it has read
//! everything.
//!
//! [`Bounds::output`]: crate::Bounds::output
//! [`Bounds::patience`]: crate::Bounds::patience

use std::time::{Duration, Instant};

use crate::bounds::Bounds;

#[derive(Debug)]
pub(crate) struct GuestPatience {
    left: Duration,
    most: Duration,
    bytes: usize,
    waiting_since: Option<Instant>,
}

impl GuestPatience {
    pub(crate) fn new(bounds: &Bounds) -> GuestPatience {
        GuestPatience { left: bounds.patience, most: bounds.patience, bytes: bounds.output.max(1), waiting_since: None }
    }

    /// Returns the time for which the guest may wait now; `None` if it may not wait any longer.
    pub(crate) fn wait(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.waiting_since.get_or_insert(now);
        let left = self.left.saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(left)
    }

    /// Notes that the guest wrote this many bytes, possibly after waiting.
    pub(crate) fn said(&mut self, bytes: usize, now: Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.left = self.left.saturating_sub(now.saturating_duration_since(since));
        }
        let earned = self.most.mul_f64(bytes as f64 / self.bytes as f64);
        self.left = (self.left + earned).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_used_up_and_restored_by_input() {
        let bounds = Bounds { patience: Duration::from_millis(200), output: 1000, ..Bounds::default() };
        let (mut patience, start) = (GuestPatience::new(&bounds), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let left = |milliseconds| Some(Duration::from_millis(milliseconds));
        assert_eq!(patience.wait(at(0)), left(200));
        assert_eq!(patience.wait(at(150)), left(50));
        patience.said(100, at(150));
        assert_eq!(patience.wait(at(500)), left(70));
        assert_eq!(patience.wait(at(570)), None);
        patience.said(0, at(600));
        assert_eq!(patience.wait(at(700)), None);
        patience.said(5000, at(700));
        assert_eq!(patience.wait(at(800)), left(200));
    }
}
