//! Commands on a domain with virtual disks, killed before each call that changes something. The next command finds the
//! domain in one of its two states; after it is unbound, the host is in its previous state, and no process uses the
//! disks' files.
//!
//! `make test` tries a sample of the calls, as `crashes` does.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use super::{
    Bench,
    bench::HANGS,
    crash::{Ending, kill_at},
    crashes::step,
    domains::Host,
    empty, host,
};

/// Number of calls per command in a sample.
const SAMPLE: usize = 4;

/// If nothing changes for this long, the kernel and ending processes have finished their own work.
const SETTLED: Duration = Duration::from_secs(2);

/// Number of bytes at the end of the domain kernel's output that are shown.
const CONSOLE_LAST: usize = 4000;

/// mars with one disk in a file, and another with two paths to a second file.
struct Killed<'a> {
    host: Host<'a>,
    /// Files of the disks.
    files: [PathBuf; 2],
}

impl<'a> Killed<'a> {
    fn new(bench: &'a Bench, lab: &'a str) -> Killed<'a> {
        empty(bench);
        let host = Host::new(bench, lab);
        host.ldm("add-vsw vsw0 primary");
        host.add("mars");
        host.ldm("add-vds vds0 primary");
        let files = ["plain.img", "lun.img"].map(|name| bench.path().join(name));
        for file in &files {
            File::create(file).and_then(|file| file.set_len(1 << 20)).expect("a file of the test");
        }
        let _ = fs::remove_file(bench.path().join("other-path.img"));
        symlink("lun.img", bench.path().join("other-path.img")).expect("a link of the test");
        let volumes = [
            ("", "plain.img", "plain"),
            (" mpgroup=lun", "lun.img", "path1"),
            (" mpgroup=lun", "other-path.img", "path2"),
        ];
        for (options, file, volume) in volumes {
            host.ldm(&format!("add-vdsdev{options} {} {volume}@vds0", bench.path().join(file).display()));
        }
        Killed { host, files }
    }

    fn with_both(self) -> Killed<'a> {
        self.host.ldm("add-vdisk plain plain@vds0 mars");
        self.host.ldm("add-vdisk lun path1@vds0 mars");
        self
    }

    fn with_halted_domains(self) -> Killed<'a> {
        Killed { host: self.host.with_halted_domains(), ..self }
    }

    fn start(&self) {
        self.host.ldm("bind mars");
        self.host.ldm("start mars");
    }

    /// Returns the state of the host while mars is inactive. By then, directories that remain after an unbind exist.
    fn inactive(&self) -> host::Host {
        self.start();
        self.host.ldm("stop -f mars");
        self.host.ldm("unbind mars");
        let mut was = self.now();
        loop {
            thread::sleep(SETTLED);
            let now = self.now();
            if now == was {
                return now;
            }
            was = now;
        }
    }

    fn now(&self) -> host::Host {
        host::Host::now(self.host.bench, self.host.bench.labs())
    }

    /// Runs the command once for each call, and kills it there. `check` returns what is wrong afterwards.
    fn sweep(&self, verb: &str, prepare: &dyn Fn(), check: &dyn Fn() -> Result<(), String>) {
        let begun = Instant::now();
        prepare();
        let ending = kill_at(&self.host.command(verb), usize::MAX);
        let Ending::Itself { calls, code: 0 } = ending else { panic!("`{verb}` doesn't end well: {ending:?}") };
        let mut failures: Vec<String> = check().err().into_iter().collect();
        let step = step().unwrap_or(calls.div_ceil(SAMPLE));
        let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
        for at in (1..).step_by(step) {
            prepare();
            match kill_at(&self.host.command(verb), at) {
                Ending::Itself { .. } => {
                    failures.extend(check().err());
                    break;
                }
                Ending::Killed { call } => {
                    *kills.entry(call).or_default() += 1;
                    failures
                        .extend(check().map_err(|why| format!("killed before its call {at} ({call}): {why}")).err());
                }
            }
        }
        let total: usize = kills.values().sum();
        println!(
            "{verb}: {total} kills at {calls} calls, {} left something, {:.0?}: {kills:?}",
            failures.len(),
            begun.elapsed()
        );
        assert!(failures.is_empty(), "`{verb}`: {}", failures.join("\n"));
        assert!(2 * total * step >= calls, "{verb}: {total} kills of {calls}");
    }

    /// Runs commands that change something on the host, the first of which repairs what was left incomplete, until the
    /// domain is released. Nothing may be left then.
    fn taken_back(&self, before: &host::Host) -> Result<(), String> {
        let told = ["unbind mars", "stop -f mars", "unbind mars"].map(|words| {
            let output = self.host.try_ldm(words);
            format!("`{words}`: {}", String::from_utf8_lossy(&output.stderr).trim())
        });
        // The kernel reports with a delay of up to a second that a bridge has no carrier.
        let begun = Instant::now();
        let mut differs = self.now().differs(before);
        while !differs.is_empty() && begun.elapsed() < HANGS {
            thread::sleep(SETTLED / 20);
            differs = self.now().differs(before);
        }
        let state = self.host.domain("mars")["state"].as_str().expect("a text").to_owned();
        differs.extend((state != "inactive").then(|| format!("mars is {state}")));
        let is_free = |path: &&PathBuf| File::open(path).is_ok_and(|file| file.try_lock().is_ok());
        differs.extend(
            self.files.iter().filter(|path| !is_free(path)).map(|path| format!("{} is locked", path.display())),
        );
        if differs.is_empty() { Ok(()) } else { Err([&told[..], &differs].concat().join("\n")) }
    }
}

#[test]
fn a_domain_with_disks_that_is_killed_on_its_way_leaves_nothing() {
    let bench = Bench::new();
    let killed = Killed::new(&bench, "t-ldm-dk").with_both().with_halted_domains();
    let before = killed.inactive();
    let bound = || drop(killed.host.ldm("bind mars"));
    let active = || killed.start();
    let sweep = |verb: &str, prepare: &dyn Fn()| killed.sweep(verb, prepare, &|| killed.taken_back(&before));
    sweep("bind mars", &|| ());
    sweep("start mars", &bound);
    sweep("stop -f mars", &active);
    sweep("unbind mars", &bound);
}

/// Checks that the domain has no disk that is not in the configuration, and that each running daemon belongs to a disk
/// of the domain.
fn plugged(lab: &str, volume: &str, daemons: usize) {
    let bench = Bench::new();
    let killed = Killed::new(&bench, lab);
    let host = &killed.host;
    let before_bind = killed.inactive();
    killed.start();
    host.wait_for_boot("mars");
    let (add, remove) = (format!("add-vdisk more {volume}@vds0 mars"), "rm-vdisk more mars");
    let has = || {
        let serials = "exec mars -- sh -c";
        let mut command = host.command(serials);
        let output = command.arg("cat /sys/block/vd*/serial; true").output().expect("vtax runs");
        String::from_utf8_lossy(&output.stdout).contains("more")
    };
    // Details for the error message.
    let seen = || {
        let mut command = host.command("exec mars -- sh -c");
        let output = command.arg("ls -l /sys/block; dmesg | tail -n 30").output().expect("vtax runs");
        let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let console = fs::read(host.folder().join("mars/console.log")).unwrap_or_default();
        let last = String::from_utf8_lossy(&console[console.len().saturating_sub(CONSOLE_LAST)..]).into_owned();
        format!("{} {told} {error} {last}", host.ldm("list -p -o disk mars"))
    };
    let is_wanted = || host.ldm("list-constraints --json mars").contains("\"more\"");
    let put = |words: &str| {
        let is_add = words == add;
        let output = host.try_ldm(words);
        let begun = Instant::now();
        while has() != is_add {
            assert!(begun.elapsed() < HANGS, "`{words}` has no effect: {output:?}; {}", seen());
            thread::sleep(SETTLED / 20);
        }
    };
    let check = |verb: &str| {
        // The next live change repairs what was left incomplete.
        host.ldm("set-vnet alt-mac-addrs=auto net0 mars");
        if has() && !is_wanted() {
            return Err("it has a disk that nobody wants".to_owned());
        }
        // The domain sees a restored disk a moment later.
        let begun = Instant::now();
        loop {
            let (there, running) = (has(), super::domain_disks::daemons(host).len());
            if running == if there { daemons } else { 0 } {
                break;
            }
            if begun.elapsed() > HANGS {
                return Err(format!("{running} daemons, and the disk is there: {there}"));
            }
            thread::sleep(SETTLED / 20);
        }
        // The same command succeeds afterwards.
        put(verb);
        Ok(())
    };
    killed.sweep(&add, &|| put(remove), &|| check(&add));
    killed.sweep(remove, &|| put(&add), &|| check(remove));
    put(remove);
    killed.taken_back(&before_bind).expect("nothing is left");
}

#[test]
fn a_disk_that_comes_and_goes_and_is_killed_on_its_way_leaves_nothing() {
    plugged("t-ldm-dp", "plain", 0);
}

#[test]
fn a_disk_with_two_paths_that_comes_and_goes_and_is_killed_on_its_way_leaves_nothing() {
    plugged("t-ldm-pp", "path1", 2);
}
