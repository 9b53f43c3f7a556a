//! The transcripts of the articles on physical I/O, replayed on a server that reboots in between.

use super::{
    Server, bench,
    devices::Domain,
    function,
    transcript::{self, Names},
};

/// The two ports of each of the article's NICs are separate NICs here.
const PORTS: [(&str, &str); 5] = [
    ("/SYS/MB/NET0/IOVNET.PF1", "pci_0/slot3/PF0"),
    ("/SYS/MB/NET2/IOVNET.PF1", "pci_1/slot4/PF0"),
    ("/SYS/MB/NET0/IOVNET.PF0", "pci_0/slot1/PF0"),
    ("/SYS/MB/NET2/IOVNET.PF0", "pci_1/slot2/PF0"),
    ("/SYS/MB/NET0", "pci_0/slot1"),
];
const SLOT: [(&str, &str); 1] = [("/SYS/MB/NET2", "pci_1/slot2")];
/// This machine has two root complexes, the article's machine in parts 8 and 9 has four.
const LAST_BUS: [(&str, &str); 1] = [("pci_3", "pci_1")];

/// Replays parts 8, 9 and 10, in sequence.
pub(crate) fn physical_io(server: &Server) {
    let before = server.inventory();
    let domain = Domain { server };
    let all = [&PORTS[..], &SLOT, &LAST_BUS].concat();
    replay(&domain, include_str!("../transcripts/8-root-domains.txt"), &all);
    order_of_kinds(&domain.ldm("ls-io"));
    for words in ["unbind mars", "rm-io pci_1 mars", "start-reconf primary", "add-io pci_1 primary", "apply-reconf"] {
        domain.ldm(words);
    }
    replay(&domain, include_str!("../transcripts/9-direct-io.txt"), &all);
    for words in ["start-reconf primary", "add-io pci_1/slot2 primary", "apply-reconf"] {
        domain.ldm(words);
    }
    // Starting point of part 10: mars with a virtual NIC, started by the server's boot.
    for words in ["add-vsw admin-vsw primary", "add-vnet admin-net admin-vsw mars", "set-domain autostart=yes mars"] {
        domain.ldm(words);
    }
    replay(&domain, include_str!("../transcripts/10-sr-iov.txt"), &PORTS);

    domain.ldm("rm-io pci_1/slot4/PF0.VF0 mars");
    domain.ldm("stop mars");
    domain.ldm("unbind mars");
    domain.ldm("destroy-vf pci_1/slot4/PF0");
    domain.ldm("rm-vnet admin-net mars");
    domain.ldm("remove-vsw admin-vsw");
    domain.ldm("remove-domain mars");
    domain.ldm("set-spconfig factory-default");
    server.shell(&format!("ip link set {} down", link(server, "pci_1/slot4/PF0")));
    server.assert_as(&before);
}

fn replay(domain: &Domain<'_>, transcript: &str, names: Names<'_>) {
    let server = domain.server;
    transcript::replay(transcript, names, |command| match command.split_once(' ').unwrap_or((command, "")) {
        ("ldm", words) => domain.ldm(words),
        // The next command waits until the server is up again.
        ("reboot", _) => bench::printed(&server.bench().vtax(&["server", "exec", "--", "reboot"])),
        ("running", _) => {
            bench::wait_until("the server's boot starts mars", || domain.ldm("list mars").contains(" active "));
            domain.wait_for_boot();
            String::new()
        }
        ("up", port) => server.shell(&format!("ip link set {} up", link(server, port))),
        ("nics", _) => nics(domain),
        _ => panic!("no such command: {command}"),
    });
}

/// Returns the NICs as the system in mars lists them, with their drivers.
fn nics(domain: &Domain<'_>) -> String {
    bench::wait_until("the function's driver in mars has it", || domain.nics().contains("igbvf"));
    let found = domain.nics();
    let mut drivers: Vec<&str> = found.split(' ').collect();
    // The virtual NIC was there first.
    drivers.sort_by_key(|driver| *driver != "virtio_net");
    drivers.iter().enumerate().map(|(number, driver)| format!("net{number} {driver}\n")).collect()
}

fn link(server: &Server, port: &str) -> String {
    let inventory = server.inventory();
    function(&inventory, port)["function"]["netdev"]["name"].as_str().expect("it has a link").to_owned()
}

/// Checks the order: root complexes, then slots, then physical functions.
fn order_of_kinds(listed: &str) {
    let mut kinds: Vec<&str> = listed.lines().skip(2).map(|row| row[42..49].trim_end()).collect();
    kinds.dedup();
    assert_eq!(kinds, ["BUS", "PCIE", "PF"], "{listed}");
}
