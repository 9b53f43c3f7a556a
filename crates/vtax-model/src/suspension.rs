//! Time for which a machine was suspended, by its own clock compared with ours.
//!
//! A suspended machine's monotonic clock stops, so afterwards it is behind by the length of the suspension. The machine
//! itself cannot notice: all of its clocks stop together.
//!
//! Each exchange reads the other clock between two readings of ours, as in NTP (RFC 5905, section 8): at a time of ours
//! from `sent` to `received`, the other clock showed `theirs`. So it was ahead by `a` with
//! `theirs - received <= a <= theirs - sent`: an interval as long as the round trip, whatever the two directions took.
//! Between an exchange `i` before the suspension and an exchange `j` after it, the clocks also drift apart, by at most
//! [`DRIFT_MOST`] of the time between them. For the length `S` of the suspension this gives, in ns of our clock,
//!
//! ```text
//! (theirs_i - received_i) - (theirs_j - sent_j) - d  <=  S  <=  (theirs_i - sent_i) - (theirs_j - received_j) + d
//! with d = DRIFT_MOST * (received_j - sent_i)
//! ```
//!
//! `S` lies in the intersection of these intervals over all pairs. The result is its middle, and the uncertainty is
//! half of its length: a bound of the error, not a standard deviation. It is at most half of the sum of the two
//! shortest round trips, plus the drift.

use std::{ops::RangeInclusive, time::Duration};

use serde::{Deserialize, Serialize};

/// Maximum rate at which the clocks of two machines drift apart, as a share of the time: 500 ppm. Linux steers its
/// clock by at most this (`MAXFREQ`, adjtimex(2)); two free-running clocks differ by about 100 ppm.
pub const DRIFT_MOST: f64 = 500e-6;

/// A reading of another machine's monotonic clock, between two readings of ours, all in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockExchange {
    /// Our clock, before the request.
    pub sent_ns: u64,
    /// The other clock.
    pub theirs_ns: u64,
    /// Our clock, after the answer.
    pub received_ns: u64,
}

impl ClockExchange {
    pub fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.received_ns.saturating_sub(self.sent_ns))
    }

    /// Returns the bounds of the amount by which the other clock was ahead.
    fn ahead(&self) -> (i128, i128) {
        let [sent, theirs, received] = [self.sent_ns, self.theirs_ns, self.received_ns].map(i128::from);
        (theirs - received.max(sent), theirs - sent)
    }
}

/// The length of a suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspension {
    /// In ns of our clock. Negative only within the uncertainty.
    pub length_ns: i64,
    /// Bound of the error.
    pub uncertainty_ns: u64,
}

/// Reason why clocks don't show how long a machine was suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum SuspensionUnknown {
    #[error(
        "the machine's clock was not read both before and after the suspension; read it repeatedly from before until after it"
    )]
    #[diagnostic(code("clock-not-read"))]
    NotRead,
    #[error("the readings of the machine's clock contradict each other by {} ms or more: something other than this suspension changed it; read the clock of one machine only, and suspend it once", excess_ns / 1_000_000)]
    #[diagnostic(code("clock-disagrees"))]
    Contradiction {
        /// Amount by which the readings contradict each other.
        excess_ns: u64,
    },
}

/// Returns how long a machine was suspended within `around`, a time of our clock that contains the suspension.
/// Exchanges in progress at that time are ignored, because the clock may have been read on either side of the
/// suspension.
pub fn suspension(exchanges: &[ClockExchange], around: &RangeInclusive<u64>) -> Result<Suspension, SuspensionUnknown> {
    let before = exchanges.iter().filter(|exchange| exchange.received_ns < *around.start());
    let pairs = before.flat_map(|first| {
        let after = exchanges.iter().filter(|exchange| exchange.sent_ns > *around.end());
        after.map(move |second| bounds(first, second))
    });
    let both = |(low, high): (i128, i128), (least, most)| (low.max(least), high.min(most));
    let (low, high) = pairs.reduce(both).ok_or(SuspensionUnknown::NotRead)?;
    if low > high {
        return Err(SuspensionUnknown::Contradiction { excess_ns: u64::try_from(low - high).unwrap_or(u64::MAX) });
    }
    let length_ns = low.midpoint(high).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let uncertainty_ns = u64::try_from((high - low + 1) / 2).unwrap_or(u64::MAX);
    Ok(Suspension { length_ns, uncertainty_ns })
}

/// Returns the bounds of the suspension between two exchanges.
fn bounds(before: &ClockExchange, after: &ClockExchange) -> (i128, i128) {
    let span = i128::from(after.received_ns) - i128::from(before.sent_ns);
    let drift = (span as f64 * DRIFT_MOST).ceil() as i128;
    let ((least_before, most_before), (least_after, most_after)) = (before.ahead(), after.ahead());
    (least_before - most_after - drift, most_before - least_after + drift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A machine that is suspended once, whose clock runs at a different rate than ours.
    #[derive(Debug, Clone, Copy)]
    struct Machine {
        ahead: u64,
        from: u64,
        length: u64,
        /// Deviation of its clock's rate from ours, as a share.
        rate: f64,
    }

    impl Machine {
        fn reads(&self, ours: u64) -> u64 {
            let stood = ours.saturating_sub(self.from).min(self.length);
            let ran = ours - stood;
            (self.ahead + ran).checked_add_signed((ran as f64 * self.rate).round() as i64).unwrap()
        }

        fn exchange(&self, sent: u64, there: u64, back: u64) -> ClockExchange {
            let received_ns = sent + there + back;
            ClockExchange { sent_ns: sent, theirs_ns: self.reads(sent + there), received_ns }
        }

        fn around(&self) -> RangeInclusive<u64> {
            self.from..=self.from + self.length
        }
    }

    #[test]
    fn the_shortest_round_trips_decide() {
        let machine = Machine { ahead: 7_000 * MS, from: 1_000 * MS, length: 500 * MS, rate: 0.0 };
        let at = [(900, 4), (950, 0), (1_501, 9), (1_520, 0)];
        let exchanges = at.map(|(sent, back)| machine.exchange(sent * MS, 50_000, 50_000 + back * MS));
        let found = suspension(&exchanges, &machine.around()).unwrap();
        assert!(found.length_ns.abs_diff(500 * MS as i64) <= 100_000, "{found:?}");
        // Half of two round trips of 0.1 ms each, and the drift of 570 ms.
        assert!((100_000..=400_000).contains(&found.uncertainty_ns), "{found:?}");
    }

    #[test]
    fn a_machine_that_ran_was_not_suspended() {
        let machine = Machine { ahead: 5, from: 1_000 * MS, length: 0, rate: 20e-6 };
        let exchanges = [990, 1_010].map(|sent| machine.exchange(sent * MS, 20_000, 30_000));
        let found = suspension(&exchanges, &(1_000 * MS..=1_000 * MS)).unwrap();
        assert!(found.length_ns.unsigned_abs() <= found.uncertainty_ns && found.uncertainty_ns < 100_000, "{found:?}");
    }

    #[test]
    fn exchanges_in_progress_are_ignored() {
        let machine = Machine { ahead: 5, from: 1_000 * MS, length: 500 * MS, rate: 0.0 };
        let under_way = machine.exchange(999 * MS, MS / 2, 502 * MS);
        let before = machine.exchange(900 * MS, MS, MS);
        let unknown = suspension(&[before, under_way], &machine.around()).unwrap_err();
        assert_eq!(unknown, SuspensionUnknown::NotRead);
        assert_eq!(suspension(&[], &machine.around()), Err(SuspensionUnknown::NotRead));
    }

    /// As after a second suspension, or if another machine answers.
    #[test]
    fn clocks_that_contradict_themselves_are_an_error() {
        let machine = Machine { ahead: 5, from: 1_000 * MS, length: 500 * MS, rate: 0.0 };
        let mut exchanges = [900, 950, 1_600, 1_700].map(|sent| machine.exchange(sent * MS, MS, MS));
        exchanges[3].theirs_ns -= 100 * MS;
        let error = suspension(&exchanges, &machine.around()).unwrap_err();
        let SuspensionUnknown::Contradiction { excess_ns } = error else { panic!("{error}") };
        assert!((90 * MS..100 * MS).contains(&excess_ns), "{excess_ns}");
        assert!(error.to_string().contains("97 ms") || error.to_string().contains(" ms or more"), "{error}");
    }

    fn delays() -> impl Strategy<Value = (u64, u64)> {
        (1_000..5_000_000_u64, 1_000..5_000_000_u64)
    }

    proptest! {
        /// Whatever the delays are, and however fast the clocks drift apart within the limit.
        #[test]
        fn the_planted_suspension_is_within_the_uncertainty(
            ahead in 0..1_u64 << 50, from in 10_000..20_000_u64, length in 0..10_000_u64, ppm in -499.0..499.0,
            before in proptest::collection::vec((0..9_000_u64, delays()), 1..12),
            after in proptest::collection::vec((1..9_000_u64, delays()), 1..12),
        ) {
            let machine = Machine { ahead, from: from * MS, length: length * MS, rate: ppm * 1e-6 };
            let mut exchanges = Vec::new();
            for (sent, (there, back)) in before {
                exchanges.push(machine.exchange(sent * MS, there, back));
            }
            for (sent, (there, back)) in after {
                exchanges.push(machine.exchange((from + length + sent) * MS, there, back));
            }
            let found = suspension(&exchanges, &machine.around()).unwrap();
            let wrong = (i128::from(found.length_ns) - i128::from(machine.length)).unsigned_abs();
            prop_assert!(wrong <= u128::from(found.uncertainty_ns) + 2, "{wrong} {found:?}");
        }

        /// Another exchange never makes the result less certain.
        #[test]
        fn more_exchanges_are_better(
            sent in proptest::collection::vec((0..9_000_u64, delays()), 1..8), more in (0..9_000_u64, delays()),
        ) {
            let machine = Machine { ahead: 77, from: 10_000 * MS, length: 300 * MS, rate: 50e-6 };
            let mut exchanges = vec![machine.exchange(11_000 * MS, MS, MS)];
            exchanges.extend(sent.iter().map(|(sent, (there, back))| machine.exchange(sent * MS, *there, *back)));
            let few = suspension(&exchanges, &machine.around()).unwrap();
            exchanges.push(machine.exchange(more.0 * MS, more.1.0, more.1.1));
            prop_assert!(suspension(&exchanges, &machine.around()).unwrap().uncertainty_ns <= few.uncertainty_ns);
        }

        #[test]
        fn no_readings_make_it_panic(
            readings in proptest::collection::vec(any::<[u64; 3]>(), 0..8), from: u64, to: u64,
        ) {
            let exchange = |[sent_ns, theirs_ns, received_ns]: [u64; 3]| ClockExchange { sent_ns, theirs_ns, received_ns };
            let exchanges: Vec<_> = readings.into_iter().map(exchange).collect();
            let _ = suspension(&exchanges, &(from.min(to)..=from.max(to)));
            let _ = exchanges.iter().map(ClockExchange::round_trip).max();
        }
    }
}
