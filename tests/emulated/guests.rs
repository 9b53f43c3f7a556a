//! Guests with functions, whole NICs and root complexes, through VFIO and KVM.

use std::{
    fs::{self, File},
    process::Stdio,
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{FAR, NEAR, NEAR_NAME, Server, bench::printed, function as named};

fn guest(name: &str, host: &str, method: &str) -> String {
    format!("[[guest]]\nname = \"{name}\"\nhost = \"{host}\"\nmethod = \"{method}\"\nmemory = \"160 MiB\"\n")
}

const DRIVER: [&str; 2] = ["readlink", "/sys/class/net/eth0/device/driver"];

pub(crate) fn function(server: &Server) {
    server.make_vf();
    let before = server.inventory();
    let vf = format!("{NEAR_NAME}.VF0");
    assert_eq!(named(&before, &vf)["function"]["driver"], "igbvf");
    let lab = server.lab("t-vf", 9000, &(guest("web", "sut", "sr-iov") + "mac = \"02:00:5e:10:00:09\"\n"));
    let lent = server.inventory();
    let entry = named(&lent, &vf);
    assert_eq!((&entry["domain"], &entry["function"]["driver"]), (&"t-vf/web".into(), &"vfio-pci".into()));
    assert!(entry["depends_on"].as_str().is_some_and(|owner| owner.contains("sut")), "{entry}");
    assert!(lab.run("web", &DRIVER).trim().ends_with("/igbvf"));
    assert_eq!(lab.run("web", &["cat", "/sys/class/net/eth0/address"]).trim(), "02:00:5e:10:00:09");
    assert!(lab.reaches("web", "peer", 8900) && lab.reaches("peer", "web", 8900));
    assert!(server.printed(&["lab", "list"]).contains("KVM"), "guests in the server run under KVM");
    let cgroup = confined(server);
    let ties = &lab.plan["ties"][0];
    assert_eq!((&ties["guest"], &ties["depends_on"][0]["host"]), (&"web".into(), &"sut".into()), "{ties}");
    assert_eq!(ties["migration"]["live"], false, "{ties}");

    // Standard input goes from here into the server, and from there into the guest.
    let words = server.bench().path().join("words");
    fs::write(&words, "through two machines\n").expect("a file of the test");
    let mut cat = server.bench().command(&["--server", "emulated", "lab", "exec", "t-vf", "web", "--", "cat"]);
    let copied = cat.stdin(File::open(&words).expect("just written")).output().expect("vtax runs");
    assert_eq!(printed(&copied), "through two machines\n");

    // Lowering the limit below QEMU's memory has the same effect as QEMU exceeding its limit.
    server.shell(&format!(
        "echo 16M >{cgroup}/memory.max
        for i in $(seq 100); do grep -q . {cgroup}/cgroup.procs || exit 0; sleep 0.1; done; exit 1"
    ));
    let gone = lab.exec("web", &["true"]);
    let told = String::from_utf8_lossy(&gone.stderr);
    assert!(told.contains("guest `web` exited: it exceeded its memory limit of"), "{told}");
    lab.down();
    let left = "ls -d /sys/fs/cgroup/vtax-* /run/vtax/labs/t-vf 2>/dev/null; grep labs/t-vf /proc/mounts; true";
    let left = server.shell(left);
    assert_eq!(left, "", "nothing of it is left");
    server.assert_as(&before);
    server.destroy_vf();
}

/// Checks that a guest with a device and KVM also has a separate user, and that a cgroup limits it. Returns the cgroup.
fn confined(server: &Server) -> String {
    let told = server.shell(
        r#"qemu=$(pgrep -f 'guest=we[b],')
        grep -E '^(Uid|Gid|Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/$qemu/status
        cgroup=/sys/fs/cgroup$(cut -d: -f3- /proc/$qemu/cgroup)
        echo $cgroup; cat $cgroup/memory.max; stat -c %u /proc/$qemu /dev/vfio/[0-9]*"#,
    );
    let field = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{told}"));
    for set in ["CapPrm:\t", "CapEff:\t", "CapBnd:\t"] {
        assert_eq!(field(set), "0000000000000000", "{told}");
    }
    assert_eq!((field("NoNewPrivs:\t"), field("Seccomp:\t")), ("1", "2"), "{told}");
    let [cgroup, memory, user, nodes @ ..] =
        &told.lines().skip_while(|line| !line.starts_with("/sys")).collect::<Vec<_>>()[..]
    else {
        panic!("{told}")
    };
    assert!(field("/sys/fs/cgroup/").starts_with("vtax-web-") && memory.parse::<u64>().is_ok(), "{told}");
    assert_eq!(field("Uid:\t"), [*user; 4].join("\t"));
    assert!(*user != "0" && nodes.contains(user), "the group of its device is its own: {told}");
    (*cgroup).to_owned()
}

pub(crate) fn whole_nic(server: &Server) {
    let before = server.inventory();
    let lab = server.lab("t-nic", 9000, &guest("web", "sut", "assigned"));
    assert!(lab.run("web", &DRIVER).trim().ends_with("/igb"));
    assert_eq!(lab.run("web", &["cat", "/sys/class/net/eth0/address"]).trim(), NEAR);
    assert!(lab.reaches("web", "peer", 8900));
    lab.down();
    server.assert_as(&before);
}

pub(crate) fn root_complex(server: &Server) {
    let before = server.inventory();
    let lab = server.lab("t-root", 9000, &guest("db", "peer", "root-domain"));
    let inside = lab.run("db", &["sh", "-c", "cat /sys/class/net/eth*/address"]);
    assert!(inside.contains(FAR) && inside.contains("02:76:74:00:01:02"), "all NICs of the complex: {inside}");
    assert!(lab.reaches("sut", "db", 8900));
    lab.down();
    server.assert_as(&before);
}

const STUDY: &str = r#"
id = "tiny"
title = "A function in a guest"
baseline = "native"
[guest]
memory = "160 MiB"
[matrix]
methods = ["native", "sr-iov"]
mtu = [1500]
transports = ["tcp"]
tests = ["rr"]
[plan]
samples = 4
duration = "200ms"
"#;

/// Measures a study in the server and stores it outside, including samples that were stored when vtax was killed. The
/// lab that vtax left in the server, with the function in it, is removed when the run is resumed.
pub(crate) fn study(server: &Server) {
    let bench = server.bench();
    fs::write(bench.path().join("tiny.toml"), STUDY).expect("a file of the test");
    let mut run = bench.command(&["--server", "emulated", "run", "tiny.toml"]);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
    while bench.landed() == 0 {
        assert!(run.try_wait().expect("it is ours").is_none(), "it ended before a sample had landed");
        // Each check starts a vtax process, which takes CPU time from the server.
        thread::sleep(Duration::from_millis(500));
    }
    run.kill().expect("it is ours");
    run.wait().expect("it ends");
    let table = server.printed(&["run", "--resume", "last"]);
    assert!(table.contains("emulated server: shows function, not speed"), "{table}");
    let result: Value = serde_json::from_str(&bench.printed(&["results", "export"])).expect("JSON");
    assert_eq!((&result["state"], &result["study"]), (&"complete".into(), &"tiny".into()));
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.len() == 2 && cells.iter().all(|cell| cell["samples"].as_array().is_some_and(|it| !it.is_empty())));
    let cell = cells.iter().find(|cell| cell["method"] == "sr-iov").expect("its row");
    let drivers = cell["path"]["hops"].to_string();
    assert!(drivers.contains("igbvf") && drivers.contains("\"igb\""), "{drivers}");
}
