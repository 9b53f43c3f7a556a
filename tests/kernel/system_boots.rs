//! The unit `vtax-domains.service`, started by a real systemd: process 1 of separate namespaces, on top of this
//! machine's files, of which it changes only a copy (overlayfs). It has the files installed by `scripts/install.sh`,
//! and boots twice.
//!
//! Requires systemd, in addition to the requirements of the other tests of domains.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;
use vtax_guest::locate;

use super::bench::{printed, wait_for_boot, wait_until};

/// Starts systemd below `$1`, in its own cgroup `$2`. The unit is its only service, because this machine's services
/// would change settings of its kernel.
const BOOT: &str = r#"
set -e
echo $$ >"$2/cgroup.procs"
exec unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child sh -ec '
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp dev; do mount -t tmpfs tmpfs $folder; done
mkdir dev/pts dev/shm dev/net
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for node in null zero full random urandom net/tun; do
    [ ! -e /dev/$node ] || { : >dev/$node; mount --bind /dev/$node dev/$node; }
done
rm -rf etc/systemd/system/*.wants usr/lib/systemd/system/*.target.wants
sh "$3/scripts/install.sh" "$4" "$5" "$PWD/usr" >/dev/null
systemctl --root=. enable vtax-domains 2>/dev/null
pivot_root . mnt
umount -l /mnt
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=vtax-test /usr/lib/systemd/systemd --log-target=null
' sh "$@"
"#;

/// A machine's systemd, which is stopped when the value is dropped.
struct System {
    folder: TempDir,
    cgroup: PathBuf,
    up: Option<Child>,
}

impl System {
    fn new() -> System {
        let folder = tempfile::Builder::new().prefix("vtax-boots").tempdir_in("/var/tmp").expect("a directory");
        for part in ["upper", "work", "root"] {
            fs::create_dir(folder.path().join(part)).expect("a directory of the test");
        }
        let mounts = fs::read_to_string("/proc/mounts").expect("the mounts");
        let unified = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).expect("cgroups");
        let unified = Path::new(unified.split(' ').nth(1).expect("where it is mounted"));
        let cgroup = unified.join(folder.path().file_name().expect("a name"));
        fs::create_dir(&cgroup).expect("a cgroup");
        System { folder, cgroup, up: None }
    }

    fn boot(&mut self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let agent = locate::agent_program(None).expect("an agent");
        let mut command = Command::new("sh");
        command.args(["-c", BOOT, "sh"]).arg(self.folder.path()).arg(&self.cgroup).arg(root);
        command.arg(env!("CARGO_BIN_EXE_vtax")).arg(agent);
        self.up = Some(command.stdin(Stdio::null()).spawn().expect("a shell"));
        wait_for_boot("systemd", || self.state().contains("running"), || self.state());
    }

    fn state(&self) -> String {
        if self.process().is_none() {
            return "nothing runs".to_owned();
        }
        let asked = self.run(&["systemctl", "is-system-running"]);
        String::from_utf8_lossy(&[asked.stdout, asked.stderr].concat()).into_owned()
    }

    /// Returns the id of systemd's process on this machine.
    fn process(&self) -> Option<String> {
        let unshare = self.up.as_ref()?.id();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    /// Runs a program as root of the emulated machine.
    fn run(&self, words: &[&str]) -> Output {
        let process = self.process().expect("it runs");
        let mut command = Command::new("nsenter");
        command.args(["--target", &process, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--wd=/", "--"]);
        command.args(["env", "-i", "HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]).args(words);
        command.output().expect("nsenter runs")
    }

    fn ldm(&self, words: &str) -> String {
        printed(&self.run(&["vtax", "ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>()))
    }

    fn mars(&self) -> Value {
        let list: Value = serde_json::from_str(&self.ldm("list --json mars")).expect("JSON");
        list[0].clone()
    }

    fn wait_until_mars_is_up(&self) {
        wait_for_boot("mars", || self.mars()["flags"]["running"] == "normal", || self.mars().to_string());
    }

    /// Returns the command lines of the unit's processes.
    fn of_unit(&self) -> Vec<String> {
        let listed = fs::read_to_string(self.cgroup.join("system.slice/vtax-domains.service/cgroup.procs"));
        let line =
            |pid: &str| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        listed.unwrap_or_default().lines().map(line).collect()
    }

    /// Kills all processes, as a power failure would.
    fn cut(&mut self) {
        let Some(mut up) = self.up.take() else { return };
        let _ = up.kill();
        let _ = up.wait();
        let events = || fs::read_to_string(self.cgroup.join("cgroup.events")).unwrap_or_default();
        wait_until("no process is left", || events().contains("populated 0"));
    }
}

impl Drop for System {
    fn drop(&mut self) {
        self.cut();
        let _ =
            Command::new("find").arg(&self.cgroup).args(["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]).status();
    }
}

#[test]
fn domains_start_with_the_host_and_outlive_the_unit() {
    let mut system = System::new();
    system.boot();
    assert_eq!(printed(&system.run(&["systemctl", "is-active", "vtax-domains"])), "active\n");
    for words in ["add-vsw vsw0 primary", "create mars venus", "set-vcpu 1 mars", "set-memory 128m mars"] {
        system.ldm(words);
    }
    system.ldm("add-vnet net0 vsw0 mars");
    system.ldm("set-domain autostart=yes mars");
    assert_eq!(system.mars()["state"], "inactive");
    system.cut();

    system.boot();
    assert_eq!(system.mars()["state"], "active");
    system.wait_until_mars_is_up();
    let supervises = |system: &System| system.of_unit().iter().any(|line| line.ends_with(" mars "));
    assert!(supervises(&system), "{:?}", system.of_unit());

    // Processes started by the unit outlive it, and the restarted unit finds them.
    printed(&system.run(&["systemctl", "stop", "vtax-domains"]));
    assert_eq!((&system.mars()["state"], supervises(&system)), (&"active".into(), true), "{:?}", system.of_unit());
    printed(&system.run(&["systemctl", "start", "vtax-domains"]));
    assert_eq!(system.mars()["state"], "active");

    // The domain reboots under its supervisor, which the restarted unit did not start.
    system.run(&["vtax", "ldm", "exec", "mars", "--", "reboot"]);
    wait_until("mars boots again", || system.mars()["flags"]["running"] != "normal");
    system.wait_until_mars_is_up();
    let list = system.ldm("list -p venus");
    assert!(list.contains("state=inactive"), "{list}");
}
