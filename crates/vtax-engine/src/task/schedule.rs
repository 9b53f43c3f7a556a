//! Due times of the requests of an open loop.

use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use vtax_model::options::{ArrivalProcess, Arrivals};

/// The due times of one flow among several, in the order of time.
pub(crate) struct DueTimes {
    /// Mean nanoseconds between the requests of this flow.
    spacing: f64,
    /// Delay of this flow's times after the first flow's.
    phase: f64,
    process: ArrivalProcess,
    random: Xoshiro256PlusPlus,
    start: u64,
    /// Due time of the next request, in nanoseconds after the start; 53 bits are exact for 104 days.
    next: f64,
    sent: u64,
}

impl DueTimes {
    /// The due times of the flow with this index among `flows`. Equal seeds give equal times.
    pub(crate) fn new(arrivals: Arrivals, flows: u32, index: u32, seed: u64) -> DueTimes {
        let each = 1e9 / f64::from(arrivals.per_second.get());
        DueTimes {
            spacing: each * f64::from(flows),
            phase: each * f64::from(index),
            process: arrivals.process,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(index) << 32)),
            start: 0,
            next: 0.0,
            sent: 0,
        }
    }

    /// Starts again at `start`.
    pub(crate) fn restart(&mut self, start: u64) {
        self.start = start;
        self.sent = 0;
        self.next = match self.process {
            ArrivalProcess::Fixed => self.phase,
            ArrivalProcess::Poisson => self.exponential(),
        };
    }

    #[inline]
    pub(crate) fn due(&self) -> u64 {
        self.start + self.next as u64
    }

    /// Advances to the next request.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.sent += 1;
        self.next = match self.process {
            // Computed from the count: the error of repeated addition would grow.
            ArrivalProcess::Fixed => self.phase + self.sent as f64 * self.spacing,
            ArrivalProcess::Poisson => self.next + self.exponential(),
        };
    }

    /// A random number by inversion, from the 53 upper bits and never from 0.
    fn exponential(&mut self) -> f64 {
        let uniform = ((self.random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln() * self.spacing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::options::RequestRate;

    fn dues(process: ArrivalProcess, flows: u32, index: u32, count: usize) -> Vec<u64> {
        let per_second = RequestRate::new(1_000).expect("a rate");
        let mut schedule = DueTimes::new(Arrivals { per_second, process }, flows, index, 42);
        schedule.restart(1_000_000);
        let next = |_| {
            let due = schedule.due();
            schedule.advance();
            due
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn fixed_arrivals_of_several_flows_interleave() {
        assert_eq!(dues(ArrivalProcess::Fixed, 2, 0, 3), [1_000_000, 3_000_000, 5_000_000]);
        assert_eq!(dues(ArrivalProcess::Fixed, 2, 1, 3), [2_000_000, 4_000_000, 6_000_000]);
        assert_eq!(dues(ArrivalProcess::Fixed, 1, 0, 1_000_001)[1_000_000], 1_000_001_000_000);
    }

    #[test]
    fn poisson_gaps_are_exponential_and_independent_between_flows() {
        let dues_of = |index| dues(ArrivalProcess::Poisson, 2, index, 20_001);
        let gaps: Vec<f64> = dues_of(0).windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean / 2e6 - 1.0).abs() < 0.03, "{mean}");
        // In an exponential distribution, a share of 1/e is above the mean.
        let above = gaps.iter().filter(|gap| **gap > 2e6).count() as f64 / gaps.len() as f64;
        assert!((above - 0.3679).abs() < 0.015, "{above}");
        assert_ne!(dues_of(0), dues_of(1));
        assert_eq!(dues_of(0), dues_of(0));
    }
}
