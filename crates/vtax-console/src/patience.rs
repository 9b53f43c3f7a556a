//! How long a guest waits for sessions that read slowly.
//!
//! What a guest says can't be dropped as soon as one session has no space: a guest that says much at once would be
//! faster than each session's thread. So the guest waits a little. But no session can make it wait for long: the time
//! is used up, and only what the guest says brings it back. Over time a guest can say [`Bounds::output`] in each
//! [`Bounds::patience`], whatever the sessions do: with the usual bounds that is 320 KiB/s, 28 times as much as a
//! serial line of 115,200 baud. A session that has been given up isn't waited for before it has read everything.
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

    /// The guest has to wait: how long may it, or None if it mustn't any longer.
    pub(crate) fn wait(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.waiting_since.get_or_insert(now);
        let left = self.left.saturating_sub(now.saturating_duration_since(since));
        (!left.is_zero()).then_some(left)
    }

    /// The guest said so many bytes, and didn't have to wait, or no longer.
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
    fn time_is_used_up_and_comes_back_with_what_is_said() {
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
