//! A domain with its own system on a disk image, which starts vtax's agent like any other service.
//!
//! Requires syslinux and mtools, in addition to the requirements of the other tests of domains.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use vtax_guest::locate;
use vtax_guest::{
    image::{self, Tools},
    kernel::Kernel,
};

use super::{Bench, bench::printed, domains::Host};

/// First process of the system. It loads drivers, and restarts the agent whenever the agent exits.
const SYSTEM: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
while read -r module parameters; do insmod \"${module#-}\"; done </etc/vtax/modules
while :; do /init --port; sleep 1; done
";

/// Returns a file in the format of an archive that the kernel unpacks after the first one
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
fn entry(name: &str, mode: u32, data: &[u8]) -> Vec<u8> {
    let fields = [0, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    let mut bytes = b"070701".to_vec();
    bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    for part in [[name.as_bytes(), b"\0"].concat().as_slice(), data] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

pub(super) fn run(program: &str, arguments: &[&str]) {
    printed(&Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}")));
}

/// Returns a disk that a BIOS can boot: a FAT file system with a boot loader, a kernel and the system's files. The
/// system loads these drivers.
pub(super) fn disk(folder: &Path, agent: &Path, more: &[&str]) -> PathBuf {
    let kernel = Kernel::find(None).expect("a kernel for guests");
    let drivers = [&["virtio_pci", "virtio_console", "virtio_net"], more].concat();
    let base = image::build(&kernel, agent, &drivers, Tools::Busybox).expect("an image");
    let files = folder.join("files");
    fs::create_dir(&files).expect("a folder of the test");
    let system = [entry("system", 0o100_755, SYSTEM.as_bytes()), entry("TRAILER!!!", 0, b"")].concat();
    fs::write(files.join("initrd"), [fs::read(base).expect("just built"), system].concat()).expect("a file");
    fs::copy(&kernel.image, files.join("vmlinuz")).expect("a file");
    let boot = "SERIAL 0\nDEFAULT own\nLABEL own\nLINUX /vmlinuz\nINITRD /initrd\n\
        APPEND rdinit=/system console=ttyS0 quiet\n";
    fs::write(files.join("syslinux.cfg"), boot).expect("a file");
    let disk = folder.join("own.raw");
    let path = disk.display().to_string();
    fs::File::create(&disk).and_then(|file| file.set_len(96 << 20)).expect("a file");
    run("mformat", &["-i", &path, "-F", "::"]);
    for file in ["initrd", "vmlinuz", "syslinux.cfg"] {
        run("mcopy", &["-i", &path, &files.join(file).display().to_string(), "::"]);
    }
    run("syslinux", &["--install", &path]);
    disk
}

#[test]
fn a_command_runs_in_its_own_system_that_starts_the_agent() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-own");
    host.ldm("add-vsw vsw0 primary");
    host.add("earth");
    host.ldm("set-memory 256m earth");
    let disk = disk(bench.path(), &locate::agent_program(None).expect("an agent"), &[]);
    host.ldm(&format!("set-variable image={} earth", disk.display()));
    host.ldm("bind earth");
    host.ldm("start earth");
    host.wait_for_boot("earth");

    assert_eq!(host.ldm("exec earth -- cat /system"), SYSTEM);
    assert_eq!(host.try_ldm("exec earth -- false").status.code(), Some(1));
    let first = host.ldm("exec earth -- cat /proc/1/cmdline");
    assert!(first.starts_with("/bin/busybox\0sh\0/system"), "the agent isn't its first process: {first:?}");

    // The domain is measured like any other, by the same agent.
    let told = bench.printed(&["measure", "--to", "ldm:t-ldm-own/sut/earth", "--quick", "--json"]);
    assert!(told.contains("\"measured\""), "{told}");

    for words in ["stop -f earth", "unbind earth"] {
        host.ldm(words);
    }
}
