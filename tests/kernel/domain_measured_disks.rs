//! `vtax measure --disk` in logical domains and zones: real domains under QEMU, with real files as disks.
//!
//! Requires QEMU, a kernel for guests (`make kernel`), busybox and fio. The figures come from an emulated CPU, so none
//! is checked.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStderr, Stdio},
    time::Instant,
};

use serde_json::Value;

use super::{
    Bench,
    bench::{HANGS, wait_until},
    deaths::signal,
    domains::Host,
    json, labs,
};

const SMALL: [&str; 8] =
    ["--disk-test", "random:range=4MiB", "--samples", "2", "--duration", "200ms", "--warmup", "50ms"];
const LONG: [&str; 6] = ["--disk-test", "random:reads=50,range=4MiB", "--samples", "2", "--duration", "1000s"];
/// A distribution's fio needs more memory than a domain's own programs.
const MEMORY: &str = "256m";

/// Returns a host with the domain mars, which runs and has the disk `data` in a file.
fn with_mars<'a>(bench: &'a Bench, lab: &'a str) -> Host<'a> {
    let host = Host::new(bench, lab);
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm(&format!("set-memory {MEMORY} mars"));
    host.ldm("add-vds vds0 primary");
    add_disk(&host, "data");
    for words in ["bind mars", "start mars"] {
        host.ldm(words);
    }
    host
}

fn add_disk(host: &Host<'_>, name: &str) -> PathBuf {
    let path = host.bench.path().join(format!("{name}.img"));
    fs::File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a file of the test");
    host.ldm(&format!("add-vdsdev {} {name}@vds0", path.display()));
    host.ldm(&format!("add-vdisk {name} {name}@vds0 mars"));
    path
}

fn end(host: &Host<'_>) {
    for words in ["stop -f mars", "unbind mars"] {
        host.ldm(words);
    }
}

fn inside(host: &Host<'_>, script: &str) -> String {
    let output = host.command("exec mars -- sh -c").arg(script).output().expect("vtax runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the processes of fio in mars, and its 9p mounts.
fn left(host: &Host<'_>) -> String {
    inside(
        host,
        "for p in /proc/[0-9]*; do read -r c <$p/comm && case $c in fio*|ld.so) echo $c;; esac; done 2>/dev/null; \
        grep ' 9p ' /proc/mounts; true",
    )
}

fn words<'a>(within: &'a str, disks: &[&'a str], plan: &[&'a str]) -> Vec<&'a str> {
    let disks = disks.iter().flat_map(|disk| ["--disk", disk]);
    ["measure", "--in", within, "--destroy-data"].into_iter().chain(disks).chain(plan.iter().copied()).collect()
}

/// A vtax whose fio runs in the first sample.
struct Measuring {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Measuring {
    fn begin(bench: &Bench, words: &[&str]) -> Measuring {
        let mut child = bench.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("vtax runs");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut told = String::new();
        while !told.contains("sample 1 of") {
            assert!(stderr.read_line(&mut told).expect("text") > 0, "{told}");
        }
        // On an emulated CPU, fio takes several seconds to start. Nothing else writes to the file.
        let written = || fs::metadata(bench.path().join("data.img")).and_then(|file| file.modified()).expect("a file");
        let filled = written();
        wait_until("fio writes", || written() != filled);
        Measuring { child, stderr }
    }

    /// Waits for vtax, and returns its status and its further output.
    fn end(mut self) -> (Option<i32>, String) {
        let mut told = String::new();
        self.stderr.read_to_string(&mut told).expect("text");
        (self.child.wait().expect("it ends").code(), told)
    }
}

#[test]
fn a_domains_disk_is_measured_next_to_its_file_on_the_host() {
    let bench = Bench::new();
    let host = with_mars(&bench, "t-ldm-disk");
    let other = bench.path().join("host.img").display().to_string();
    let file = bench.path().join("data.img").display().to_string();
    let measure = words("t-ldm-disk/sut", &[&other, "ldm:mars/data"], &SMALL);
    let result = json(&bench, &[&measure[..], &["--json"]].concat());
    let cells = result["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    assert!(cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    let disk = &result["disks"][1];
    assert_eq!(disk["disk"], "ldm:t-ldm-disk/sut/mars/data");
    assert!(disk["program"].as_str().is_some_and(|program| program.starts_with("fio-")), "{disk}");
    assert_eq!((&disk["path"]["path"], &disk["path"]["device"]["driver"]), (&"/dev/vda".into(), &"virtio_blk".into()));
    let user = &disk["path"]["user"];
    assert_eq!(
        (&user["user"], &user["attach"], &user["cached"]),
        (&"domain".into(), &"virtio-blk".into(), &true.into())
    );
    assert_eq!((&user["backing"][0]["path"], &user["backing"][0]["format"]), (&file.into(), &"raw".into()));
    assert_eq!(left(&host), "", "fio has ended, and its folder is mounted no more");
    let bytes = fs::read(bench.path().join("data.img")).expect("a file of the test");
    let written =
        |range: std::ops::Range<usize>| bytes[range].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0));
    assert!(written(0..4 << 20) && bytes[4 << 20..].iter().all(|byte| *byte == 0), "the range is written, and no more");
    refusals(&host);
    end(&host);
    assert!(fs::metadata(other).is_err(), "the host's file was made for the run");
}

/// Checks that unmeasurable disks are refused before anything is written.
fn refusals(host: &Host<'_>) {
    let bench = host.bench;
    let told = |words: &[&str], code: &str, text: &str| {
        let told = bench.refused(words);
        assert!(told.contains(&format!("error[{code}]")) && told.contains(text), "{words:?}: {told}");
        assert!(!told.contains("writing the first"), "{words:?}: {told}");
    };
    let within = "t-ldm-disk/sut";
    let of = |disk: &'static str| words(within, &[disk], &SMALL);
    told(&["measure", "--in", within, "--disk", "ldm:mars/data"], "disk-not-empty", "--destroy-data");
    told(&of("ldm:saturn/data"), "no-such-object", "no domain `saturn`");
    told(&of("ldm:mars/nothing"), "no-such-object", "no vdisk `nothing`; available: data");
    told(&of("ldm:primary/data"), "is-primary", "name a path");
    told(&of("ldm:mars/data,/var/tmp/x"), "bad-disk-name", "use a separate --disk");
    told(&of("/var/tmp/x"), "option-not-for-this", "--in t-ldm-disk/sut");
    told(
        &["measure", "--disk", "ldm:t-ldm-disk/other/mars/data", "--destroy-data"],
        "no-such-object",
        "no host `other`",
    );
    let large =
        ["measure", "--in", within, "--destroy-data", "--disk", "ldm:mars/data", "--disk-test", "random:range=9MiB"];
    told(&large, "disk-too-small", "has 8 MiB");

    // mars starts to use an added disk as swap space.
    let swap = add_disk(host, "swap");
    wait_until("mars sees it", || inside(host, "ls /sys/block").contains("vdb"));
    inside(host, "mkswap /dev/vdb && swapon /dev/vdb");
    let before = fs::read(&swap).expect("a file of the test");
    told(&of("ldm:mars/swap"), "disk-in-use", "as swap (vdb)");
    assert!(fs::read(&swap).expect("a file of the test") == before, "nothing is written");
    inside(host, "swapoff /dev/vdb");
    bench.printed(&of("ldm:mars/swap"));

    host.ldm("create pluto");
    for words in ["set-vcpu 1 pluto", "set-memory 128m pluto"] {
        host.ldm(words);
    }
    told(&of("ldm:pluto/data"), "domain-state", "pluto is inactive; bind and start it first");
    host.ldm("bind pluto");
    told(&of("ldm:pluto/data"), "domain-state", "pluto is bound; start it first");
    host.ldm("start pluto");
    // pluto has too little memory for the host's fio, and the error reports that.
    host.ldm("rm-vdisk swap mars");
    host.ldm("add-vdisk swap swap@vds0 pluto");
    told(&of("ldm:pluto/swap"), "no-fio", "set-memory 256m pluto");
    for words in ["stop -f pluto", "unbind pluto"] {
        host.ldm(words);
    }
}

/// After Ctrl-C, a kill, or the stop of its domain, fio exits, and the run reports the reason and can be resumed.
#[test]
fn nothing_continues_in_a_domain_when_its_run_has_ended() {
    let bench = Bench::new();
    let host = with_mars(&bench, "t-ldm-disk-end");
    let long = words("t-ldm-disk-end/sut", &["ldm:mars/data"], &LONG);
    let run = Measuring::begin(&bench, &long);
    let begun = Instant::now();
    signal(run.child.id(), "-INT");
    let (status, told) = run.end();
    assert!(begun.elapsed() < HANGS, "{:?}", begun.elapsed());
    assert_eq!(status, Some(130), "{told}");
    assert_eq!(left(&host), "");

    let mut run = Measuring::begin(&bench, &long);
    run.child.kill().expect("it is ours");
    run.end();
    wait_until("fio has ended with vtax", || !left(&host).contains("fio"));
    let list: Value = serde_json::from_str(&bench.printed(&["results", "list", "--json"])).expect("JSON");
    let run = list[0]["id"].as_str().and_then(|id| id.rsplit('-').next()).expect("a run").to_owned();
    assert!(!labs(&bench).iter().any(|lab| lab.contains(&run)), "the host has nothing of the run");

    let run = Measuring::begin(&bench, &long);
    let begun = Instant::now();
    host.ldm("stop -f mars");
    let (status, told) = run.end();
    assert!(begun.elapsed() < HANGS, "{:?}", begun.elapsed());
    assert!(status == Some(69) && told.contains("error[domain-state]"), "{told}");
    assert!(told.contains("mars stopped or rebooted while its disk was measured"), "{told}");

    let told = bench.refused(&["run", "--resume", "last"]);
    assert!(told.contains("error[domain-state]") && told.contains("mars is bound"), "{told}");
    host.ldm("start mars");
    let short =
        words("t-ldm-disk-end/sut", &["ldm:mars/data"], &["--disk-test", "random:range=4MiB", "--samples", "4"]);
    let mut child = bench.command(&[&short[..], &["--duration", "1s"]].concat()).spawn().expect("vtax runs");
    wait_until("a sample has landed", || bench.landed() >= 1);
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    let result = json(&bench, &["run", "--resume", "last", "--json"]);
    let samples = result["cells"][0]["samples"].as_array().map(Vec::len);
    assert_eq!((&result["state"], samples), (&"complete".into(), Some(4)));
    assert_eq!(left(&host), "");
    end(&host);
}

#[test]
fn a_zone_measures_a_file_of_the_host() {
    let bench = Bench::new();
    let _host = Host::new(&bench, "t-zone-disk");
    let folder = tempfile::Builder::new().prefix("vtax-disks").tempdir_in("/var/tmp").expect("a folder");
    let path = folder.path().join("disk").display().to_string();
    // The zone is named with its lab, because labs of other tests also have a peer.
    let zone = format!("zone:t-zone-disk/peer/{path}");
    let result: Value = json(&bench, &[&["measure", "--json", "--disk", &path, "--disk", &zone], &SMALL[..]].concat());
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.len() == 2 && cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    let user = &result["disks"][1]["path"]["user"];
    assert_eq!((&user["user"], &user["zone"]), (&"zone".into(), &"t-zone-disk/peer".into()));
    assert!(result["disks"][0]["path"]["user"].is_null());
    assert!(fs::metadata(&path).is_err(), "the file was made for the run");

    let told = bench.refused(&["measure", "--disk", "zone:nowhere/var/tmp/x"]);
    assert!(told.contains("error[no-such-domain]") && told.contains("peer"), "{told}");
    fs::write(&path, "letters").expect("ours");
    let told = bench.refused(&["measure", "--disk", &zone]);
    assert!(told.contains("error[disk-not-empty]"), "{told}");
}
