//! vtax killed while a guest holds a function, or at any moment while it creates functions; and missing journals.

use std::{env, process::Command};

use super::{
    FAR, NEAR, NEAR_NAME, Server,
    crash::{Ending, kill_at},
    function,
};

/// Set in the environment of this program in the server, which then kills another program before this call.
pub(crate) const KILL_AT: &str = "VTAX_KILL_AT";

/// The function exists before the lab, with its own settings, so that more than the number of functions must be
/// restored.
pub(crate) fn killed(server: &Server) {
    server.make_vf();
    let before = server.inventory();
    let vf = function(&before, &format!("{NEAR_NAME}.VF0"))["function"]["device"].clone();
    let vf = vf.as_str().expect("an address");
    server.kill_run_with_device(
        &format!("run sparc-t7-1 --methods sr-iov --mtu 1500 --cable {NEAR},{FAR}"),
        &format!(r#"[ "$(basename $(readlink /sys/bus/pci/devices/{vf}/driver))" = vfio-pci ]"#),
    );
    server.assert_as(&before);
    server.destroy_vf();
}

/// Removes journals, including that of functions created by hand. The marks show the previous state.
pub(crate) fn lost(server: &Server) {
    let forget = |name: &str| server.shell(&format!("rm /run/vtax*/journals/{name}.journal"));
    let cleaned = |name: &str| {
        let cleaned = server.printed(&["lab", "clean"]);
        assert!(cleaned.contains(&format!("removed {name}")), "{cleaned}");
    };
    let before = server.inventory();
    server.make_vf();
    let made = server.inventory();
    let zones = "[[zone]]\nname = \"web\"\nhost = \"sut\"\nmethod = \"sr-iov\"\n";
    let lab = server.lab("t-lost", 1500, zones);
    forget("t-lost");
    cleaned("t-lost");
    std::mem::forget(lab);
    server.assert_as(&made);

    let device =
        function(&made, NEAR_NAME)["function"]["device"].as_str().expect("an address").replace([':', '.'], "-");
    forget(&format!("io-{device}"));
    cleaned(&format!("io-{device}"));
    server.shell(&format!("ip link set {} down", server.near()));
    server.assert_as(&before);
}

/// Kills `io create-vf` before each call that changes something, or before every N-th one if `VTAX_CRASH` is N.
pub(crate) fn crashes(server: &Server) {
    let step: usize = env::var("VTAX_CRASH").map_or(1, |step| step.parse().expect("a number"));
    let before = server.inventory();
    let killed = |at: usize| killed_at(server, at, &format!("io create-vf -n 2 {NEAR}"));
    let put_back = || {
        server.printed(&["lab", "clean"]);
        // Functions whose last line was written remain.
        server.vtax(&["io", "destroy-vf", NEAR]);
    };
    let calls = killed(usize::MAX).expect_err("nobody kills it");
    put_back();
    let mut kills = 0;
    for at in (1..).step_by(step) {
        if killed(at).is_err() {
            break;
        }
        kills += 1;
        put_back();
        server.assert_as(&before);
    }
    put_back();
    println!("crash-create-vf: {kills} kills at {calls} calls");
    assert!(2 * kills * step >= calls, "{kills} kills of {calls}");
}

/// Kills vtax with these arguments in the server before its `at`-th call that changes something. If vtax made fewer
/// calls, the error is their number.
pub(crate) fn killed_at(server: &Server, at: usize, arguments: &str) -> Result<(), usize> {
    let program = env::current_exe().expect("this test");
    let vtax = env!("CARGO_BIN_EXE_vtax");
    let told = server.shell(&format!("{KILL_AT}={at} {} {vtax} {arguments}", program.display()));
    let (ending, number) = told.trim().split_once(' ').expect("two words");
    (ending == "killed").then_some(()).ok_or_else(|| number.parse().expect("a number"))
}

/// Runs in the server: kills the program named by the arguments.
pub(crate) fn kill_here(at: &str) {
    let mut words = env::args().skip(1);
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    match kill_at(&command, at.parse().expect("a number")) {
        Ending::Killed { call } => println!("killed {call}"),
        Ending::Itself { calls, code: 0 } => println!("ended {calls}"),
        Ending::Itself { code, .. } => panic!("it ended with {code}"),
    }
}
