//! Comparison with independent implementations: scipy 1.17.1 and statsmodels 0.15.0 (numpy 2.4.6, python 3.11.7), with
//! figures that `scripts/check_statistics.py` printed for the same data.

use crate::{Confidence, PValue, Pair, PairedTax, Summary, holm};

const SAMPLES: [f64; 8] = [61.2, 58.7, 64.9, 60.1, 59.5, 71.3, 60.8, 62.4];
const BASELINE: [f64; 11] = [61.2, 58.7, 64.9, 60.1, 59.5, 71.3, 60.8, 62.4, 66.0, 63.3, 57.9];
const CELL: [f64; 11] = [66.8, 64.1, 67.2, 65.9, 66.3, 72.0, 59.9, 68.8, 70.7, 69.9, 61.0];
const TIED: [f64; 10] = [1.0, 1.25, 1.25, 0.75, 1.0, 1.5, 2.0, 1.125, 1.75, 0.5];
const P_VALUES: [f64; 7] = [0.0009765625, 0.041, 0.013, 0.013, 0.27, 0.64, 0.0021];

fn assert_same(ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len());
    let same = |(ours, theirs): (&f64, &f64)| (ours / theirs - 1.0).abs() < 1e-9;
    assert!(ours.iter().zip(theirs).all(same), "{ours:?} and {theirs:?}");
}

#[test]
fn mean_and_interval() {
    let summary = |confidence| Summary::of(&SAMPLES, confidence).unwrap();
    let spread = |confidence| summary(confidence).spread.unwrap();
    let Summary { mean, median, .. } = summary(Confidence::P95);
    assert_same(&[mean, median, spread(Confidence::P95).sd], &[62.3625, 61.0, 4.08549262635]);
    for (confidence, theirs) in
        [(Confidence::P95, [59.0387922441, 65.8733225803]), (Confidence::P99, [57.5071407224, 67.6277999113])]
    {
        let ours = spread(confidence);
        assert_same(&[ours.low, ours.high], &theirs);
    }
}

fn tax(pairs: usize, confidence: Confidence) -> PairedTax {
    let pairs: Vec<Pair> =
        BASELINE.iter().zip(CELL).take(pairs).map(|(&baseline, cell)| Pair { baseline, cell }).collect();
    PairedTax::of(&pairs, confidence).unwrap()
}

#[test]
fn ratio_and_signed_rank_interval() {
    for (confidence, theirs) in
        [(Confidence::P95, [1.03722167972, 1.09953079056]), (Confidence::P99, [1.02254815963, 1.10341442481])]
    {
        let PairedTax { ratio, low, high, log_sd, .. } = tax(11, confidence);
        assert_same(&[ratio, log_sd], &[1.07247426032, 0.0404906270197]);
        assert_same(&[low, high], &theirs);
    }
}

#[test]
fn signed_rank_p() {
    let p = [11, 6].map(|pairs| tax(pairs, Confidence::P95).p.get());
    assert_same(&p, &[0.0029296875, 0.03125]);
}

/// Ratios with two ties and two pairs without a difference.
#[test]
fn signed_rank_p_with_ties_and_zeros() {
    let pairs: Vec<Pair> = TIED.map(|ratio| Pair { baseline: 1.0, cell: ratio }).into();
    assert_same(&[PairedTax::of(&pairs, Confidence::P95).unwrap().p.get()], &[0.3125]);
}

#[test]
fn signed_rank_p_of_many() {
    let pairs: Vec<Pair> = (0..80).map(|i| Pair { baseline: 1.0, cell: many(i) }).collect();
    assert_same(&[PairedTax::of(&pairs, Confidence::P95).unwrap().p.get()], &[0.0019614812385]);
    assert_same(&[PairedTax::of(&pairs[..50], Confidence::P95).unwrap().p.get()], &[0.0180610965147]);
}

/// Returns figures that are exact in binary, each size once.
fn many(i: u32) -> f64 {
    1.0 + f64::from(i * 37 % 81) / 1024.0 - 30.5 / 1024.0
}

#[test]
fn holm_s_adjustment() {
    let raw: Vec<PValue> = P_VALUES.iter().map(|p| PValue::new(*p).unwrap()).collect();
    let ours: Vec<f64> = holm(&raw).into_iter().map(PValue::get).collect();
    assert_same(&ours, &[0.0068359375, 0.123, 0.065, 0.065, 0.54, 0.64, 0.0126]);
}
