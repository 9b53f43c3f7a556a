//! Counts the losses and the reordering of a UDP stream, from the sequence numbers that arrive.

/// Range in which a late datagram can be distinguished from a duplicate, in sequence numbers.
///
/// 65536 datagrams of 1472 bytes are 96 MB in flight: more than any socket buffer holds. A datagram that arrives even
/// later stays counted as lost.
pub(crate) const HORIZON: u64 = 1 << 16;

const WORDS: usize = (HORIZON / 64) as usize;

/// The sequence numbers that arrived, and how many of the window were lost or reordered.
pub(crate) struct Sequence {
    /// Bit `n % HORIZON` is set when `n` has arrived, for the `HORIZON` numbers below `next`.
    seen: Box<[u64; WORDS]>,
    /// One above the highest number so far.
    next: u64,
    /// The first number that belongs to the window.
    opened: u64,
    lost: u64,
    reordered: u64,
}

impl Sequence {
    pub(crate) fn new() -> Sequence {
        // There are no numbers below 0, so none of them is missing.
        Sequence { seen: Box::new([u64::MAX; WORDS]), next: 0, opened: 0, lost: 0, reordered: 0 }
    }

    /// Starts the window: numbers already missing don't count as its losses.
    pub(crate) fn open(&mut self) {
        self.opened = self.next;
        self.lost = 0;
        self.reordered = 0;
    }

    /// Counts `number`. Returns false if it is a duplicate, or too old to decide.
    #[inline]
    pub(crate) fn arrived(&mut self, number: u64) -> bool {
        if number == self.next && number != u64::MAX {
            self.set(number);
            self.next += 1;
            return true;
        }
        self.out_of_order(number)
    }

    /// Returns the number of sequence numbers of the window that haven't arrived, or arrived too late to be
    /// distinguished from duplicates.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of datagrams of the window that arrived after one with a higher number, without duplicates.
    pub(crate) fn reordered(&self) -> u64 {
        self.reordered
    }

    #[cold]
    fn out_of_order(&mut self, number: u64) -> bool {
        match number {
            // No sender gets this far, and one more would overflow.
            u64::MAX => false,
            _ if number > self.next => self.skip_to(number),
            _ => self.fill(number),
        }
    }

    fn skip_to(&mut self, number: u64) -> bool {
        let gap = number - self.next;
        for missing in (number - gap.min(HORIZON))..number {
            self.clear(missing);
        }
        self.lost += gap;
        self.set(number);
        self.next = number + 1;
        true
    }

    fn fill(&mut self, number: u64) -> bool {
        if self.next - number > HORIZON || self.has(number) {
            return false;
        }
        self.set(number);
        self.reordered += 1;
        if number >= self.opened {
            self.lost -= 1;
        }
        true
    }

    fn has(&self, number: u64) -> bool {
        self.seen[word(number)] & bit(number) != 0
    }

    fn set(&mut self, number: u64) {
        self.seen[word(number)] |= bit(number);
    }

    fn clear(&mut self, number: u64) {
        self.seen[word(number)] &= !bit(number);
    }
}

fn word(number: u64) -> usize {
    (number % HORIZON / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A second implementation for comparison: it stores every number.
    #[derive(Default)]
    struct Naive {
        came: BTreeSet<u64>,
        opened: u64,
        reordered: u64,
    }

    impl Naive {
        fn next(&self) -> u64 {
            self.came.last().map_or(0, |last| last + 1)
        }

        fn open(&mut self) {
            self.opened = self.next();
            self.reordered = 0;
        }

        fn arrived(&mut self, number: u64) -> bool {
            let late = number < self.next();
            if late && self.next() - number > HORIZON {
                return false;
            }
            let fresh = self.came.insert(number);
            self.reordered += u64::from(fresh && late);
            fresh
        }

        fn lost(&self) -> u64 {
            let expected = self.next() - self.opened.min(self.next());
            expected - self.came.range(self.opened..).count() as u64
        }
    }

    #[test]
    fn a_gap_counts_as_lost_until_it_is_filled() {
        let mut sequence = Sequence::new();
        let fresh: Vec<bool> = [0, 1, 4, 2, 2, 5].into_iter().map(|n| sequence.arrived(n)).collect();
        assert_eq!(fresh, [true, true, true, true, false, true]);
        assert_eq!((sequence.lost(), sequence.reordered()), (1, 1));
    }

    #[test]
    fn losses_before_the_window_do_not_count() {
        let mut sequence = Sequence::new();
        for number in [0, 5] {
            sequence.arrived(number);
        }
        sequence.open();
        for number in [6, 3, 8] {
            sequence.arrived(number);
        }
        assert_eq!((sequence.lost(), sequence.reordered()), (1, 1));
    }

    #[test]
    fn the_largest_number_does_not_overflow() {
        let mut sequence = Sequence::new();
        assert!(!sequence.arrived(u64::MAX));
        assert!(sequence.arrived(u64::MAX - 1));
        assert!(!sequence.arrived(u64::MAX));
        assert_eq!(sequence.lost(), u64::MAX - 1);
    }

    /// Mostly small steps forward, sometimes back, sometimes beyond the horizon.
    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let step = prop_oneof![
            10 => Just(1i64),
            4 => -8i64..8,
            1 => -70_000i64..70_000,
            1 => (HORIZON as i64 - 2)..(HORIZON as i64 + 2),
            1 => -(HORIZON as i64 + 2)..-(HORIZON as i64 - 2),
        ];
        proptest::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn the_bitmap_agrees_with_a_set(steps in steps(), opening in 0usize..200) {
            let (mut sequence, mut naive) = (Sequence::new(), Naive::default());
            let mut number = 0i64;
            for (turn, step) in steps.into_iter().enumerate() {
                if turn == opening {
                    sequence.open();
                    naive.open();
                }
                number = (number + step).max(0);
                prop_assert_eq!(sequence.arrived(number as u64), naive.arrived(number as u64));
                prop_assert_eq!(sequence.lost(), naive.lost());
                prop_assert_eq!(sequence.reordered(), naive.reordered);
                number = naive.next() as i64 - i64::from(step > 0);
            }
        }
    }
}
