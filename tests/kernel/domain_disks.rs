//! Virtual disks of domains: their backends are exclusive, they are added and removed while a domain runs, and those
//! with several paths switch to the next one without losing written data.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Lines},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use super::{
    Bench,
    bench::{wait_for_boot, wait_until},
    crash::{Ending, kill_at},
    deaths::signal,
    domains::Host,
};

const MIB: u64 = 1 << 20;

/// Creates a file of this size.
fn file(bench: &Bench, name: &str, size: u64) -> PathBuf {
    let path = bench.path().join(name);
    File::create(&path).and_then(|file| file.set_len(size)).expect("a file of the test");
    path
}

/// Returns a host with the domain mars, which has the disk `data` in a file.
fn with_disk<'a>(bench: &'a Bench, lab: &'a str) -> Host<'a> {
    let host = Host::new(bench, lab);
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("add-vds vds0 primary");
    export(&host, "", &file(bench, "data.img", 8 * MIB), "data@vds0");
    host.ldm("add-vdisk data data@vds0 mars");
    host
}

fn export(host: &Host<'_>, options: &str, path: &Path, volume: &str) {
    host.ldm(format!("add-vdsdev {options} {} {volume}", path.display()).replace("  ", " ").as_str());
}

fn start(host: &Host<'_>, domain: &str) {
    host.ldm(&format!("bind {domain}"));
    host.ldm(&format!("start {domain}"));
}

fn in_mars(host: &Host<'_>, script: &str) -> String {
    let mut command = host.command("exec mars -- sh -c");
    let output = command.arg(script).output().expect("vtax runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns each disk of mars with its serial number, in the order in which mars finds them.
fn serials(host: &Host<'_>) -> Vec<String> {
    let found = in_mars(
        host,
        "for disk in /sys/block/vd*; do [ -e $disk ] && echo ${disk##*/} $(cat $disk/serial); done; true",
    );
    found.lines().map(str::to_owned).collect()
}

#[test]
fn a_domain_writes_to_its_disk_and_to_no_other_one() {
    let bench = Bench::new();
    let host = with_disk(&bench, "t-ldm-d");
    let image = file(&bench, "image.qcow2", 0);
    fs::write(&image, qcow2(4 * MIB)).expect("a file of the test");
    export(&host, "options=excl", &image, "image@vds0");
    let parts = file(&bench, "parts.img", 3 * MIB);
    export(&host, "slice=1M+1M", &parts, "part@vds0");
    export(&host, "options=ro", &file(&bench, "tools.img", MIB), "tools@vds0");
    host.ldm("add-vdisk id=5 part part@vds0 mars");
    host.ldm("add-vdisk tools tools@vds0 mars");
    start(&host, "mars");
    assert_eq!(serials(&host), ["vda data", "vdb tools", "vdc part"]);
    in_mars(&host, "printf 'of mars' | dd of=/dev/vda seek=2 conv=fsync 2>/dev/null");
    let mut read = [0; 7];
    File::open(bench.path().join("data.img")).and_then(|file| file.read_exact_at(&mut read, 1024)).expect("written");
    assert_eq!(&read, b"of mars");
    in_mars(&host, "tr '\\0' x </dev/zero | dd of=/dev/vdc bs=64k 2>/dev/null; sync");
    let content = fs::read(&parts).expect("a file of the test");
    let part =
        |from: u64, to: u64| content[(from * MIB) as usize..(to * MIB) as usize].iter().all(|byte| *byte == b'x');
    assert!(part(1, 2) && content[..MIB as usize].iter().chain(&content[2 * MIB as usize..]).all(|byte| *byte == 0));
    assert_eq!(in_mars(&host, "cat /sys/block/vdb/ro"), "1\n");

    // The error names the holder of the disk, and nothing was changed.
    host.add("venus");
    host.ldm("add-vdisk tools tools@vds0 venus");
    host.ldm("bind venus");
    host.ldm("unbind venus");
    let told = host.refused("add-vdisk data data@vds0 venus");
    assert!(told.contains("error[backend-in-use]") && told.contains("mars has it"), "{told}");
    let link = bench.path().join("other-name.img");
    std::os::unix::fs::symlink("data.img", &link).expect("a link of the test");
    export(&host, "-q", &link, "link@vds0");
    host.ldm("add-vdisk data link@vds0 venus");
    let told = host.refused("bind venus");
    assert!(told.contains("error[backend-in-use]") && told.contains("mars uses it as data"), "{told}");
    host.ldm("rm-vdisk data venus");
    host.ldm("add-vdisk image image@vds0 venus");
    let reader = File::open(&image).expect("a file of the test");
    reader.lock_shared().expect("nobody has it");
    let told = host.refused("bind venus");
    assert!(told.contains("has locked it (flock)"), "{told}");
    drop(reader);
    host.ldm("bind venus");
    assert!(!Command::new("flock").args(["-n", "-s"]).arg(&image).arg("true").status().expect("flock runs").success());
    let listed: Value = serde_json::from_str(&host.ldm("list-bindings --json venus")).expect("JSON");
    assert_eq!(listed[0]["bindings"]["disks"][1]["paths"][0]["format"], "qcow2");
    host.ldm("unbind venus");
    for words in ["stop -f mars", "unbind mars"] {
        host.ldm(words);
    }
}

/// Returns an empty image as created by `qemu-img create`, with clusters of 64 KiB.
fn qcow2(size: u64) -> Vec<u8> {
    const CLUSTER: usize = 64 << 10;
    let mut image = vec![0; 4 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb");
    put(4, &3_u32.to_be_bytes());
    put(20, &16_u32.to_be_bytes());
    put(24, &size.to_be_bytes());
    // A table with one entry for the clusters, and one table of their counters.
    put(36, &1_u32.to_be_bytes());
    put(40, &(3 * CLUSTER as u64).to_be_bytes());
    put(48, &(CLUSTER as u64).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(96, &4_u32.to_be_bytes());
    put(100, &104_u32.to_be_bytes());
    put(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    (0..4).for_each(|cluster| put(2 * CLUSTER + 2 * cluster, &1_u16.to_be_bytes()));
    image
}

#[test]
fn a_disk_comes_and_goes_while_its_domain_runs() {
    let bench = Bench::new();
    let host = with_disk(&bench, "t-ldm-d-live");
    start(&host, "mars");
    export(&host, "", &file(&bench, "more.img", MIB), "more@vds0");
    host.ldm("add-vdisk more more@vds0 mars");
    wait_until("mars sees it", || serials(&host) == ["vda data", "vdb more"]);
    in_mars(&host, "printf live | dd of=/dev/vdb conv=fsync 2>/dev/null");
    assert!(fs::read(bench.path().join("more.img")).expect("a file of the test").starts_with(b"live"));
    let told = host.refused("rm-vdsdev -f more@vds0");
    assert!(told.contains("error[domain-state]") && told.contains("mars is active and uses it as more"), "{told}");
    host.ldm("rm-vdisk more mars");
    wait_until("mars sees it go", || serials(&host) == ["vda data"]);
    // A disk with which the domain was started can also be removed, and added again under the same name.
    host.ldm("rm-vdisk data mars");
    wait_until("mars has none", || serials(&host).is_empty());
    host.ldm("add-vdisk data data@vds0 mars");
    wait_until("mars has it again", || serials(&host) == ["vda data"]);
    assert!(!host.ldm("list -o disk mars").contains("pending"));
    // The command gets no answer, because the domain's system no longer runs.
    host.try_ldm("exec mars -- reboot -f");
    let booted = || host.try_ldm("exec mars -- cat /sys/block/vda/serial").stdout == b"data";
    wait_for_boot("mars", booted, || host.console("mars"));
    for words in ["stop -f mars", "unbind mars"] {
        host.ldm(words);
    }
}

/// If vtax is killed while it plugs or unplugs a disk, the next command can continue with the domain.
#[test]
fn a_disk_that_is_killed_at_any_call_is_there_or_not() {
    let bench = Bench::new();
    let host = with_disk(&bench, "t-ldm-d-kill");
    start(&host, "mars");
    export(&host, "", &file(&bench, "more.img", MIB), "more@vds0");
    let is_wanted = || host.ldm("list-constraints --json mars").contains("\"more\"");
    let has = || serials(&host).iter().any(|line| line.ends_with(" more"));
    let (add, remove) = ("add-vdisk more more@vds0 mars", "rm-vdisk more mars");
    for (words, before) in [(add, remove), (remove, add)] {
        let (mut at, mut kills) = (1, 0);
        loop {
            let ending = kill_at(&host.command(words), at);
            let told = format!("`{words}` killed at call {at}: {ending:?}");
            // The next live change repairs what was left incomplete.
            host.ldm("set-vnet alt-mac-addrs=auto net0 mars");
            assert!(is_wanted() || !has(), "{told}");
            if matches!(ending, Ending::Itself { .. }) {
                break;
            }
            host.try_ldm(words);
            wait_until("the change is complete", || has() == (words == add));
            host.ldm(before);
            wait_until("it is as before", || has() == (before == add));
            at = 2 * at + 2;
            kills += 1;
        }
        println!("{words}: {kills} kills up to call {at}");
        assert!(at > 3, "`{words}` made only {at} calls");
    }
    for words in ["stop -f mars", "unbind mars"] {
        host.ldm(words);
    }
    assert!(!host.folder().join("mars").exists());
}

/// Returns the storage daemons of mars, by the number of their path.
pub(super) fn daemons(host: &Host<'_>) -> Vec<(String, u32)> {
    let of = |pid: u32| {
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let name = cwd.file_name()?.to_str()?.to_owned();
        (cwd.starts_with(host.folder()) && name.starts_with("paths")).then_some((name, pid))
    };
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| of(entry.file_name().to_str()?.parse().ok()?)).collect();
    found.sort();
    found
}

fn states(host: &Host<'_>) -> Vec<String> {
    let list = host.ldm("list -p -o disk mars");
    let state = |line: &str| Some(line.strip_prefix("MPGROUP|")?.rsplit_once('=')?.1.to_owned());
    list.lines().filter_map(state).collect()
}

/// Returns a host with the domain mars, which runs and has a disk with two paths to `lun.img`.
fn with_paths<'a>(bench: &'a Bench, lab: &'a str, properties: &str) -> Host<'a> {
    let host = Host::new(bench, lab);
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("add-vds vds0 primary");
    let backing = file(bench, "lun.img", 4 * MIB);
    std::os::unix::fs::symlink("lun.img", bench.path().join("other-path.img")).expect("a link of the test");
    export(&host, "mpgroup=lun", &backing, "path1@vds0");
    export(&host, "mpgroup=lun", &bench.path().join("other-path.img"), "path2@vds0");
    host.ldm(format!("add-vdisk {properties} lun path1@vds0 mars").replace("  ", " ").as_str());
    start(&host, "mars");
    assert_eq!(states(&host), ["active", "standby"]);
    host
}

/// Continuous writes in mars. Each block contains its number, which is printed once the block is on the disk.
struct Load {
    child: Child,
    told: Lines<BufReader<ChildStdout>>,
    last: u64,
}

impl Load {
    fn begin(host: &Host<'_>) -> Load {
        let script = "i=0; while [ $i -lt 4000 ]; do printf '%08d' $i | \
                      dd of=/dev/vda bs=512 seek=$i conv=fsync 2>/dev/null || { echo failed $i; exit 1; }; \
                      echo $i; i=$((i+1)); done";
        let command = &mut host.command("exec mars -- sh -c");
        let mut child = command.arg(script).stdout(Stdio::piped()).spawn().expect("vtax runs");
        let told = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Load { child, told, last: 0 }
    }

    fn go_on(&mut self, blocks: usize) {
        for _ in 0..blocks {
            let line = self.told.next().expect("the load goes on").expect("text");
            self.last = line.parse().unwrap_or_else(|_| panic!("the load says {line}"));
        }
    }

    /// Waits until a block that was not on the disk before is reported. Earlier reports may still be in the pipe.
    fn go_beyond(&mut self, backing: &Path) {
        let content = fs::read(backing).expect("a file of the test");
        let is_there = |number: &u64| content[*number as usize * 512..].starts_with(format!("{number:08}").as_bytes());
        let missing = (self.last..).find(|number| !is_there(number)).expect("the file ends");
        while self.last < missing {
            self.go_on(1);
        }
    }

    /// Checks that all blocks reported so far are on the disk, whichever daemon serves it.
    fn check(&self, backing: &Path, when: &str) {
        let content = fs::read(backing).expect("a file of the test");
        for number in 0..=self.last {
            let at = number as usize * 512;
            assert_eq!(content[at..at + 8], *format!("{number:08}").as_bytes(), "block {number} {when}");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it is ours");
    }
}

/// Returns the active path of the disk, and its daemon.
fn active(host: &Host<'_>) -> (usize, u32) {
    let active = states(host).iter().position(|state| state == "active").expect("one serves");
    let its = |(name, _): &(String, u32)| *name == format!("paths0.{active}");
    (active, daemons(host).into_iter().find(its).expect("it runs").1)
}

fn end(host: &Host<'_>) {
    for words in ["stop -f mars", "unbind mars"] {
        host.ldm(words);
    }
    wait_until("no daemon is left", || daemons(host).is_empty());
    assert!(!host.folder().join("mars").exists());
}

/// Makes the active daemon fail repeatedly, by a kill or a hang, and checks that no write is lost.
fn loses_nothing(lab: &str, by: &str, rounds: usize) {
    let bench = Bench::new();
    let host = with_paths(&bench, lab, "");
    let backing = bench.path().join("lun.img");
    assert_eq!(daemons(&host).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["paths0.0", "paths0.1"]);
    let user = fs::read_to_string(format!("/proc/{}/status", daemons(&host)[0].1)).expect("it runs");
    assert!(user.contains("CapEff:\t0000000000000000") && !user.contains("Uid:\t0\t"), "{user}");
    let mut load = Load::begin(&host);
    for round in 0..rounds {
        load.go_on(20);
        let (active, pid) = active(&host);
        signal(pid, by);
        wait_until("it has ended", || !daemons(&host).iter().any(|(_, found)| *found == pid));
        load.go_beyond(&backing);
        load.check(&backing, &format!("after {by} {round}"));
        wait_until("the other path serves it, and the first stands by", || {
            let states = states(&host);
            states.iter().filter(|state| *state == "standby").count() == 1 && states[active] == "standby"
        });
    }
    assert!(load.last + 1 >= 20 * rounds as u64, "{}", load.last);
    drop(load);
    end(&host);
}

#[test]
fn a_disk_with_two_paths_loses_nothing_when_one_is_killed_under_load() {
    loses_nothing("t-ldm-mp", "-KILL", 4);
}

/// A hung daemon keeps its connections, so QEMU itself would wait for it forever.
#[test]
fn a_disk_with_two_paths_loses_nothing_when_one_hangs_under_load() {
    loses_nothing("t-ldm-hang", "-STOP", 2);
}

/// Block device on a file of the test.
struct LoopDevice(String);

impl LoopDevice {
    fn of(backing: &Path) -> LoopDevice {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(backing).output().expect("losetup runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        LoopDevice(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

/// The device of the active path starts to fail: the kernel can't read a loop device whose file was truncated. The
/// domain's reads use the other path.
#[test]
fn a_path_whose_device_returns_errors_is_left() {
    let bench = Bench::new();
    let files = ["one", "other"].map(|name| bench.path().join(name));
    let content: Vec<u8> = { 0..4 * MIB / 512 }.flat_map(|block| format!("{block:0512}").into_bytes()).collect();
    files.iter().for_each(|file| fs::write(file, &content).expect("a file of the test"));
    let devices = files.each_ref().map(|file| LoopDevice::of(file));
    let host = Host::new(&bench, "t-ldm-errors");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("add-vds vds0 primary");
    for (device, volume) in devices.iter().zip(["path1@vds0", "path2@vds0"]) {
        export(&host, "mpgroup=lun", Path::new(&device.0), volume);
    }
    host.ldm("add-vdisk lun path1@vds0 mars");
    start(&host, "mars");
    assert_eq!(states(&host), ["active", "standby"]);
    // Different blocks each time, because the domain has cached those it has read.
    let read = |block: u64| {
        in_mars(&host, &format!("dd if=/dev/vda bs=512 skip={block} count=1 2>/dev/null | tail -c 8 || true"))
    };
    assert_eq!(read(0), "00000000");
    File::options().write(true).open(&files[0]).and_then(|file| file.set_len(0)).expect("a file of the test");
    for block in [4000, 2000, 6000] {
        assert_eq!(read(block), format!("{block:08}"));
    }
    assert_eq!(states(&host)[1], "active");
    // The first device works again, and the other one fails.
    fs::write(&files[0], &content).expect("a file of the test");
    wait_until("the first one stands by", || states(&host)[0] == "standby" || states(&host)[0] == "failed");
    File::options().write(true).open(&files[1]).and_then(|file| file.set_len(0)).expect("a file of the test");
    for block in [1000, 7000] {
        assert_eq!(read(block), format!("{block:08}"));
    }
    assert_eq!(states(&host)[0], "active");
    end(&host);
}

/// Without any path, requests of a disk with a timeout fail after it. Those of one without wait.
#[test]
fn requests_fail_when_no_path_works_for_the_timeout() {
    let bench = Bench::new();
    let host = with_paths(&bench, "t-ldm-late", "timeout=3");
    let script = "dd if=/dev/zero of=/dev/vda bs=512 count=1 conv=fsync 2>/dev/null && echo written || echo failed";
    assert_eq!(in_mars(&host, script), "written\n");
    // Without a supervisor, no other process switches to another path.
    let supervisor = fs::read_to_string(host.folder().join("mars/supervisor")).expect("there is one");
    signal(supervisor.split('@').next().and_then(|pid| pid.parse().ok()).expect("a process"), "-KILL");
    daemons(&host).iter().for_each(|(_, pid)| signal(*pid, "-KILL"));
    wait_until("no path works", || states(&host) == ["failed", "failed"]);
    assert_eq!(in_mars(&host, script), "failed\n");
    // The next command that changes something restarts the supervisor, which then switches to another path.
    host.ldm("set-vnet alt-mac-addrs=auto net0 mars");
    wait_until("it has its paths again", || {
        let states = states(&host);
        states.contains(&"active".to_owned()) && states.contains(&"standby".to_owned())
    });
    wait_until("it can be written to", || in_mars(&host, script) == "written\n");
    end(&host);
}

/// Tests 28 disks, the largest number in a study's source. Each keeps its position, and one more is added while the
/// domain runs.
#[test]
fn a_domain_has_as_many_disks_as_a_large_server() {
    const DISKS: u64 = 28;
    let bench = Bench::new();
    let host = with_disk(&bench, "t-ldm-many");
    let disks: Vec<String> = (1..DISKS).map(|number| format!("d{number}")).collect();
    for (number, disk) in (1..).zip(&disks) {
        export(&host, "", &file(&bench, &format!("{disk}.img"), MIB + number * 512), &format!("{disk}@vds0"));
        host.ldm(&format!("add-vdisk {disk} {disk}@vds0 mars"));
    }
    start(&host, "mars");
    let sizes = || in_mars(&host, "for disk in /sys/block/vd*; do echo $(cat $disk/serial) $(cat $disk/size); done");
    let wanted = (1..).zip(&disks).map(|(number, disk)| format!("{disk} {}", 2048 + number));
    let mut wanted: Vec<String> = wanted.chain(["data 16384".to_owned()]).collect();
    wanted.sort();
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(sizes()), wanted);
    export(&host, "", &file(&bench, "more.img", MIB), "more@vds0");
    host.ldm("add-vdisk id=31 more more@vds0 mars");
    wait_until("mars sees it", || sizes().contains("more 2048"));
    host.ldm("rm-vdisk d13 mars");
    wait_until("mars sees it go", || !sizes().contains("d13 "));
    for words in ["stop -f mars", "unbind mars"] {
        host.ldm(words);
    }
}
