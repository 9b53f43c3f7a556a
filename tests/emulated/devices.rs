//! `vtax ldm add-io` and related commands: functions, slots and root complexes of domains.

use std::env;

use serde_json::Value;

use super::{
    FAR, NEAR, NEAR_NAME, Server, VTAX,
    bench::{wait_for_boot, wait_until},
    deaths::killed_at,
    function as function_of,
};

/// Creates a virtual function and adds it to a running domain, as in the article on SR-IOV, then removes it.
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
    assert!(domain.refused(&format!("add-io {vf} mars")).contains("mars already has"));

    // The domain has two NICs, according to its kernel and its agent.
    wait_until("the function's driver in mars has it", || domain.nics() == "igbvf virtio_net");
    assert!(domain.inside("cat /sys/class/net/*/address").contains(&mac));

    // One command compares the function with the vnet that it replaces.
    let result = server.printed(&["measure", "--to", "ldm:mars", "--nic", "admin-net,vf0", "--quick", "--json"]);
    let result: Value = serde_json::from_str(&result).expect("JSON");
    let cells = result["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    assert!(cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    let nic = |cell: usize| &cells[cell]["ends"]["pairs"][0]["responder"]["domain"]["nic"];
    assert_eq!(
        (&nic(0)["type"], &nic(1)["type"], &nic(1)["mac"]),
        (&"vnet".into(), &"vf".into(), &mac.as_str().into())
    );
    assert!(domain.ldm("list-bindings mars").contains(&format!("{vf}: 0000:")));
    let addresses = || domain.inside("ip -brief address") + &server.shell("ip -brief address");
    assert!(!addresses().contains(" 198.1"), "{}", addresses());

    // The function's VLAN changes while the domain runs.
    let vlan = || function_of(&server.inventory(), vf)["function"]["vf"]["vlan"].clone();
    domain.ldm(&format!("set-io pvid=7 {vf}"));
    assert_eq!(vlan(), 7);
    domain.ldm(&format!("set-io pvid= {vf}"));
    assert_eq!(vlan(), 0);
    let goes = || {
        domain.ldm(&format!("rm-io {vf} mars"));
        assert_eq!(domain.nics(), "virtio_net");
        server.assert_as(&made);
    };
    let comes_and_stops = || {
        domain.ldm(&format!("add-io {vf} mars"));
        domain.ldm("stop mars");
    };
    let boots_with_it = || {
        domain.start();
        assert_eq!(domain.nics(), "igbvf virtio_net");
    };
    goes();
    comes_and_stops();
    measured_at_one_switch(&domain, vf);
    assert!(!server.shell("ip -brief address").contains(" 198.1"));
    // A function that the domain boots with exists from the start, and is also removed immediately.
    boots_with_it();
    goes();
    // It is added again, and exists when mars starts as it was bound.
    comes_and_stops();
    boots_with_it();
    domain.ldm(&format!("rm-io {vf} mars"));
    domain.ldm("stop mars");
    // A virtual function cannot be used while its physical function is down.
    domain.ldm(&format!("add-io {vf} mars"));
    server.shell(&format!("ip link set {near} down"));
    assert!(domain.refused("start mars").contains(&format!("first run ip link set {near} up")));
    server.shell(&format!("ip link set {near} up"));
    domain.ldm(&format!("rm-io {vf} mars"));
    domain.ldm("unbind mars");
    server.assert_as(&made);
    domain.ldm(&format!("destroy-vf {NEAR_NAME}"));
    domain.ldm("rm-vnet admin-net mars");
    domain.ldm("remove-vsw admin-vsw");
    server.shell(&format!("ip link set {near} down"));
    domain.ldm("remove-domain mars");
    server.assert_as(&before);
}

/// Measures the function and the vnet on one switch, whose uplink is the physical function, in VLAN 7. mars is stopped
/// before and afterwards.
fn measured_at_one_switch(domain: &Domain<'_>, vf: &str) {
    let server = domain.server;
    domain.ldm("unbind mars");
    domain.ldm(&format!("set-vsw net-dev={} pvid=7 admin-vsw primary", server.near()));
    domain.ldm("set-vnet pvid=7 admin-net mars");
    domain.ldm("bind mars");
    domain.start();
    let words = ["measure", "--to", "ldm:mars", "--nic", "admin-net,vf0", "--quick", "--json"];
    let told = server.refused(&words);
    assert!(told.contains(&format!("vtax ldm set-io pvid=7 {vf}")), "the function is in VLAN 1: {told}");
    domain.ldm(&format!("set-io pvid=7 {vf}"));
    let result: Value = serde_json::from_str(&server.printed(&words)).expect("JSON");
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    let nics: Vec<&Value> = cells.iter().map(|cell| &cell["ends"]["pairs"][0]["responder"]["domain"]["nic"]).collect();
    assert_eq!(nics.iter().map(|nic| &nic["type"]).collect::<Vec<_>>(), ["vnet", "vf"]);
    assert!(nics.iter().all(|nic| nic["vlan"] == 7 && nic["source"] == "admin-vsw"), "{nics:?}");

    domain.ldm("set-vnet pvid=1 admin-net mars");
    let told = server.refused(&words);
    assert!(told.contains("VLAN 1") && told.contains("VLAN 7"), "the switch is in another VLAN than the vnet: {told}");

    domain.ldm(&format!("set-io pvid= {vf}"));
    domain.ldm("stop mars");
    domain.ldm("unbind mars");
    domain.ldm("set-vsw net-dev= pvid=1 admin-vsw primary");
    server.shell(&format!("ip link set {} up", server.near()));
    domain.ldm("bind mars");
}

const NOTICE: &str = "\
------------------------------------------------------------------------------
Notice: The primary domain is in the process of a delayed reconfiguration.
Any changes made to the primary domain will only take effect after it reboots.
------------------------------------------------------------------------------
";

/// Moves a root complex from primary to mars at the next boot, as in the article on physical I/O; mars then runs
/// without primary's services. Afterwards moves the slot of a NIC alone, without a boot.
pub(crate) fn root_domain(server: &Server) {
    let domain = Domain::new(server);
    let before = server.inventory();
    let owner = |name: &str| {
        let listed = domain.ldm("ls-io");
        let row = listed.lines().find(|line| line.split(' ').next() == Some(name)).expect("it is listed").to_owned();
        (row[58..66].trim_end().to_owned(), row[67..].trim_end().to_owned())
    };
    let has = |domain: &str, status: &str| (domain.to_owned(), status.to_owned());
    domain.ldm("add-vcc console primary");
    domain.ldm("add-vsw admin-vsw primary");
    assert!(domain.refused("add-io pci_1 mars").contains("pci_1 belongs to primary; release it first"));
    assert!(domain.refused("rm-io pci_1 primary").contains("first: vtax ldm start-reconf primary"));
    assert!(
        domain.ldm("start-reconf primary").starts_with("Initiating a delayed reconfiguration operation on the primary")
    );
    assert_eq!(domain.ldm("rm-io pci_1 primary"), NOTICE);
    assert_eq!(domain.ldm("set-io iov=on pci_0"), NOTICE);
    assert!(domain.refused("set-io iov=on pci_0").contains("pci_0 already has iov=on"));
    for words in ["create venus", "add-io pci_1 mars"] {
        assert!(domain.refused(words).contains("no other domain can be changed"), "{words}");
    }
    let flags = |listed: &str| listed.lines().nth(1).map(|line| line[28..34].to_owned());
    assert_eq!(flags(&domain.ldm("list")).as_deref(), Some("-ndcv-"));
    assert_eq!([owner("pci_0"), owner("pci_1")], [has("primary", ""), has("primary", "")]);

    // Simulates a reboot of the host by another boot id.
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    server.shell(&format!("echo 5eed >/run/boot; mount --bind /run/boot {BOOT}"));
    let booted = (owner("pci_0"), owner("pci_1"), flags(&domain.ldm("list")));
    domain.ldm("add-io pci_1 mars");
    server.shell(&format!("umount {BOOT}; rm /run/boot"));
    assert_eq!(booted, (has("primary", "IOV"), has("", ""), Some("-n-cv-".to_owned())));
    domain.ldm("bind mars");
    domain.start();
    assert_eq!([owner("pci_1"), owner("pci_0")], [has("mars", ""), has("primary", "IOV")]);
    assert!(domain.ldm("list-bindings mars").contains("pci_1"));
    assert!(domain.ldm("list -o physio mars").contains("pci_1"));
    let inside = domain.inside("cat /sys/class/net/*/address");
    assert!(inside.contains(FAR) && inside.contains("02:76:74:00:01:02"), "all NICs of the complex: {inside}");

    // mars depends on nothing of primary: neither a switch nor a console service.
    domain.ldm("remove-vsw admin-vsw");
    domain.ldm("remove-vcc console");
    let near = server.near();
    server.shell(&format!("ip address add 192.0.2.1/24 dev {near}; ip link set {near} up"));
    let far = format!(
        "nic=$(grep -l {FAR} /sys/class/net/*/address | cut -d/ -f5); busybox ip address add 192.0.2.2/24 dev $nic"
    );
    domain.inside(&format!("{far}; busybox ip link set $nic up"));
    wait_until("mars and the wire reach each other", || {
        domain.inside("busybox ping -c 1 -W 2 192.0.2.1").contains("1 packets received")
    });
    server.shell(&format!("ip address flush dev {near}; ip link set {near} down"));

    domain.ldm("stop mars");
    domain.ldm("unbind mars");
    server.assert_as(&before);
    serves(&domain);
    server.assert_as(&before);
    domain.ldm("rm-io pci_1 mars");
    domain.ldm("start-reconf primary");
    assert!(domain.refused("start-reconf mars").contains("Delayed reconfiguration of LDom mars is not permitted"));
    domain.ldm("add-io pci_1 primary");
    domain.ldm("rm-io pci_0/slot1 primary");
    let told = domain.ldm("apply-reconf");
    assert_eq!(told, "Applied: primary has released pci_0/slot1\nApplied: primary has pci_1 again\n");

    domain.ldm("add-io pci_0/slot1 mars");
    assert_eq!([owner("pci_0/slot1").0, owner("pci_1").0], ["mars", "primary"]);
    assert!(domain.ldm("list-dependencies -l").contains("mars             primary          IOV       pci_0/slot1"));
    domain.ldm("bind mars");
    domain.start();
    assert!(domain.inside("cat /sys/class/net/*/address").contains(NEAR));
    domain.ldm("stop mars");
    domain.ldm("unbind mars");
    domain.ldm("rm-io pci_0/slot1 mars");
    domain.ldm("remove-domain mars");
    domain.ldm("set-spconfig factory-default");
    server.assert_as(&before);
}

/// Lets mars, which owns a root complex, connect venus to the wire, in a VLAN.
fn serves(domain: &Domain<'_>) {
    let near = domain.server.near();
    domain.ldm(&format!("add-vsw net-dev={FAR} outer-vsw mars"));
    for words in ["create venus", "set-vcpu 1 venus", "set-memory 160m venus"] {
        domain.ldm(words);
    }
    domain.ldm("add-vnet pvid=7 outer-net outer-vsw venus");
    domain.ldm("bind venus mars");
    domain.ldm("start mars venus");
    domain.wait_for_boot();
    let server = domain.server;
    server.shell(&format!(
        "ip link set {near} up; ip link add link {near} name near7 type vlan id 7; \
         ip address add 192.0.2.1/24 dev near7; ip link set near7 up"
    ));
    domain.ldm("exec venus -- ip address add 192.0.2.3/24 dev eth0");
    domain.ldm("exec venus -- ip link set eth0 up");
    let answered = || {
        let ping = ["ldm", "exec", "venus", "--", "ping", "-c", "1", "-W", "2", "192.0.2.1"];
        server.vtax(&ping).status.success()
    };
    wait_until("venus and the wire reach each other through mars", answered);
    assert!(
        domain.ldm("list-dependencies -l").contains("venus            mars             VNET      outer-vsw/outer-net")
    );
    assert!(domain.refused("rm-vsw outer-vsw").contains("has the vnet outer-net of venus"));
    domain.ldm("stop -f mars");
    assert!(!answered(), "mars doesn't run");
    server.shell(&format!("ip link delete near7; ip link set {near} down"));
    domain.ldm("stop -f venus");
    domain.ldm("unbind venus mars");
    domain.ldm("remove-domain venus");
    domain.ldm("rm-vsw outer-vsw");
}

/// Kills vtax once vfio-pci has the function, which the next command releases. Later a journal is unreadable, but the
/// claim shows the owner.
pub(crate) fn killed(server: &Server) {
    let domain = Domain::new(server);
    server.make_vf();
    let before = server.inventory();
    let vf = format!("{NEAR_NAME}.VF0");
    let address = function_of(&before, &vf)["function"]["device"].as_str().expect("an address").to_owned();
    domain.ldm(&format!("set-io mac-addr=02:00:5e:10:00:0a {vf}"));
    domain.ldm(&format!("add-io {vf} mars"));
    server.shell(&format!(
        r#"{VTAX} ldm bind mars >/run/killed.log 2>&1 &
        bind=$!
        until [ -e /sys/bus/pci/drivers/vfio-pci/{address} ]; do
            kill -0 $bind || {{ cat /run/killed.log >&2; exit 1; }}
            sleep 0.05
        done
        kill -9 $bind; ls /run/vtax*/devices/{address}"#
    ));
    assert_ne!(server.inventory(), before, "it was killed in the middle");
    // The next command that changes something releases the function, and has nothing to unbind.
    assert!(domain.refused("unbind mars").contains("mars is inactive"));
    server.assert_as(&before);

    domain.ldm("bind mars");
    assert_eq!(function_of(&server.inventory(), &vf)["domain"], "mars");
    server.shell("for journal in /run/vtax*/domains/journals/mars.journal; do echo nonsense >$journal; done");
    // A damaged record is kept and reported, but not used; `release` finds created objects by their marks.
    let unbound = server.vtax(&["ldm", "unbind", "mars"]);
    assert_eq!(unbound.status.code(), Some(69), "{unbound:?}");
    assert!(String::from_utf8_lossy(&unbound.stderr).contains("mars.journal:1"), "{unbound:?}");
    assert_eq!(function_of(&server.inventory(), &vf)["domain"], "mars");
    domain.ldm("release mars");
    server.assert_as(&before);
    let left = server.shell("ls /run/vtax*/devices; pgrep -f 'guest=mar[s],'; true");
    assert_eq!(left, "", "nothing of it is left");
    domain.ldm(&format!("rm-io {vf} mars"));
    domain.ldm("remove-domain mars");
    server.destroy_vf();
}

/// Kills `ldm bind` with a function before each call that changes something, or before every N-th one if `VTAX_CRASH`
/// is N.
pub(crate) fn crashes(server: &Server) {
    let step: usize = env::var("VTAX_CRASH").map_or(1, |step| step.parse().expect("a number"));
    let domain = Domain::new(server);
    server.make_vf();
    let before = server.inventory();
    let vf = format!("{NEAR_NAME}.VF0");
    domain.ldm(&format!("add-io {vf} mars"));
    let put_back = || {
        // The domain is bound if the last line was written.
        server.vtax(&["ldm", "unbind", "mars"]);
    };
    let (mut kills, mut calls) = (0, 0);
    for at in (1..).step_by(step) {
        match killed_at(server, at, "ldm bind mars") {
            Ok(()) => kills += 1,
            Err(all) => {
                calls = all;
                break;
            }
        }
        put_back();
        server.assert_as(&before);
    }
    put_back();
    println!("crash-bind: {kills} kills at {calls} calls");
    assert!(2 * kills * step >= calls, "{kills} kills of {calls}");
    domain.ldm(&format!("rm-io {vf} mars"));
    domain.ldm("remove-domain mars");
    server.destroy_vf();
}

/// Checks that refused changes change nothing.
pub(crate) fn refusals(server: &Server) {
    let domain = Domain::new(server);
    let vf = &format!("{NEAR_NAME}.VF0");
    domain.ldm("create venus");
    domain.ldm("start-reconf primary");
    let inventory = server.inventory();
    let mut entries = inventory.as_array().expect("a list").iter();
    let kept = entries.find(|entry| entry["function"]["kept"].is_string()).expect("the server's own files");
    let kept = kept["name"].as_str().expect("text");
    for name in [kept, "pci_0"] {
        let told = domain.refused(&format!("rm-io {name} primary"));
        assert!(told.contains("must stay with primary"), "{told}");
    }
    domain.ldm("rm-io pci_0/slot1 primary");
    domain.ldm("cancel-reconf primary");
    assert!(domain.refused("cancel-reconf primary").contains("not in a delayed reconfiguration"));
    assert!(domain.refused("add-io pci_0/slot1 mars").contains("belongs to primary"), "it was cancelled");
    assert!(domain.refused("add-io pci_0/slto1 mars").contains("did you mean `pci_0/slot1`?"));
    assert!(domain.refused(&format!("add-io {NEAR_NAME} mars")).contains("is a physical function"));

    server.shell(&format!("ip link set {} up", server.near()));
    let made = domain.ldm(&format!("create-vf -n 2 {NEAR_NAME}"));
    assert_eq!(made.lines().count(), 2, "{made}");
    domain.ldm(&format!("set-io mac-addr=02:00:5e:10:00:09 pvid=7 {vf}"));
    assert!(domain.refused(&format!("set-io vid=8 {vf}")).contains("one untagged VLAN"));
    assert!(domain.refused(&format!("set-io mtu=9217 {vf}")).contains("9216"));
    assert!(domain.refused("set-io pvid=7 pci_0").contains("virtual function"));
    domain.ldm(&format!("add-io {vf} mars"));
    let taken = domain.refused(&format!("add-io {vf} venus"));
    assert!(taken.contains(&format!("mars has {vf}")), "{taken}");
    let twice = domain.refused(&format!("set-io mac-addr=2:0:5e:10:0:9 {NEAR_NAME}.VF1"));
    assert!(twice.contains("already has the address 02:00:5e:10:00:09"), "{twice}");
    domain.ldm("start-reconf primary");
    let told = domain.refused("rm-io pci_0/slot1 primary");
    assert!(told.contains("mars has"), "{told}");
    domain.ldm("cancel-reconf primary");
    domain.ldm(&format!("rm-io {vf} mars"));
    domain.ldm("start-reconf primary");
    let told = domain.refused("rm-io pci_0/slot1 primary");
    assert!(told.contains("has virtual functions"), "{told}");
    domain.ldm("cancel-reconf primary");
    server.destroy_vf();
    domain.ldm("remove-domain mars venus");
    server.assert_as(&inventory);
}

/// The article's domain mars, which is removed when the value is dropped.
pub(super) struct Domain<'a> {
    pub(super) server: &'a Server,
}

impl Domain<'_> {
    pub(super) fn new(server: &Server) -> Domain<'_> {
        let domain = Domain { server };
        for words in ["create mars", "set-vcpu 1 mars", "set-memory 192m mars"] {
            domain.ldm(words);
        }
        domain
    }

    pub(super) fn ldm(&self, words: &str) -> String {
        self.server.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    pub(super) fn refused(&self, words: &str) -> String {
        self.server.refused(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    }

    /// Starts mars, and waits until it has booted.
    pub(super) fn start(&self) {
        self.ldm("start mars");
        self.wait_for_boot();
    }

    pub(super) fn wait_for_boot(&self) {
        let state = || -> Value { serde_json::from_str(&self.ldm("list --json mars")).expect("JSON") };
        let console = || self.server.shell("tail -n 30 /run/vtax*/domains/mars/qemu/console.log");
        wait_for_boot("mars", || state()[0]["flags"]["running"] == "normal", console);
    }

    /// Returns the output of a command in the domain, whatever its exit status.
    pub(super) fn inside(&self, command: &str) -> String {
        let ran = self.server.vtax(&["ldm", "exec", "mars", "--", "sh", "-c", command]);
        let told = String::from_utf8_lossy(&ran.stderr);
        assert!(!told.contains("error["), "{command}: {told}");
        String::from_utf8(ran.stdout).expect("text")
    }

    /// Returns the drivers of the domain's NICs, sorted.
    pub(super) fn nics(&self) -> String {
        let drivers = self.inside("for nic in /sys/class/net/*/device/driver; do basename $(readlink -f $nic); done");
        let mut drivers: Vec<&str> = drivers.lines().collect();
        drivers.sort_unstable();
        drivers.join(" ")
    }
}
