//! Block devices of the server: as virtual disks of a domain, and measured, also in a guest that gets a whole NVMe
//! controller.
//!
//! A domain has disks in the server's memory. Two device-mapper devices on top of one disk are two paths to it.
//! Device-mapper devices also emulate slow and failing disks.

use std::fs;

use serde_json::Value;

use super::{Server, VTAX, devices::Domain};

/// Size of a path in sectors.
const SECTORS: u64 = 8192;

pub(crate) fn block_devices(server: &Server) {
    let domain = Domain::new(server);
    server.shell("mkfs.ext4 -q /dev/ram1 && mkdir -p /tmp/used && mount /dev/ram1 /tmp/used");
    for path in ["path1", "path2"] {
        server.shell(&format!("dmsetup create {path} --table '{}'", works()));
    }
    domain.ldm("add-vds vds0 primary");
    for words in [
        "/dev/ram1 used@vds0",
        "/dev/ram0 below@vds0",
        "/dev/ram2 whole@vds0",
        "slice=1M+1M /dev/ram3 part@vds0",
        "mpgroup=lun /dev/dm-0 path1@vds0",
        "mpgroup=lun /dev/dm-1 path2@vds0",
    ] {
        domain.ldm(&format!("add-vdsdev {words}"));
    }
    for (volume, why) in [("used", "is mounted at /tmp/used"), ("below", "uses it or a part of it")] {
        domain.ldm(&format!("add-vdisk {volume} {volume}@vds0 mars"));
        let told = domain.refused("bind mars");
        assert!(told.contains("error[backend-in-use]") && told.contains(why), "{told}");
        domain.ldm(&format!("rm-vdisk {volume} mars"));
    }
    server.shell("umount /tmp/used");
    for words in ["whole whole@vds0", "part part@vds0", "lun path1@vds0"] {
        domain.ldm(&format!("add-vdisk {words} mars"));
    }
    domain.ldm("bind mars");
    domain.start();

    // A whole device, and a part of one.
    domain.inside("printf whole | dd of=/dev/vda seek=3 conv=fsync 2>/dev/null");
    domain.inside("printf part | dd of=/dev/vdb conv=fsync 2>/dev/null");
    assert_eq!(domain.inside("dd if=/dev/vda skip=3 count=1 2>/dev/null | head -c 5"), "whole");
    assert_eq!(server.shell("dd if=/dev/ram2 skip=3 count=1 2>/dev/null | head -c 5"), "whole");
    assert_eq!(server.shell("dd if=/dev/ram3 bs=1M skip=1 count=1 2>/dev/null | head -c 4"), "part");
    assert_eq!(domain.inside("cat /sys/block/vdb/size").trim(), "2048");
    let taken = server.shell("mount /dev/ram2 /tmp/used 2>&1 || echo refused");
    assert!(taken.ends_with("refused\n"), "{taken}");

    paths(server, &domain);

    domain.ldm("stop -f mars");
    domain.ldm("unbind mars");
    domain.ldm("remove-domain mars");
    domain.ldm("remove-vds -f vds0");
    server.shell("dmsetup remove path1 path2");
    assert_eq!(server.shell("pgrep -f 'guest=mar[s],'; true"), "", "no daemon is left");
}

/// Returns the device-mapper table of a working path.
fn works() -> String {
    format!("0 {SECTORS} linear /dev/ram0 0")
}

/// Checks that data written by the domain through the active path is on the device.
fn paths(server: &Server, domain: &Domain<'_>) {
    assert_eq!(states(domain), ["active", "standby"]);
    domain.inside("printf paths | dd of=/dev/vdc conv=fsync 2>/dev/null");
    assert_eq!(server.shell("dd if=/dev/ram0 count=1 2>/dev/null | head -c 5"), "paths");
}

/// Returns the states of the disk's paths.
fn states(domain: &Domain<'_>) -> Vec<String> {
    let listed = domain.ldm("list -p -o disk mars");
    let state = |line: &str| Some(line.strip_prefix("MPGROUP|")?.rsplit_once('=')?.1.to_owned());
    listed.lines().filter_map(state).collect()
}

const STUDY: &str = r#"
id = "disks"
title = "Ways to a disk"
baseline = "native-disk"
[guest]
memory = "384 MiB"
[matrix]
methods = ["native-disk", "virtio-blk", "assigned-nvme"]
[[disk_test]]
test = "random:reads=60,block=8KiB,range=4MiB"
[plan]
samples = 2
duration = "150ms"
warmup = "50ms"
"#;

/// Measures the server's virtio disk in the server and in a guest, with an NVMe controller assigned to a guest. Then
/// kills vtax while a guest has the controller, in a run on the disk of the other controller.
pub(crate) fn assigned(server: &Server) {
    let before = server.inventory();
    let file = server.bench().path().join("disks.toml");
    fs::write(&file, STUDY).expect("a file of the test");
    let study = file.display();
    let run = |disk: &str| format!("run {study} --disk {disk} --nvme /dev/nvme1n1 --destroy-data");
    let measured = server.printed(&[&words(&run("/dev/vdb"))[..], &["--json"]].concat());
    let result: Value = serde_json::from_str(&measured).expect("JSON");
    for cell in result["cells"].as_array().expect("cells") {
        assert_eq!(cell["status"], "measured", "{}: {}", cell["method"], result["failures"]);
    }
    assert_eq!(result["guests"]["accel"].as_str().or(result["placement"]["guests"]["accel"].as_str()), Some("kvm"));
    back(server, &before);
    let told = one_line(&server.bench().printed(&["results", "show", "last", "--detail"]));
    assert!(told.contains("— emulated server: shows function, not speed"), "{told}");
    assert!(told.contains("/dev/vdb on vdb (virtio_blk"), "{told}");

    server.kill_run_with_device(&format!("{} --duration 60s", run("/dev/nvme0n1")), "[ ! -e /dev/nvme1n1 ]");
    back(server, &before);
}

/// Checks that all devices are in their previous state, and that the disks are usable immediately.
fn back(server: &Server, before: &Value) {
    assert_eq!(
        server.shell("ls /dev/nvme*n1; pgrep -x fio; pgrep -f 'guest=disk[s]'; true"),
        "/dev/nvme0n1\n/dev/nvme1n1\n"
    );
    server.assert_as(before);
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// Fault of a disk that begins once the only sample of a run has started, whether the sample is stored, and the run's
/// message.
const FAULTS: [(&str, bool, &str); 4] = [
    ("0 8192 error", false, "an I/O failed: Input/output error"),
    ("0 8192 flakey /dev/ram4 0 1 1", false, "an I/O failed: Input/output error"),
    ("0 8192 delay /dev/ram4 0 300", true, "1 samples"),
    ("suspended", false, "was killed: the disk responds too slowly or not at all"),
];

/// Tests disks that fail, are slow, hang, or run out of space: the sample or the run reports it, and the run ends
/// without leaving anything behind.
pub(crate) fn faults(server: &Server) {
    for (fault, lands, says) in FAULTS {
        let change = match fault {
            "suspended" => "dmsetup suspend --nolockfs --noflush faulty".to_owned(),
            table => {
                format!("dmsetup load faulty --table '{table}' && dmsetup suspend faulty && dmsetup resume faulty")
            }
        };
        let told = server.shell(&format!(
            r#"dmsetup create faulty --table '0 8192 linear /dev/ram4 0'
            disk=/dev/dm-$(dmsetup info -c --noheadings -o minor faulty)
            export VTAX_STATE=/run/vtax-faults
            {VTAX} measure --disk $disk --disk-test random:reads=60,block=4KiB,range=2MiB --samples 1 --duration 3s \
                --warmup 0s --destroy-data >/run/faulty.log 2>&1 &
            run=$!
            for i in $(seq 600); do grep -q 'sample 1 of' /run/faulty.log && break; sleep 0.1; done
            {change}
            wait $run
            echo "status $?"
            dmsetup resume faulty
            {CLEAN}
            echo log:
            cat /run/faulty.log"#
        ));
        assert!(one_line(&told).contains(says), "{fault}: {told}");
        let status = i32::from(!lands);
        assert!(told.starts_with(&format!("status {status}\nleft:\nlog:\n")), "{fault}: {told}");
    }

    // The pool has 4 MiB for a disk of 64 MiB.
    let told = server.shell(&format!(
        r#"dmsetup create pool --table '0 8192 thin-pool /dev/ram6 /dev/ram7 128 0 1 error_if_no_space'
        dmsetup message pool 0 'create_thin 0'
        number() {{ dmsetup info -c --noheadings -o minor $1; }}
        dmsetup create faulty --table "0 131072 thin /dev/dm-$(number pool) 0"
        export VTAX_STATE=/run/vtax-faults
        {VTAX} measure --disk /dev/dm-$(number faulty) --disk-test random:range=16MiB >/run/faulty.log 2>&1
        echo "status $?"
        {CLEAN}
        dmsetup remove pool
        echo log:
        cat /run/faulty.log"#
    ));
    assert!(told.starts_with("status 69\nleft:\nlog:\n") && told.contains("error[disk-io-failed]"), "{told}");
    assert!(told.contains("No space left on device"), "{told}");
}

/// Removes the disk, which must be unused, and lists leftovers of a run.
const CLEAN: &str = "for i in $(seq 100); do dmsetup remove faulty 2>/dev/null && break; sleep 0.1; done; echo left:; \
                     dmsetup info faulty 2>/dev/null; pgrep -x fio; ls /run/vtax*/journals";
