//! Runs before their first sample.

use vtax_model::{run::RunReadings, study::Study};

use super::*;

/// The built-in demo on a machine without ipvlan.
fn demo() -> RunReadings {
    let whole = vtax_synthetic::of(Study::built_in("demo").expect("built in"));
    RunReadings::begun(whole.header)
}

fn drawn(run: &RunReadings, lab: Option<&str>, options: &Options) -> String {
    let told = ["plan: 50 rounds of the path's own cost, 6 rounds as the machine runs, about 2 min 09 s".to_owned()];
    planned(run, &told, lab.map(str::to_owned)).draw(options).plain()
}

#[test]
fn a_run_is_reported_before_it_begins() {
    let lab = Some("2 hosts, 7 wires, 6 zones in 80 steps");
    snapshot("planned", drawn(&demo(), lab, &TERMINAL));
    for width in [80, 60] {
        let text = drawn(&demo(), lab, &Options { width, ..TERMINAL });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
    let markdown = drawn(&demo(), lab, &MARKDOWN);
    assert!(markdown.contains("| no. |") && markdown.contains("ipvlan"), "{markdown}");
}

#[test]
fn a_planned_run_on_endpoints_states_that_they_were_not_contacted() {
    let text = r#"
        id = "pair"
        title = "One pair"
        baseline = "native"
        [matrix]
        methods = ["native"]
        mtu = [1500]
        transports = ["tcp"]
        tests = ["rr"]
        [plan]
        samples = 7
        duration = "1s"
        [[endpoint]]
        end = "initiator"
        control = "local"
        [[endpoint]]
        end = "responder"
        control = "ssh:vm1"
        address = "192.0.2.2"
    "#;
    let told = drawn(&RunReadings::begun(of_text(text).header), None, &TERMINAL);
    assert!(told.contains("not contacted yet: local, ssh:vm1"), "{told}");
    assert!(!told.contains("lab "), "{told}");
}
