//! `vtax ldm migrate-domain --copy-disks` from one host of a lab to the other, which have separate files.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). No test touches a link of the machine.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    Bench,
    bench::wait_until,
    domain_migrations::{Hosts, PHASES, flags, names, told},
    domains::{Host, kill},
};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

/// Returns the disk space that a file uses.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).expect("a file of the test").blocks() * 512
}

/// mars with a separate disk at the first host, and a file without data for that disk at the other host.
struct Disks<'a> {
    hosts: Hosts<'a>,
    here: PathBuf,
    there: PathBuf,
}

impl<'a> Disks<'a> {
    /// Creates the disk's files; the peer's is in this directory.
    fn new(host: &'a Host<'a>, at: &Path) -> Disks<'a> {
        let hosts = Hosts::new(host);
        let file = |folder: &Path, name: &str| {
            let path = folder.join(name);
            File::create(&path).and_then(|file| file.set_len(SIZE)).expect("a file of the test");
            path
        };
        let (here, there) = (file(host.bench.path(), "here.img"), file(at, "there.img"));
        for (host, path) in [(host, &here), (&hosts.peer, &there)] {
            host.ldm("add-vds vds0 primary");
            host.ldm(&format!("add-vdsdev {} data@vds0", path.display()));
        }
        host.ldm("add-vdisk data data@vds0 mars");
        Disks { hosts, here, there }
    }

    /// Starts mars, which has data on a quarter of its disk.
    fn start(&self) {
        let mut data = vec![0; 16 * MIB as usize];
        File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut data)).expect("random bytes");
        let file = File::options().write(true).open(&self.here);
        file.and_then(|mut file| file.write_all(&data)).expect("a file of the test");
        self.hosts.start();
    }

    /// Starts to move mars at a rate too low for the migration to complete, and waits until its disk is being copied.
    fn slowly(&self) -> Child {
        let words = format!("migrate-domain --copy-disks --bandwidth 8M mars {}", self.hosts.target);
        let mut command = self.hosts.sut.command(&words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
        wait_until("its disk is on the way", || taken(&self.there) > MIB);
        assert_eq!((flags(self.hosts.sut).as_str(), flags(&self.hosts.peer).as_str()), ("source", "target"));
        child
    }

    /// Fails unless mars keeps running at its source without a job, and the target has no data of its disk.
    fn assert_stayed(&self, why: &str) {
        let stayed = self.hosts.settled(why);
        assert_eq!(stayed.name, "sut", "{why}");
        self.hosts.assert_alive(stayed, why);
        assert_no_copy(stayed, why);
        in_mars(stayed, "dd if=/dev/urandom of=/dev/vda bs=1M seek=20 count=1 conv=fsync 2>/dev/null");
        self.assert_empty(why);
    }

    fn assert_empty(&self, why: &str) {
        assert_eq!((taken(&self.there), fs::metadata(&self.there).expect("it exists").len()), (0, SIZE), "{why}");
    }

    fn migrate(&self, options: &str) -> String {
        self.hosts.sut.ldm(&format!("migrate-domain {options} mars {}", self.hosts.target))
    }
}

/// Sends a command to the monitor of mars' QEMU.
fn qmp(host: &Host<'_>, command: &str) -> Value {
    let stream = UnixStream::connect(host.folder().join("mars/qemu/qmp.sock")).expect("QEMU runs");
    let mut lines = BufReader::new(&stream).lines().map(|line| line.expect("a line"));
    lines.next();
    for asked in ["qmp_capabilities", command] {
        writeln!(&stream, "{{\"execute\": \"{asked}\"}}").expect("QEMU reads");
    }
    let answers = lines.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    answers.filter(|answer| answer["event"].is_null()).nth(1).expect("an answer")["return"].clone()
}

/// Fails if QEMU has jobs, exports or nodes of a copy.
fn assert_no_copy(host: &Host<'_>, why: &str) {
    let none = Value::Array(Vec::new());
    assert_eq!((qmp(host, "query-jobs"), qmp(host, "query-block-exports")), (none.clone(), none), "{why}");
    let nodes = qmp(host, "query-named-block-nodes").to_string();
    assert!(nodes.contains("\"blocks0\"") && !nodes.contains("\"copy"), "{why}: {nodes}");
}

fn in_mars(host: &Host<'_>, script: &str) -> String {
    let mut command = host.command("exec mars -- sh -c");
    let output = command.arg(script).output().expect("vtax runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn sum(path: &Path) -> String {
    let output = Command::new("md5sum").arg(path).output().expect("md5sum runs");
    String::from_utf8_lossy(&output.stdout).split(' ').next().expect("a sum").to_owned()
}

/// Writes numbered sectors from the middle of the disk on, each only after the previous one is on stable storage.
/// `/last` always contains a number.
const WRITER: &str = "
    (i=0; while [ ! -e /stop ]; do
        printf '%08d' $i | dd of=/dev/vda bs=512 seek=$((65536 + i)) conv=fsync 2>/dev/null && echo $i > /next && mv /next /last
        i=$((i + 1))
    done) >/dev/null 2>&1 </dev/null &";

/// Checks that all sectors up to the last one were written with their numbers.
fn numbers(path: &Path, last: u64) {
    let content = fs::read(path).expect("a file of the test");
    for number in 0..=last {
        let at = usize::try_from((65536 + number) * 512).expect("64 bits");
        assert_eq!(content[at..at + 8], *format!("{number:08}").as_bytes(), "sector {number} of {last}");
    }
}

#[test]
fn a_domain_moves_with_its_disk_and_no_write_is_lost() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-cd");
    let disks = Disks::new(&host, bench.path());
    let (peer, target) = (&disks.hosts.peer, &disks.hosts.target);
    let refused = |words: &str, why: &str| {
        let output = host.try_ldm(&format!("{words} mars {target}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(1) && text.contains(why), "{words}: {output:?}");
    };
    refused("migrate-domain --copy-disks", "- data: mars is not active, and vtax copies disks only while");
    // mars also has a second disk that is copied, and one that both hosts share.
    let more = ["here", "there", "both"].map(|name| {
        let path = bench.path().join(format!("more-{name}.img"));
        File::create(&path).and_then(|file| file.set_len(8 * MIB)).expect("a file of the test");
        path
    });
    let [logs_here, logs_there, both] = &more;
    for (at, own) in [(&host, logs_here), (peer, logs_there)] {
        at.ldm(&format!("add-vdsdev {} logs@vds0", own.display()));
        at.ldm(&format!("add-vdsdev {} both@vds0", both.display()));
    }
    ["add-vdisk logs logs@vds0 mars", "add-vdisk both both@vds0 mars"].iter().for_each(|words| drop(host.ldm(words)));
    disks.start();
    let tail = |host: &Host<'_>, disk: &str| {
        in_mars(host, &format!("dd if=/dev/{disk} bs=512 skip=16000 2>/dev/null | md5sum"))
    };
    for disk in ["vdb", "vdc"] {
        in_mars(&host, &format!("dd if=/dev/urandom of=/dev/{disk} bs=1M seek=7 count=1 conv=fsync 2>/dev/null"));
    }
    let tails = ["vdb", "vdc"].map(|disk| tail(&host, disk));
    refused("migrate-domain", "is not shown to be the same storage; copy it (--copy-disks), or remove");
    let checked = disks.migrate("-n --copy-disks");
    assert!(
        checked.contains("disks copied first, in addition to the estimated time: data (64 MiB), logs (8 MiB)\n"),
        "{checked}"
    );
    fs::write(&disks.there, vec![b'x'; SIZE as usize]).expect("a file of the test");
    refused("migrate-domain --copy-disks", "has data, which the copy would overwrite; export a file without data");
    File::create(&disks.there).and_then(|file| file.set_len(SIZE)).expect("a file of the test");

    let before = in_mars(&host, "dd if=/dev/vda bs=1M count=16 2>/dev/null | md5sum");
    in_mars(&host, WRITER);
    let moved = disks.migrate("--copy-disks --bandwidth 200M");
    assert!(moved.starts_with("mars now runs on t-ldm-cd/peer; suspended for "), "{moved}");
    let there = disks.hosts.settled("after the move");
    assert_eq!(there.name, "peer");
    disks.hosts.assert_alive(there, "after the move");
    assert_no_copy(there, "after the move");
    let arrived: u64 = in_mars(there, "cat /last").trim().parse().expect("a number");
    wait_until("the writer goes on", || in_mars(there, "cat /last").trim().parse().is_ok_and(|now: u64| now > arrived));
    in_mars(there, "touch /stop; sleep 1; sync");
    assert_eq!(in_mars(there, "dd if=/dev/vda bs=1M count=16 2>/dev/null | md5sum"), before);
    let last: u64 = in_mars(there, "cat /last").trim().parse().expect("a number");
    assert!(arrived > 3 && last > arrived, "{arrived} {last}");
    numbers(&disks.there, last);
    assert_eq!(in_mars(there, "md5sum < /dev/vda").split(' ').next(), Some(sum(&disks.there).as_str()));
    assert_eq!(["vdb", "vdc"].map(|disk| tail(there, disk)), tails);
    assert_eq!(sum(logs_here), sum(logs_there));
    assert_ne!(sum(&disks.here), sum(&disks.there), "only the target's file has changed since");
    // Only data takes space, and no other process can write to the file.
    assert!(taken(&disks.there) < 24 * MIB, "{}", taken(&disks.there));
    assert!(!peer.folder().join("mars/disks.sock").exists());
    let locked = Command::new("flock").args(["-n", "-x"]).arg(&disks.there).arg("true").status();
    assert!(!locked.expect("flock runs").success(), "the target has locked it");
    let free = Command::new("flock").args(["-n", "-x"]).arg(&disks.here).arg("true").status();
    assert!(free.expect("flock runs").success(), "the source has released it");

    // It reboots there as if it had never moved, and an inactive domain keeps what both hosts share.
    peer.ldm("stop -f mars");
    peer.ldm("start mars");
    peer.wait_for_boot("mars");
    assert_eq!(in_mars(peer, "dd if=/dev/vda bs=1M count=16 2>/dev/null | md5sum"), before);
}

#[test]
fn a_copy_that_ends_early_leaves_the_domain_at_its_source_and_the_target_s_file_empty() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-ce");
    let disks = Disks::new(&host, bench.path());
    let peer = &disks.hosts.peer;
    disks.start();

    let moving = disks.slowly();
    host.ldm("migrate-domain -c mars");
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!((ended.status.code(), told(&ended).contains("migration-cancelled")), (Some(69), true), "{ended:?}");
    disks.assert_stayed("cancelled");

    let mut moving = disks.slowly();
    kill(moving.id());
    let _ = moving.wait();
    disks.assert_stayed("vtax was killed");

    let moving = disks.slowly();
    kill(peer.qemu("mars"));
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    assert!(told(&ended).contains("disk `data` of guest `mars` could not be copied"), "{ended:?}");
    disks.assert_stayed("the target's QEMU was killed");

    // Nothing left by these attempts impedes the next one.
    let moving = disks.slowly();
    kill(host.qemu("mars"));
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    let stayed = disks.hosts.settled("the source's QEMU was killed");
    assert_eq!((stayed.name, stayed.state("mars").as_str()), ("sut", "bound"));
    disks.assert_empty("the source's QEMU was killed");
    host.ldm("start mars");
    host.wait_for_boot("mars");
    assert!(disks.migrate("--copy-disks").starts_with("mars now runs on"));
}

#[test]
fn whenever_vtax_is_killed_one_host_has_the_domain_with_all_of_its_disk() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-ck");
    let disks = Disks::new(&host, bench.path());
    disks.start();
    // Reading all of the disk in the translated guest would take most of the test's CPU time.
    let content = |host: &Host<'_>| {
        let file = if host.name == disks.hosts.peer.name { &disks.there } else { &disks.here };
        in_mars(host, "dd if=/dev/vda bs=1M skip=15 count=1 iflag=direct 2>/dev/null | md5sum") + &sum(file)
    };
    let before = content(&host);
    let mut moved = 0;
    for (why, is_reached) in PHASES {
        let is_here = names(&host);
        let (from, to, other) = match is_here {
            true => (&host, &disks.hosts.peer, &disks.there),
            false => (&disks.hosts.peer, &host, &disks.here),
        };
        File::create(other).and_then(|file| file.set_len(SIZE)).expect("a file of the test");
        let mut moving = from.command(&format!("migrate-domain --copy-disks mars {}/{}", host.lab, to.name));
        let mut child = moving.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
        let has_ended = |child: &mut Child| child.try_wait().expect("our child").is_some();
        while !is_reached(from, to) && !has_ended(&mut child) {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        child.wait().expect("it has ended");
        let settled = disks.hosts.settled(why);
        disks.hosts.assert_alive(settled, why);
        assert_no_copy(settled, why);
        assert_eq!(content(settled), before, "{why}");
        let has_moved = settled.name == to.name;
        moved += u32::from(has_moved);
        assert!(has_moved || taken(other) == 0, "{why}: data is left at the target");
        assert!(!to.folder().join("mars/disks.sock").exists(), "{why}");
    }
    assert!((1..PHASES.len() as u32).contains(&moved), "{moved}");
}

/// A file system of 80 MiB, which is unmounted when the value is dropped.
struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    fn new(at: PathBuf) -> SmallFileSystem {
        fs::create_dir(&at).expect("a directory of the test");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=80m", "small"]).arg(&at).status();
        assert!(mounted.expect("mount runs").success());
        SmallFileSystem(at)
    }

    /// Fills the file system, except for this many bytes.
    fn fill(&self, left: u64) {
        let free = rustix::fs::statvfs(&self.0).map(|system| system.f_bavail * system.f_frsize).expect("it is mounted");
        fs::write(self.0.join("other"), vec![1; (free - left) as usize]).expect("there is space");
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_target_without_space_is_refused_and_one_that_becomes_full_gives_up() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-cf");
    let small = SmallFileSystem::new(bench.path().join("small"));
    let disks = Disks::new(&host, &small.0);
    disks.start();
    let other = small.0.join("other");
    small.fill(48 * MIB);
    let output = host.try_ldm(&format!("migrate-domain -n --copy-disks --json mars {}", disks.hosts.target));
    let checked: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &checked["reasons"][0]["object"]), (Some(1), &"data".into()), "{checked:#}");
    let reason = checked["reasons"][0]["reason"].as_str().expect("text");
    assert!(reason.contains("have 64 MiB, and 48 MiB are free"), "{reason}");
    fs::remove_file(&other).expect("a file of the test");

    let moving = disks.slowly();
    small.fill(MIB);
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    assert!(told(&ended).contains("No space left on device"), "{ended:?}");
    disks.assert_stayed("the target was full");
    fs::remove_file(&other).expect("a file of the test");
    assert!(disks.migrate("--copy-disks").starts_with("mars now runs on"));
    // The file system is in use until the domain is unbound.
    disks.hosts.peer.ldm("stop -f mars");
    disks.hosts.peer.ldm("unbind mars");
}
