//! One-line summaries of results.

use vtax_model::{cell::Arm, run::Failure};
use vtax_stats::Verdict;

use super::*;

#[test]
fn a_result_in_a_few_words_is_the_largest_difference_or_the_only_figures() {
    let brief = |run: &Run| in_brief(&analyse(run));
    insta::assert_snapshot!(brief(&built_in("demo")), @"vxlan -52 % UDP bandwidth");
    insta::assert_snapshot!(brief(&built_in("ip-instances")), @"exclusive-to-shared +160 % TCP time");
    assert_eq!(brief(&killed_after(built_in("demo"), 3)), "no difference shown");
    let mut only = built_in("demo");
    only.header.study.cells.truncate(1);
    only.samples.retain(|sample| sample.cell == 0);
    insta::assert_snapshot!(brief(&only), @"TCP RR 31.4 µs");
    let mut none = killed_after(built_in("demo"), 0);
    assert_eq!(brief(&none), "");
    none.failures.push(Failure { cell: 0, arm: Arm::A, round: 1, error: "no answer".into(), partial: None });
    assert_eq!(brief(&none), "failed");
    let mut noisy = analyse(&vtax_synthetic::disks());
    let taxes = noisy.cells.iter_mut().flat_map(|record| record.tax.iter_mut().chain(&mut record.taxes));
    taxes.for_each(|tax| tax.verdict = Verdict::TooNoisy);
    assert_eq!(in_brief(&noisy), "too noisy to tell");
    for run in RUNS.iter() {
        assert!(brief(run).chars().count() < 60, "{}", brief(run));
    }
}
