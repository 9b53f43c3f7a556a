//! Installs the agent into a user's disk image by means of a small second disk for cloud-init (its data source
//! NoCloud).
//!
//! Nothing else in that system is changed, and no user, password or key is added. The NIC gets the lab's address
//! immediately, because a system whose NIC has no address waits for one for minutes at boot.
//!
//! A system without cloud-init ignores the disk. If an agent already runs in the system, it stays: the port accepts one
//! agent, and the second one exits.

use std::{
    fmt::{self, Write},
    fs::{self, DirBuilder, Permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

use super::{
    error::GuestError,
    launch::{Launch, SEED_SERIAL, Seed},
};

/// The name of the agent's program on the disk, valid on any FAT file system.
const AGENT: &str = "AGENT";
/// The other files take less space than this.
const TEXTS: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// The kernel's source of random UUIDs, random(4).
const UUID: &str = "/proc/sys/kernel/random/uuid";
/// The name of the lab's NIC in the guest.
const NIC: &str = "vtax0";
/// The name of the file that netplan generates from it. The first file by name wins. Images have rules for all NICs,
/// mostly DHCP, under names such as `all-en`; such a rule also matches a NIC that was called `en*` before it was
/// renamed.
const ENTRY: &str = "0vtax";

/// Maximum size of the directory.
pub(super) fn size(launch: &Launch) -> Result<u64, GuestError> {
    let Some(seed) = &launch.seed else { return Ok(0) };
    let program = fs::metadata(&seed.agent).map_err(GuestError::file("access", &seed.agent))?;
    Ok(program.len().next_multiple_of(PAGE) + TEXTS)
}

/// Fills the directory that is presented to the guest as a disk. Does nothing if the launch has no seed.
pub(super) fn write(launch: &Launch) -> Result<(), GuestError> {
    let Some(seed) = &launch.seed else { return Ok(()) };
    let directory = launch.seed_directory();
    DirBuilder::new().recursive(true).mode(0o755).create(&directory).map_err(GuestError::file("create", &directory))?;
    let program = directory.join(AGENT);
    fs::copy(&seed.agent, &program).map_err(GuestError::file("copy the agent to", &program))?;
    readable(&program)?;
    // cloud-init treats a system with another identity as new, and repeats all its one-time steps there.
    let identity = fs::read_to_string(UUID).map_err(GuestError::file("read", Path::new(UUID)))?;
    for (name, content) in files(launch, seed, identity.trim_end()) {
        let path = directory.join(name);
        fs::write(&path, content).map_err(GuestError::file("write", &path))?;
        readable(&path)?;
    }
    Ok(())
}

/// QEMU reads the file as a dedicated user, in a directory that no other user can enter.
fn readable(path: &Path) -> Result<(), GuestError> {
    fs::set_permissions(path, Permissions::from_mode(0o644)).map_err(GuestError::file("share", path))
}

/// The files next to the agent: their names and contents.
fn files(launch: &Launch, seed: &Seed, identity: &str) -> [(&'static str, String); 3] {
    [
        ("meta-data", format!("instance-id: vtax-{identity}\nlocal-hostname: {}\n", launch.name)),
        ("user-data", user_data()),
        ("network-config", network(launch, seed)),
    ]
}

fn user_data() -> String {
    let mut text =
        "#cloud-config\n# Starts the vtax agent and changes nothing else.\nruncmd:\n- - sh\n  - -c\n  - |\n".to_owned();
    for line in script().lines() {
        // Writing to a string can't fail.
        let _ = writeln!(text, "    {line}");
    }
    text
}

/// Starts the agent from the seed disk on any system: as a systemd unit if systemd runs, otherwise as a separate
/// process. A copy is run, since the disk may be mounted `noexec`. So may `/run`.
pub fn script() -> String {
    format!(
        r#"modprobe -q virtio_console 2>/dev/null
for disk in /sys/block/*; do
  [ "$(cat "$disk/serial" 2>/dev/null)" = {SEED_SERIAL} ] && seed=/dev/${{disk##*/}}
done
mkdir -p /run/vtax
mount -t vfat -o ro "${{seed}}1" /run/vtax || exit
for place in /usr/local/sbin /opt /var/tmp /run; do
  agent=$place/vtax-agent
  cp /run/vtax/{AGENT} "$agent" 2>/dev/null && chmod 755 "$agent" && "$agent" --version && break
done
umount /run/vtax
if [ -d /run/systemd/system ]; then
  systemd-run --collect --unit=vtax-seed -p StandardError=journal+console "$agent" --port
else
  setsid "$agent" --port </dev/null >/dev/console 2>&1 &
fi
"#
    )
}

/// Version 2 of cloud-init's format, which is also netplan's.
fn network(launch: &Launch, seed: &Seed) -> String {
    let mut text = "version: 2\nethernets:\n".to_owned();
    for nic in &launch.nics[..launch.nics.len().min(1)] {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "  {ENTRY}:\n    match: {{macaddress: \"{}\"}}\n    set-name: {NIC}\n    dhcp4: false\n    dhcp6: false\n    \
             link-local: []\n    addresses: [\"{}\"]\n",
            nic.mac, seed.address
        );
    }
    text
}

/// Prints the seed of a launch for the dry run; prints nothing if there is none.
#[derive(Debug)]
pub struct SeedText<'a>(pub &'a Launch);

impl fmt::Display for SeedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(seed) = &self.0.seed else { return Ok(()) };
        writeln!(f, "    {}/{AGENT}: {}", self.0.seed_directory().display(), seed.agent.display())?;
        for (name, content) in files(self.0, seed, "NEW-AT-EACH-START") {
            writeln!(f, "    {name}:")?;
            content.lines().try_for_each(|line| writeln!(f, "      {line}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkName;
    use crate::launch::{Boot, DiskFormat, GuestEngine, NicKind, NicLaunch, QemuProgram, Version};
    use vtax_model::guest::{Accelerator, EmulatedNic, GuestSize};

    fn launch(directory: &Path, agent: &Path) -> Launch {
        let kind = NicKind::Emulated { tap: LinkName::new("vnet0"), model: EmulatedNic::E1000e };
        let nic = NicLaunch::new("02:00:5e:10:00:01".parse().expect("an address"), kind);
        let engine = GuestEngine {
            qemu: QemuProgram {
                path: "/bin/false".into(),
                version: Version::LEAST,
                sandbox: true,
                q35: None,
                qboot: None,
            },
            accel: Accelerator::Tcg,
            boot: Boot::Disk { disk: "/disk".into(), format: DiskFormat::Raw, keep: false },
        };
        let size = GuestSize { memory: GuestSize::OF_A_DISK, ..GuestSize::default() };
        Launch {
            nics: vec![nic],
            seed: Some(Seed { agent: agent.to_owned(), address: "198.18.0.3/24".parse().expect("an address") }),
            ..Launch::new("web".parse().expect("a name"), directory.to_owned(), engine, &size)
        }
    }

    #[test]
    fn the_files_that_cloud_init_reads() {
        let launch = launch(Path::new("/run/vtax/labs/demo/guests/web"), Path::new("/usr/bin/vtax-agent"));
        insta::assert_snapshot!(SeedText(&launch));
    }

    #[test]
    fn each_launch_has_a_new_identity_and_the_agent() {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = folder.path().join("vtax-agent");
        fs::write(&agent, "a program").expect("ours");
        let launch = launch(folder.path(), &agent);
        let written = |name: &str| fs::read_to_string(launch.seed_directory().join(name)).expect("it is there");
        write(&launch).expect("written");
        let first = written("meta-data");
        write(&launch).expect("written again");
        assert_ne!(first, written("meta-data"));
        assert!(first.starts_with("instance-id: vtax-") && first.ends_with("\nlocal-hostname: web\n"), "{first}");
        assert_eq!(written(AGENT), "a program");
        assert!(written("user-data").starts_with("#cloud-config\n"));
        write(&Launch { seed: None, directory: "/no/such".into(), ..launch.clone() }).expect("nothing to do");
        let missing =
            Launch { seed: Some(Seed { agent: "/no/such".into(), ..launch.seed.clone().expect("ours") }), ..launch };
        assert!(write(&missing).expect_err("no agent").to_string().contains("cannot copy the agent to"));
    }

    /// A shell checks the syntax here. A test with a guest checks the effects.
    #[test]
    fn the_script_has_valid_syntax() {
        let checked = std::process::Command::new("sh").args(["-n", "-c", &script()]).status().expect("a shell");
        assert!(checked.success());
    }
}
