//! The command line from a user's view: help, lists, and every kind of invalid input. The tests require no privileges
//! and must not change the machine.

#[path = "../bench.rs"]
#[allow(dead_code, reason = "the kernel tests use more of it")]
mod bench;
mod fleet;
mod ldm;
mod measure;
mod private;
mod size;

use std::{fs, process::Command};

use bench::Bench;
use vtax_model::{
    cell::Arm,
    run::{RttFigures, RunState},
};
use vtax_stats::histogram::{Histogram, SparseHistogram};

const STUDY: &str = r#"id = "mine"
title = "Mine"
baseline = "native"
[matrix]
methods = ["native", "bridge"]
mtu = [1500]
transports = ["tcp"]
tests = ["rr"]
[plan]
samples = 5
duration = "1s"
"#;

#[test]
fn help_is_worth_reading() {
    for verb in [
        &["-h"][..],
        &["--help"],
        &["run", "--help"],
        &["measure", "--help"],
        &["lab", "--help"],
        &["results", "--help"],
    ] {
        insta::assert_snapshot!(verb.join("_"), Bench::new().printed(verb));
    }
}

#[test]
fn the_studies_are_listed() {
    insta::assert_snapshot!(Bench::new().printed(&["studies"]));
    let json: serde_json::Value = serde_json::from_str(&Bench::new().printed(&["studies", "--json"])).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(9));
}

/// The output must be identical to that in an article of 2014.
#[test]
fn a_delayed_reconfiguration_is_announced_and_shown_in_the_list() {
    let bench = Bench::new();
    let ldm = |words: &str| bench.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    let refused = |words: &str| bench.refused(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    ldm("create mars");
    assert_eq!(
        ldm("start-reconf primary"),
        "Initiating a delayed reconfiguration operation on the primary domain.\n\
         All configuration changes for other domains are disabled until the primary\n\
         domain reboots, at which time the new configuration for the primary domain\n\
         will also take effect.\n"
    );
    let notice = "------------------------------------------------------------------------------\n\
        Notice: The primary domain is in the process of a delayed reconfiguration.\n\
        Any changes made to the primary domain will only take effect after it reboots.\n\
        ------------------------------------------------------------------------------\n";
    assert_eq!(ldm("set-domain failure-policy=reset primary"), notice);
    let flags = || ldm("list -p primary").split('|').find_map(|field| field.strip_prefix("flags=").map(str::to_owned));
    assert_eq!(flags().as_deref(), Some("-ndc--"));
    let told = [
        "set-vcpu 2 mars",
        "create venus",
        "set-spconfig factory-default",
        "start-reconf primary",
        "start-reconf mars",
        "start-reconf mras",
        "cancel-reconf mars",
    ];
    insta::assert_snapshot!("delayed_reconfiguration", told.map(refused).concat());
    assert!(ldm("list-constraints --json").contains("\"mars\"") && !ldm("list-constraints --json").contains("reset"));
    assert_eq!(ldm("apply-reconf"), "Applied: the other changes of primary\n");
    assert!(ldm("list-constraints --json").contains("reset"));
    assert_eq!(flags().as_deref(), Some("-n-c--"));
    assert!(refused("apply-reconf").contains("primary is not in a delayed reconfiguration"));
    ldm("set-vcpu 2 mars");
}

#[test]
fn a_broken_study_is_refused_with_file_and_line() {
    let broken = |from: &str, to: &str| {
        assert!(STUDY.contains(from), "{from}");
        Bench::new().with("mine.toml", &STUDY.replace(from, to)).refused(&["run", "mine.toml"])
    };
    insta::assert_snapshot!("unknown_key", broken("[plan]", "[plan]\nround = 1"));
    insta::assert_snapshot!("wrong_unit", broken("\"1s\"", "\"1 parsec\""));
    insta::assert_snapshot!("mtu_67", broken("1500", "67"));
    insta::assert_snapshot!("mtu_70000", broken("1500", "70000"));
    insta::assert_snapshot!("clash", broken("\"bridge\"", "\"shared-to-shared\""));
}

#[test]
fn wrong_words_on_the_command_line_are_refused() {
    let refused = |arguments: &[&str]| Bench::new().refused(arguments);
    insta::assert_snapshot!("no_such_study", refused(&["run", "sparc-t7-2"]));
    insta::assert_snapshot!("no_such_run", refused(&["results", "show", "nothing"]));
    insta::assert_snapshot!("duration_without_unit", refused(&["run", "demo", "--duration", "30"]));
    insta::assert_snapshot!("confidence_without_width", refused(&["run", "demo", "--confidence", "99"]));
    insta::assert_snapshot!(
        "confidence_of_a_hundred",
        refused(&["run", "demo", "--confidence", "100", "--width", "5"])
    );
    insta::assert_snapshot!("unknown_method", refused(&["run", "demo", "--methods", "brigde"]));
    insta::assert_snapshot!("size_zero", refused(&["run", "ip-instances", "--size", "0"]));
    insta::assert_snapshot!("ssh_option", refused(&["agent", "probe", "ssh:-oProxyCommand=x"]));
}

#[test]
fn with_json_an_error_is_a_document_on_standard_error() {
    let bench = Bench::new();
    let error = |arguments: &[&str]| {
        let told: serde_json::Value = serde_json::from_str(&bench.refused(arguments)).expect("JSON");
        let error = &told["error"];
        let text = |key: &str| error[key].as_str().unwrap_or_else(|| panic!("no {key} in {told}")).to_owned();
        assert!(!text("message").is_empty() && !text("explanation").is_empty());
        (text("code"), error["exit_code"].as_u64().expect("a number"))
    };
    assert_eq!(error(&["results", "show", "nothing", "--json"]), ("no-runs".to_owned(), 2));
    assert_eq!(error(&["run", "demo", "--json", "--samples", "many"]), ("usage".to_owned(), 2));
}

#[test]
fn a_code_that_an_error_shows_is_explained() {
    let bench = Bench::new();
    let told = bench.refused(&["run", "sparc-t7-2"]);
    let code = told.split(['[', ']']).nth(1).expect("a code in brackets");
    let explained = bench.printed(&["explain", code]);
    assert!(explained.starts_with(&format!("{code}\n")) && explained.contains("vtax studies"), "{explained}");
    assert!(bench.printed(&["explain"]).lines().any(|line| line.trim_start().starts_with(code)));
    insta::assert_snapshot!("no_such_code", bench.refused(&["explain", "no-such-studdy"]));
}

#[test]
fn the_time_of_each_study_is_reported() {
    let text = Bench::new().printed(&["studies"]);
    let line = text.lines().find(|line| line.contains("sparc-t7-1")).expect("the study");
    assert!(line.contains(" h ") && line.contains(" min"), "{line}");
}

#[test]
fn a_lab_given_to_run_is_called_a_lab() {
    let lab = "[lab]\nname = \"mine\"\n[[host]]\nname = \"a\"\n";
    let told = Bench::new().with("lab.toml", lab).refused(&["run", "lab.toml"]);
    assert_eq!(told, "vtax: error[not-a-study]: lab.toml is a lab, not a study; build it with: vtax lab up lab.toml\n");
}

#[test]
fn files_that_serde_refuses_are_refused_in_the_user_s_words() {
    let told = Bench::new().with("mine.toml", "").refused(&["run", "mine.toml"]);
    assert!(told.contains("mine.toml:1: the file is empty"), "{told}");
    let told = Bench::new().with("mine.toml", &STUDY.replace("[1500]", "\"three\"")).refused(&["run", "mine.toml"]);
    assert!(
        told.contains("mine.toml:6: `mtu`: invalid value: the string \"three\"; expected a list, in [ ]"),
        "{told}"
    );
}

#[test]
fn did_you_mean_is_asked_of_studies_and_methods() {
    let told = Bench::new().refused(&["run", "demmo"]);
    assert!(told.contains("did you mean `demo`?"), "{told}");
    let told = Bench::new().refused(&["run", "demo", "--methods", "brigde"]);
    assert!(told.contains("did you mean `bridge`?"), "{told}");
}

#[test]
fn demo_takes_a_number_of_samples() {
    assert!(Bench::new().refused(&["demo", "--samples", "0"]).contains("--samples: 0 samples measure nothing"));
}

#[test]
fn reading_results_makes_no_store() {
    let bench = Bench::new();
    bench.printed(&["results", "list"]);
    assert!(!bench.state().exists());
    assert!(bench.refused(&["results", "show"]).contains("there are no runs"));
}

/// Stores 30 results of a study. From the 16th on, the kernel differs, and round trips take an eighth longer.
fn history(bench: &Bench) {
    let store = vtax_store::Store::open(&bench.state()).expect("a store");
    for number in 0..30u32 {
        let (kernel, factor) = if number < 15 { ("6.1.0", 1.0) } else { ("6.8.0", 1.125) };
        let mut header =
            vtax_synthetic::header(&format!("demo-{number:02}"), &format!("2026-05-{:02}T00:00:00Z", number + 1));
        header.environment.kernel = kernel.into();
        header.environment.hostname = "t7".into();
        let mut sample = vtax_synthetic::sample(0, Arm::A, 1);
        let noise = 1.0 + f64::from(number * 37 % 101) / 5_000.0;
        let mut times = Histogram::new();
        times.record(50_000);
        sample.figures.rtt_ns = Some(RttFigures {
            mean: 50_000.0 * factor * noise,
            by_rate: None,
            p50: 50_000,
            p99: 50_000,
            p999: 50_000,
            max: 50_000,
            hdr: SparseHistogram::of(&times),
        });
        let mut writer = store.create_run(&header).expect("new");
        writer.samples(&[sample]).expect("stored");
        writer.finish(RunState::Complete, 1.0).expect("ends");
    }
}

const NETPERF: &str = "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 () port 0 AF_INET to 192.0.2.2 () port 0 AF_INET
16384  87380  1        1       10.00    20000.00
16384  87380
";

/// An imported result appears next to vtax's results and is distinguished from them everywhere.
#[test]
fn a_measurement_of_another_program_is_a_result() {
    let bench = Bench::new().with("1.txt", NETPERF);
    fs::write(bench.path().join("2.txt"), NETPERF.replace("20000", "16000")).expect("kept");
    let import = |file: &str, row: &str| bench.vtax(&["results", "import", file, "--method", row, "--label", "Mine"]);
    assert!(import("1.txt", "bridge").status.success() && import("2.txt", "bridge").status.success());
    let list: serde_json::Value = serde_json::from_str(&bench.printed(&["results", "list", "--json"])).expect("JSON");
    let ids: Vec<&str> = (0..2).filter_map(|nth| list[nth]["id"].as_str()).collect();
    assert_eq!(list[0]["label"], "Mine");
    let listed = bench.printed(&["results", "list", "mine", "netperf"]);
    assert!(listed.contains("TCP RR 50.0 µs · Mine: TCP RR by netperf"), "{listed}");
    assert!(bench.printed(&["results", "list", "mine", "iperf3"]).contains("No run with all of these words"));
    let shown = bench.printed(&["results", "show", ids[1], "--detail"]);
    assert!(shown.contains("bridge") && shown.contains("50.0") && shown.contains("Mine"), "{shown}");
    assert!(shown.contains("measured by netperf, not by vtax") && !shown.contains("PINNED"), "{shown}");
    let compared = bench.printed(&["results", "compare", ids[1], ids[0]]);
    assert!(compared.contains("+25 %"), "{compared}");
    bench.printed(&["report", ids[0], ids[1], "--html", "both.html"]);
    let page = fs::read_to_string(bench.path().join("both.html")).expect("a page");
    assert!(page.contains("measured by netperf, not by vtax"));
    let json: serde_json::Value = serde_json::from_str(&bench.printed(&["results", "export", ids[0]])).expect("JSON");
    assert_eq!(json["imported"]["program"], "netperf");
    let resumed = bench.refused(&["run", "--resume", ids[0], "--samples", "9"]);
    assert!(resumed.contains("run-imported"), "{resumed}");
    let missing = bench.refused(&["results", "import", "1.txt", "3.txt"]);
    assert!(missing.contains("3.txt") && bench.landed() == 1, "{missing}");
    assert!(bench.refused(&["results", "import", "1.txt", "--mtu", "9"]).contains("--mtu"));
    bench.vtax(&["results", "rm", ids[0], ids[1]]);
    assert!(bench.printed(&["results", "list"]).contains("No results yet"));
}

/// Published figures are compared like any result, but without a verdict: a single value has no interval.
#[test]
fn published_figures_are_shown_next_to_measured_ones() {
    let table = include_str!("../../crates/vtax-model/data/published/sparc-t7-1.toml");
    let bench = Bench::new().with("t7-1.toml", table);
    fs::write(bench.path().join("slower.toml"), table.replace("= 91", "= 182")).expect("kept");
    for file in ["t7-1.toml", "slower.toml"] {
        assert!(bench.vtax(&["results", "import", file, "--label", file]).status.success());
    }
    let list: serde_json::Value = serde_json::from_str(&bench.printed(&["results", "list", "--json"])).expect("JSON");
    let ids: Vec<&str> = (0..2).filter_map(|nth| list[nth]["id"].as_str()).collect();
    let shown = bench.printed(&["results", "show", ids[1]]);
    assert!(shown.contains("measured by the authors of") && shown.contains("2 x SPARC T7-1"), "{shown}");
    let compared = bench.printed(&["results", "compare", ids[1], ids[0], "--format", "csv"]);
    assert_eq!(compared.lines().filter(|line| line.starts_with("paravirtual,tcp,rr")).count(), 2, "{compared}");
    assert!(!compared.contains("slower,"), "one value shows nothing: {compared}");
    let told = bench.printed(&["results", "compare", ids[1], ids[0]]);
    assert!(told.contains("+100 %") && !told.contains("OTHER") && !told.contains("not reported"), "{told}");
    let json: serde_json::Value = serde_json::from_str(&bench.printed(&["results", "export", ids[1]])).expect("JSON");
    let validator = jsonschema::validator_for(
        &serde_json::from_str(include_str!("../../docs/vtax.result.v1.schema.json")).expect("JSON"),
    );
    let errors: Vec<String> = validator.expect("a schema").iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn a_trend_is_reported_and_wrong_questions_are_refused() {
    let bench = Bench::new();
    history(&bench);
    insta::assert_snapshot!("trend", bench.printed(&["results", "trend", "--study", "demo"]));
    let csv = bench.printed(&["results", "trend", "--study", "demo", "--format", "csv"]);
    assert_eq!(csv.lines().count(), 31);
    assert!(!csv.contains(['\r', '\\']), "no end of a line is printed as text: {csv}");
    bench.printed(&["results", "trend", "--study", "demo", "--html", "trend.html", "--svg", "charts"]);
    assert!(fs::read_to_string(bench.path().join("trend.html")).expect("a page").contains("6.8.0"));
    assert_eq!(fs::read_dir(bench.path().join("charts")).expect("a directory").count(), 1);
    let refused = |arguments: &[&str]| bench.refused(&[&["results", "trend"][..], arguments].concat());
    insta::assert_snapshot!("trend_no_study", refused(&["--study", "dmeo"]));
    insta::assert_snapshot!("trend_no_cell", refused(&["--study", "demo", "--cell", "brigde"]));
    insta::assert_snapshot!("trend_no_machine", refused(&["--study", "demo", "--machine", "t8"]));
    let rest: Vec<String> = (6..30).map(|number| format!("demo-{number:02}")).collect();
    let rm: Vec<&str> = ["results", "rm"].into_iter().chain(rest.iter().map(String::as_str)).collect();
    bench.vtax(&rm);
    insta::assert_snapshot!("trend_too_few", refused(&["--study", "demo"]));
}

#[test]
fn advice_refuses_requirements_that_nothing_could_meet() {
    let refused = |words: &str| Bench::new().refused(&words.split(' ').collect::<Vec<_>>());
    for (words, told) in [
        ("advise", "error[no-requirements]: nothing is required"),
        ("advise --p50 200us --p99 100us", "error[options-clash]: p50 200us conflicts with p99 100us"),
        ("advise --bandwidth 2G --rate-limit 1G", "error[options-clash]: rate-limit"),
        ("advise --device console --vlan", "only NICs have VLANs"),
        ("advise --guests 0", "error[out-of-range]: invalid guests 0: use at least 1"),
        ("advise --p99 0s", "a time must be above 0"),
        ("advise --host-cpu-at-most 0", "above 0"),
        ("advise --host-cpu-at-most two", "use a number of cores"),
        ("advise --bandwidth 0", "--bandwidth"),
        ("advise --iops 0", "--iops"),
        ("advise --p99 150", "--p99"),
        ("advise --migrate cold", "live"),
        ("advise --p99 1ms --budget 1m", "--measure"),
        ("advise --file no.toml", "--file: reading no.toml"),
        ("advise --p99 1ms --server emulated", "omit --server"),
    ] {
        let text = refused(words);
        assert!(text.contains(told), "{words}: {text}");
    }
    let bench = Bench::new().with("required.toml", "guests = 12\nlatency = \"1ms\"\n");
    let text = bench.refused(&["advise", "--file", "required.toml"]);
    assert!(text.contains("required.toml:2:") && text.contains("latency"), "{text}");
    let text = bench.refused(&["advise", "--file", "required.toml", "--p99", "1ms"]);
    assert!(text.contains("cannot be used with"), "{text}");
}

#[test]
fn a_refused_run_leaves_nothing() {
    let bench = Bench::new().with("mine.toml", &STUDY.replace("1500", "67"));
    bench.refused(&["run", "mine.toml"]);
    let left: Vec<_> = fs::read_dir(bench.path()).expect("the directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["mine.toml"]);
}

#[test]
fn an_agent_that_does_not_exist_is_named() {
    let told = Bench::new().refused(&["run", "demo", "--agent", "/nowhere/vtax-agent"]);
    assert!(told.contains("/nowhere/vtax-agent"), "{told}");
}

#[test]
fn an_empty_store_lists_nothing() {
    assert!(Bench::new().printed(&["results", "list"]).contains("vtax demo"));
}

/// Each option with a value is given values that overflow, divide by zero or are infinite. The agent is missing, so
/// nothing is measured.
#[test]
fn no_argument_makes_vtax_panic() {
    const VALUES: [&str; 14] = [
        "",
        "0",
        "-1",
        "1e308",
        "NaN",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551615s",
        "99y",
        "1ns",
        "16777215TiB",
        "100%",
        "a\u{1b}[2J\nb",
        "/dev/zero",
    ];
    let bench = Bench::new();
    for verb in ["run", "measure"] {
        let help = bench.printed(&[verb, "--help"]);
        let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split_once(" <"));
        let options: Vec<&str> = options.map(|(name, _)| name).collect();
        assert!(options.len() > 20, "{options:?}");
        for (option, value) in options.iter().flat_map(|option| VALUES.map(|value| (option, value))) {
            let (option, study) = (format!("--{option}={value}"), if verb == "run" { "demo" } else { "--quick" });
            let agent = if option.starts_with("--agent=") { "--quick" } else { "--agent=/nowhere/vtax-agent" };
            if study == agent {
                continue;
            }
            let output = bench.vtax(&[verb, study, agent, &option]);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(2 | 69)), "{option:?}: {:?}: {told}", output.status);
            assert!(!told.contains("panicked") && !told.contains('\u{1b}'), "{option:?}: {told}");
        }
    }
}

/// The completions must be valid for the shell.
#[test]
fn completions_and_manual_pages_know_every_verb() {
    let bench = Bench::new();
    let bash = bench.printed(&["completions", "bash"]);
    fs::write(bench.path().join("vtax.bash"), &bash).expect("ours");
    let read = Command::new("bash").arg("-n").arg(bench.path().join("vtax.bash")).status();
    assert!(read.expect("bash runs").success());
    for (shell, begins) in [("zsh", "#compdef vtax"), ("fish", "# Print an optspec")] {
        let text = bench.printed(&["completions", shell]);
        assert!(text.starts_with(begins) && text.contains("prune"), "{text}");
    }
    bench.printed(&["man", "--dir", "man"]);
    for page in ["vtax.1", "vtax-run.1", "vtax-results-compare.1"] {
        let text = fs::read_to_string(bench.path().join("man").join(page)).expect("a page");
        assert!(text.starts_with(".ie") || text.contains(".TH vtax"), "{page}: {text}");
    }
    assert!(bench.printed(&["man"]).contains(".SH SYNOPSIS"));
}
