//! vtax as an unprivileged user, in a separate user namespace.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    process::{Command, Output, Stdio},
};

use super::Bench;

const NOBODY: u32 = 65534;

/// Returns a bench that belongs to user 65534, with the programs.
fn bench_of_user() -> Bench {
    let bench = bench_of_root();
    chown(bench.path(), Some(NOBODY), Some(NOBODY)).expect("we are root");
    bench
}

/// Returns a bench that user 65534 can read, with the programs.
fn bench_of_root() -> Bench {
    let bench = Bench::new();
    fs::set_permissions(bench.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let programs = bench.path().join("bin");
    fs::create_dir(&programs).expect("a directory");
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_vtax")).parent().expect("a directory");
    for program in ["vtax", "vtax-agent"] {
        // `fs::copy` is not used: a process that another test starts at this moment would inherit the descriptor that
        // is open for writing, and until it exits the program could not be executed (ETXTBSY).
        let copied = Command::new("cp").args([built.join(program), programs.join(program)]).status();
        assert!(copied.expect("cp runs").success());
    }
    bench
}

fn vtax(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(bench.path().join("bin/vtax"));
    command.current_dir(bench.path()).env("VTAX_STATE", bench.state()).env("COLUMNS", "100");
    command.env("XDG_RUNTIME_DIR", bench.path().join("runtime")).env_remove("HOME").env_remove("VTAX_RUN");
    command.uid(NOBODY).gid(NOBODY).args(arguments).output().expect("vtax runs")
}

#[test]
fn a_study_runs_without_root() {
    let bench = bench_of_user();
    let output = vtax(&bench, &["run", "demo", "--mode", "controlled", "--samples", "1", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&super::bench::printed(&output)).expect("JSON");
    assert_eq!(result["environment"]["privilege"], "user namespace");
    let measured = |method: &str| {
        let cells = result["cells"].as_array().expect("cells").iter();
        cells.filter(|cell| cell["method"] == method).all(|cell| cell["status"] == "measured")
    };
    assert!(["native", "shared-ip", "veth", "bridge", "macvlan", "vxlan"].into_iter().all(measured));
}

/// In a rootless container, the network namespace belongs to a user namespace of that user.
#[test]
fn a_user_measures_in_a_network_namespace_of_that_user() {
    let bench = bench_of_user();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-ec", "ip link set lo up; echo ready; exec sleep 1000"]);
    let mut holder = command.uid(NOBODY).gid(NOBODY).stdout(Stdio::piped()).spawn().expect("unshare");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let end = format!("pid:{}", holder.id());
    let output = vtax(
        &bench,
        &["measure", "--samples", "1", "--json", "--from", &end, "--to", &end, "--to-address", "127.0.0.1"],
    );
    let other = vtax(&bench, &["measure", "--samples", "1", "--to", "pid:1"]);
    holder.kill().expect("it runs");
    holder.wait().expect("it ends");
    assert_eq!(line, "ready\n");
    let result: serde_json::Value = serde_json::from_str(&super::bench::printed(&output)).expect("JSON");
    assert_eq!(result["cells"][0]["status"], "measured");
    let told = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(other.status.code() == Some(69) && told.contains("no-privilege"), "{told}");
}

#[test]
fn a_dry_run_needs_no_root() {
    let text = super::bench::printed(&vtax(&bench_of_user(), &["run", "demo", "--dry-run"]));
    assert!(text.contains("plan: ") && text.contains("2 hosts"), "{text}");
}

#[test]
fn an_ordinary_user_cannot_read_roots_results_and_has_no_assigned_nic() {
    let bench = bench_of_root();
    let measured = ["measure", "--quick", "--duration", "20ms", "--warmup", "0s", "--json"];
    super::bench::printed(&bench.vtax(&measured));
    assert!(bench.printed(&["results", "list"]).contains("TCP RR"));
    let refused = vtax(&bench, &["results", "list"]);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains(bench.state().to_str().expect("text")), "{told}");
    let methods: serde_json::Value =
        serde_json::from_str(&super::bench::printed(&vtax(&bench, &["methods", "--json"]))).expect("JSON");
    let assigned = methods.as_array().expect("a list").iter().find(|it| it["method"] == "assigned").expect("listed");
    assert_eq!(assigned["available"], false, "{assigned}");
}

/// Returns a bench with the file of a lab, and a run-time directory of the user.
fn bench_with_lab() -> Bench {
    let bench = bench_of_user();
    let runtime = bench.path().join("runtime");
    fs::create_dir(&runtime).expect("a directory");
    chown(&runtime, Some(NOBODY), Some(NOBODY)).expect("we are root");
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).expect("ours");
    let lab = "[lab]\nname = \"mine\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[wire]]\nname = \"w\"\nends = [\"a\", \"b\"]\n";
    fs::write(bench.path().join("lab.toml"), lab).expect("a file");
    bench
}

fn assert_keeper_goes(bench: &Bench) {
    assert!(super::bench::printed(&vtax(bench, &["lab", "list"])).contains("no labs"));
    super::bench::wait_until("the keeper has gone with the last lab", || super::processes_of(bench.path()).is_empty());
}

#[test]
fn a_lab_stays_up_without_root_until_it_is_taken_down() {
    let bench = bench_with_lab();
    super::bench::printed(&vtax(&bench, &["lab", "up", "lab.toml"]));
    let inside = vtax(&bench, &["lab", "exec", "mine", "a", "--", "cat", "/proc/net/dev"]);
    assert!(super::bench::printed(&inside).contains("wire0"));
    super::bench::printed(&vtax(&bench, &["lab", "down", "mine"]));
    assert_keeper_goes(&bench);
}

/// The marks are in the keeper's namespaces, so the keeper waits for `clean`, which also ends the program in the lab.
#[test]
fn a_lab_without_root_whose_journal_is_missing_or_damaged_is_cleaned() {
    let bench = bench_with_lab();
    let run = bench.path().join("runtime/vtax");
    let journal = run.join("journals/mine.journal");
    for damaged in [false, true] {
        super::bench::printed(&vtax(&bench, &["lab", "up", "lab.toml"]));
        let daemon = "sleep 60 >/dev/null 2>&1 </dev/null &";
        super::bench::printed(&vtax(&bench, &["lab", "exec", "mine", "a", "--", "sh", "-c", daemon]));
        let whole = fs::read(&journal).expect("its journal");
        match damaged {
            true => fs::write(&journal, &whole[1..]).expect("ours"),
            false => fs::remove_file(&journal).expect("ours"),
        }
        // The keeper polls three times per second.
        std::thread::sleep(std::time::Duration::from_secs(1));
        let cleaned = super::bench::printed(&vtax(&bench, &["lab", "clean"]));
        assert!(cleaned.contains("removed mine"), "{cleaned}");
        assert_eq!(fs::read_dir(run.join("labs")).expect("a directory").count(), 0);
        assert_eq!(run.join("journals/mine.damaged").exists(), damaged);
        assert_keeper_goes(&bench);
    }
}
