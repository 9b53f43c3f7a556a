//! Silences of the other endpoint of an open loop: how long it didn't answer although requests were
//! due.
//!
//! Requests are due at intervals of `d`. If nothing is answered for a time `S`, the silence is the time from the last
//! answer before it to the first answer after it. It contains `S`. It is longer by at most `2d` if the requests of that
//! time are lost, and by at most `d` if they are queued somewhere and answered afterwards; and by the change of the
//! round trip itself. So with a request each millisecond, an outage of 500 ms gives a silence of 500 to 502 ms.
//!
//! A lost request belongs to the silence during which it was in flight: it was sent after the last request that was
//! answered before, and before the first answer after. This includes a request that was in flight when the outage
//! began.

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{station::Station, units::Span};

/// Number of silences in a report.
pub const SILENCES_KEPT: usize = 8;

/// A time in which no request was answered. All times are in ns of the initiator's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// Time of the last answer before it; for the first silence, the beginning of the measured
    /// time.
    pub from_ns: u64,
    /// Time of the first answer after it; without one, the time when waiting ended.
    pub to_ns: u64,
    /// Due time of the last request that was answered before it.
    pub last_due_ns: u64,
    /// Due time of the first request that was answered after it.
    pub next_due_ns: u64,
    /// Requests in flight during the silence that were never answered.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub lost: u64,
    /// Maximum delay of the initiator behind its own schedule: that much of the silence may be its own fault.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub late_ns: u64,
    /// True if no answer came after it: the silence was at least this long.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub unended: bool,
}

impl Silence {
    pub fn length(&self) -> Duration {
        Duration::from_nanos(self.to_ns.saturating_sub(self.from_ns))
    }
}

/// An address to watch by ICMP echo requests at equal intervals. The kernel of its machine answers them, so no program
/// is needed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EchoWatch {
    /// Local address.
    pub station: Station,
    /// The address to watch.
    pub target: IpAddr,
    /// Time between two requests, at least [`ECHO_LEAST`].
    pub every: Span,
    /// Maximum duration of the watch.
    pub most: Span,
}

/// The shortest time between two requests of an [`EchoWatch`].
pub const ECHO_LEAST: Span = Span(Duration::from_micros(100));

/// Time after which an unanswered request of an [`EchoWatch`] is lost.
pub const ECHO_LOST_AFTER: Duration = Duration::from_secs(2);

/// Finds the longest silences while requests are answered, in constant memory.
///
/// Requests have increasing numbers in the order of sending. Answers may come in any order.
#[derive(Debug, Clone)]
pub struct SilenceLog {
    /// The longest first, each with the highest number that was answered before it.
    longest: Vec<(u64, Silence)>,
    /// Highest number that was answered, and when that request was due.
    highest: u64,
    due: u64,
    /// Time of the last answer.
    heard: u64,
    /// Maximum delay of the initiator behind its schedule since then.
    late: u64,
    /// Lost requests after the highest answered one, and when the last of them was sent.
    lost: u64,
    lost_sent: u64,
}

impl SilenceLog {
    /// Begins at `now`, when the request with this number had been answered.
    pub fn begin(now: u64, number: u64) -> SilenceLog {
        SilenceLog { longest: Vec::new(), highest: number, due: now, heard: now, late: 0, lost: 0, lost_sent: 0 }
    }

    /// Records that the initiator is behind its schedule by this much. It calls this before each request and each answer.
    #[inline]
    pub fn behind(&mut self, late_ns: u64) {
        self.late = self.late.max(late_ns);
    }

    /// Records the answer to a request that was due at `due`. Returns true if the list of the longest has changed.
    #[inline]
    pub fn answered(&mut self, number: u64, due: u64, now: u64) -> bool {
        let length = now.saturating_sub(self.heard);
        let has_room = self.longest.len() < SILENCES_KEPT;
        let is_kept = has_room || self.longest.last().is_some_and(|(_, last)| length > last.to_ns - last.from_ns);
        if is_kept {
            self.keep(due, now.max(self.heard), false);
        }
        self.heard = self.heard.max(now);
        (self.late, self.lost) = (0, 0);
        if number > self.highest {
            (self.highest, self.due) = (number, due);
        }
        is_kept
    }

    /// Records that the request with this number, sent at `sent`, is lost. Returns true if the list of the longest has
    /// changed.
    pub fn lost(&mut self, number: u64, sent: u64) -> bool {
        if number > self.highest {
            self.lost += 1;
            self.lost_sent = self.lost_sent.max(sent);
            return false;
        }
        let mut longest = self.longest.iter_mut();
        // The longest of several: short ones between answers in flight preceded it.
        let during = longest.find(|(after, silence)| number > *after && sent < silence.to_ns);
        during.map(|(_, silence)| silence.lost += 1).is_some()
    }

    /// Records the end of the loop, and when that was if it was still waiting for answers. If so, or if requests were
    /// lost since the last answer, the silence has not ended.
    pub fn end(&mut self, waiting: Option<u64>) {
        if self.lost > 0 || waiting.is_some() {
            let until = waiting.unwrap_or(self.lost_sent).max(self.heard);
            self.keep(until, until, true);
        }
    }

    fn keep(&mut self, next_due_ns: u64, to_ns: u64, unended: bool) {
        let Self { heard: from_ns, due: last_due_ns, late: late_ns, lost, .. } = *self;
        let silence = Silence { from_ns, to_ns, last_due_ns, next_due_ns, lost, late_ns, unended };
        let place = self.longest.partition_point(|(_, other)| other.length() >= silence.length());
        self.longest.insert(place, (self.highest, silence));
        self.longest.truncate(SILENCES_KEPT);
    }

    /// Returns the longest silences, the longest first.
    pub fn longest(&self) -> Vec<Silence> {
        self.longest.iter().map(|(_, silence)| *silence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    /// Requests in a second.
    const REQUESTS: u64 = 1_000;

    /// Fate of requests in flight during an outage.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fate {
        Lost,
        /// They are answered when it ends.
        Queued,
        /// This many of them are answered when it ends, and the others are lost: a queue that was full.
        QueueOf(u64),
    }

    /// An outage from a moment after the beginning, in ns.
    #[derive(Debug, Clone, Copy)]
    struct Outage {
        from: u64,
        to: u64,
        fate: Fate,
    }

    /// Returns when a request sent at `sent` is answered, if it is.
    fn answer(sent: u64, rtt: u64, queued: &mut u64, outages: &[Outage]) -> Option<u64> {
        let arrival = sent + rtt;
        let Some(outage) = outages.iter().find(|outage| (outage.from..outage.to).contains(&arrival)) else {
            return Some(arrival);
        };
        match outage.fate {
            Fate::Lost => None,
            Fate::Queued => Some(outage.to),
            Fate::QueueOf(room) => {
                *queued += 1;
                (*queued <= room).then_some(outage.to)
            }
        }
    }

    /// Runs an open loop of a second through these outages. Losses are detected after 2 s.
    fn run(rtt: u64, outages: &[Outage]) -> SilenceLog {
        let mut events = Vec::new();
        let mut queued = 0;
        for number in 1..=REQUESTS {
            let sent = number * MS;
            match answer(sent, rtt, &mut queued, outages) {
                Some(at) => events.push((at, number, sent, true)),
                None => events.push((sent + 2_000 * MS, number, sent, false)),
            }
        }
        events.sort();
        let mut log = SilenceLog::begin(0, 0);
        for (at, number, sent, is_answered) in events {
            match is_answered {
                true => log.answered(number, sent, at),
                false => log.lost(number, sent),
            };
        }
        log.end(None);
        log
    }

    #[test]
    fn an_outage_of_lost_requests_is_found_with_their_number() {
        let log = run(MS / 10, &[Outage { from: 200 * MS, to: 700 * MS, fate: Fate::Lost }]);
        let [first, second, ..] = &log.longest()[..] else { panic!("{log:?}") };
        assert_eq!((first.from_ns, first.to_ns), (199 * MS + MS / 10, 700 * MS + MS / 10));
        assert_eq!((first.last_due_ns, first.next_due_ns, first.lost), (199 * MS, 700 * MS, 500));
        assert!(second.length() <= Duration::from_millis(2) && second.lost == 0, "{second:?}");
    }

    #[test]
    fn queued_requests_are_not_lost() {
        let log = run(MS / 10, &[Outage { from: 200 * MS, to: 700 * MS, fate: Fate::Queued }]);
        let longest = log.longest()[0];
        assert_eq!((longest.length(), longest.lost), (Duration::from_micros(500_900), 0));
        assert_eq!(longest.next_due_ns, 200 * MS);
    }

    #[test]
    fn requests_that_a_full_queue_dropped_belong_to_the_outage() {
        let log = run(MS / 10, &[Outage { from: 200 * MS, to: 700 * MS, fate: Fate::QueueOf(100) }]);
        assert_eq!((log.longest()[0].lost, log.longest()[1].lost), (400, 0));
    }

    #[test]
    fn requests_in_flight_at_its_beginning_belong_to_it() {
        let log = run(5 * MS, &[Outage { from: 200 * MS, to: 700 * MS, fate: Fate::Lost }]);
        assert_eq!((log.longest()[0].lost, log.longest()[1].lost), (500, 0));
    }

    #[test]
    fn a_silence_without_an_end_is_marked() {
        let log = run(MS / 10, &[Outage { from: 600 * MS, to: 9_000 * MS, fate: Fate::Lost }]);
        let longest = log.longest()[0];
        assert!(longest.unended && longest.lost == 401, "{longest:?}");
        assert_eq!(longest.to_ns, 1_000 * MS, "the last request that should have been answered");
        // One lost request at the end is not an outage.
        let last = run(MS / 10, &[Outage { from: 1_000 * MS, to: 1_001 * MS, fate: Fate::Lost }]);
        assert!(last.longest().iter().all(|silence| silence.length() < Duration::from_millis(2)), "{last:?}");
    }

    #[test]
    fn a_loop_that_still_waits_has_an_unended_silence() {
        let mut log = SilenceLog::begin(0, 0);
        log.answered(1, MS, 2 * MS);
        log.end(Some(400 * MS));
        let longest = log.longest()[0];
        assert_eq!((longest.from_ns, longest.to_ns, longest.unended), (2 * MS, 400 * MS, true));
    }

    #[test]
    fn a_silence_records_the_initiators_delay() {
        let mut log = SilenceLog::begin(0, 0);
        log.behind(5);
        log.answered(1, MS, MS);
        log.behind(3 * MS);
        log.behind(2);
        log.answered(2, 2 * MS, 5 * MS);
        assert_eq!(log.longest().iter().map(|silence| silence.late_ns).collect::<Vec<_>>(), [3 * MS, 5]);
    }

    #[test]
    fn a_late_answer_neither_begins_nor_lengthens_a_silence() {
        let mut log = SilenceLog::begin(0, 0);
        log.answered(2, 2 * MS, 3 * MS);
        log.answered(1, MS, 4 * MS);
        log.answered(3, 3 * MS, 9 * MS);
        let longest = log.longest()[0];
        assert_eq!((longest.from_ns, longest.to_ns), (4 * MS, 9 * MS));
        assert_eq!((longest.last_due_ns, longest.next_due_ns), (2 * MS, 3 * MS));
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![Just(Fate::Lost), Just(Fate::Queued), (0..50_u64).prop_map(Fate::QueueOf)]
    }

    proptest! {
        /// The bounds that this module guarantees, for two outages of any lengths after the first answers.
        #[test]
        fn planted_outages_are_found(
            rtt in 1..20_000_000_u64, first in 30..200_u64, length in 10..200_u64, gap in 60..200_u64,
            second in 10..200_u64, fates in (fate(), fate()),
        ) {
            let from = first * MS;
            let again = from + (length + gap) * MS;
            let outages = [
                Outage { from, to: from + length * MS, fate: fates.0 },
                Outage { from: again, to: again + second * MS, fate: fates.1 },
            ];
            let log = run(rtt, &outages);
            for outage in outages {
                let found = log.longest().into_iter().find(|silence| silence.from_ns <= outage.from && silence.to_ns >= outage.to);
                let found = found.expect("it is among the longest");
                let excess = found.to_ns - found.from_ns - (outage.to - outage.from);
                prop_assert!(excess <= 2 * MS, "{found:?} for {outage:?}");
            }
            prop_assert!(log.longest().is_sorted_by(|a, b| a.length() >= b.length()));
        }

        /// No request is counted twice, and all requests lost in an outage of that length are counted.
        #[test]
        fn all_lost_requests_are_counted_once(
            rtt in 1..20_000_000_u64, first in 20..400_u64, length in 20..400_u64, fate in fate(),
        ) {
            let outage = Outage { from: first * MS, to: (first + length) * MS, fate };
            let mut queued = 0;
            let answers = (1..=REQUESTS).map(|number| answer(number * MS, rtt, &mut queued, &[outage]));
            let lost = answers.filter(Option::is_none).count() as u64;
            let counted: u64 = run(rtt, &[outage]).longest().iter().map(|silence| silence.lost).sum();
            prop_assert_eq!(counted, lost);
        }

        #[test]
        fn no_order_of_events_makes_it_panic(
            events in proptest::collection::vec((any::<bool>(), 0..50_u64, any::<u64>(), any::<u64>()), 0..200),
        ) {
            let mut log = SilenceLog::begin(1_000, 7);
            for (is_answered, number, due, now) in events {
                let _ = if is_answered { log.answered(number, due, now) } else { log.lost(number, due) };
            }
            log.end(Some(5));
            prop_assert!(log.longest().len() <= SILENCES_KEPT);
        }
    }
}
