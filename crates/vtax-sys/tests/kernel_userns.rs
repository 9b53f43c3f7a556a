//! An unprivileged user creates a lab. Run this as root; it drops its privilege first. Each part is a separate process,
//! because only a whole process can enter a user namespace, and it can never leave it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use vtax_sys::netlink::{IfName, LinkKind, NewLink, Rtnl};
use vtax_sys::netns::NetNs;
use vtax_sys::process::Pid;
use vtax_sys::userns;

/// Variable that selects the part of this process.
const ROLE: &str = "VTAX_SYS_TEST_ROLE";
/// Variable with the keeper's pid, for the process that joins.
const KEEPER: &str = "VTAX_SYS_TEST_KEEPER";
const NOBODY: u32 = 65534;

fn main() {
    match std::env::var(ROLE).as_deref() {
        Ok("keeper") => keeper(),
        Ok("visitor") => visitor(),
        Ok(other) => panic!("no such part: {other}"),
        Err(_) => both_parts(),
    }
}

fn both_parts() {
    let mut keeper = start("keeper", Pid::own());
    let mut line = String::new();
    let output = keeper.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let visited = start("visitor", Pid(keeper.id())).wait().unwrap();
    drop(keeper.stdin.take());
    let kept = keeper.wait().unwrap();
    assert_eq!(line, "ready\n");
    assert!(kept.success() && visited.success(), "keeper {kept}, visitor {visited}");
    println!("test an_ordinary_user_makes_a_lab_and_joins_it ... ok");
}

/// Starts `/proc/self/exe`, because `nobody` may not be able to reach this program's directory.
fn start(role: &str, keeper: Pid) -> Child {
    Command::new("/proc/self/exe")
        .env(ROLE, role)
        .env(KEEPER, keeper.to_string())
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/proc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs root, to give it up")
}

fn keeper() {
    assert!(!userns::have_net_admin());
    let denied = NetNs::scratch().unwrap_err();
    assert!(denied.is_permission(), "{denied}");
    assert!(denied.to_string().contains("user namespace"), "{denied}");

    userns::enter_own().unwrap();
    assert!(userns::have_net_admin());
    let zone = NetNs::scratch().unwrap();
    let mut rtnl = Rtnl::open().unwrap();
    let kind = LinkKind::Veth { peer: name("w1"), peer_ns: Some(&zone), peer_mtu: None };
    rtnl.create_link(&NewLink::new(name("w0"), kind)).unwrap();
    pin_and_remove();
    println!("ready");
    // Waits until the parent closes its end.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn pin_and_remove() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zone");
    let id = NetNs::create_at(&path, || Ok(())).unwrap().0.id();
    assert_eq!(NetNs::open(&path).unwrap().id(), id);
    assert!(NetNs::remove_at(&path, Some(id)).unwrap());
}

fn visitor() {
    let keeper = Pid(std::env::var(KEEPER).unwrap().parse().unwrap());
    userns::join(keeper).unwrap();
    assert!(userns::have_net_admin());
    assert_eq!(std::env::current_dir().unwrap().to_str(), Some("/proc"));
    let wire = Rtnl::open().unwrap().link(&name("w0")).unwrap();
    assert_eq!(wire.unwrap().kind.as_deref(), Some("veth"));
    // It is not an error if it already exists.
    userns::join(keeper).unwrap();
}

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}
