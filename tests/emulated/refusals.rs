//! Impossible requests: refused with the reason and a remedy, before anything is changed.

use std::fs;

use super::{FAR, NEAR, Server};

pub(crate) fn refused(server: &Server) {
    let before = server.inventory();
    let wire = |nics: [&str; 2], domains: &str| {
        let text = format!(
            "[lab]\nname = \"t-no\"\n[[host]]\nname = \"sut\"\n[[host]]\nname = \"peer\"\n[[wire]]\nname = \"c0\"\nends = [\"sut\", \"peer\"]\nnics = [\"{}\", \"{}\"]\n{domains}",
            nics[0], nics[1]
        );
        fs::write(server.bench().path().join("t-no.toml"), text).expect("a file of the test");
        server.refused(&["lab", "up", "t-no.toml"])
    };
    let domain = |kind: &str, host: &str, method: &str, more: &str| {
        format!("[[{kind}]]\nname = \"web\"\nhost = \"{host}\"\nmethod = \"{method}\"\n{more}\n")
    };
    let cases = [
        (wire([NEAR, "eno77"], ""), "no PCI device `eno77`"),
        (wire([NEAR, NEAR], ""), "at both ends"),
        // This device provides the outer machine's files.
        (wire(["pci_0/02", FAR], ""), "not a network controller"),
        (wire([NEAR, FAR], &domain("zone", "sut", "sr-iov", "count = 8")), "it supports 7"),
        (wire([NEAR, FAR], &domain("guest", "sut", "root-domain", "")), "must stay"),
        (wire([NEAR, FAR], &domain("guest", "sut", "sr-iov", "masters = [\"web\"]")), "dependency cycle"),
        (server.refused(&["io", "create-vf", "-n", "8", NEAR]), "7"),
        (server.refused(&["io", "create-vf", "eno77"]), "eno77"),
        (server.refused(&["io", "destroy-vf", NEAR]), "no virtual functions"),
        (server.refused(&["run", "sparc-t7-1", "--cable", &format!("{NEAR},{NEAR}")]), "NIC"),
    ];
    for (told, why) in cases {
        assert!(told.contains(why), "{why}: {told}");
    }
    server.assert_as(&before);
}
