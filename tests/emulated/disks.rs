//! Block devices as virtual disks of a domain: what is refused, and what the domain writes, also by one of two paths.
//!
//! The devices are disks in the server's memory. Two devices of the device mapper that stand on one are two paths to it.

use super::{Server, devices::Domain};

/// The sectors of a path.
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
    for (volume, why) in [("used", "is mounted at /tmp/used"), ("below", "is made of it")] {
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

    // A whole device and a part of one.
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

/// The table of a path that works.
fn works() -> String {
    format!("0 {SECTORS} linear /dev/ram0 0")
}

/// What the domain writes by the active path is on the device.
fn paths(server: &Server, domain: &Domain<'_>) {
    assert_eq!(states(domain), ["active", "standby"]);
    domain.inside("printf paths | dd of=/dev/vdc conv=fsync 2>/dev/null");
    assert_eq!(server.shell("dd if=/dev/ram0 count=1 2>/dev/null | head -c 5"), "paths");
}

/// What the paths of the disk do.
fn states(domain: &Domain<'_>) -> Vec<String> {
    let listed = domain.ldm("list -p -o disk mars");
    let state = |line: &str| Some(line.strip_prefix("MPGROUP|")?.rsplit_once('=')?.1.to_owned());
    listed.lines().filter_map(state).collect()
}
