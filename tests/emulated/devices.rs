//! `vtax ldm add-io` and its like: functions, slots and root complexes of domains.

use std::{env, path::Path, time::Duration};

use serde_json::Value;
use vtax_agent::link::AgentLink;
use vtax_model::units::Span;

use super::{NEAR_NAME, Server, bench::wait_until};

/// Set for this program in the server, which then runs this command in a domain.
pub(crate) const TELL: &str = "VTAX_TELL_DOMAIN";

/// What this program does in the server. A domain has an agent, and nobody else asks it anything.
pub(crate) fn tell_domain(command: &str) {
    let socket = env::args().nth(1).expect("the socket");
    let link = AgentLink::connect_unix("mars", Path::new(&socket), Duration::from_secs(60)).expect("an agent");
    let words = ["/bin/busybox", "sh", "-c", command].map(str::to_owned);
    let ran = link.run(&words, &[], Span(Duration::from_secs(60))).expect("it runs");
    print!("{}", ran.stdout.raw());
}

/// A virtual function is made, and comes into a domain that runs, as in the article on SR-IOV; then it goes.
pub(crate) fn function(server: &Server) {
    let domain = Domain::new(server);
    let vf = &format!("{NEAR_NAME}.VF0");
    let near = server.near();
    let before = server.inventory();
    server.shell(&format!("ip link set {near} up"));
    domain.ldm("add-vsw admin-vsw primary");
    domain.ldm("add-vnet admin-net admin-vsw mars");
    domain.ldm("bind mars");
    domain.start();

    assert!(domain.refused(&format!("add-io {vf} mars")).contains("has no virtual function VF0 yet"));
    assert_eq!(domain.ldm(&format!("create-vf {NEAR_NAME}")), format!("Created new vf: {vf}\n"));
    let made = server.inventory();
    domain.ldm(&format!("add-io {vf} mars"));
    let head = "NAME                                      TYPE   BUS      DOMAIN   STATUS   \n\
        ----                                      ----   ---      ------   ------   \n";
    let row = |name: &str, kind: &str, domain: &str| format!("{name:<41} {kind:<6} pci_0    {domain:<8}          \n");
    let listed = domain.ldm(&format!("ls-io {NEAR_NAME}"));
    assert_eq!(listed, format!("{head}{}{}", row(NEAR_NAME, "PF", "primary"), row(vf, "VF", "mars")));
    let long = domain.ldm(&format!("ls-io -l {NEAR_NAME}"));
    let mac = long.lines().find_map(|line| line.strip_prefix("        mac-addr = ")).expect("an address").to_owned();
    assert!(long.contains("    maxvfs = 7\n") && long.contains("    Class properties [NETWORK]\n"), "{long}");
    assert!(long.ends_with("        mtu = 1500\n"), "{long}");
    assert!(domain.refused(&format!("destroy-vf {NEAR_NAME}")).contains("mars has it"));
    assert!(domain.refused(&format!("add-io {vf} mars")).contains("mars has"));

    // Two NICs in the domain, as its kernel and its agent see them.
    wait_until("the function's driver in mars has it", || domain.nics() == "igbvf virtio_net");
    assert!(domain.inside("cat /sys/class/net/*/address").contains(&mac));

    domain.ldm(&format!("rm-io {vf} mars"));
    assert_eq!(domain.nics(), "virtio_net");
    server.assert_as(&made);
    // The one that it boots with is there from the start.
    domain.ldm(&format!("add-io {vf} mars"));
    domain.ldm("stop mars");
    domain.start();
    assert_eq!(domain.nics(), "igbvf virtio_net");
    domain.ldm("stop mars");
    domain.ldm("unbind mars");
    server.assert_as(&made);
    domain.ldm(&format!("rm-io {vf} mars"));
    domain.ldm(&format!("destroy-vf {NEAR_NAME}"));
    domain.ldm("rm-vnet admin-net mars");
    domain.ldm("remove-vsw admin-vsw");
    server.shell(&format!("ip link set {near} down"));
    domain.ldm("remove-domain mars");
    server.assert_as(&before);
}

/// The article's domain mars, until the guard goes.
struct Domain<'a> {
    server: &'a Server,
}

impl Domain<'_> {
    fn new(server: &Server) -> Domain<'_> {
        let domain = Domain { server };
        for words in ["create mars", "set-vcpu 1 mars", "set-memory 192m mars"] {
            domain.ldm(words);
        }
        domain
    }

    fn ldm(&self, words: &str) -> String {
        self.server.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    fn refused(&self, words: &str) -> String {
        self.server.refused(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    /// Starts it, and waits until its system speaks up.
    fn start(&self) {
        self.ldm("start mars");
        let state = || -> Value { serde_json::from_str(&self.ldm("list --json mars")).expect("JSON") };
        wait_until("the system in mars speaks up", || state()[0]["flags"]["running"] == "normal");
    }

    /// What a command in the domain prints.
    fn inside(&self, command: &str) -> String {
        let (program, socket) = (env::current_exe().expect("this program"), "domains/mars/qemu/agent.sock");
        self.server.shell(&format!("{TELL}='{command}' {} /run/vtax*/{socket}", program.display()))
    }

    /// The drivers of its NICs, in order.
    fn nics(&self) -> String {
        let drivers = self.inside("for nic in /sys/class/net/*/device/driver; do basename $(readlink -f $nic); done");
        let mut drivers: Vec<&str> = drivers.lines().collect();
        drivers.sort_unstable();
        drivers.join(" ")
    }
}
