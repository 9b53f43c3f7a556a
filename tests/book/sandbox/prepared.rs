//! Files and results under the names that the pages use.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Stdio,
    sync::OnceLock,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use vtax_model::run::Run;
use vtax_store::Store;

use super::super::bench::{Bench, printed, wait_until};

const IPERF3: &str = include_str!("../../../crates/vtax/src/import/fixtures/iperf3-tcp.json");
const SOCKPERF: &str = include_str!("../../../crates/vtax/src/import/fixtures/sockperf-udp.txt");
const NETPERF: &str = include_str!("../../../crates/vtax/src/import/fixtures/netperf-sweep-in-one-file.txt");
const STUDY: &str = include_str!("../files/my-study.toml");
const LAB: &str = include_str!("../files/rack.toml");

/// Content of a disk image: one sector.
const DISK: &str = match str::from_utf8(&[0; 512]) {
    Ok(text) => text,
    Err(_) => "",
};

/// Names and contents of the files.
const FILES: [(&str, &str); 15] = [
    ("my-study.toml", STUDY),
    ("mine.toml", STUDY),
    ("rack.toml", LAB),
    ("lab.toml", LAB),
    ("domains.json", include_str!("../files/domains.json")),
    ("data.img", DISK),
    ("jupiter.xml", include_str!("../files/jupiter.xml")),
    ("required.toml", include_str!("../files/required.toml")),
    ("vms.toml", include_str!("../files/vms.toml")),
    ("before.json", IPERF3),
    ("published.toml", include_str!("../../../crates/vtax-model/data/published/sparc-t7-1.toml")),
    ("1.txt", SOCKPERF),
    ("2.txt", SOCKPERF),
    ("3.txt", SOCKPERF),
    ("sweep.txt", NETPERF),
];

/// An `ssh` that reaches this machine under every host name.
const SSH: &str = include_str!("../files/ssh");

pub(super) fn files(folder: &Path) {
    FILES.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("ours"));
    let programs = folder.join("bin");
    fs::create_dir(&programs).expect("ours");
    fs::write(programs.join("ssh"), SSH).expect("ours");
    fs::set_permissions(programs.join("ssh"), fs::Permissions::from_mode(0o755)).expect("ours");
    symlink("/bin/busybox", programs.join("ping")).expect("ours");
    // In the PATH, as if they were installed on the host.
    let vtax = Path::new(env!("CARGO_BIN_EXE_vtax"));
    symlink(vtax, programs.join("vtax")).expect("ours");
    symlink(vtax.with_file_name("vtax-agent"), programs.join("vtax-agent")).expect("ours");
}

static COMPLETE: OnceLock<Bench> = OnceLock::new();
static STOPPED: OnceLock<Bench> = OnceLock::new();

/// Removes the prepared results, because statics aren't dropped.
pub(crate) fn remove() {
    let made = [COMPLETE.get(), STOPPED.get()].into_iter().flatten();
    made.for_each(|bench| fs::remove_dir_all(bench.path()).expect("ours"));
}

/// Copies the results that the pages mention, or a stopped run.
pub(super) fn results(bench: &Bench, stopped: bool) {
    let from = match stopped {
        false => COMPLETE.get_or_init(complete),
        true => STOPPED.get_or_init(run_and_stop),
    };
    fs::create_dir(bench.state()).expect("ours");
    // A directory of locks next to the database is skipped: no process holds them any longer.
    let files = fs::read_dir(from.state()).expect("a store").map(|entry| entry.expect("an entry").path());
    for file in files.filter(|path| path.is_file()) {
        fs::copy(&file, bench.state().join(file.file_name().expect("it has a name"))).expect("ours");
    }
}

/// Creates the results that the pages mention: `last` is the newest, and there are enough results of the study for a
/// trend.
fn complete() -> Bench {
    let bench = Bench::new();
    files(bench.path());
    printed(&bench.vtax(&["results", "import", "before.json", "--method", "bridge"]));
    let store = Store::open(&bench.state()).expect("a store");
    let run = vtax_synthetic::of_text(include_str!("../files/demo.toml"));
    keep(&store, &run, "first-id", "2026-01-01T00:00:00Z");
    keep(&store, &run, "demo-20260102-030405-5eed", "2026-01-02T03:04:05Z");
    (1..=16).for_each(|day| keep(&store, &run, &format!("trend-{day:02}"), &format!("2026-02-{day:02}T00:00:00Z")));
    keep(&store, &run, "newest", "2027-01-01T00:00:00Z");
    bench
}

fn keep(store: &Store, run: &Run, id: &str, started: &str) {
    let mut header = run.header.clone();
    (header.id, header.started) = (id.into(), started.into());
    let mut writer = store.create_run(&header).expect("a new id");
    writer.samples(&run.samples).expect("room");
    writer.finish(run.state, run.wall_seconds).expect("room");
}

/// Stops a run after its first sample. On a busy machine the run may have ended before; then another one is tried.
fn run_and_stop() -> Bench {
    let attempts = std::iter::repeat_with(|| {
        let bench = Bench::new();
        files(bench.path());
        let mut command = bench.command(&["measure", "--samples", "6", "--duration", "200ms", "--warmup", "1ms"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
        wait_until("a sample has landed", || bench.landed() > 0);
        kill(Pid::from_raw(child.id().try_into().expect("a process")), Signal::SIGINT).expect("it is ours");
        (bench, child.wait().expect("it ends"))
    });
    let (bench, _) = attempts.take(10).find(|(_, status)| !status.success()).expect("a run that was stopped");
    bench
}
