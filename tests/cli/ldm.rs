//! `vtax ldm` where nothing is bound: what domains are to have, and how it is shown. No privilege is needed.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::{Command, Output},
};

use super::bench::{Bench, printed};

const WEB: &str = include_str!("../../crates/vtax-run/src/libvirt/fixtures/kinds.xml");

const ALL: &str = include_str!("../book/files/domains.json");

/// A bench with a virsh that knows one domain, `zoo`.
struct Libvirt(Bench);

impl Libvirt {
    fn new() -> Libvirt {
        let bench = Bench::new().with("zoo.xml", WEB);
        let script = "#!/bin/sh\ncase \"$*\" in\n\
            *'dumpxml -- zoo') cat zoo.xml ;;\n\
            *dumpxml*) echo \"error: failed to get domain '$5'\" >&2; exit 1 ;;\n\
            *'list --all --name') echo zoo ;;\n\
            *) exit 1 ;;\nesac\n";
        let folder = bench.path().join("bin");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("virsh"), script).expect("a file of the test");
        fs::set_permissions(folder.join("virsh"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Libvirt(bench)
    }

    fn command(&self, words: &str) -> Command {
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = self.0.command(&words);
        let path = env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.0.path().join("bin").display()));
        command
    }

    fn output(&self, words: &str) -> Output {
        self.command(words).output().expect("vtax runs")
    }

    fn refused(&self, words: &str, status: i32) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(status), "{words}");
        String::from_utf8(output.stderr).expect("text")
    }
}

#[test]
fn a_domain_of_libvirt_is_imported() {
    let libvirt = Libvirt::new();
    let told = printed(&libvirt.output("ldm import libvirt:zoo --as mars"));
    assert!(told.starts_with("mars is to have, as zoo of libvirt has:\n    2 vCPUs\n    memory 512M\n"), "{told}");
    assert!(told.contains("    the PCI device 0000:af:00.0\n"), "{told}");
    let json = printed(&libvirt.output("ldm list-constraints --json"));
    let all: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let vnet = &all["domains"]["mars"]["vnets"][0];
    assert_eq!((&vnet["switch"], &vnet["mac"]), (&"eno1-vsw".into(), &"52:54:00:00:00:01".into()));
    assert_eq!(all["switches"]["eno1-vsw"]["net_dev"], "eno1");
    // Its own name is one too, and its addresses are taken now.
    assert!(libvirt.refused("ldm import libvirt:zoo", 2).contains("error[address-taken]"));
    assert!(libvirt.refused("ldm import libvirt:zoo --as mars", 2).contains("error[object-exists]"));
    assert_eq!(printed(&libvirt.output("ldm list-constraints --json")), json);
}

/// A link of the name `ldm` is `vtax ldm`, and says so of itself.
#[test]
fn a_link_called_ldm_is_vtax_ldm() {
    let bench = Bench::new();
    let link = bench.path().join("ldm");
    symlink(env!("CARGO_BIN_EXE_vtax"), &link).expect("a link of the test");
    let ldm = |words: &[&str]| {
        let vtax = bench.command(words);
        let mut command = Command::new(&link);
        command.args(words).current_dir(bench.path());
        command.envs(vtax.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.output().expect("ldm runs")
    };
    assert_eq!(printed(&ldm(&["create", "mars"])), "");
    assert!(printed(&ldm(&["list"])).contains("\nmars "));
    let help = printed(&ldm(&["set-vcpu", "--help"]));
    assert!(help.contains("Usage: ldm set-vcpu ") && !help.contains("vtax ldm"), "{help}");
    for (words, expected) in [
        (&["create", "mars"][..], "ldm: error[object-exists]: "),
        (&["set-vcpu", "2"], "Usage: ldm set-vcpu "),
        (&["add-vnet", "x"], "ldm: error[usage]: add-vnet: "),
        (&["create", "--in", "rack", "x"], "ldm: error[usage]: "),
        (&["init-system", "-i", "bad.json"], "one that ldm list-constraints has written"),
    ] {
        fs::write(bench.path().join("bad.json"), "{").expect("a file of the test");
        let refused = ldm(words);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(told.contains(expected) && !told.contains("vtax ldm"), "{words:?}: {told}");
    }
}

/// What one host prints, another reads, as JSON and as XML.
#[test]
fn what_domains_are_to_have_goes_from_host_to_host() {
    let first = Bench::new().with("all.json", ALL);
    first.printed(&["ldm", "init-system", "-i", "all.json"]);
    for words in ["set-variable boot-args=<quiet&> mars", "set-domain master=mars venus"] {
        first.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    }
    let mut services: serde_json::Value = serde_json::from_str(ALL).expect("JSON");
    services["domains"] = serde_json::json!({});
    for format in ["--json", "-x"] {
        let text = first.printed(&["ldm", "list-constraints", format]);
        let all = Bench::new().with("domains", &text);
        all.printed(&["ldm", "init-system", "-i", "domains"]);
        assert_eq!(all.printed(&["ldm", "list-constraints", format]), text);
        let told = all.refused(&["ldm", "add-domain", "-i", "domains"]);
        assert!(told.contains("the domain `mars` exists already"), "{told}");

        let domains = Bench::new().with("domains", &text);
        let told = domains.refused(&["ldm", "add-domain", "-i", "domains"]);
        assert!(told.contains("there is no switch `admin-vsw`"), "{told}");
        fs::write(domains.path().join("services"), services.to_string()).expect("a file of the test");
        domains.printed(&["ldm", "init-system", "-i", "services"]);
        domains.printed(&["ldm", "add-domain", "-i", "domains"]);
        assert!(domains.printed(&["ldm", "list-constraints", "mars"]).contains("admin-net"));
    }
    let bomb = "<!DOCTYPE d [<!ENTITY a \"aaaa\">]>\n<LDM_interface>&a;</LDM_interface>";
    let told = Bench::new().with("bomb.xml", bomb).refused(&["ldm", "init-system", "-i", "bomb.xml"]);
    assert!(told.contains("error[bad-constraints]: bomb.xml: line 1: a document type"), "{told}");
    assert!(first.refused(&["ldm", "add-domain"]).contains("required arguments were not provided"));
}

#[test]
fn what_cannot_be_imported_is_refused_and_nothing_is_added() {
    let libvirt = Libvirt::new();
    let told = libvirt.refused("ldm import libvirt:zooo", 2);
    assert!(told.contains("error[no-such-domain]") && told.contains("there is zoo"), "{told}");
    assert!(libvirt.refused("ldm import web", 2).contains("write libvirt:NAME"));
    assert!(libvirt.refused("ldm import libvirt:zoo --as Mars", 2).contains("`Mars` is not a name"));
    let mut bare = libvirt.command("ldm import libvirt:zoo");
    let output = bare.env("PATH", libvirt.0.path()).output().expect("vtax runs");
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[no-virsh]"));
    fs::write(libvirt.0.path().join("zoo.xml"), WEB.replace("<name>zoo</name>", "<name>zoo")).expect("ours");
    assert!(libvirt.refused("ldm import libvirt:zoo", 69).contains("error[libvirt-xml]"));
    let all: serde_json::Value =
        serde_json::from_str(&printed(&libvirt.output("ldm list-constraints --json"))).expect("JSON");
    assert_eq!((&all["domains"], &all["switches"]), (&serde_json::json!({}), &serde_json::json!({})));
}
