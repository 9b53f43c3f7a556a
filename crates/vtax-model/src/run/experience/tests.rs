use super::*;
use crate::{
    cell::Cell,
    run::tests::{THREE_ROWS, header, run},
    study::StudyDisks,
};

/// The figures of `bridge` scatter by about 1 %, the others not at all. A sample takes one second.
fn jittery(rounds: u32) -> RunReadings {
    let mut header = header(THREE_ROWS);
    header.set_rounds(rounds);
    header.started = "-3".into();
    let rtt = |cell: &Cell, _: Turn, round: u32| match cell.row.to_string().as_str() {
        "bridge" => 100.0 * (1.0 + 0.01 * (f64::from(round * 7 % 11) / 5.0 - 1.0)),
        _ => 100.0,
    };
    let mut run = run(header, rtt);
    run.samples.iter_mut().zip(0..).for_each(|(sample, second)| sample.at = second.to_string());
    run
}

fn known(rounds: u32) -> Experience {
    Experience::of(&jittery(rounds), None, |text| text.parse().ok()).expect("enough rounds")
}

fn percent(text: &str) -> Goal {
    Goal::Show(text.parse().expect("a difference"))
}

fn budget(text: &str) -> Goal {
    Goal::Budget(text.parse().expect("a time"))
}

#[test]
fn too_few_rounds_tell_nothing() {
    assert_eq!(Experience::of(&jittery(5), None, |text| text.parse().ok()), None);
    assert_eq!(Experience::of(&jittery(8), None, |_| None), None, "without a time nothing is known of a round");
}

#[test]
fn detectable_differences_and_duration_come_from_the_previous_run() {
    let mut plan = header(THREE_ROWS);
    plan.set_rounds(50);
    let Forecast { seconds, shown } = known(20).forecast(&plan);
    assert_eq!(seconds, Some(3.0 + 50.0 * 4.0), "four samples a round, and what went before them");
    let [Resolution { test: TestKind::Rr, smallest: Some(smallest), .. }] = shown[..] else { panic!("{shown:?}") };
    assert!((0.001..0.01).contains(&smallest), "{smallest}");
    plan.set_rounds(3);
    assert_eq!(known(20).forecast(&plan).shown[0].smallest, None);
}

#[test]
fn rounds_are_as_many_as_a_difference_needs() {
    let (plan, known) = (header(THREE_ROWS), known(20));
    let rounds = |text| known.rounds_for(&plan, percent(text)).expect("not too many");
    assert!(rounds("0.2%") > 2 * rounds("0.4%") && rounds("0.4%") > rounds("5%"));
    assert_eq!(rounds("100%"), 7, "the fewest that can show any of two");
    let told = known.rounds_for(&plan, percent("0.001%")).expect_err("too many").to_string();
    assert!(told.contains("2000 rounds") && told.contains("show 0.0"), "{told}");
}

/// The detectable difference with the chosen number of rounds is the requested one.
#[test]
fn the_two_ways_to_ask_agree() {
    let (mut plan, known) = (header(THREE_ROWS), known(20));
    for text in ["0.2%", "0.5%"] {
        let goal = percent(text);
        let Goal::Show(asked) = goal else { unreachable!("it is one") };
        plan.set_rounds(known.rounds_for(&plan, goal).expect("not too many"));
        let smallest = known.forecast(&plan).shown[0].smallest.expect("something");
        assert!(smallest <= asked.log().exp_m1() && smallest > 0.9 * asked.log().exp_m1(), "{smallest}");
    }
}

#[test]
fn rounds_are_as_many_as_fit_into_the_time() {
    let (plan, known) = (header(THREE_ROWS), known(20));
    assert_eq!(known.rounds_for(&plan, budget("2m")), Ok(29), "3 s before them, 4 s each");
    insta::assert_snapshot!(known.rounds_for(&plan, budget("5s")).expect_err("too short"), @"--budget 5s: too short for one round, according to the run test-1; 7 rounds, the minimum to detect a difference, take about 31s");
}

/// A run that was resumed the next day.
#[test]
fn a_pause_between_two_sessions_does_not_count_as_a_round() {
    let mut run = jittery(20);
    run.samples.iter_mut().skip(30).for_each(|sample| {
        sample.at = (sample.at.parse::<f64>().expect("seconds") + 86_400.0).to_string();
    });
    let known = Experience::of(&run, None, |text| text.parse().ok()).expect("enough rounds");
    assert_eq!(known.forecast(&header(THREE_ROWS)).seconds, Some(3.0 + 8.0 * 4.0));
}

#[test]
fn only_what_was_sampled_alike_on_the_same_machine_is_known() {
    let earlier = header(THREE_ROWS);
    assert!(earlier.resembles(&earlier));
    let longer = |text: &str| header(&THREE_ROWS.replace("samples = 8", "samples = 50").replace("1s", text));
    assert!(longer("1s").resembles(&earlier) && !longer("2s").resembles(&earlier));
    let mut elsewhere = earlier.clone();
    elsewhere.environment.kernel = "6.19".into();
    assert!(!elsewhere.resembles(&earlier));
    let fewer = header(&THREE_ROWS.replace(r#", "veth""#, ""));
    assert!(fewer.resembles(&earlier) && !earlier.resembles(&fewer));
    let other = header(&THREE_ROWS.replace(r#"baseline = "native""#, r#"baseline = "veth""#));
    assert!(!other.resembles(&earlier));
}

/// The files of a run contain its name, so the next run has different ones.
#[test]
fn a_run_of_other_disks_tells_nothing() {
    let of = |backend: &str, made: &[&str]| {
        let mut header = header(THREE_ROWS);
        let backend = backend.parse().expect("disks");
        let made = made.iter().map(Into::into).collect();
        header.study.subject = StudySubject::Disks(StudyDisks { backend, made, ..StudyDisks::default() });
        header
    };
    let own = of("/var/tmp/vtax-1-disk1.img", &["/var/tmp/vtax-1-disk1.img"]);
    let mut unnamed = of("/dev/sdx", &[]);
    unnamed.study.disks_mut().expect("of disks").backend.0.clear();
    assert!(unnamed.resembles(&own) && own.resembles(&unnamed));
    let [fast, slow] = ["/dev/nvme0n1", "/dev/sdx"].map(|disk| of(disk, &[]));
    assert!(fast.resembles(&fast) && !fast.resembles(&slow) && !fast.resembles(&own));
    assert!(!fast.resembles(&header(THREE_ROWS)));
}

#[test]
fn the_baseline_alone_is_compared_with_nothing() {
    let alone = header(&THREE_ROWS.replace(r#", "bridge", "veth""#, ""));
    assert_eq!((alone.comparisons(), alone.least_rounds()), (vec![], None));
    let told = known(8).rounds_for(&alone, percent("2%")).expect_err("nothing").to_string();
    assert!(told.starts_with("--show 2%: only the baseline is measured"), "{told}");
}

#[test]
fn the_time_of_a_plan_is_that_of_its_samples_where_these_have_one() {
    assert_eq!(header(THREE_ROWS).nominal_seconds().map(f64::round), Some(35.0));
    let files = THREE_ROWS.replace(r#"["rr"]"#, r#"["file"]"#);
    assert_eq!(header(&files).nominal_seconds(), None);
}

/// Three rounds can show nothing, but once were the quick plan of `ip-instances`.
#[test]
fn every_built_in_plan_can_show_something() {
    for (name, _) in crate::study::Study::BUILT_IN {
        let study = crate::study::Study::built_in(name).expect("built in");
        for (instrument, quick) in
            Instrument::ALL.into_iter().flat_map(|instrument| [(instrument, false), (instrument, true)])
        {
            let mut measured = study.clone();
            if quick {
                measured.shorten(false);
            }
            let header = RunHeader { study: measured, ..header(THREE_ROWS) };
            assert!(header.least_rounds().is_some(), "{name} compares something");
            let family = header.family(instrument);
            let least = least_rounds(family);
            if let Some(plan) = study.plan_of(instrument, quick).filter(|_| family > 0) {
                assert!(plan.samples >= least, "{name}, {instrument}: {} rounds of {least}", plan.samples);
            }
        }
    }
}
