//! Timetable of alternating rows: when each has its turn, and the gap between two turns.

use std::{collections::BTreeMap, time::Duration};

use vtax_model::{
    units::Span,
    workload::{Sliced, TestKind, TestSpec, Transport, Warmup},
};
use vtax_wire::measure::{ParallelReports, Turns};

/// Maximum repetitions of a round in which most rows overran their time.
const TRIES: usize = 4;

/// A gap is at most this multiple of a slice. Longer overruns are accepted and reported in the result.
const GAP_MOST: u32 = 8;

/// The gap after a slice, in which its rest arrives, by transport and test. It is learned from overruns.
#[derive(Debug, Default)]
pub struct Gaps(BTreeMap<(Transport, TestKind), Duration>);

impl Gaps {
    fn of(&self, spec: &TestSpec) -> Duration {
        let key = (spec.transport, spec.workload.kind());
        let least = match key {
            (_, test) if test.is_transactions() => Duration::from_micros(300),
            (Transport::Udp, _) => Duration::from_millis(2),
            _ => Duration::from_millis(1),
        };
        self.0.get(&key).copied().unwrap_or(least).max(least)
    }

    /// Measures rows by a timetable. While most of them overrun their time, measures them again with longer gaps.
    pub(crate) fn measure<E>(
        &mut self,
        spec: &TestSpec,
        orders: &[Vec<usize>],
        mut measure: impl FnMut(&Timetable<'_>) -> Result<ParallelReports, E>,
    ) -> Result<ParallelReports, E> {
        let mut attempt = 1;
        loop {
            let taken = measure(&Timetable::new(spec, orders, self.of(spec)))?;
            let again = self.learn(spec, overruns(&taken));
            if !again || attempt >= TRIES {
                return Ok(taken);
            }
            attempt += 1;
        }
    }

    /// Learns from each row's overrun. Returns true if most rows overran, which disturbs the others, and the gap can
    /// grow.
    ///
    /// Late rows delay the next ones, so lateness accumulates over the turns and says little about a sufficient gap: it
    /// doubles until most rows keep their time. A single late row does little harm, because figures are medians over
    /// slices: the gap grows a little, unless the row stalled for longer than a slice, which no gap would cover (the
    /// host took the CPU away, or TCP waited for its retransmission timer).
    fn learn(&mut self, spec: &TestSpec, mut overruns: Vec<Duration>) -> bool {
        overruns.sort_unstable();
        let (gap, most) = (self.of(spec), spec.duration.0 * GAP_MOST);
        let middle = overruns.get(overruns.len() / 2).copied().unwrap_or_default();
        let worst = overruns.last().copied().unwrap_or_default();
        let wider = match (middle.is_zero(), worst.is_zero()) {
            (false, _) => (gap * 2).min(most),
            (true, false) if worst > spec.duration.0 => gap,
            (true, false) => (gap + worst.min(gap / 4)).min(spec.duration.0).max(gap),
            (true, true) => gap * 7 / 8,
        };
        self.0.insert((spec.transport, spec.workload.kind()), wider);
        !middle.is_zero() && wider > gap
    }
}

fn overruns(taken: &ParallelReports) -> Vec<Duration> {
    taken.reports.iter().map(|(initiator, _)| Duration::from_nanos(initiator.overrun_ns)).collect()
}

pub(crate) struct Timetable<'a> {
    orders: &'a [Vec<usize>],
    rows: usize,
    /// Duration of a warm-up, and of a slice with its lead. Both include the gap after them.
    warmup: Duration,
    slot: Duration,
}

impl<'a> Timetable<'a> {
    fn new(spec: &TestSpec, orders: &'a [Vec<usize>], gap: Duration) -> Timetable<'a> {
        let rows = orders.first().map_or(0, Vec::len);
        let slot = spec.lead() + spec.duration.0 + gap;
        Timetable { orders, rows, warmup: spec.warmup.most().0 + gap, slot }
    }

    /// Returns when the given turn of a pass begins; pass 0 is the warm-up.
    fn begins(&self, pass: usize, place: usize) -> Duration {
        let turns = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        match pass {
            0 => self.warmup * turns(place),
            _ => self.warmup * turns(self.rows) + self.slot * turns((pass - 1) * self.rows + place),
        }
    }

    /// Returns when the last slice of the last row ends.
    pub(crate) fn ends(&self) -> Duration {
        self.begins(self.orders.len(), 0)
    }

    pub(crate) fn turns(&self, row: usize) -> Turns {
        let begins = |(pass, order): (usize, &Vec<usize>)| {
            let place = order.iter().position(|of| *of == row).unwrap_or(0);
            self.begins(pass, place)
        };
        let mut all: Vec<Duration> = self.orders.iter().enumerate().map(begins).collect();
        let slices = all.split_off(1.min(all.len()));
        Turns { warmup: all.pop().unwrap_or_default(), slices, slot: self.slot, ends: self.ends() }
    }

    /// Returns the test with the longest time that a flow may wait for its turn.
    pub(crate) fn spec(&self, spec: &TestSpec) -> TestSpec {
        let slices = spec.slices.map(|slices| Sliced { span: Span(self.ends()), ..slices });
        TestSpec { slices, warmup: Warmup::For(spec.warmup.most()), ..*spec }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::{options::TestOptions, units::ByteSize, workload::Workload};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn spec() -> TestSpec {
        TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
            streams: 1,
            warmup: Warmup::For(Span::from_millis(10)),
            duration: Span::from_millis(10),
            slices: Some(Sliced { passes: 2, span: Span::from_millis(0) }),
            options: TestOptions::default(),
        }
    }

    #[test]
    fn no_two_rows_have_their_turn_at_one_time() {
        let orders = [vec![1, 0, 2], vec![2, 1, 0], vec![0, 2, 1]];
        let timetable = Timetable::new(&spec(), &orders, ms(1));
        let turns = |row| timetable.turns(row);
        assert_eq!([turns(0).warmup, turns(1).warmup, turns(2).warmup], [ms(11), ms(0), ms(22)]);
        assert_eq!(timetable.slot, ms(12), "a lead of a tenth, the slice, the gap");
        let mut begins: Vec<Duration> = (0..3).flat_map(|row| turns(row).slices).collect();
        begins.sort_unstable();
        let expected: Vec<Duration> = (0..6).map(|turn| ms(33 + 12 * turn)).collect();
        assert_eq!(begins, expected);
        assert_eq!(turns(0).slices, [ms(33 + 24), ms(33 + 36)]);
        assert_eq!(turns(0).ends, ms(33 + 72));
        let told = timetable.spec(&spec()).slices.map(|slices| slices.span);
        assert_eq!(told, Some(Span(ms(105))));
    }

    #[test]
    fn a_gap_grows_with_what_did_not_fit_and_only_for_its_test() {
        let mut gaps = Gaps::default();
        let before = gaps.of(&spec());
        assert!(gaps.learn(&spec(), vec![ms(400), ms(0), ms(400)]), "most were late");
        assert_eq!(gaps.of(&spec()), before * 2, "lateness adds up over the turns, and isn't what a gap must cover");
        let udp = TestSpec { transport: Transport::Udp, ..spec() };
        assert_eq!(gaps.of(&udp), before);
        let late = |gaps: &mut Gaps| gaps.learn(&spec(), vec![ms(10_000); 3]);
        let tries = (0..100).take_while(|_| late(&mut gaps)).count();
        assert!((1..100).contains(&tries) && gaps.of(&spec()) == ms(80), "there is a most");
        for _ in 0..1_000 {
            gaps.learn(&spec(), vec![ms(0); 3]);
        }
        assert_eq!(gaps.of(&spec()), before);
    }

    #[test]
    fn one_late_row_makes_no_round_again() {
        let mut gaps = Gaps::default();
        let before = gaps.of(&spec());
        assert!(!gaps.learn(&spec(), vec![ms(0), ms(2), ms(0)]));
        assert_eq!(gaps.of(&spec()), before * 5 / 4);
        assert!(!gaps.learn(&spec(), vec![ms(0), ms(2_000), ms(0)]));
        assert_eq!(gaps.of(&spec()), before * 5 / 4, "no gap would cover a stall");
    }
}
