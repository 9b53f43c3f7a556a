//! Studies that are started from a page. A script stands for vtax.

use rustix::process::nice;

use super::*;
use crate::launch::{Launcher, StartableStudy};

/// Prints a plan; runs until it is interrupted.
const RUNS: &str = "case \"$*\" in *--dry-run*) echo \"the plan of $*\"; exit;; run*) ;; *) exit;; esac\n\
                    trap 'echo interrupted >&2; kill $!; exit 130' INT\n\
                    echo \"begun: $*\" >&2; sleep 600 & wait";

fn served(text: &str) -> Served {
    let dir = tempfile::tempdir().expect("a folder");
    let program = script(dir.path(), text);
    Served::by(program, dir)
}

/// Returns the form that starts the study with this query.
fn planned(served: &Served, query: &str) -> String {
    let page = served.page(&format!("/start?{query}"));
    let (_, rest) = page.split_once("name=\"plan\" value=\"").unwrap_or_else(|| panic!("no button: {page}"));
    format!("plan={}", rest.split('"').next().expect("it ends"))
}

fn until(served: &Served, text: &str) -> String {
    let begun = Instant::now();
    loop {
        let page = served.page("/started");
        if page.contains(text) {
            return page;
        }
        assert!(begun.elapsed() < PATIENCE, "no {text}: {page}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_study_is_planned_confirmed_watched_and_cancelled() {
    let served = served(RUNS);
    assert!(served.page("/").contains("<option value=\"demo\">"));
    let page = served.page("/start?study=demo&quick=on");
    assert!(page.contains("the plan of run demo --quick --dry-run") && page.contains("Nothing has been changed"));
    let form = planned(&served, "study=demo&quick=on");
    assert!(served.page("/started").contains("Show the plan"), "the plan alone starts nothing");
    let answer = served.posted("/start", "Sec-Fetch-Site: same-origin\r\n", &form);
    assert_eq!(status(&answer), "303", "{answer}");
    assert!(until(&served, "begun: run demo --quick").contains("Cancel the run"));
    for again in [served.posted("/start", "", &form), served.page("/start?study=vdisk")] {
        assert!(status(&again) == "409" && again.contains("still running"), "{again}");
    }
    let store = Store::open(served.dir.path()).expect("it opens");
    let _run = store.create_run(&header("demo-live", "2026-01-03T00:00:00Z")).expect("a run");
    assert!(served.page("/").contains("/run/demo-live\">Watch demo-live</a>"));
    // A second interrupt would end a run without restoring the host.
    for _ in 0..2 {
        assert_eq!(status(&served.posted("/cancel", "", "")), "303");
    }
    let page = until(&served, "demo was cancelled");
    assert_eq!(until(&served, "interrupted").matches("interrupted").count(), 1, "{page}");
    assert_eq!(status(&served.posted("/start", "", &form)), "409", "a plan is started once");
}

#[test]
fn only_a_shown_plan_is_started() {
    let served = served(RUNS);
    let form = planned(&served, "study=demo");
    for (headers, form, wanted) in [
        ("", "", "409"),
        ("", "plan=", "409"),
        ("", "study=demo", "409"),
        ("", &*format!("plan={}", "0".repeat(32)), "409"),
        ("", &"x".repeat(2000), "413"),
        ("Sec-Fetch-Site: cross-site\r\n", &form, "403"),
        ("Sec-Fetch-Site: same-site\r\n", &form, "403"),
    ] {
        assert_eq!(status(&served.posted("/start", headers, form)), wanted, "{headers} {form}");
    }
    let other = planned(&served, "study=vdisk");
    assert_eq!(status(&served.posted("/start", "", &form)), "409", "a later plan replaces it");
    assert!(!served.page("/started").contains("is running"));
    for path in ["/start?study=--help", "/start?study=demo%20--disk%20/dev/sda", "/start?study=../demo"] {
        assert_eq!(status(&served.page(path)), "404", "{path}");
    }
    assert_eq!(status(&served.page("/cancel")), "405", "a link cancels nothing");
    assert_eq!(status(&served.posted("/start", "", &other)), "303");
    assert!(until(&served, "begun: run vdisk").contains("vdisk is running"));
    served.posted("/cancel", "", "");
    until(&served, "vdisk was cancelled");
}

#[test]
fn a_study_that_cannot_run_or_fails_reports_the_reason() {
    let none = served("case \"$*\" in *--dry-run*) echo 'error: no agent' >&2; exit 2;; esac");
    let page = none.page("/start?study=demo");
    assert!(page.contains("error: no agent") && !page.contains("name=\"plan\""), "{page}");
    let failing = served("case \"$*\" in *--dry-run*) ;; run*) echo 'error: <b>broken' >&2; exit 1;; esac");
    let form = planned(&failing, "study=demo");
    assert_eq!(status(&failing.posted("/start", "", &form)), "303");
    let page = until(&failing, "demo has failed");
    assert!(until(&failing, "error: &lt;b&gt;broken").contains("Show the plan"), "{page}");
}

/// `vtax ui` has the lowest priority, with which a run would measure something else.
#[test]
fn a_run_has_the_priority_that_the_launcher_was_created_with() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = script(dir.path(), "echo \"nice $(nice)\" >&2");
    let before = nice(0).expect("known");
    let launcher = Launcher::new().expect("a thread");
    let lowered = nice(5).expect("it may be lowered");
    let study = StartableStudy { id: "demo", quick: false };
    let key = launcher.offer(study).expect("a key");
    launcher.start(&key, &program, dir.path(), None).expect("it starts");
    assert_eq!(told_at_end(&launcher), format!("nice {before}"), "not {lowered}");
}

fn told_at_end(launcher: &Launcher) -> String {
    let begun = Instant::now();
    loop {
        let state = launcher.state().expect("it was started");
        if state.ended.is_some() && !state.told.is_empty() {
            return state.told;
        }
        assert!(begun.elapsed() < PATIENCE, "{state:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_run_has_the_agent_that_the_user_has_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = script(dir.path(), "echo \"$*\" >&2");
    let mut launcher = Launcher::new().expect("a thread");
    launcher.agent = Some("/opt/agent".into());
    let key = launcher.offer(StartableStudy { id: "demo", quick: false }).expect("a key");
    launcher.start(&key, &program, dir.path(), None).expect("it starts");
    assert_eq!(told_at_end(&launcher), "run demo --agent /opt/agent");
}

/// Its messages went to a pipe: when `vtax ui` ended, the interrupted run failed at its first message, and left its
/// lab.
#[test]
fn a_run_is_interrupted_with_its_launcher_and_can_still_write_messages() {
    let dir = tempfile::tempdir().expect("a folder");
    let [begun, saved] = ["begun", "saved"].map(|name| dir.path().join(name));
    let stop = format!("trap 'kill $!; echo stopping >&2 && echo > {}; exit 130' HUP", saved.display());
    let program = script(dir.path(), &format!("{stop}\nsleep 600 & echo > {}; wait", begun.display()));
    let launcher = Launcher::new().expect("a thread");
    let key = launcher.offer(StartableStudy { id: "demo", quick: false }).expect("a key");
    launcher.start(&key, &program, dir.path(), None).expect("it starts");
    let written = |file: &Path| {
        let waiting = Instant::now();
        while !file.exists() {
            assert!(waiting.elapsed() < PATIENCE, "no {}", file.display());
            thread::sleep(Duration::from_millis(20));
        }
    };
    written(&begun);
    drop(launcher);
    written(&saved);
}
