//! Snapshots of reports of synthetic runs, and checks of documents against their schema.

mod brief;
mod disks;
mod emulated;
mod glossary;
mod guests;
mod instruments;
mod measured;
mod old;
mod pages;
mod planned;
mod queues;
mod schema;

use std::sync::LazyLock;

use vtax_model::{
    cell::Arm,
    measurement::EndReport,
    result::{CellStatus, ResultDocument},
    run::{Failure, Run, Sample},
    workload::TestKind,
};

use super::*;
use vtax_store::Store;
use vtax_synthetic::{analyse, built_in, killed_after, of_text, row, study};

const TERMINAL: Options =
    Options { format: Format::Table, published: None, detail: false, explain: false, bars: false, width: 100 };
const MARKDOWN: Options = Options { format: Format::Markdown, ..TERMINAL };

fn render(document: &ResultDocument, options: &Options) -> String {
    super::render(document, options).plain()
}

/// Returns the export of a run.
fn json_of(run: &Run) -> String {
    json_with(analyse(run), run)
}

fn json_with(document: ResultDocument, run: &Run) -> String {
    let of_cell = |cell, _| run.samples.iter().filter(|sample| sample.cell == cell).collect::<Vec<_>>();
    json(&document.with_samples(of_cell))
}

fn snapshot(name: &str, text: String) {
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

/// A study of every kind that a report distinguishes.
static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| {
    let runs = [built_in("demo"), built_in("sparc-t7-1"), built_in("ip-instances"), with_failures(), many_streams()];
    let killed = (0..4).map(|rounds| killed_after(built_in("demo"), rounds));
    let measured = measured::all().into_iter().chain(guests::all()).chain(queues::all());
    let others = measured
        .chain([emulated::t7_1(), vtax_synthetic::disks(), vtax_synthetic::files(), vtax_synthetic::migrations()])
        .chain([vtax_synthetic::domain_migration(), failed_migration()])
        .chain(instruments::all());
    runs.into_iter().chain(others).chain(killed).collect()
});

static DOCUMENTS: LazyLock<Vec<ResultDocument>> = LazyLock::new(|| RUNS.iter().map(analyse).collect());

/// A domain whose migration was cancelled.
fn failed_migration() -> Run {
    let mut run = vtax_synthetic::domain_migration();
    run.samples.clear();
    let error = "the migration of mars was cancelled: it runs on".into();
    run.failures = vec![Failure { cell: 0, arm: Arm::A, round: 1, error, partial: None }];
    run
}

/// macvlan fails occasionally, vxlan always.
fn with_failures() -> Run {
    let mut run = built_in("demo");
    let cells = run.header.study.cells.clone();
    run.samples.retain(|sample| {
        let row_is = |name| cells[sample.cell].row == row(name);
        !(row_is("vxlan") || row_is("macvlan") && sample.round % 5 == 0)
    });
    for (index, cell) in cells.iter().enumerate() {
        let (rounds, error) = match cell.row.to_string().as_str() {
            "vxlan" => (vec![1, 2, 3], "the zone's link vtax-z1 was gone after 2 s: start the study again"),
            "macvlan" if cell.kind() == TestKind::Rr => (vec![5, 10], "the peer did not answer within 5 s"),
            _ => continue,
        };
        let failure = |round| Failure { cell: index, arm: Arm::A, round, error: error.into(), partial: None };
        run.failures.extend(rounds.into_iter().map(failure));
    }
    run
}

fn many_streams() -> Run {
    of_text(
        r#"
        id = "streams"
        title = "Four streams beside one, datagrams of 64 bytes"
        baseline = "native"
        both = true
        [matrix]
        methods = ["native", "bridge"]
        mtu = [1500, 4000, 9000]
        transports = ["tcp", "udp"]
        tests = ["rr", "stream"]
        streams = [1, 4]
        udp_message = 64
        request = 64
        [plan]
        samples = 8
        duration = "500ms"
        "#,
    )
}

#[test]
fn the_demo() {
    let document = analyse(&built_in("demo"));
    snapshot("demo", render(&document, &TERMINAL));
    snapshot("demo_detail", render(&document, &Options { detail: true, ..TERMINAL }));
    snapshot("demo_bars", render(&document, &Options { bars: true, ..TERMINAL }));
    snapshot("demo_markdown", render(&document, &MARKDOWN));
}

#[test]
fn a_narrow_terminal() {
    let text = render(&analyse(&built_in("demo")), &Options { width: 60, bars: true, ..TERMINAL });
    assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
    snapshot("demo_narrow", text);
}

#[test]
fn the_t7_1_study_with_its_published_figures() {
    let document = analyse(&built_in("sparc-t7-1"));
    let published = Options { published: Some(true), ..TERMINAL };
    snapshot("t7_1_published", render(&document, &published));
    snapshot("t7_1_published_markdown", render(&document, &Options { published: Some(true), ..MARKDOWN }));
    snapshot("t7_1", render(&document, &TERMINAL));
}

#[test]
fn the_ip_instances_study() {
    let document = analyse(&built_in("ip-instances"));
    snapshot("ip_instances", render(&document, &Options { published: Some(false), ..TERMINAL }));
    snapshot("ip_instances_published", render(&document, &TERMINAL));
}

#[test]
fn failed_samples_and_cells() {
    snapshot("failures", render(&analyse(&with_failures()), &TERMINAL));
}

#[test]
fn several_streams_and_other_sizes_have_their_own_blocks() {
    snapshot("streams", render(&analyse(&many_streams()), &Options { detail: true, ..TERMINAL }));
}

#[test]
fn killed_runs_name_the_command_to_resume() {
    snapshot("killed_before_the_first_sample", render(&analyse(&killed_after(built_in("demo"), 0)), &TERMINAL));
    snapshot("killed_after_one_round", render(&analyse(&killed_after(built_in("demo"), 1)), &TERMINAL));
    let three = render(&analyse(&killed_after(built_in("demo"), 3)), &TERMINAL);
    assert!(three.contains("vtax run --resume demo-20260102-030405-5eed"), "{three}");
    let noisy = three.contains("too noisy") && three.contains("3 rounds are too few to detect any difference");
    assert!(noisy || three.contains("% worse"), "{three}");
}

#[test]
fn unpinned_and_quick_runs_are_marked() {
    let mut run = built_in("demo");
    run.header.quick = true;
    run.header.placement.responder.clear();
    let text = render(&analyse(&run), &TERMINAL);
    assert!(text.contains("! NOT PINNED") && text.contains("! Quick plan"));
    let detail = render(&analyse(&run), &Options { detail: true, ..TERMINAL });
    assert!(detail.contains("responder on any CPU"), "{detail}");
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    let kinds = [(80, false, false), (100, false, false), (80, false, true), (100, true, true)];
    for (document, (width, published, detail)) in DOCUMENTS.iter().flat_map(|d| kinds.map(|kind| (d, kind))) {
        let text = render(document, &Options { published: Some(published), detail, width, ..TERMINAL });
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > width).collect();
        assert_eq!(wide, Vec::<&str>::new(), "{}", document.study);
    }
}

#[test]
fn markdown_tables_have_equal_rows_and_are_not_broken_by_their_text() {
    let mut run = built_in("demo");
    run.header.unavailable[0].unsupported.why = "a | b\n\n# c".into();
    let text = render(&analyse(&run), &Options { detail: true, ..MARKDOWN });
    assert!(text.contains(r"a \| b # c"), "{text}");
    let bars = |line: &str| line.replace(r"\|", "").matches('|').count();
    let lines: Vec<&str> = text.lines().collect();
    let torn = lines.windows(2).filter(|pair| pair.iter().all(|line| line.starts_with('|')));
    assert!(torn.clone().count() > 50);
    assert!(torn.clone().all(|pair| bars(pair[0]) == bars(pair[1])), "{text}");
}

#[test]
fn csv_has_a_line_for_each_cell_and_every_field_of_its_head() {
    for document in DOCUMENTS.iter() {
        let text = render(document, &Options { format: Format::Csv, ..TERMINAL });
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().expect("a head").clone();
        let lines: Vec<_> = reader.records().collect::<Result<_, _>>().expect("equal lines");
        assert_eq!(lines.len(), document.cells.len());
        let column = |name| head.iter().position(|known| known == name).expect("a column");
        for (line, record) in lines.iter().zip(&document.cells) {
            assert_eq!(&line[column("method")], record.cell.row.to_string());
            let rtt = record.summary.as_ref().and_then(|summary| summary.time_us()).map(|rtt| rtt.mean.mean);
            if record.cell.migration().is_none() {
                let time = if record.cell.disk().is_some() { "response_us" } else { "rtt_us" };
                assert_eq!(line[column(time)].parse::<f64>().ok(), rtt);
            }
            assert_eq!(&line[column("status")] == "measured", record.status == CellStatus::Measured);
        }
    }
}

#[test]
fn csv_of_the_demo() {
    let text = render(&analyse(&killed_after(built_in("demo"), 7)), &Options { format: Format::Csv, ..TERMINAL });
    let some: Vec<&str> = text.lines().take(8).collect();
    snapshot("demo_csv", some.join("\n"));
}

#[test]
fn the_csv_columns_are_those_of_the_page() {
    let page = include_str!("../../../docs/csv.md");
    let described: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let (document, disks) = (analyse(&built_in("demo")), analyse(&vtax_synthetic::disks()));
    let migrations = analyse(&vtax_synthetic::migrations());
    let options = Options { format: Format::Csv, ..TERMINAL };
    let tables = [
        render(&document, &options),
        render(&disks, &options),
        render(&migrations, &options),
        compare(&document, &document, None).render(&options).plain(),
    ];
    let heads: Vec<&str> = tables.iter().flat_map(|table| table.lines().next().expect("a head").split(',')).collect();
    assert_eq!(described, heads);
}

#[test]
fn migrations_with_their_published_figure() {
    let document = analyse(&vtax_synthetic::migrations());
    let options = Options { published: Some(true), explain: true, width: 120, ..TERMINAL };
    snapshot("migrations", render(&document, &options));
}

#[test]
fn a_migration_of_a_domain_has_its_hosts_and_what_each_side_has_seen() {
    let options = Options { explain: true, width: 120, ..TERMINAL };
    let of = |run: &Run, detail| render(&analyse(run), &Options { detail, ..options });
    snapshot("domain_migration", of(&vtax_synthetic::domain_migration(), false));
    snapshot("domain_migration_detail", of(&vtax_synthetic::domain_migration(), true));
    snapshot("domain_migration_failed", of(&failed_migration(), false));
}

#[test]
fn json_is_the_document() {
    let run = built_in("demo");
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path()).expect("it opens");
    let mut writer = store.create_run(&run.header).expect("new");
    writer.samples(&run.samples).expect("they land");
    writer.finish(run.state, run.wall_seconds).expect("it ends");
    let mut text = Vec::new();
    store.export("last", &mut text).expect("it is read").expect("memory");
    assert_eq!(String::from_utf8(text).expect("text"), json_of(&run));
}

/// Another day, another kernel, the bridge 30 % faster, and one row less.
fn another_day() -> ResultDocument {
    let mut run = built_in("demo");
    run.header.id = "demo-20260203-040506-beef".into();
    run.header.started = "2026-02-03T04:05:06Z".into();
    run.header.environment.kernel = "0.0.1-synthetic".into();
    run.header.environment.turbo = "off".into();
    run.header.seed = 43;
    let cells = run.header.study.cells.clone();
    run.samples.retain(|sample| cells[sample.cell].row != row("vxlan"));
    run.samples.iter_mut().filter(|sample| cells[sample.cell].row == row("bridge")).for_each(|s| take(s, 0.7));
    analyse(&run)
}

/// Multiplies the time of a sample.
fn take(sample: &mut Sample, times: f64) {
    sample.figures.seconds *= times;
    if let Some(mean) = sample.figures.rtt_ns.as_mut().and_then(|rtt| rtt.by_rate.as_mut()) {
        *mean *= times;
    }
}

#[test]
fn a_baseline_that_differs_from_itself_is_reported() {
    let mut run = built_in("demo");
    let cells = run.header.study.cells.clone();
    let is_biased = |sample: &Sample| {
        let cell = &cells[sample.cell];
        sample.arm == Arm::APrime
            && labels::test(cell) == "TCP RR"
            && cell.net().expect("of a network").mtu.get() == 1500
    };
    run.samples.iter_mut().filter(|sample| is_biased(sample)).for_each(|sample| take(sample, 1.1));
    let text = render(&analyse(&run), &Options { detail: true, width: 1000, ..TERMINAL });
    assert!(text.contains("differs from itself by more than chance in TCP RTT at MTU 1500 (+10.3 % ["), "{text}");
    assert!(!text.contains("UDP RTT at MTU"), "nothing else is told of: {text}");
}

#[test]
fn two_runs_compared() {
    let (first, second) = (analyse(&built_in("demo")), another_day());
    let comparison = compare(&first, &second, None);
    snapshot("comparison", comparison.render(&TERMINAL).plain());
    snapshot("comparison_markdown", comparison.render(&MARKDOWN).plain());
    let csv = comparison.render(&Options { format: Format::Csv, ..TERMINAL }).plain();
    snapshot("comparison_csv", csv.lines().take(4).collect::<Vec<_>>().join("\n"));
    let json: serde_json::Value =
        serde_json::from_str(&comparison.render(&Options { format: Format::Json, ..TERMINAL }).plain()).expect("JSON");
    let bridge = json["cells"].as_array().expect("a list").iter().find(|cell| cell["method"] == "bridge");
    assert_eq!(bridge.expect("compared")["verdict"], "faster");
}

/// For scripts: only what is shown, and by more than the limit.
#[test]
fn cells_worse_than_a_limit_are_named() {
    let (first, second) = (analyse(&built_in("demo")), another_day());
    let limit = |percent: f64| percent.try_into().expect("a difference");
    let (better, worse) = (compare(&first, &second, None), compare(&second, &first, None));
    assert_eq!(better.worse_than(limit(1.0)), [""; 0], "the bridge became faster");
    let named = worse.worse_than(limit(1.0));
    assert!(!named.is_empty() && named.iter().all(|cell| cell.starts_with("bridge ")), "{named:?}");
    assert_eq!(worse.worse_than(limit(90.0)), [""; 0]);
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let document = analyse(&built_in("demo"));
    let text = compare(&document, &document, None).render(&TERMINAL).plain();
    assert!(!text.lines().any(|line| line.ends_with(" slower") || line.ends_with(" faster")), "{text}");
    assert!(text.contains("no difference shown") && !text.contains("Other differences"), "{text}");
}

/// Two rounds of two rows.
fn small() -> Run {
    let mut run = of_text(
        r#"
        id = "small"
        title = "Small"
        baseline = "native"
        [matrix]
        methods = ["native", "bridge"]
        mtu = [1500]
        transports = ["tcp"]
        tests = ["rr"]
        [plan]
        samples = 2
        duration = "1s"
        "#,
    );
    run.header.environment = Default::default();
    run
}

/// A caveat or warning about a run from a store or an emulated server appears in every format.
#[test]
fn fuzz_shown_runs() {
    let seed = serde_json::to_string(&small()).expect("a run");
    vtax_fuzz::fuzz("shown-runs", &[seed], |bytes| {
        let run: Run = serde_json::from_slice(bytes).ok()?;
        let document = analyse(&run);
        for format in [Format::Table, Format::Markdown, Format::Csv] {
            let text = render(
                &document,
                &Options { format, published: Some(true), detail: true, explain: true, bars: true, width: 60 },
            );
            assert!(text.ends_with('\n'), "{text:?}");
        }
        assert!(compare(&document, &document, None).render(&TERMINAL).plain().ends_with('\n'));
        Some(())
    });
}
