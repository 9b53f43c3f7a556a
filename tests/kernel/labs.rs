//! `vtax lab`, used as a user does.

use std::fs;

use serde_json::Value;

use super::{
    Bench,
    bench::{printed, wait_until},
    json, labs,
};

pub(super) fn lab_file(name: &str, more: &str) -> String {
    format!(
        r#"
[lab]
name = "{name}"
{more}
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[zone]]
name = "web"
host = "sut"
method = "bridge"
count = 2
"#
    )
}

/// A lab that is taken down when the value is dropped, even if the test fails.
pub(super) struct Up<'a> {
    bench: &'a Bench,
    name: String,
    /// Output of `lab up`.
    pub(super) built: Value,
}

impl<'a> Up<'a> {
    pub(super) fn new(bench: &'a Bench, name: &str) -> Up<'a> {
        let built = json(bench, &["lab", "up", "lab.toml", "--json"]);
        assert_eq!(built["lab"], name);
        Up { bench, name: name.to_owned(), built }
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.bench.vtax(&["lab", "down", &self.name]);
    }
}

#[test]
fn a_lab_is_built_used_and_removed() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-use", ""));
    let plan = bench.printed(&["lab", "up", "lab.toml", "--dry-run"]);
    assert!(plan.contains("web-2") && !labs(&bench).contains(&"t-use".to_owned()), "{plan}");
    let up = Up::new(&bench, "t-use");
    assert!(labs(&bench).contains(&"t-use".to_owned()));
    let inside = |domain: &str| bench.printed(&["lab", "exec", "t-use", domain, "--", "cat", "/proc/net/dev"]);
    assert!(inside("web-1").contains("eth0") && inside("sut").contains("wire0"));
    assert!(!inside("web-1").contains("wire0"));
    drop(up);
    assert!(!labs(&bench).contains(&"t-use".to_owned()));
}

#[test]
fn exec_ends_as_the_command_does() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-exec", ""));
    let _up = Up::new(&bench, "t-exec");
    let code =
        |command: &[&str]| bench.vtax(&[&["lab", "exec", "lab.toml", "sut", "--"], command].concat()).status.code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(143));
    assert!(bench.refused(&["lab", "exec", "t-exec", "nobody", "--", "true"]).contains("web-1"));
}

#[test]
fn the_console_of_a_zone_is_refused_with_what_to_do() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-zone", ""));
    let _up = Up::new(&bench, "t-zone");
    let told = bench.refused(&["lab", "console", "t-zone", "web-1"]);
    assert!(told.contains("`web-1` is a zone") && told.contains("vtax lab exec t-zone web-1 -- sh"), "{told}");
    let told = bench.refused(&["lab", "console", "t-zone", "nobody"]);
    assert!(told.contains("has no guest `nobody`, nor any other guest"), "{told}");
}

#[test]
fn a_lab_on_a_machine_without_qemu_exits_69() {
    let guest = "[[guest]]\nname = \"g\"\nhost = \"sut\"\nmethod = \"paravirtual\"\n";
    let bench = Bench::new().with("lab.toml", &(lab_file("t-noqemu", "") + guest));
    let output = bench.command(&["lab", "up", "lab.toml"]).env("PATH", "/nonexistent").env_remove("VTAX_QEMU").output();
    let output = output.expect("vtax runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("guests need QEMU"), "{told}");
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-taken", ""));
    let _up = Up::new(&bench, "t-taken");
    let told = bench.refused(&["lab", "up", "lab.toml"]);
    assert!(told.contains("t-taken"), "{told}");
}

#[test]
fn a_range_in_use_is_refused_with_its_user() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-range", "addresses = \"127.0.0.0/20\""));
    let told = bench.refused(&["lab", "up", "lab.toml"]);
    assert!(told.contains("127.0.0.") && told.contains("lo"), "{told}");
    assert!(!labs(&bench).contains(&"t-range".to_owned()));
}

#[test]
fn methods_that_clash_are_refused() {
    let more = "[[zone]]\nname = \"mac\"\nhost = \"sut\"\nmethod = \"macvlan\"\n";
    let bench = Bench::new().with("lab.toml", &(lab_file("t-clash", "") + more));
    let told = bench.refused(&["lab", "up", "lab.toml"]);
    assert!(told.contains("web-1") && told.contains("mac"), "{told}");
}

#[test]
fn clean_leaves_what_lives_alone() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-kept", ""));
    let _up = Up::new(&bench, "t-kept");
    bench.printed(&["lab", "clean"]);
    assert!(labs(&bench).contains(&"t-kept".to_owned()), "a lab that was to stay is no litter");
}

#[test]
fn two_labs_do_not_meet() {
    let one = Bench::new().with("lab.toml", &lab_file("t-one", ""));
    let other = Bench::beside(&one).with("lab.toml", &lab_file("t-two", ""));
    let _one = Up::new(&one, "t-one");
    let two = Up::new(&other, "t-two");
    drop(two);
    one.printed(&["lab", "exec", "t-one", "web-1", "--", "true"]);
}

/// The user's labs are stored elsewhere: one of the same name neither conflicts nor is visible.
#[test]
fn a_study_can_be_looked_at_as_a_lab_while_the_user_has_one_of_its_name() {
    let bench = Bench::new().with("demo.toml", &lab_file("demo", ""));
    let of_user = |arguments: &[&str]| {
        let output = bench.command(arguments).env("VTAX_RUN", bench.path().join("run")).output().expect("vtax runs");
        printed(&output)
    };
    of_user(&["lab", "up", "demo.toml"]);
    let plan = json(&bench, &["lab", "up", "demo", "--dry-run", "--json"]);
    let ours = labs(&bench);
    of_user(&["lab", "down", "demo"]);
    assert!(plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()));
    assert!(!ours.contains(&"demo".to_owned()), "{ours:?}");
}

#[test]
fn down_reports_a_process_that_holds_on() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-held", ""));
    let up = Up::new(&bench, "t-held");
    let mut command = bench.command(&["lab", "exec", "t-held", "web-1", "--", "sleep", "20"]);
    let mut sleeper = command.spawn().expect("vtax runs");
    wait_until("the sleeper sleeps", || {
        let children = format!("/proc/{0}/task/{0}/children", sleeper.id());
        fs::read_to_string(children).is_ok_and(|children| !children.trim().is_empty())
    });
    drop(up);
    assert!(!labs(&bench).contains(&"t-held".to_owned()));
    sleeper.kill().expect("it is ours");
    sleeper.wait().expect("it ends");
}
