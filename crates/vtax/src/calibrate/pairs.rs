//! Pairs of samples in random order, so that the machine's drift does not bias their difference.

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The random number generator of a calibration.
pub(super) fn dice() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(vtax_sys::clock::now_ns())
}

/// Takes samples 0 and 1 of a pair in a random order, and returns sample 0 first.
pub(super) fn shuffled<T>(
    dice: &mut impl Rng,
    mut take: impl FnMut(usize) -> miette::Result<T>,
) -> miette::Result<[T; 2]> {
    let mut order = [0, 1];
    order.shuffle(dice);
    let mut pair = [take(order[0])?, take(order[1])?];
    if order[0] == 1 {
        pair.reverse();
    }
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The noise floor's baseline was once always the first.
    #[test]
    fn either_sample_of_a_pair_is_the_first_sometimes() {
        let mut dice = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut first = [0; 2];
        for _ in 0..200 {
            let mut taken = Vec::new();
            let pair = shuffled(&mut dice, |which| {
                taken.push(which);
                Ok(which)
            });
            assert_eq!(pair.unwrap(), [0, 1]);
            first[taken[0]] += 1;
        }
        assert!(first.iter().all(|count| (70..=130).contains(count)), "{first:?}");
    }
}
