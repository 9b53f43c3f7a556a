//! Journals that lost lines or were damaged: `clean` finds the objects that the lab has made by their marks, and no
//! others.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use vtax_journal::checksum;

use super::{
    Bench, assert_nothing_left, bench::wait_until, deaths::signal, empty, host::Host, lab_of, labs, labs::lab_file,
    processes_of, runs,
};

/// A lab to damage, next to another one that must survive.
struct Scene {
    bench: Bench,
    before: Host,
}

impl Scene {
    fn new() -> Scene {
        let bench = Bench::new();
        for lab in ["t-other", "t-cut"] {
            fs::write(bench.path().join(format!("{lab}.toml")), lab_file(lab, "")).expect("ours");
        }
        empty(&bench);
        bench.printed(&["lab", "up", "t-other.toml"]);
        let before = Host::now(&bench, bench.labs());
        Scene { bench, before }
    }

    fn journal(&self) -> PathBuf {
        self.bench.labs().join("journals/t-cut.journal")
    }

    fn up(&self) -> Vec<u8> {
        self.bench.printed(&["lab", "up", "t-cut.toml"]);
        fs::read(self.journal()).expect("its journal")
    }

    /// Cleans up after damage, and checks that the host is in its previous state and the other lab untouched. Returns
    /// vtax's messages, and the journals that were set aside.
    fn clean(&self, when: &str) -> (String, Vec<Vec<u8>>) {
        let output = self.bench.vtax(&["lab", "clean"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{when}: {told}");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains("removed t-cut"), "{when}: {printed}{told}");
        let journals = fs::read_dir(self.bench.labs().join("journals")).expect("a directory").flatten();
        let damaged = journals.filter(|entry| entry.file_name().to_string_lossy().contains(".damaged"));
        let kept = damaged.map(|entry| {
            let bytes = fs::read(entry.path()).expect("it is kept");
            fs::remove_file(entry.path()).expect("ours");
            bytes
        });
        let kept = kept.collect();
        Host::now(&self.bench, self.bench.labs()).assert_is(&self.before, when);
        (told, kept)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        empty(&self.bench);
    }
}

/// A program that is killed when the value is dropped, even if the test fails.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the first line of each kind, counted from 0: `header`, `sealed`, `intend`, `done` and `kept`.
fn lines_of_each_kind(whole: &[u8]) -> Vec<usize> {
    let begins = begins(whole);
    let kinds = ["{\"header\"", "{\"sealed\"", "{\"intend\"", "{\"done\"", "\"kept\""];
    let first = |kind: &str| begins.iter().position(|at| whole[*at + 9..].starts_with(kind.as_bytes()));
    kinds.map(|kind| first(kind).unwrap_or_else(|| panic!("no line is {kind}"))).to_vec()
}

fn begins(whole: &[u8]) -> Vec<usize> {
    (0..whole.len()).filter(|at| *at == 0 || whole[*at - 1] == b'\n').collect()
}

/// Regression test: `clean` removed a journal that was truncated in its header or in its steps, and left twelve unknown
/// namespaces. Later it mistook a persistent lab for an abandoned one, without reporting the damage.
#[test]
fn a_journal_that_was_cut_at_any_line_or_within_one_loses_nothing() {
    let scene = Scene::new();
    let whole = scene.up();
    // Some lines differ in length between the journals of two labs, so a cut is a line and a position in it.
    let last = begins(&whole).len() - 1;
    let at_begin = (0..=last).map(|line| (line, 0));
    let within = lines_of_each_kind(&whole).into_iter().flat_map(|line| [(line, 4), (line, 20)]);
    let mut cuts: Vec<(usize, usize)> = at_begin.chain(within).filter(|cut| *cut <= (last, 4)).collect();
    cuts.sort_unstable();
    println!("{} cuts of a journal of {} bytes", cuts.len(), whole.len());
    for (line, place) in cuts {
        let bytes = if scene.journal().exists() { whole.clone() } else { scene.up() };
        let cut = begins(&bytes)[line] + place;
        fs::write(scene.journal(), &bytes[..cut]).expect("ours");
        let when = format!("cut at byte {place} of line {}", line + 1);
        let (told, damaged) = scene.clean(&when);
        assert_eq!(damaged, [&bytes[..cut]], "{when}: the file is kept as it is");
        assert!(told.contains("t-cut.damaged") && told.contains("by their marks"), "{when}: {told}");
    }
}

/// Regression test: each command that reads labs waited for a FIFO.
#[test]
fn a_file_that_is_not_a_journal_is_kept_and_reported() {
    let scene = Scene::new();
    let words = |words: &[&str]| assert!(Command::new(words[0]).args(&words[1..]).status().expect("it runs").success());
    let kinds: [(&str, &[&str]); 4] = [
        ("a FIFO", &["mkfifo"]),
        ("a directory", &["mkdir"]),
        ("a symbolic link", &["ln", "-s", "/dev/zero"]),
        ("is too large", &["truncate", "-s", "2G"]),
    ];
    for (kind, make) in kinds {
        scene.up();
        let journal = scene.journal();
        fs::remove_file(&journal).expect("ours");
        words(&[make, &[journal.to_str().expect("text")]].concat());
        let list = scene.bench.printed(&["lab", "list", "--json"]);
        assert!(list.contains("damaged") && list.contains(kind), "{kind}: {list}");
        let output = scene.bench.vtax(&["lab", "clean"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains("t-cut.damaged"), "{kind}: {told}");
        let kept = journal.with_extension("damaged");
        match fs::symlink_metadata(&kept).expect("it is kept").is_dir() {
            true => fs::remove_dir(&kept).expect("ours"),
            false => fs::remove_file(&kept).expect("ours"),
        }
        Host::now(&scene.bench, scene.bench.labs()).assert_is(&scene.before, kind);
    }
}

#[test]
fn a_journal_with_a_changed_byte_in_a_line_of_any_kind_is_kept_and_reported() {
    let scene = Scene::new();
    for kind in 0..5 {
        for place in ["checksum", "content", "end"] {
            let mut bytes = scene.up();
            let line = lines_of_each_kind(&bytes)[kind];
            let begin = begins(&bytes)[line];
            let end = begin + bytes[begin..].iter().position(|byte| *byte == b'\n').expect("its end");
            let at = match place {
                "checksum" => begin + 3,
                "content" => usize::midpoint(begin + 9, end),
                _ => end,
            };
            bytes[at] ^= 1;
            fs::write(scene.journal(), &bytes).expect("ours");
            let line = line + 1;
            let (told, damaged) = scene.clean(&format!("line {line}, {place}"));
            assert_eq!(damaged, [bytes], "the file is kept as it is");
            assert!(told.contains(&format!("t-cut.journal:{line}: ")), "line {line}, {place}: {told}");
            assert!(told.contains("t-cut.damaged") && told.contains("by their marks"), "{told}");
        }
    }
}

/// Regression test: an older vtax removed a living lab of a newer one, whose journal contained a word unknown to it.
#[test]
fn a_lab_of_another_version_is_left_unchanged() {
    let scene = Scene::new();
    let whole = scene.up();
    let up = Host::now(&scene.bench, scene.bench.labs());
    let newer = checksum::line(br#"{"intend":{"step":99,"what":{"make-what-nobody-knows":{}}}}"#);
    let bytes = [whole.clone(), newer].concat();
    fs::write(scene.journal(), &bytes).expect("ours");
    let line = begins(&bytes).len();
    for words in [&["lab", "clean"][..], &["lab", "clean", "t-cut"], &["lab", "down", "t-cut"]] {
        let output = scene.bench.vtax(words);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_ne!(output.status.code(), Some(0), "{words:?}: {told}");
        assert!(told.contains(&format!("t-cut.journal:{line}: another version of vtax")), "{words:?}: {told}");
    }
    assert_eq!(fs::read(scene.journal()).expect("its journal"), bytes);
    fs::write(scene.journal(), &whole).expect("ours");
    Host::now(&scene.bench, scene.bench.labs()).assert_is(&up, "another version's");
    scene.bench.printed(&["lab", "down", "t-cut"]);
}

#[test]
fn a_journal_that_was_emptied_or_removed_loses_nothing() {
    let scene = Scene::new();
    scene.up();
    fs::write(scene.journal(), "").expect("ours");
    let (told, kept) = scene.clean("emptied");
    assert!(told.contains("the file is empty") && kept == [b""], "{told}");
    scene.up();
    fs::remove_file(scene.journal()).expect("ours");
    let (told, _) = scene.clean("removed");
    assert!(told.contains("its journal is missing"), "{told}");
}

/// A name is not a mark: objects among a lab's namespaces without its mark belong to someone else.
#[test]
fn objects_that_only_resemble_a_labs_are_left_and_named() {
    let scene = Scene::new();
    scene.up();
    fs::remove_file(scene.journal()).expect("ours");
    let pins = scene.bench.labs().join("labs/t-cut/netns");
    let (note, namespace) = (pins.join("note"), pins.join("other"));
    fs::write(&note, "not a namespace").expect("a file");
    fs::write(&namespace, "").expect("a file");
    // A shell's own namespace, pinned as by `ip netns`. Its links have names and aliases of other kinds.
    let script = format!(
        "ip link add vsw0 type bridge && ip link set vsw0 alias vtax:t-cut2:sut && mount --bind /proc/self/ns/net {}",
        namespace.display()
    );
    let made = Command::new("unshare").args(["--net", "sh", "-c", &script]).status().expect("unshare runs");
    assert!(made.success());
    let output = scene.bench.vtax(&["lab", "clean"]);
    let told = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", "");
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("netns/note") && told.contains("netns/other"), "{told}");
    assert_eq!(fs::read_to_string(&note).expect("it stays"), "not a namespace");
    let links = Command::new("nsenter").arg(format!("--net={}", namespace.display())).args(["ip", "link"]).output();
    assert!(String::from_utf8_lossy(&links.expect("nsenter runs").stdout).contains("vsw0"), "it stays");
    assert_eq!(fs::read_dir(&pins).expect("a directory").count(), 2, "the lab's own are gone");

    fs::remove_file(&note).expect("ours");
    assert!(Command::new("umount").arg(&namespace).status().expect("umount runs").success());
    fs::remove_file(&namespace).expect("ours");
    scene.clean("the strangers are gone");
}

/// A running vtax has locked its lab's directory, so its lab counts as alive even without a journal.
#[test]
fn a_living_lab_without_its_journal_is_left_alone() {
    let bench = Bench::new();
    let run = ["run", "demo", "--methods", "veth", "--mode", "controlled", "--samples", "99", "--duration", "100ms"];
    let mut command = bench.command(&run);
    let mut child = Ours(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs"));
    wait_until("a sample has landed", || bench.landed() >= 1);
    let lab = lab_of(&runs(&bench)[0]);
    let journal = bench.labs().join(format!("journals/{lab}.journal"));
    let pins = bench.labs().join(format!("labs/{lab}/netns"));
    let pinned = || fs::read_dir(&pins).map_or(0, Iterator::count);
    let namespaces = pinned();
    let whole = fs::read(&journal).expect("its journal");
    for damage in [None, Some(&b""[..]), Some(&whole[..20]), Some(&b"nonsense\n"[..])] {
        // The new file is not locked by the running vtax.
        fs::remove_file(&journal).expect("ours");
        if let Some(bytes) = damage {
            fs::write(&journal, bytes).expect("ours");
        }
        let printed = bench.printed(&["lab", "clean"]);
        assert!(printed.contains(&format!("skipped {lab}: it is alive")), "{damage:?}: {printed}");
        assert!(namespaces > 0 && pinned() == namespaces, "{damage:?}");
        assert_eq!(fs::read(&journal).ok().as_deref(), damage, "it is as it was");
        fs::write(&journal, &whole).expect("ours");
    }
    signal(child.0.id(), "-INT");
    child.0.wait().expect("it ends");
    bench.printed(&["lab", "clean"]);
    assert_nothing_left(&bench);
}

/// Converts a journal to the format of an earlier version. The first version had no checksums.
fn former(whole: &[u8], version: u8) -> Vec<u8> {
    let lines = whole.split_inclusive(|byte| *byte == b'\n').map(|line| &line[9..]);
    let unsealed = lines.filter(|line| !line.starts_with(b"{\"sealed\""));
    let text = String::from_utf8(unsealed.collect::<Vec<_>>().concat()).expect("text");
    assert!(text.starts_with("{\"header\":{\"format\":4,"), "{text}");
    let text = text.replacen("{\"format\":4", &format!("{{\"format\":{version}"), 1);
    match version {
        1 => text.into_bytes(),
        _ => text.lines().flat_map(|line| checksum::line(line.as_bytes())).collect(),
    }
}

#[test]
fn a_journal_of_an_earlier_version_is_undone() {
    let scene = Scene::new();
    for (version, verb) in [(1, "down"), (1, "clean"), (3, "down"), (3, "clean")] {
        let whole = former(&scene.up(), version);
        let kept = *begins(&whole).last().expect("a line");
        // Without the journal's last line, the lab is not permanent.
        fs::write(scene.journal(), if verb == "down" { &whole[..] } else { &whole[..kept] }).expect("ours");
        scene.bench.printed(if verb == "down" { &["lab", "down", "t-cut"] } else { &["lab", "clean"] });
        Host::now(&scene.bench, scene.bench.labs()).assert_is(&scene.before, verb);
    }
}

/// Regression test: the lab was reported as permanent forever.
#[test]
fn a_killed_down_is_resumed() {
    let scene = Scene::new();
    let whole = scene.up();
    fs::write(scene.journal(), [&whole[..], b"068b5930 \"undoing\"\n"].concat()).expect("ours");
    scene.clean("undoing");
}

/// A program started in the lab is ended with it; one started elsewhere is not.
#[test]
fn programs_are_identified_by_their_mark_and_their_namespace() {
    let scene = Scene::new();
    scene.up();
    let mut inside = scene.bench.command(&["lab", "exec", "t-cut", "web-1", "--", "sleep", "60"]);
    let mut inside = Ours(inside.spawn().expect("vtax runs"));
    let mut outside = Ours(Command::new("sleep").arg("60").env("VTAX_LAB", "t-cut").spawn().expect("a program"));
    wait_until("the program runs", || {
        let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        processes_of(scene.bench.path()).iter().any(|pid| comm(pid).trim() == "sleep")
    });
    fs::remove_file(scene.journal()).expect("ours");
    let output = scene.bench.vtax(&["lab", "clean"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(inside.0.wait().expect("it ends").code(), Some(137), "killed");
    assert!(outside.0.try_wait().expect("ours").is_none(), "not in the lab");
    drop(outside);
    Host::now(&scene.bench, scene.bench.labs()).assert_is(&scene.before, "programs");
    assert!(!labs(&scene.bench).contains(&"t-cut".to_owned()));
}
