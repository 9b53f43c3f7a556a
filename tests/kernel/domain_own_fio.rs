//! `vtax measure --disk` in a domain with its own system: with its own fio, and not on a disk that is mounted there.
//!
//! Requires syslinux, mtools and fio, in addition to the requirements of the other tests of domains.

use std::{fs, path::PathBuf};

use vtax_disk::carried::CarriedProgram;
use vtax_guest::locate;

use super::{
    Bench,
    domain_images::{disk, run},
    domains::Host,
    json,
};

/// Drivers of a FAT file system and of the code pages that the kernel may have been built with.
const DRIVERS: [&str; 6] = ["virtio_blk", "vfat", "-nls_cp437", "-nls_ascii", "-nls_iso8859_1", "-nls_utf8"];

const WHERE: &str = "of() { for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = $1 ] && echo /dev/${d##*/}; done; }; ";

/// Creates a file with a FAT file system.
fn volume(host: &Host<'_>, name: &str, size: u64) -> PathBuf {
    let path = host.bench.path().join(format!("{name}.img"));
    fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a file of the test");
    run("mformat", &["-i", &path.display().to_string(), "-F", "::"]);
    host.ldm(&format!("add-vdsdev {} {name}@vds0", path.display()));
    host.ldm(&format!("add-vdisk {name} {name}@vds0 earth"));
    path
}

fn in_earth(host: &Host<'_>, script: &str) {
    let output = host.command("exec earth -- sh -c").arg(format!("{WHERE}{script}")).output().expect("vtax runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_domain_with_its_own_system_measures_with_its_own_fio() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-ownfio");
    host.ldm("add-vsw vsw0 primary");
    host.add("earth");
    host.ldm("set-memory 512m earth");
    host.ldm("add-vds vds0 primary");
    let disk = disk(bench.path(), &locate::agent_program(None).expect("an agent"), &DRIVERS);
    host.ldm(&format!("set-variable image={} earth", disk.display()));
    volume(&host, "data", 64 << 20);
    let tools = volume(&host, "tools", 256 << 20).display().to_string();
    let fio = CarriedProgram::fio(bench.path()).expect("fio is installed").folder;
    for part in ["ld.so", "fio", "lib"] {
        run("mcopy", &["-s", "-i", &tools, &fio.join(part).display().to_string(), "::"]);
    }
    host.ldm("bind earth");
    host.ldm("start earth");
    host.wait_for_boot("earth");

    let mut measure = vec!["measure", "--in", "t-ldm-ownfio/sut", "--disk", "ldm:earth/data", "--destroy-data"];
    measure.extend(["--disk-test", "random:range=4MiB", "--samples", "1", "--duration", "200ms", "--json"]);
    let told = bench.refused(&measure[..measure.len() - 1]);
    assert!(told.contains("error[no-fio]") && told.contains("install fio in earth"), "{told}");
    in_earth(
        &host,
        "mkdir -p /tools /data && mount -t vfat $(of tools) /tools && mount -t vfat $(of data) /data && \
         printf '#!/bin/sh\\nexec /tools/ld.so --library-path /tools/lib /tools/fio \"$@\"\\n' >/bin/fio && chmod 755 /bin/fio",
    );
    let told = bench.refused(&measure[..measure.len() - 1]);
    assert!(
        told.contains("error[disk-in-use]") && told.contains("is mounted on /data; unmount it there first"),
        "{told}"
    );
    in_earth(&host, "umount /data");
    let result = json(&bench, &measure);
    assert_eq!(result["cells"][0]["status"], "measured", "{}", result["failures"]);
    let program = result["disks"][0]["program"].as_str().expect("a program");
    assert!(program.starts_with("fio-") && program.contains("of earth"), "{program}");

    for words in ["stop -f earth", "unbind earth"] {
        host.ldm(words);
    }
}
