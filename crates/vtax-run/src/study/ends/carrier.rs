//! Waits for links that a change of settings has reset, e.g. of the ring size. Such a link has no carrier until both of
//! its ends have negotiated a speed, which takes seconds on a physical NIC.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use super::{ConnectedEnds, failure::dead_links};

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

impl ConnectedEnds {
    /// Records which links carry no packets before any setting is changed. These are not waited for.
    pub(super) fn note_dead_links(&mut self) {
        self.dead_before = dead_links(self.pairs());
    }

    /// Waits until the links carry packets again. The error names those that still don't.
    pub(super) fn await_carriers(&self) -> Result<(), String> {
        let dead = await_none(PATIENCE, || &dead_links(self.pairs()) - &self.dead_before);
        let dead: Vec<String> = dead.into_iter().collect();
        match dead.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{} seconds after settings were changed, a link is down: {}; omit the step that resets it, or check \
                 the cable",
                PATIENCE.as_secs(),
                dead.join("; ")
            )),
        }
    }

    fn pairs(&self) -> impl Iterator<Item = &[super::ConnectedEnd; 2]> {
        self.rows.iter().flat_map(|connected| &connected.pairs)
    }
}

/// Polls until `dead` returns none or the time is up. Returns the rest.
fn await_none(patience: Duration, mut dead: impl FnMut() -> BTreeSet<String>) -> BTreeSet<String> {
    let until = Instant::now() + patience;
    loop {
        let left = dead();
        if left.is_empty() || Instant::now() >= until {
            return left;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_waited_for_and_named_if_it_does_not_come_back() {
        let one = || BTreeSet::from(["eth1 of ssh:vm1".to_owned()]);
        let mut asked = 0;
        let back = await_none(PATIENCE, || {
            asked += 1;
            if asked < 3 { one() } else { BTreeSet::new() }
        });
        assert_eq!((back.len(), asked), (0, 3));
        assert_eq!(await_none(Duration::ZERO, one), one());
    }
}
