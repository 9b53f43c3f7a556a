//! State files are private, regardless of the umask and of files that others created there.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::Bench;

const RESULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/import/fixtures/iperf3-bom.json");
const IMPORT: [&str; 5] = ["results", "import", RESULT, "--method", "native"];

/// Commands that read or write the state.
const VERBS: [&[&str]; 9] = [
    &IMPORT,
    &["results", "list"],
    &["results", "show", "last"],
    &["report", "last"],
    &["tune", "status"],
    &["ldm", "list"],
    &["run", "--resume", "last"],
    &["fleet", "list"],
    &["fleet", "show", "last"],
];

/// Runs vtax with umask 0, with this home directory and without other state.
fn at_home(bench: &Bench, home: &Path, arguments: &[&str]) -> Output {
    with_umask("0", bench, home, arguments)
}

fn with_umask(umask: &str, bench: &Bench, home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_vtax")]).args(arguments);
    for variable in ["VTAX_STATE", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(variable);
    }
    command.current_dir(bench.path()).env("HOME", home).env("VTAX_RUN", bench.labs());
    command.output().expect("vtax runs")
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a directory").flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], below(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn stored_files_are_private_whatever_the_umask() {
    let bench = Bench::new();
    let home = bench.path().join("home");
    fs::create_dir(&home).expect("ours");
    let imported = at_home(&bench, &home, &IMPORT);
    assert!(imported.status.success(), "{imported:?}");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let state = home.join(".local/state/vtax");
    assert_eq!((mode(&home.join(".local/state")), mode(&state)), (0o755, 0o700));
    let kept = below(&state);
    assert!(kept.contains(&state.join("results.db")), "{kept:?}");
    for path in kept {
        assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    // An older vtax created the database with this mode.
    let database = state.join("results.db");
    fs::set_permissions(&database, Permissions::from_mode(0o644)).expect("ours");
    assert!(at_home(&bench, &home, &IMPORT).status.success());
    assert_eq!(mode(&database), 0o600);
}

/// Without permissions, directories and locks would block all later commands of their owner.
#[test]
fn an_umask_takes_nothing_from_the_owner() {
    let bench = Bench::new();
    let home = bench.path().join("home");
    fs::create_dir(&home).expect("ours");
    let imported = with_umask("777", &bench, &home, &IMPORT);
    assert!(imported.status.success(), "{imported:?}");
    for path in below(&home) {
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

#[test]
fn no_link_in_the_place_of_a_file_is_followed() {
    let bench = Bench::new();
    let (home, precious) = (bench.path().join("home"), bench.path().join("precious"));
    let state = home.join(".local/state/vtax");
    fs::create_dir_all(&state).expect("ours");
    fs::set_permissions(&state, Permissions::from_mode(0o700)).expect("ours");
    fs::write(&precious, "").expect("ours");
    symlink(&precious, state.join("results.db")).expect("ours");
    let told = at_home(&bench, &home, &IMPORT);
    assert!(!told.status.success(), "{told:?}");
    assert_eq!(fs::metadata(&precious).expect("there").len(), 0);
}

#[test]
fn every_verb_refuses_what_another_user_can_change() {
    let bench = Bench::new();
    let home = bench.path().join("home");
    let state = home.join(".local/state/vtax");
    fs::create_dir_all(&state).expect("ours");
    let refused = |why: &str| {
        for verb in VERBS {
            let output = at_home(&bench, &home, &[verb, &["--state", state.to_str().expect("text")]].concat());
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{why}: {verb:?}");
            assert!(told.contains("unsafe-directory") && told.contains(why), "{verb:?}: {told}");
            assert!(fs::read_dir(&state).expect("a directory").next().is_none(), "{verb:?} has written something");
        }
    };
    fs::set_permissions(&home, Permissions::from_mode(0o777)).expect("ours");
    refused("is writable by others");
    fs::set_permissions(&home, Permissions::from_mode(0o755)).expect("ours");
    // Only root can change the owner of a directory.
    if chown(&home, Some(12345), None).is_ok() {
        refused("belongs to another user");
    }
}

#[test]
fn no_text_of_others_begins_a_line_of_an_error() {
    let bench = Bench::new();
    let forged = "x\nvtax: error[ok]: all is well\nvtax: and more";
    for arguments in [
        &["run", forged][..],
        &["lab", "up", forged],
        &["lab", "show", forged],
        &["results", "show", forged],
        &["results", "import", forged],
        &["tune", "apply", "--file", forged],
    ] {
        let output = bench.vtax(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert_eq!(told.lines().filter(|line| line.starts_with("vtax:")).count(), 1, "{arguments:?}: {told}");
    }
}
