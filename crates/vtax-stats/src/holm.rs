//! Multiple comparisons: limits the chance that any cell of a table is called different by accident.

use super::PValue;

/// Returns the p-values in the given order, adjusted so that the chance of even one false alarm among all of them stays
/// below the level with which they are compared.
///
/// Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2): the
/// smallest is multiplied by m, the next by m - 1, …, and none is smaller than the previous one. This is valid for any
/// dependence between cells, and cells with a common baseline do depend on each other.
pub fn holm(p_values: &[PValue]) -> Vec<PValue> {
    let mut ascending: Vec<usize> = (0..p_values.len()).collect();
    ascending.sort_by(|a, b| p_values[*a].get().total_cmp(&p_values[*b].get()));
    let mut adjusted = p_values.to_vec();
    let mut least = 0.0;
    for (step, index) in ascending.into_iter().enumerate() {
        let own = p_values[index].times(p_values.len() - step);
        adjusted[index] = if own.get() < least { adjusted_to(least) } else { own };
        least = adjusted[index].get();
    }
    adjusted
}

fn adjusted_to(p: f64) -> PValue {
    PValue::new(p).expect("an adjusted p-value that came before")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn adjust(p_values: &[f64]) -> Vec<f64> {
        let p_values: Vec<PValue> = p_values.iter().map(|p| PValue::new(*p).unwrap()).collect();
        holm(&p_values).into_iter().map(PValue::get).collect()
    }

    #[test]
    fn adjusted_by_hand() {
        // 4 · 0.01, 3 · 0.02 = 0.06, then 2 · 0.03 = 0.06 again, then 0.04 is raised to 0.06.
        assert_eq!(adjust(&[0.01, 0.04, 0.03, 0.02]), [0.04, 0.06, 0.06, 0.06]);
        assert_eq!(adjust(&[0.5, 0.9, 0.001]), [1.0, 1.0, 0.003]);
        assert_eq!(adjust(&[0.03]), [0.03]);
        assert_eq!(adjust(&[]), [0.0; 0]);
    }

    proptest! {
        #[test]
        fn adjusted_is_never_smaller_and_keeps_the_order(
            raw in prop::collection::vec(1e-9..=1.0f64, 1..30)
        ) {
            let adjusted = adjust(&raw);
            for (i, a) in adjusted.iter().enumerate() {
                prop_assert!(*a >= raw[i] && *a <= 1.0);
                for (j, b) in adjusted.iter().enumerate() {
                    prop_assert!(raw[i] > raw[j] || a <= b);
                }
            }
        }
    }
}
