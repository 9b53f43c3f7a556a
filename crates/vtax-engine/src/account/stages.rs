//! Division of a message's time into stages, from its timestamps.

use vtax_model::measurement::Stages;
use vtax_stats::histogram::Histogram;

/// Timestamps of a sent and a received message, in nanoseconds of CLOCK_REALTIME. None if the kernel didn't report one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moments {
    /// Start of the send call.
    pub(crate) send: Option<u64>,
    /// When the sent message entered the qdisc, and when the driver took it.
    pub(crate) qdisc: Option<u64>,
    pub(crate) driver: Option<u64>,
    /// When the received message reached the stack, and when the receive call returned.
    pub(crate) arrival: Option<u64>,
    pub(crate) received: Option<u64>,
}

impl Moments {
    /// Returns true if the kernel has reported all timestamps of the sent message.
    pub(crate) fn are_told(&self) -> bool {
        self.qdisc.is_some() && self.driver.is_some()
    }

    /// The times between the timestamps, in the order of the message's path at this end. None if a timestamp is missing
    /// or earlier than the previous one: then the clock was set, or a timestamp belongs to another message.
    fn stages(&self, initiates: bool) -> Option<[u64; 4]> {
        let (sent, came) = ([self.send?, self.qdisc?, self.driver?], [self.arrival?, self.received?]);
        let way = match initiates {
            true => [sent[0], sent[1], sent[2], came[0], came[1]],
            false => [came[0], came[1], sent[0], sent[1], sent[2]],
        };
        let mut stages = [0; 4];
        for (stage, moments) in stages.iter_mut().zip(way.windows(2)) {
            *stage = moments[1].checked_sub(moments[0])?;
        }
        Some(stages)
    }
}

/// Adds a message of this end; `initiates` is true for the initiator.
pub(super) fn record(stages: &mut Stages, moments: &Moments, initiates: bool) {
    let Some(times) = moments.stages(initiates) else {
        stages.without += 1;
        return;
    };
    let Stages { send_to_qdisc, qdisc_to_driver, away, stack_to_receive, turnaround, .. } = stages;
    let histograms = match initiates {
        true => [send_to_qdisc, qdisc_to_driver, away, stack_to_receive],
        false => [stack_to_receive, turnaround, send_to_qdisc, qdisc_to_driver],
    };
    for (histogram, time) in histograms.into_iter().zip(times) {
        histogram.get_or_insert_with(Histogram::new).record(time);
    }
}

/// Adds the stages of two threads.
pub(super) fn merge(one: Option<Stages>, other: Option<Stages>) -> Option<Stages> {
    let (one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (one, other) => return one.or(other),
    };
    Some(Stages {
        send_to_qdisc: sum(one.send_to_qdisc, other.send_to_qdisc),
        qdisc_to_driver: sum(one.qdisc_to_driver, other.qdisc_to_driver),
        driver_to_wire: sum(one.driver_to_wire, other.driver_to_wire),
        away: sum(one.away, other.away),
        wire_to_stack: sum(one.wire_to_stack, other.wire_to_stack),
        stack_to_receive: sum(one.stack_to_receive, other.stack_to_receive),
        turnaround: sum(one.turnaround, other.turnaround),
        without: one.without + other.without,
    })
}

/// A histogram with the values of both.
pub(super) fn sum(one: Option<Histogram>, other: Option<Histogram>) -> Option<Histogram> {
    match (one, other) {
        (Some(mut one), Some(other)) => {
            one.merge(&other);
            Some(one)
        }
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Moments =
        Moments { send: Some(100), qdisc: Some(103), driver: Some(108), arrival: Some(200), received: Some(230) };

    fn only(histogram: &Option<Histogram>) -> Option<u64> {
        histogram.as_ref().map(|histogram| {
            assert_eq!(histogram.count(), 1);
            histogram.max()
        })
    }

    #[test]
    fn the_stages_of_an_initiator_begin_with_its_send_call() {
        let mut stages = Stages::default();
        record(&mut stages, &SENT, true);
        let found = [&stages.send_to_qdisc, &stages.qdisc_to_driver, &stages.away, &stages.stack_to_receive];
        assert_eq!(found.map(only), [Some(3), Some(5), Some(92), Some(30)]);
        assert_eq!((stages.turnaround, stages.without), (None, 0));
    }

    #[test]
    fn the_stages_of_a_responder_begin_with_the_arrival() {
        let mut stages = Stages::default();
        let answered = Moments { arrival: Some(10), received: Some(60), ..SENT };
        record(&mut stages, &answered, false);
        let found = [&stages.stack_to_receive, &stages.turnaround, &stages.send_to_qdisc, &stages.qdisc_to_driver];
        assert_eq!(found.map(only), [Some(50), Some(40), Some(3), Some(5)]);
        assert_eq!((stages.away, stages.without), (None, 0));
    }

    #[test]
    fn messages_with_missing_or_reversed_timestamps_are_in_no_histogram() {
        let mut stages = Stages::default();
        for moments in [
            Moments { arrival: None, ..SENT },
            Moments { driver: None, ..SENT },
            Moments { driver: Some(102), ..SENT },
            Moments { arrival: Some(107), ..SENT },
        ] {
            record(&mut stages, &moments, true);
        }
        assert_eq!(stages, Stages { without: 4, ..Stages::default() });
    }

    #[test]
    fn threads_add_up() {
        let mut one = Stages::default();
        record(&mut one, &SENT, true);
        record(&mut one, &Moments { send: None, ..SENT }, true);
        let both = merge(Some(one.clone()), merge(None, Some(one))).unwrap();
        assert_eq!((both.without, both.away.as_ref().map(Histogram::count)), (2, Some(2)));
        assert_eq!((both.turnaround, both.driver_to_wire), (None, None));
    }
}
