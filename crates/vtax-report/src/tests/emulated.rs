//! Runs on an emulated server: none of their figures appears without its caveat.

use vtax_model::{
    guest::Accelerator,
    run::{EmulatedServer, Environment},
};

use super::*;

/// Rows that have published figures, on an emulated server.
pub(super) fn t7_1() -> Run {
    let mut run = vtax_synthetic::whole("sparc-t7-1", &["native", "assigned", "sr-iov", "paravirtual"]);
    run.header.environment =
        Environment { hostname: "emulated".into(), server: Some(server()), ..vtax_synthetic::environment() };
    run
}

fn server() -> EmulatedServer {
    EmulatedServer {
        spec: "emulated:nics=8,nodes=2".into(),
        accel: Accelerator::Kvm,
        qemu: "10.0.3".into(),
        why_not_kvm: None,
    }
}

/// Tables have rules, and nothing between their lines.
fn tables(text: &str) -> usize {
    text.split("\n\n").filter(|part| part.contains('─') || part.contains("| :--")).count()
}

/// Contents of that column of a CSV.
fn caveats(csv: &str) -> Vec<String> {
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    let column = reader.headers().expect("a head").iter().position(|name| name == "caveat").expect("a column");
    let mut caveats: Vec<String> = reader.records().map(|line| line.expect("equal lines")[column].to_owned()).collect();
    caveats.dedup();
    caveats
}

#[test]
fn the_t7_1_study_on_an_emulated_server() {
    let document = analyse(&t7_1());
    let text = render(&document, &TERMINAL);
    snapshot("emulated", text);
    snapshot("emulated_wide", render(&document, &Options { width: 140, ..TERMINAL }));
    snapshot("emulated_narrow", render(&document, &Options { width: 80, ..TERMINAL }));
    snapshot("emulated_markdown", render(&document, &MARKDOWN));
}

#[test]
fn every_table_has_the_caveat_of_an_emulated_server() {
    let document = analyse(&t7_1());
    for (options, width) in [(TERMINAL, 1000), (TERMINAL, 80), (MARKDOWN, 80)] {
        let text = render(&document, &Options { detail: true, width, ..options });
        // The heading has a separate fact and warning.
        assert!(text.contains("EMULATED SERVER: shows function, not speed"), "{text}");
        // A long caption is wrapped between words.
        let said = text.replace('\n', " ").matches(EmulatedServer::CAVEAT).count();
        assert_eq!(said, tables(&text) + 2, "each table, and the answer of each instrument: {text}");
    }
    assert_eq!(caveats(&render(&document, &Options { format: Format::Csv, ..TERMINAL })), [EmulatedServer::CAVEAT]);
    let json: serde_json::Value = serde_json::from_str(&json_of(&t7_1())).expect("JSON");
    assert_eq!(json["caveat"], EmulatedServer::CAVEAT);
    assert_eq!(json["environment"]["server"]["accel"], "kvm");
}

#[test]
fn a_comparison_has_the_caveat_too() {
    let rows = ["native", "assigned", "sr-iov", "paravirtual"];
    let (emulated, real) = (analyse(&t7_1()), analyse(&vtax_synthetic::whole("sparc-t7-1", &rows)));
    for (first, second, begins) in
        [(&emulated, &emulated, "Emulated"), (&emulated, &real, "The first"), (&real, &emulated, "The second")]
    {
        let comparison = compare(first, second, None);
        for options in [TERMINAL, MARKDOWN] {
            let text = comparison.render(&Options { width: 1000, ..options }).plain();
            assert!(text.contains(begins), "{begins}: {text}");
            assert_eq!(text.matches("shows function, not speed").count(), tables(&text) + 1, "{text}");
        }
        let csv = caveats(&comparison.render(&Options { format: Format::Csv, ..TERMINAL }).plain());
        assert!(csv.len() == 1 && csv[0].ends_with(EmulatedServer::CAVEAT), "{csv:?}");
        let json = comparison.render(&Options { format: Format::Json, ..TERMINAL }).plain();
        assert!(json.contains("\"caveat\""), "{json}");
    }
    let text = compare(&real, &real, None).render(&TERMINAL).plain();
    assert!(!text.to_lowercase().contains("emulated"), "{text}");
}

#[test]
fn a_real_machine_has_no_caveat() {
    for run in RUNS.iter().filter(|run| run.header.environment.server.is_none()) {
        let document = analyse(run);
        let texts =
            [Format::Table, Format::Csv].map(|format| render(&document, &Options { format, detail: true, ..TERMINAL }));
        assert!(!texts.iter().chain([&json_of(run)]).any(|text| text.contains("shows function, not speed")));
    }
}

#[test]
fn published_figures_are_next_to_ours_where_both_are_known() {
    let whole = |rows: &[&str]| analyse(&vtax_synthetic::whole("sparc-t7-1", rows));
    let shows = |document: &ResultDocument, published| {
        render(document, &Options { published, ..TERMINAL }).contains("published tax")
    };
    let both = whole(&["native", "sr-iov"]);
    assert!(shows(&both, None) && shows(&both, Some(true)) && !shows(&both, Some(false)));
    // The baseline alone has no tax to compare with another.
    let zones = whole(&["native", "bridge"]);
    assert!(!shows(&zones, None) && shows(&zones, Some(true)));
    let without_its_own = analyse(&built_in("sparc-t7-1"));
    assert!(!shows(&without_its_own, None), "sr-iov and the like could not run");
    assert!(!shows(&analyse(&built_in("demo")), Some(true)), "nobody published any");
}
