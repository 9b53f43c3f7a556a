use std::collections::BTreeSet;

use super::*;

/// A study of each kind of zone, with host settings only.
pub(crate) fn plain() -> Study {
    let text = include_str!("../../tests/data/plain.toml");
    Study::parse(Source { name: "plain.toml", text }).expect("a study")
}
use crate::{
    method::IoMethod,
    options::Engine,
    units::{ByteSize, Span},
    workload::{Direction, TestKind, Workload},
};

fn parse(text: &str) -> Result<Study, FileError> {
    Study::parse(Source { name: "study.toml", text })
}

const STUDY: &str = r#"id = "mine"
title = "Mine"
baseline = "native"
[matrix]
methods = ["native", "bridge"]
mtu = [1500]
transports = ["tcp", "udp"]
tests = ["rr", "stream"]
[plan]
samples = 5
duration = "1s"
"#;

fn refused(from: &str, to: &str) -> String {
    refused_text(STUDY, from, to)
}

fn refused_text(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    parse(&text.replace(from, to)).expect_err("a broken study").to_string()
}

#[test]
fn tests_over_tcp_alone_are_added_once() {
    let both = parse(&STUDY.replace("tests = [\"rr\", \"stream\"]", "tests = [\"rr\"]\ntcp_tests = [\"crr\", \"rr\"]"));
    let cells = both.expect("a study").cells;
    let found: BTreeSet<String> =
        cells.iter().map(|cell| format!("{:?} {:?}", cell.net().map(|net| net.transport), cell.kind())).collect();
    assert_eq!((cells.len(), found.len()), (2 * 3, 3), "{found:?}");
}

#[test]
fn every_built_in_study_reads() {
    for (id, text) in Study::BUILT_IN {
        let study = Study::parse(Source { name: id, text }).expect("a built-in study");
        assert_eq!(study.id.as_str(), id);
    }
}

fn stream(message: ByteSize) -> Workload {
    Workload::Stream { message, direction: Direction::Forward }
}

#[test]
fn the_t7_1_study_has_the_published_plan() {
    let study = Study::built_in("sparc-t7-1").expect("built in");
    assert_eq!(study.plan.samples, 20);
    assert_eq!(study.plan.duration, Span::from_millis(30_000));
    assert_eq!(study.answering(), Instrument::System, "the path's own cost is a further block");
    let sizes: BTreeSet<Workload> = study.cells.iter().map(|cell| cell.net().expect("of a network").workload).collect();
    assert!(sizes.contains(&Workload::Rr { request: ByteSize(1), response: ByteSize(1) }));
    assert!(sizes.contains(&stream(ByteSize(1 << 20))));
    assert!(sizes.contains(&stream(ByteSize(8972))));
}

#[test]
fn the_matrix_is_the_product_of_its_lists() {
    let study = parse(STUDY).expect("a good study");
    assert_eq!(study.cells.len(), 2 * 2 * 2);
    assert_eq!(study.quick, study.plan, "without [quick], --quick changes nothing");
}

#[test]
fn a_datagram_in_a_tunnel_is_smaller_than_the_wire_carries() {
    let study = parse(&STUDY.replace("\"bridge\"", "\"vxlan\"")).expect("a good study");
    let messages = study.cells.iter().filter(|cell| cell.row == Row::Method(IoMethod::Vxlan));
    let messages: BTreeSet<Workload> = messages.map(|cell| cell.net().expect("of a network").workload).collect();
    assert!(messages.contains(&stream(ByteSize(1500 - 50 - 28))));
}

#[test]
fn a_known_cost_is_planted_in_the_transactions_of_a_row() {
    let study = parse(&STUDY.replace("[plan]", "[planted]\nbridge = \"300ns\"\n[plan]")).expect("a good study");
    let planted =
        |cell: &Cell| cell.net().expect("of a network").options.responder.delay.map(|delay| delay.0.as_nanos());
    for cell in &study.cells {
        let asked = cell.row == Row::Method(IoMethod::Bridge) && cell.kind() == TestKind::Rr;
        assert_eq!(planted(cell), asked.then_some(300), "{cell:?}");
    }
}

#[test]
fn quick_may_send_smaller_files() {
    let quick = "[quick]\nsamples = 30\nduration = \"1s\"\nfile = \"100 MiB\"";
    let files = |quick: &str| format!("{}\n{quick}", STUDY.replace("\"rr\"", "\"file\"").replace(", \"udp\"", ""));
    let quick_file = |text: &str| {
        let study = parse(&files(text)).expect("a good study");
        study.network().expect("of a network").quick_file
    };
    assert_eq!((quick_file(quick), quick_file("")), (Some(ByteSize(100 << 20)), None));
    insta::assert_snapshot!(
        "quick_file_of_nothing",
        parse(&format!("{STUDY}\n{quick}")).expect_err("none").to_string()
    );
    let nothing = files(&quick.replace("100 MiB", "0"));
    insta::assert_snapshot!("quick_file_zero", parse(&nothing).expect_err("empty").to_string());
}

#[test]
fn errors_name_file_and_line() {
    insta::assert_snapshot!("unknown_key", refused("[plan]", "[plan]\nrounds = 5"));
    insta::assert_snapshot!("unknown_table", refused("[plan]", "[sampling]\n[plan]"));
    insta::assert_snapshot!("no_unit", refused("\"1s\"", "\"1\""));
    insta::assert_snapshot!("too_short", refused("\"1s\"", "\"1ms\""));
    insta::assert_snapshot!("mtu_too_small", refused("[1500]", "[1500, 67]"));
    insta::assert_snapshot!("mtu_too_large", refused("[1500]", "[70000]"));
    let tunnel = STUDY.replace("\"bridge\"", "\"vxlan\"").replace("[1500]", "[100]");
    insta::assert_snapshot!("mtu_too_small_for_a_tunnel", parse(&tunnel).expect_err("too small").to_string());
    insta::assert_snapshot!("mtu_twice", refused("[1500]", "[1500, 1500]"));
    insta::assert_snapshot!("no_mtu", refused("[1500]", "[]"));
    insta::assert_snapshot!("unknown_method", refused("\"bridge\"", "\"brigde\""));
    insta::assert_snapshot!("method_twice", refused("\"bridge\"", "\"native\""));
    insta::assert_snapshot!("clash", refused("\"bridge\"", "\"shared-to-shared\""));
    insta::assert_snapshot!("baseline_missing", refused("baseline = \"native\"", "baseline = \"veth\""));
    insta::assert_snapshot!("size_zero", refused("[plan]", "request = 0\n[plan]"));
    insta::assert_snapshot!("size_beyond_udp", refused("[plan]", "response = \"2 KiB\"\n[plan]"));
    insta::assert_snapshot!("size_without_number", refused("[plan]", "request = \"KiB\"\n[plan]"));
    insta::assert_snapshot!("negative_size", refused("[plan]", "request = -1\n[plan]"));
    insta::assert_snapshot!("file_over_udp", refused("\"rr\"", "\"file\""));
    insta::assert_snapshot!("no_samples", refused("samples = 5", "samples = 0"));
    insta::assert_snapshot!("too_many_streams", refused("[plan]", "streams = [5000]\n[plan]"));
    insta::assert_snapshot!("planted_nowhere", refused("[plan]", "[planted]\nveth = \"1us\"\n[plan]"));
    insta::assert_snapshot!("planted_in_no_row", refused("[plan]", "[planted]\nvet = \"1us\"\n[plan]"));
    insta::assert_snapshot!("not_toml", refused("[matrix]", "[matrix"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text: String, at in 0usize..200, len in 0usize..20) {
        let mut broken = STUDY.to_owned();
        let at = at.min(broken.len());
        let end = (at + len).min(broken.len());
        broken.replace_range(at..end, &text);
        let _ = parse(&broken);
    }
}

#[test]
fn sizes_and_gaps_are_swept_where_a_test_has_them() {
    let swept = "sizes = [64, 256, 1024]\ngaps = [\"0s\", \"1ms\"]\n[plan]";
    let text = STUDY.replace("[plan]", swept).replace("\"stream\"]", "\"stream\", \"cc\"]").replace(", \"udp\"", "");
    let study = parse(&text).expect("a good study");
    let of = |kind| study.cells.iter().filter(move |cell| cell.kind() == kind && cell.row == study.baseline);
    assert_eq!((of(TestKind::Rr).count(), of(TestKind::Stream).count(), of(TestKind::Cc).count()), (6, 3, 1));
    let gaps: Vec<_> =
        of(TestKind::Rr).map(|cell| (cell.variant, cell.net().expect("of a network").options.gap)).collect();
    assert_eq!(gaps[..2], [(0, None), (1, Some(Span::from_millis(1)))]);
    assert!(of(TestKind::Stream).all(|cell| cell.net().expect("of a network").options.gap.is_none()));
    let blocks: BTreeSet<_> = study.cells.iter().map(Cell::block).collect();
    assert_eq!(blocks.len() * 2, study.cells.len(), "each is compared with its like only");
}

/// Two lists of a thousand values are a few KiB, and once became a million cells in memory.
#[test]
fn lists_that_multiply_to_more_than_a_study_has_are_refused() {
    let swept = |sizes: u32, gaps: u32| {
        let sizes: Vec<String> = (8..8 + sizes).map(|size| size.to_string()).collect();
        let gaps: Vec<String> = (1..=gaps).map(|gap| format!("\"{gap}us\"")).collect();
        STUDY.replace("[plan]", &format!("sizes = [{}]\ngaps = [{}]\n[plan]", sizes.join(","), gaps.join(",")))
    };
    assert_eq!(parse(&swept(50, 20)).map(|study| study.cells.len()), Ok(2 * 2 * (50 * 20 + 50)));
    let refused = parse(&swept(1000, 1000)).expect_err("a million points and more").to_string();
    assert!(refused.contains("multiply to 8000000 cells; a study has 10000 at most"), "{refused}");
}

#[test]
fn rows_may_be_engines() {
    let text = STUDY.replace("\"native\"", "\"blocking\"").replace("\"bridge\"", "\"epoll\"");
    let study = parse(&text).expect("a good study");
    let engines: BTreeSet<Engine> =
        study.cells.iter().map(|cell| cell.net().expect("of a network").options.engine).collect();
    assert_eq!(engines, BTreeSet::from([Engine::Blocking, Engine::Epoll]));
}

const ENDPOINTS: &str = r#"
[[endpoint]]
end = "initiator"
control = "local"
[[endpoint]]
method = "native"
end = "responder"
control = "ssh:a"
[[endpoint]]
method = "bridge"
end = "responder"
control = "ssh:b"
"#;

#[test]
fn endpoints_belong_to_rows() {
    let study = parse(&(STUDY.to_owned() + ENDPOINTS)).expect("a good study");
    assert_eq!(study.endpoints().len(), 3);
    let back: Study = serde_json::from_str(&serde_json::to_string(&study).expect("JSON")).expect("JSON");
    assert_eq!(back, study);
}

#[test]
fn options_and_endpoints_that_make_no_sense_are_refused() {
    let with = |from: &str, to: &str| refused_text(&(STUDY.to_owned() + ENDPOINTS), from, to);
    insta::assert_snapshot!("row_without_endpoint", with("method = \"bridge\"\n", "method = \"native\"\n"));
    insta::assert_snapshot!("endpoint_of_no_row", with("method = \"bridge\"\n", "method = \"veth\"\n"));
    insta::assert_snapshot!("unknown_endpoint", with("ssh:b", "telnet:b"));
    insta::assert_snapshot!("option_of_another_test", refused("[plan]", "[options]\ngro = true\n[plan]"));
    insta::assert_snapshot!("unknown_option", refused("[plan]", "[options]\nturbo = true\n[plan]"));
    insta::assert_snapshot!("burst_with_gap", {
        let rr = STUDY.replace(", \"stream\"", "");
        let options = "[options]\nburst = 4\ngap = \"1ms\"\n[plan]";
        refused_text(&rr, "[plan]", options)
    });
    insta::assert_snapshot!("sizes_and_a_size", refused("[plan]", "sizes = [64]\nrequest = 2\n[plan]"));
    insta::assert_snapshot!("size_of_the_sweep", refused("[plan]", "sizes = [64, 2000]\n[plan]"));
    insta::assert_snapshot!("engine_beside_method", refused("\"bridge\"", "\"epoll\""));
}

#[test]
fn guests_of_a_study_are_described_once_for_all_rows() {
    use crate::guest::{Attach, Backend, VirtioNic};

    let rows = STUDY.replace("\"bridge\"", "\"paravirtual:vhost\", \"paravirtual:userspace\", \"emulated\"");
    let text = rows.replace("[plan]", "[guest]\nvcpus = 2\nqueues = 2\nmodel = \"igb\"\n[plan]");
    let study = parse(&text).expect("a good study");
    let nic = |row: usize| study.attach(study.rows[row]).expect("a guest");
    let virtio = VirtioNic { queues: 2, ..VirtioNic::default() };
    assert_eq!(nic(1), Attach::Paravirtual(VirtioNic { backend: Some(Backend::Vhost), ..virtio }));
    assert_eq!(nic(3), Attach::Emulated { model: crate::guest::EmulatedNic::Igb });
    let back: Study = serde_json::from_str(&serde_json::to_string(&study).expect("JSON")).expect("JSON");
    assert_eq!(back, study);
    insta::assert_snapshot!("guest_queues", refused_text(&text, "vcpus = 2", "vcpus = 1"));
    insta::assert_snapshot!("guest_unknown_option", refused_text(&text, "vcpus = 2", "cores = 1"));
    insta::assert_snapshot!("device_of_no_method", refused_text(&text, "paravirtual:vhost", "paravirtual:igb"));
}

pub(crate) const PATH: &str = r#"
[path]
samples = 50
passes = 4
duration = "5ms"
stream_duration = "10ms"
warmup = "10ms"
"#;

fn answered_by(instrument: &str, tables: &str) -> Result<Study, FileError> {
    parse(&format!("answer = \"{instrument}\"\n{STUDY}{tables}"))
}

#[test]
fn a_study_names_the_mode_that_answers_it() {
    assert_eq!(parse(STUDY).expect("a good study").answering(), Instrument::System);
    let both = parse(&format!("{STUDY}{PATH}")).expect("a good study");
    assert_eq!((both.answer, both.answering()), (None, Instrument::Path), "the path's own cost, if nothing is said");
    let named = |instrument| answered_by(instrument, PATH).expect("a good study").answering();
    assert_eq!([named("path"), named("system")], [Instrument::Path, Instrument::System]);
    let mut of_path = answered_by("system", PATH).expect("a good study");
    of_path.cells.retain(|cell| cell.instrument == Instrument::Path);
    assert_eq!(of_path.answering(), Instrument::Path, "nothing else is measured");
}

#[test]
fn an_answer_that_nothing_measures_is_refused() {
    insta::assert_snapshot!("answer_without_path", answered_by("path", "").expect_err("none").to_string());
    insta::assert_snapshot!("unknown_answer", answered_by("machine", PATH).expect_err("unknown").to_string());
    let quick = PATH.replace("[path]", "[quick_path]");
    insta::assert_snapshot!("quick_path_of_nothing", parse(&format!("{STUDY}{quick}")).expect_err("none").to_string());
}

/// A study that it answers would have no result without it.
#[test]
fn quick_leaves_out_the_path_where_it_is_not_the_answer() {
    let quick = |study: &Study| study.plan_of(Instrument::Path, true).map(|plan| plan.samples);
    let of_both = |instrument, more: &str| quick(&answered_by(instrument, &format!("{PATH}{more}")).expect("a study"));
    assert_eq!([of_both("path", ""), of_both("system", "")], [Some(50), None]);
    let short = PATH.replace("[path]", "[quick_path]").replace("50", "12");
    assert_eq!([of_both("path", &short), of_both("system", &short)], [Some(12), Some(12)]);
}

/// Runs stored before `answer` existed are answered by controlled conditions, if those were measured.
#[test]
fn a_stored_study_without_an_answer_reads() {
    let both = parse(&format!("{STUDY}{PATH}")).expect("a good study");
    let text = serde_json::to_string(&both).expect("JSON");
    assert!(!text.contains("answer"), "{text}");
    let back: Study = serde_json::from_str(&text).expect("JSON");
    assert_eq!((back.answering(), &back), (Instrument::Path, &both));
}
