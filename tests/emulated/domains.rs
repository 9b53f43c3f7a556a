//! `vtax ldm` where switches isolate VLANs and NICs have virtual functions: a switch with a NIC as its uplink, and the
//! article's two domains on it.

use serde_json::Value;

use super::{NEAR_NAME, Server, devices::Domain};

pub(crate) fn domains(server: &Server) {
    let ldm = |words: &str| server.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    let near = server.near();
    ldm("add-vcc console primary");
    ldm(&format!("add-vsw net-dev={near} admin-vsw primary"));
    ldm("create mars venus");
    for domain in ["mars", "venus"] {
        ldm(&format!("set-vcpu 1 {domain}"));
        ldm(&format!("set-memory 160m {domain}"));
    }
    ldm("add-vnet admin-net pvid=1 vid=11,22,33 admin-vsw mars");
    ldm("add-vnet admin-net pvid=33 vid=44 admin-vsw venus");
    ldm("bind mars venus");
    // VLAN membership according to the kernel; `+` is untagged.
    let vlans: Value = serde_json::from_str(&server.shell("bridge -json vlan show")).expect("JSON");
    let of = |port: &str| {
        let port = vlans.as_array().and_then(|ports| ports.iter().find(|it| it["ifname"] == port)).expect("a port");
        let vlans = port["vlans"].as_array().expect("a list").iter();
        let shown = vlans.map(|it| {
            let untagged = it["flags"].as_array().is_some_and(|flags| flags.len() == 2);
            format!("{}{}", it["vlan"], if untagged { "+" } else { "" })
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    assert_eq!([of("vnet2.0"), of("vnet3.0")], ["1+ 11 22 33", "33+ 44"]);
    assert_eq!([of(&near), of("admin-vsw")], ["1+ 11 22 33 44", "1+"]);

    Domain { server }.start();
    // A VLAN is removed while the domain runs.
    ldm("set-vnet vid=11 admin-net mars");
    let after = server.shell("bridge -json vlan show dev vnet2.0");
    assert!(after.contains("11") && !after.contains("22"), "{after}");

    let listed = ldm("list-io");
    let row = listed.lines().find(|line| line.starts_with(NEAR_NAME)).expect("the NIC's physical function");
    assert!(row[42..].starts_with("PF     pci_0    primary"), "{row}");

    ldm("stop mars");
    ldm("unbind mars venus");
    ldm("rm-vnet admin-net mars");
    ldm("rm-vnet admin-net venus");
    ldm("remove-vsw admin-vsw");
    ldm("remove-domain mars venus");
    ldm("remove-vcc console");
    assert!(!server.shell("ip -brief link").contains("vnet"));
    server.shell(&format!("ip link set {near} down"));
}
