//! Pages in a real, headless browser: rendering and interaction by mouse and keyboard, on the screen of a phone, in the
//! dark theme and without scripts, and accessibility checks by axe (<https://github.com/dequelabs/axe-core>).
//!
//! Screenshots are saved in `target/tmp/browser`. Without Chromium and its driver, the tests fail.

#[path = "../bench.rs"]
#[allow(dead_code, reason = "the kernel tests use more of it")]
mod bench;
mod driver;
#[path = "../many_runs.rs"]
mod many_runs;
mod window;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use vtax_model::run::{Run, RunState};
use vtax_store::{RunWriter, Store};

use bench::Bench;
use window::{Look, Window};

/// Title of a study, which its author chooses. It must not be interpreted as markup.
const HOSTILE: &str = "A \"quoted\" <b>title</b></script><img src=x onerror=document.title='owned'> \u{202e}dlrow";

/// Enter key, in WebDriver's notation.
const ENTER: &str = "\u{e007}";

/// A `vtax ui` that serves the store of a bench.
struct Served {
    bench: Bench,
    vtax: Child,
    address: String,
}

impl Served {
    fn new(bench: Bench) -> Served {
        use std::io::{BufRead, BufReader};
        let mut command: Command = bench.command(&["ui"]);
        let mut vtax = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("vtax starts");
        let mut address = String::new();
        BufReader::new(vtax.stdout.take().expect("a pipe")).read_line(&mut address).expect("its address");
        Served { bench, vtax, address: address.trim_end().to_owned() }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    fn state(&self) -> std::path::PathBuf {
        self.bench.state()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.vtax.kill();
        let _ = self.vtax.wait();
    }
}

/// Stores a run with all of its samples as a run in progress.
fn begun(state: &Path, run: &Run) -> RunWriter {
    std::fs::create_dir_all(state).expect("a directory");
    let mut writer = Store::open(state).expect("it opens").create_run(&run.header).expect("a run");
    writer.samples(&run.samples).expect("kept");
    writer
}

fn kept(state: &Path, run: &Run) {
    begun(state, run).finish(RunState::Complete, run.wall_seconds).expect("kept");
}

fn named(mut run: Run, id: &str, started: &str) -> Run {
    (run.header.id, run.header.started) = (id.to_owned(), started.to_owned());
    run
}

/// Returns a bench with two runs of the demo, and one with a hostile title.
fn usual() -> Bench {
    let bench = Bench::new();
    let state = bench.state();
    kept(&state, &named(vtax_synthetic::built_in("demo"), "demo-20260101-000000-aaaa", "2026-01-01T00:00:00Z"));
    let mut hostile = named(vtax_synthetic::built_in("vmdq"), "vmdq-20260102-000000-bbbb", "2026-01-02T00:00:00Z");
    hostile.header.study.title = HOSTILE.into();
    kept(&state, &hostile);
    kept(&state, &named(vtax_synthetic::built_in("demo"), "demo-20260103-000000-cccc", "2026-01-03T00:00:00Z"));
    bench
}

#[test]
fn every_page_is_for_everybody() {
    let served = Served::new(usual());
    let pages = [
        ("list", String::new()),
        ("found", "?words=demo&state=complete".to_owned()),
        ("result", "run/demo-20260101-000000-aaaa".to_owned()),
        ("compared", "open?id=demo-20260101-000000-aaaa&id=demo-20260103-000000-cccc".to_owned()),
        ("hostile", "run/vmdq-20260102-000000-bbbb".to_owned()),
        ("plan", "start?study=demo".to_owned()),
        ("missing", "run/nothing".to_owned()),
    ];
    for look in [Look::DESK, Look::DARK, Look::PHONE] {
        let window = Window::open(look);
        for (name, path) in &pages {
            window.goto(&served.at(path));
            window.picture(&format!("{name}-{}", look.name));
            assert_eq!(window.serious_findings(), json!([]), "{name} {}", look.name);
            assert_eq!(window.too_wide(), json!([]), "{name} {}: it scrolls sideways", look.name);
            assert_eq!(window.complaints(), Vec::<String>::new(), "{name} {}", look.name);
        }
        window.close();
    }
}

#[test]
fn no_name_becomes_markup() {
    let served = Served::new(usual());
    let window = Window::open(Look::DESK);
    for path in ["", "run/vmdq-20260102-000000-bbbb", "open?id=vmdq-20260102-000000-bbbb&id=demo-20260101-000000-aaaa"]
    {
        window.goto(&served.at(path));
        assert_ne!(window.script("return document.title", &[]), json!("owned"), "{path}");
        let text = window.script("return document.body.textContent", &[]);
        assert!(text.as_str().is_some_and(|text| text.contains("<b>title</b></script>")), "{path}");
        let images = window.script("return document.querySelectorAll('img, body b b, [onerror]').length", &[]);
        assert_eq!(images, json!(0), "{path}");
    }
    window.close();
}

#[test]
fn results_are_found_and_opened_by_keyboard() {
    let served = Served::new(usual());
    let window = Window::open(Look::DESK);
    window.goto(&served.at(""));
    window.tab_to("words");
    window.keys("demo");
    window.keys(ENTER);
    window.wait_for("return document.body.textContent.includes('2 of 3 results')");
    for id in ["demo-20260103-000000-cccc", "demo-20260101-000000-aaaa"] {
        window.tab_to(id);
        window.keys(" ");
    }
    window.tab_to("Open selected on one page");
    window.keys(ENTER);
    window.wait_for("return document.querySelectorAll('article').length == 3");
    let ids = "return [...document.querySelectorAll('article')].map((article) => article.id)";
    let ids = window.script(ids, &[]);
    let oldest_first = json!([
        "demo-20260103-000000-cccc-against-demo-20260101-000000-aaaa",
        "demo-20260101-000000-aaaa",
        "demo-20260103-000000-cccc"
    ]);
    assert_eq!(ids, oldest_first);
    window.close();
}

#[test]
fn charts_answer_the_mouse_and_are_there_without_scripts() {
    let served = Served::new(usual());
    let path = served.at("run/demo-20260101-000000-aaaa");
    let window = Window::open(Look::DESK);
    window.goto(&path);
    window.wait_for("return document.querySelectorAll('.plot-figure canvas, .plot-figure svg').length > 3");
    let charts = window.script("return document.querySelectorAll('.plot-figure svg').length", &[]);
    window.close();
    let plain = Window::open(Look::WITHOUT_SCRIPTS);
    plain.goto(&path);
    plain.picture("result-without-scripts");
    let source = plain.source();
    assert_eq!(json!(source.matches("<svg").count()), charts);
    assert!(source.contains("Compared with native"), "the answer");
    plain.close();
}

#[test]
fn a_run_that_continues_changes_its_page_and_becomes_its_report() {
    let bench = Bench::new();
    let whole = named(vtax_synthetic::built_in("demo"), "demo-20260104-000000-dddd", "2026-01-04T00:00:00Z");
    let (first, rest) = whole.samples.split_at(whole.samples.len() / 2);
    let half = Run { samples: first.to_vec(), ..whole.clone() };
    let mut writer = begun(&bench.state(), &half);
    let served = Served::new(bench);
    let window = Window::open(Look::DESK);
    window.goto(&served.at(""));
    window.click_link("demo-20260104-000000-dddd");
    let taken = format!("return document.getElementById('live').textContent.includes('{} of ')", first.len());
    window.wait_for(&taken);
    window.picture("live");
    assert_eq!(window.serious_findings(), json!([]));
    window.script("window.stays = true", &[]);
    let (next, last) = rest.split_at(rest.len() / 2);
    writer.samples(next).expect("kept");
    let taken =
        format!("return document.getElementById('live').textContent.includes('{} of ')", first.len() + next.len());
    window.wait_for(&taken);
    assert_eq!(window.script("return window.stays", &[]), json!(true), "the page wasn't loaded again");
    let plain = Window::open(Look::WITHOUT_SCRIPTS);
    plain.goto(&served.at("run/demo-20260104-000000-dddd"));
    assert!(plain.source().contains("http-equiv=\"refresh\""));
    plain.picture("live-without-scripts");
    plain.close();
    writer.samples(last).expect("kept");
    writer.finish(RunState::Complete, 60.0).expect("kept");
    window.wait_for("return document.querySelector('.answer')?.textContent.includes('Compared with native')");
    assert_eq!(window.complaints(), Vec::<String>::new());
    window.close();
    assert!(served.state().exists());
}

#[test]
fn a_study_is_started_watched_and_cancelled_by_keyboard() {
    let served = Served::new(Bench::new());
    let window = Window::open(Look::DESK);
    window.goto(&served.at("start?study=demo&quick=on"));
    window.tab_to("Start demo");
    window.keys(ENTER);
    window.wait_for("return document.querySelector('h1').textContent === 'demo is running'");
    window.script("window.stays = true", &[]);
    window.wait_for("return /[1-9][0-9]* samples so far/.test(document.getElementById('progress').textContent)");
    assert_eq!(window.script("return window.stays", &[]), json!(true), "the page wasn't loaded again");
    window.picture("started");
    assert_eq!(window.serious_findings(), json!([]));
    window.tab_to("Cancel the run");
    window.keys(ENTER);
    window.wait_for("return document.querySelector('h1').textContent === 'demo was cancelled'");
    assert_eq!(window.complaints(), Vec::<String>::new());
    window.close();
}

#[test]
fn ten_thousand_results_are_a_list_like_any_other() {
    let bench = Bench::new();
    let state = bench.state();
    std::fs::create_dir_all(&state).expect("a directory");
    many_runs::store_in(&state, 10_000);
    let served = Served::new(bench);
    let window = Window::open(Look::PHONE);
    window.goto(&served.at(""));
    assert!(window.source().contains("Page 1 of 100"));
    window.picture("ten-thousand-phone");
    window.close();
}
