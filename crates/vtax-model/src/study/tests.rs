use super::*;

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
    assert!(STUDY.contains(from), "{from}");
    parse(&STUDY.replace(from, to)).expect_err("a broken study").to_string()
}

#[test]
fn every_built_in_study_reads() {
    for (id, text) in Study::BUILT_IN {
        let study = Study::parse(Source { name: id, text }).expect("a built-in study");
        assert_eq!(study.id.as_str(), id);
    }
}

#[test]
fn the_t7_1_study_has_the_published_plan() {
    let study = Study::built_in("sparc-t7-1").expect("built in");
    assert_eq!(study.plan.samples, 20);
    assert_eq!(study.plan.duration, Span::from_millis(30_000));
    let sizes: BTreeSet<Workload> = study.cells.iter().map(|cell| cell.workload).collect();
    assert!(sizes.contains(&Workload::Rr { request: ByteSize(1), response: ByteSize(1) }));
    assert!(sizes.contains(&Workload::Stream { message: ByteSize(1 << 20) }));
    assert!(sizes.contains(&Workload::Stream { message: ByteSize(8972) }));
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
    let messages: BTreeSet<Workload> = messages.map(|cell| cell.workload).collect();
    assert!(messages.contains(&Workload::Stream { message: ByteSize(1500 - 50 - 28) }));
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
