//! Zones with functions, and with whole NICs.

use super::{NEAR, NEAR_NAME, Server, function};

const FUNCTIONS: &str = r#"
[[zone]]
name = "web"
host = "sut"
method = "sr-iov"
mac = "02:00:5e:10:00:07"
vlan = 7
trust = true
[[zone]]
name = "db"
host = "peer"
method = "sr-iov"
vlan = 7
[[zone]]
name = "other"
host = "peer"
method = "sr-iov"
vlan = 8
"#;

/// Compares the settings with what arrives at the other end of the cable: a VLAN link there, on the NIC itself, sees
/// the frames with the tag and the address.
pub(crate) fn functions(server: &Server) {
    let before = server.inventory();
    let lab = server.lab("t-functions", 1500, FUNCTIONS);
    assert!(lab.reaches("web", "db", 1400), "both are in VLAN 7");
    assert!(!lab.answered("other", "web", 56), "it is in VLAN 8");

    // Additional addresses for this link.
    let on_cable = |domain: &str, command: &str| lab.run(domain, &["sh", "-ec", command]);
    on_cable("peer", "ip link add link wire0 name tagged type vlan id 7; ip link set tagged up");
    on_cable("peer", "ip address add 198.51.100.2/24 dev tagged");
    on_cable("web", "ip address add 198.51.100.1/24 dev eth0; busybox ping -A -c 3 -W 5 198.51.100.2");
    let seen = lab.run("peer", &["ip", "neigh", "show", "dev", "tagged"]);
    assert!(seen.contains("02:00:5e:10:00:07"), "{seen}");

    let told = lab.run("sut", &["ip", "link", "show", "dev", "wire0"]);
    let first = told.lines().find(|line| line.contains("vf 0")).expect("its function");
    for what in ["02:00:5e:10:00:07", "vlan 7", "trust on"] {
        assert!(first.contains(what), "{what}: {first}");
    }
    lab.down();
    server.assert_as(&before);
}

pub(crate) fn whole_nic(server: &Server) {
    let before = server.inventory();
    let zone = |name: &str, host: &str, method: &str| {
        format!("[[zone]]\nname = \"{name}\"\nhost = \"{host}\"\nmethod = \"{method}\"\n")
    };
    let lab = server.lab("t-whole", 9000, &zone("web", "sut", "assigned"));
    assert!(lab.reaches("web", "peer", 8900));
    let link = lab.run("web", &["ip", "link", "show", "dev", "eth0"]);
    assert!(link.contains("mtu 9000") && link.contains(NEAR), "{link}");
    let owner = server.inventory();
    let nic = function(&owner, NEAR_NAME);
    assert_eq!(nic["domain"], "t-whole/web", "{owner}");
    let link = &nic["function"]["netdev"];
    assert_eq!((&link["name"], &link["mtu"]), (&"eth0".into(), &9000.into()), "its link is in the lab: {nic}");
    assert!(link["max_mtu"].as_u64() >= Some(9000), "{nic}");
    lab.down();

    let both = zone("web", "sut", "sr-iov") + &zone("db", "peer", "sr-iov");
    let lab = server.lab("t-large", 9000, &both);
    assert!(lab.reaches("web", "db", 8900) && lab.reaches("peer", "web", 8900));
    lab.down();
    server.assert_as(&before);
}

/// Checks that a lab takes functions that exist, and releases them in their previous state.
pub(crate) fn lent(server: &Server) {
    let before = server.inventory();
    server.make_vf();
    let with = server.inventory();
    assert_eq!(function(&with, &format!("{NEAR_NAME}.VF0"))["function"]["driver"], "igbvf");
    let lab = server.lab("t-lent", 1500, "[[zone]]\nname = \"web\"\nhost = \"sut\"\nmethod = \"sr-iov\"\nvlan = 9\n");
    let told = lab.run("sut", &["ip", "link", "show", "dev", "wire0"]);
    assert!(told.contains("vlan 9"), "{told}");
    let there = server.inventory();
    let vf = &function(&there, &format!("{NEAR_NAME}.VF0"))["function"];
    assert_eq!((&vf["netdev"]["name"], &vf["vf"]["vlan"]), (&"eth0".into(), &9.into()), "its link is in the lab: {vf}");
    lab.down();
    server.assert_as(&with);
    server.destroy_vf();
    server.assert_as(&before);
}
