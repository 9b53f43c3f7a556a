//! A result in a few words.

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
    assert_eq!(brief(&killed_after(built_in("demo"), 0)), "");
    for run in RUNS.iter() {
        assert!(brief(run).chars().count() < 60, "{}", brief(run));
    }
}
