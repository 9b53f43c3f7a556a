use vtax_model::{
    endpoint::{Control, End},
    run::Goal,
    workload::Workload,
};

use super::*;

fn apply(study: &str, changes: Changes) -> Result<ChangedStudy, String> {
    changes.apply(Study::built_in(study).expect("built in")).map_err(|stop| stop.to_string())
}

fn row(name: &str) -> Row {
    name.parse().expect("a row")
}

fn short() -> ChosenRounds {
    ChosenRounds { quick: true, ..ChosenRounds::default() }
}

fn of(samples: u32) -> ChosenRounds {
    ChosenRounds { samples: Some(samples), ..ChosenRounds::default() }
}

#[test]
fn quick_takes_the_short_plan_and_single_values_go_over_it() {
    let changes = Changes { rounds: ChosenRounds { samples: Some(3), ..short() }, ..Changes::default() };
    let wanted = apply("sparc-t7-1", changes).expect("good changes");
    assert_eq!((wanted.plan.samples, wanted.plan.duration), (3, Span::from_millis(180)));
}

#[test]
fn a_quick_run_has_its_limit_unless_another_option_sets_the_rounds() {
    let limit = |rounds| apply("vdisk", Changes { rounds, ..Changes::default() }).expect("good changes").plan.limit;
    assert!(limit(short()).is_some() && limit(ChosenRounds::default()).is_none());
    let goal = Goal::of(None, Some(Span::from_millis(60_000)));
    let chosen = [ChosenRounds { samples: Some(20), ..short() }, ChosenRounds { goal, ..short() }];
    assert_eq!(chosen.map(limit), [None, None]);
}

/// The run once began, and each of its samples failed.
#[test]
fn a_duration_that_no_agent_takes_is_refused_before_anything_is_built() {
    let hours = |hours: u64| Some(Span::from_millis(hours * 3_600_000));
    let told = apply("demo", Changes { duration: hours(1000), ..Changes::default() }).expect_err("too long");
    insta::assert_snapshot!(told, @"--duration: 1000h 10ms is too long: an agent runs a test and its warm-up for at most 24h");
    assert!(apply("sparc-t7-1", Changes { duration: hours(2), ..Changes::default() }).is_ok());
    for (id, _) in Study::BUILT_IN {
        assert!(
            apply(id, Changes::default()).is_ok()
                && apply(id, Changes { rounds: short(), ..Changes::default() }).is_ok()
        );
    }
}

/// Three rounds of the whole file took 105 s and could show nothing.
#[test]
fn quick_files_are_smaller_unless_a_size_is_given() {
    let sizes = |size| {
        let changes = Changes { rounds: short(), size, ..Changes::default() };
        let wanted = apply("ip-instances", changes).expect("good changes");
        (wanted.plan.samples, wanted.study.cells[0].net().expect("of a network").workload)
    };
    assert_eq!(sizes(None), (30, Workload::File { size: ByteSize(100 << 20) }));
    assert_eq!(sizes(Some(ByteSize(1 << 20))), (30, Workload::File { size: ByteSize(1 << 20) }));
}

#[test]
fn methods_keep_the_baseline() {
    let changes = Changes { methods: vec![row("bridge")], ..Changes::default() };
    let wanted = apply("demo", changes).expect("good changes");
    let rows: Vec<String> = wanted.study.rows.iter().map(Row::to_string).collect();
    assert_eq!(rows, ["native", "bridge"]);
    assert_eq!(
        wanted.study.cells.len(),
        2 * 8 + 2 * 2,
        "all rows under controlled conditions, and some with host settings"
    );
}

#[test]
fn options_change_the_plan_that_answers_the_study() {
    let changes = Changes { rounds: of(9), duration: Some(Span::from_millis(8)), ..Changes::default() };
    let demo = Study::built_in("demo").expect("built in");
    let wanted = apply("demo", changes.clone()).expect("good changes");
    let path = wanted.path_plan.expect("the demo has one");
    assert_eq!((path.samples, path.duration), (9, Span::from_millis(8)));
    assert_eq!(path.slices.map(|slices| slices.stream), Some(Span::from_millis(16)), "as much longer");
    assert_eq!(wanted.plan, demo.plan);
    let refused = apply("demo", Changes { instrument: Some(Instrument::System), ..changes });
    assert!(refused.is_err(), "8 ms are too short for a sample in one piece");
    let system = Changes { rounds: of(9), instrument: Some(Instrument::System), ..Changes::default() };
    let wanted = apply("demo", system).expect("good changes");
    assert_eq!((wanted.plan.samples, wanted.path_plan), (9, None));
    assert!(wanted.study.cells.iter().all(|cell| cell.instrument == Instrument::System));
}

/// Its own plan is the published one, and controlled conditions are an additional block.
#[test]
fn options_change_the_host_settings_plan_of_sparc_t7_1() {
    let changes = Changes { rounds: of(9), duration: Some(Span::from_millis(100)), ..Changes::default() };
    let sparc = Study::built_in("sparc-t7-1").expect("built in");
    let wanted = apply("sparc-t7-1", changes.clone()).expect("good changes");
    assert_eq!((wanted.plan.samples, wanted.plan.duration), (9, Span::from_millis(100)));
    assert_eq!(wanted.path_plan, sparc.path);
    let of_path = Changes { duration: None, instrument: Some(Instrument::Path), ..changes };
    let plans = |changes| {
        let wanted = apply("sparc-t7-1", changes).expect("good changes");
        (wanted.plan.samples, wanted.path_plan.map(|plan| plan.samples))
    };
    assert_eq!(plans(of_path.clone()), (20, Some(9)), "nothing else is measured");
    assert_eq!(plans(Changes { rounds: ChosenRounds { quick: true, ..of(9) }, ..of_path }), (12, Some(9)));
}

#[test]
fn quick_leaves_out_the_further_block_of_sparc_t7_1_and_not_the_demo_s_answer() {
    let by = |study, instrument| {
        let wanted = apply(study, Changes { rounds: short(), ..Changes::default() }).expect("good changes");
        let cells = wanted.study.cells.iter().filter(|cell| cell.instrument == instrument).count();
        (cells, wanted.path_plan.map(|plan| plan.samples))
    };
    assert_eq!(by("sparc-t7-1", Instrument::Path), (0, None));
    assert_eq!(by("sparc-t7-1", Instrument::System), (80, None));
    assert_eq!(by("demo", Instrument::Path), (56, Some(48)));
}

#[test]
fn idle_and_congestion_are_of_every_cell_if_asked_for() {
    let changes = Changes { idle: Some(Idle::System), congestion: Some(Congestion(None)), ..Changes::default() };
    let cells = apply("demo", changes).expect("good changes").study.cells;
    assert!(cells.iter().all(|cell| cell.net().expect("of a network").options == Default::default()));
    let cubic = |cell: &vtax_model::cell::Cell| cell.net().expect("of a network").options.socket.congestion.is_some();
    let demo = Study::built_in("demo").expect("built in").cells;
    assert!(demo.iter().all(|cell| cubic(cell)
        == (cell.instrument == Instrument::Path && cell.net().expect("of a network").transport == Transport::Tcp)));
}

#[test]
fn rows_of_a_method_go_by_its_name_and_by_their_own() {
    let kept = |asked: &str| {
        let changes = Changes { methods: vec![row(asked)], ..Changes::default() };
        let rows = apply("vmdq", changes).expect("good changes").study.rows;
        rows.iter().map(Row::to_string).collect::<Vec<_>>()
    };
    assert_eq!(kept("native"), ["native", "shared-queue"]);
    assert_eq!(kept("paravirtual"), ["shared-queue", "queue-per-guest"]);
}

#[test]
fn a_chosen_baseline_is_kept_with_any_methods() {
    let changes = |methods: &[&str]| Changes {
        baseline: Some(row("veth")),
        methods: methods.iter().map(|method| row(method)).collect(),
        ..Changes::default()
    };
    let study = apply("demo", changes(&["bridge"])).expect("good changes").study;
    assert_eq!((study.baseline, study.rows), (row("veth"), vec![row("veth"), row("bridge")]));
    let all = apply("demo", changes(&[])).expect("good changes").study;
    assert_eq!((all.baseline, all.rows.len()), (row("veth"), 7));
}

/// `extra` rows are omitted on cables, but a baseline must not be.
#[test]
fn a_baseline_of_ones_choice_is_kept_on_cables() {
    let cables = vec!["eno1,eno2".parse().expect("a cable")];
    let changes = Changes { baseline: Some(row("bridge")), cable: cables, ..Changes::default() };
    let rows = apply("sparc-t7-1", changes).expect("good changes").study.rows;
    assert_eq!(rows, ["native", "assigned", "sr-iov", "paravirtual", "bridge"].map(row));
}

#[test]
fn vmdq_holds_a_queue_per_guest_against_the_shared_queue() {
    assert_eq!(apply("vmdq", Changes::default()).expect("as it is").study.baseline, row("shared-queue"));
}

#[test]
fn cables_omit_what_a_study_only_adds() {
    let cables = vec!["eno1,eno2".parse().expect("a cable")];
    let rows = |methods: &[&str]| {
        let methods = methods.iter().map(|method| row(method)).collect();
        let changes = Changes { cable: cables.clone(), methods, ..Changes::default() };
        let study = apply("sparc-t7-1", changes).expect("good changes").study;
        study.rows.iter().map(Row::to_string).collect::<Vec<_>>()
    };
    assert_eq!(rows(&[]), ["native", "assigned", "sr-iov", "paravirtual"]);
    assert_eq!(rows(&["bridge"]), ["native", "bridge"]);
    let twice = ["eno1,eno2", "eno3,eno1"].map(|cable| cable.parse().expect("a cable")).into();
    let refused = |study, cables| apply(study, Changes { cable: cables, ..Changes::default() }).expect_err("refused");
    assert!(refused("sparc-t7-1", twice).contains("eno1 is in two cables"));
    assert!(refused("ip-instances", cables.clone()).contains("no wire between two hosts"));
}

#[test]
fn guests_are_as_many_as_asked_for() {
    let asked = |guests| Changes { guests: Some(guests), ..Changes::default() };
    for guests in [4, 1] {
        let study = apply("vmdq", asked(guests)).expect("good changes").study;
        assert_eq!(study.network().map(|network| network.pairs), Some(guests));
    }
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let refused = |study, changes| insta::assert_snapshot!(apply(study, changes).expect_err("refused"));
    refused("demo", Changes { methods: vec![row("emulated")], ..Changes::default() });
    refused("demo", Changes { size: Some(ByteSize(1)), ..Changes::default() });
    refused("ip-instances", Changes { size: Some(ByteSize(0)), ..Changes::default() });
    refused("ip-instances", Changes { both: true, ..Changes::default() });
    refused("demo", Changes { rounds: of(0), ..Changes::default() });
    refused("ovm3-tuning", Changes { duration: Some(Span::from_millis(1)), ..Changes::default() });
    refused("demo", Changes { mtu: vec!["1492".parse().expect("an MTU")], ..Changes::default() });
    let vms = |method: &str| {
        vec![Endpoint { method: Some(method.parse().expect("a row")), ..Endpoint::new(End::Initiator, Control::Local) }]
    };
    refused("demo", Changes { endpoints: vms("sr-iov"), ..Changes::default() });
    refused("demo", Changes { endpoints: vms("native"), both: true, ..Changes::default() });
    refused("vmdq", Changes { both: true, ..Changes::default() });
    refused("vmdq", Changes { guests: Some(0), ..Changes::default() });
    refused("vmdq", Changes { guests: Some(65), ..Changes::default() });
    refused("demo", Changes { guests: Some(4), ..Changes::default() });
    refused("demo", Changes { baseline: Some(row("sr-iov")), ..Changes::default() });
}

#[test]
fn network_options_are_refused_for_disks() {
    let refused = |changes| apply("vdisk", changes).expect_err("refused");
    let endpoints = vec![Endpoint::new(End::Initiator, Control::Local)];
    let told = refused(Changes { endpoints, ..Changes::default() });
    assert_eq!(told, "--endpoints applies to network tests, and `vdisk` has disk tests; omit it");
    let cable = vec!["eno1,eno2".parse().expect("a cable")];
    assert!(refused(Changes { cable, ..Changes::default() }).starts_with("--cable applies to network tests"));
    let domains = Some(DomainKind::Zone);
    assert!(refused(Changes { domains, ..Changes::default() }).starts_with("--guest applies to network tests"));
    assert!(refused(Changes { both: true, ..Changes::default() }).starts_with("--both applies to network tests"));
    let guests = Some(2);
    assert!(refused(Changes { guests, ..Changes::default() }).starts_with("--guests applies to network tests"));
    let idle = Some(Idle::Poll);
    assert!(refused(Changes { idle, ..Changes::default() }).starts_with("--idle applies to network tests"));
    let congestion = Some(Congestion(None));
    assert!(refused(Changes { congestion, ..Changes::default() }).contains("has no TCP test"));
}

#[test]
fn options_without_effect_on_a_study_are_refused() {
    let told = apply("vdisk", Changes { destroy_data: true, ..Changes::default() }).expect_err("it names no disk");
    assert_eq!(told, "--destroy-data: name the disks with --disk or --nvme");
    let zones = || Changes { domains: Some(DomainKind::Zone), ..Changes::default() };
    let told = apply("ip-instances", zones()).expect_err("all of its rows are of zones");
    assert_eq!(told, "--guest: no row of `ip-instances` can attach both a guest and a zone; omit it");
    for (id, _) in Study::BUILT_IN {
        let study = Study::built_in(id).expect("built in");
        let has_choice = study.rows.iter().filter_map(|row| row.method()).any(|method| method.domains().len() > 1);
        assert_eq!(apply(id, zones()).is_ok(), has_choice, "{id}");
    }
}
