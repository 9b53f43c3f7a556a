//! `vtax ldm` without bound domains: constraints and their output. The tests require no privileges.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    process::{Command, Output},
};

use super::bench::{Bench, printed};

const WEB: &str = include_str!("../../crates/vtax-libvirt/src/fixtures/kinds.xml");

const ALL: &str = include_str!("../book/files/domains.json");

/// A bench with a fake virsh that knows one domain, `zoo`.
struct Libvirt(Bench);

impl Libvirt {
    fn new() -> Libvirt {
        Libvirt::with(WEB)
    }

    /// Returns a bench with another domain named `zoo`.
    fn with(xml: &str) -> Libvirt {
        let start = xml.find("<name>").expect("a name");
        let end = xml.find("</name>").expect("its end");
        let bench = Bench::new().with("zoo.xml", &format!("{}<name>zoo{}", &xml[..start], &xml[end..]));
        let script = "#!/bin/sh\ncase \"$*\" in\n\
            *'dumpxml -- zoo') cat zoo.xml ;;\n\
            *dumpxml*) echo \"error: failed to get domain '$5'\" >&2; exit 1 ;;\n\
            *'list --all --name') echo zoo ;;\n\
            *) exit 1 ;;\nesac\n";
        let folder = bench.path().join("bin");
        fs::create_dir(&folder).expect("a directory");
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

/// Returns the output of an import, and the constraints that it stored.
fn imported(xml: &str) -> (String, serde_json::Value) {
    let libvirt = Libvirt::with(xml);
    let told = printed(&libvirt.output("ldm import libvirt:zoo --as mars"));
    let json = printed(&libvirt.output("ldm list-constraints --json"));
    (told, serde_json::from_str(&json).expect("JSON"))
}

const BOOT: &str = include_str!("libvirt/boot-disk-is-block.xml");

/// Regression test: the second disk became the image, because the first is a block device.
#[test]
fn the_image_is_what_libvirt_boots_or_none() {
    let image = |xml: &str| imported(xml).1["domains"]["mars"]["variables"]["image"].as_str().map(str::to_owned);
    let (told, _) = imported(BOOT);
    assert_eq!(image(BOOT), None);
    assert!(told.contains("the disk vda (/dev/vg0/lvroot), its boot device: "), "{told}");
    assert!(told.contains("the disk vdb (/srv/images/backup.qcow2): "), "{told}");

    let with = |from: &str, to: &str| {
        assert!(BOOT.contains(from), "{from}");
        BOOT.replace(from, to)
    };
    let backup = Some("/srv/images/backup.qcow2".to_owned());
    let ordered = with("<target dev='vdb' bus='virtio'/>", "<target dev='vdb' bus='virtio'/><boot order='1'/>");
    assert_eq!(image(&ordered), backup, "it is the first in the order");
    let behind =
        ordered.replace("<target dev='vda' bus='virtio'/>", "<target dev='vda' bus='virtio'/><boot order='0x'/>");
    assert_eq!(image(&behind), backup, "an order that is not a number");
    assert_eq!(image(&with("</os>", "<boot dev='network'/><boot dev='hd'/></os>")), None);
    assert_eq!(image(&with("</os>", "<boot dev='cdrom'/><boot dev='hd'/></os>")), None, "there is no drive");
    let drive =
        "<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk><disk type='block' device='disk'>";
    let empty =
        with("<disk type='block' device='disk'>", drive).replace("</os>", "<boot dev='cdrom'/><boot dev='hd'/></os>");
    let file = empty.replace("type='block'", "type='file'").replace("dev='/dev/vg0/lvroot'", "file='/srv/root.img'");
    assert_eq!(image(&file), Some("/srv/root.img".to_owned()), "an empty drive is passed over");
    let loaded = file.replace("<target dev='sda'", "<source file='/iso/setup.iso'/><target dev='sda'");
    assert_eq!(image(&loaded), None, "it boots the medium");
    let encrypted = file.replace("<target dev='vda'", "<encryption format='luks'/><target dev='vda'");
    assert_eq!(image(&encrypted), None);
    let unsorted = BOOT.replace("vdb", "vdx").replace("vda", "vdc").replace("vdx", "vda");
    assert_eq!(image(&unsorted), backup, "libvirt sorts them by name");
}

/// The first 24 letters of both names are identical.
#[test]
fn two_networks_never_become_one_switch() {
    let xml = include_str!("libvirt/long-networks.xml");
    let switches = |first: &str, second: &str| {
        let xml = xml.replace("network='customer-network-production-dmz'", first);
        let (told, all) = imported(&xml.replace("network='customer-network-production-lan'", second));
        let vnets = all["domains"]["mars"]["vnets"].as_array().expect("vnets").clone();
        let of = |number: usize| vnets[number]["switch"].as_str().expect("a switch").to_owned();
        assert!(told.contains(&of(0)) && told.contains(&of(1)), "{told}");
        (of(0), of(1))
    };
    for (first, second) in [
        ("network='customer-network-production-dmz'", "network='customer-network-production-lan'"),
        ("network='Lan'", "network='lan'"),
        ("network='a_b'", "network='a.b'"),
        ("network='7'", "network='br7'"),
        ("network='lan'", "network='lan-vsw'"),
        ("network='lan-vsw'", "network='lan'"),
        ("network='lan'", "network='lan-net'"),
        ("network='lan-net'", "network='lan'"),
        ("network='\u{e9}t\u{e9}'", "network='\u{e8}t\u{e8}'"),
    ] {
        let (one, other) = switches(first, second);
        assert_ne!(one, other, "{first} {second}");
    }
    let (one, other) = switches("network='lan'", "network='lan'");
    assert_eq!((one.as_str(), other.as_str()), ("lan-net", "lan-net"));
}

#[test]
fn disks_that_are_omitted_are_named_by_what_is_behind_them() {
    let (told, _) = imported(include_str!("libvirt/odd-disks.xml"));
    assert!(told.contains("the disk vda (the NVMe controller 0000:01:00.0, namespace 1), its boot device: "), "{told}");
    assert!(told.contains("the disk vdb (the vhost-user server at /run/vhost.0): "), "{told}");
    assert!(!told.contains("(empty)") && !told.contains("no disks yet"), "{told}");
}

#[test]
fn each_setting_that_is_lost_is_reported() {
    let (told, _) = imported(include_str!("libvirt/tuned.xml"));
    for lost in [
        "the firmware UEFI",
        "4 iothreads",
        "the host's CPUs of 1 iothread (<iothreadpin>)",
        "the CPU tuning quota 50000",
        "the memory limit hard_limit 6291456 KiB",
        "memory hotplug (maxMemory 16777216 KiB slots=16)",
        "the disk vda: its limits (<iotune>)",
        "arguments for QEMU itself (<qemu:commandline>)",
        "its confidential memory (<launchSecurity> of type sev)",
    ] {
        assert!(told.contains(lost), "{lost}: {told}");
    }
}

#[test]
fn settings_of_any_other_name_are_reported_too() {
    let others = "<throttlegroups/><perf/><idmap/><sysinfo type='smbios'/><keywrap/><features><acpi/><hyperv/></features>\
        <blkiotune><weight>500</weight></blkiotune><memoryBacking><locked/></memoryBacking><on_reboot>destroy</on_reboot>\
        <numatune><memnode cellid='0' mode='strict' nodeset='1'/></numatune><clock offset='localtime'/>\
        <currentMemory unit='KiB'>1048576</currentMemory><pm><suspend-to-mem enabled='yes'/></pm><devices>";
    let (told, _) = imported(&BOOT.replace("<devices>", others));
    for lost in [
        "<throttlegroups>",
        "<perf>",
        "<idmap>",
        "<sysinfo>",
        "<keywrap>",
        "<hyperv>",
        "weight 500",
        "locked",
        "on_reboot",
        "memnode",
        "localtime",
        "its lower initial memory",
        "<suspend-to-mem>",
    ] {
        assert!(told.contains(lost), "{lost}: {told}");
    }
    assert!(!told.contains("<acpi>"), "{told}");
}

#[test]
fn a_domain_of_libvirt_is_imported() {
    let libvirt = Libvirt::new();
    let told = printed(&libvirt.output("ldm import libvirt:zoo --as mars"));
    assert!(told.starts_with("Imported libvirt domain zoo as mars:\n    2 vCPUs\n    memory 512 MiB\n"), "{told}");
    assert!(told.contains("    the PCI device 0000:af:00.0\n"), "{told}");
    let json = printed(&libvirt.output("ldm list-constraints --json"));
    let all: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let vnet = &all["domains"]["mars"]["vnets"][0];
    assert_eq!((&vnet["switch"], &vnet["mac"]), (&"eno1-vsw".into(), &"52:54:00:00:00:01".into()));
    assert_eq!(all["switches"]["eno1-vsw"]["net_dev"], "eno1");
    // libvirt's own name is also valid, and its addresses are in use by now.
    assert!(libvirt.refused("ldm import libvirt:zoo", 2).contains("error[address-taken]"));
    assert!(libvirt.refused("ldm import libvirt:zoo --as mars", 2).contains("error[object-exists]"));
    assert_eq!(printed(&libvirt.output("ldm list-constraints --json")), json);
}

/// A link named `ldm` acts as `vtax ldm`, and uses the name `ldm` for itself.
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
        (&["init-system", "-i", "bad.json"], "a file written by ldm list-constraints"),
    ] {
        fs::write(bench.path().join("bad.json"), "{").expect("a file of the test");
        let refused = ldm(words);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(told.contains(expected) && !told.contains("vtax ldm"), "{words:?}: {told}");
    }
}

/// A host can read the JSON and XML output of another host.
#[test]
fn constraints_are_copied_from_host_to_host() {
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
        assert!(told.contains("the domain `mars` already exists"), "{told}");

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
fn an_impossible_import_is_refused_and_adds_nothing() {
    let libvirt = Libvirt::new();
    let told = libvirt.refused("ldm import libvirt:zooo", 2);
    assert!(told.contains("error[no-such-domain]") && told.contains("available: zoo"), "{told}");
    assert!(libvirt.refused("ldm import web", 2).contains("use libvirt:NAME"));
    assert!(libvirt.refused("ldm import libvirt:zoo --as Mars", 2).contains("invalid name `Mars`"));
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

fn ldm(bench: &Bench) -> impl Fn(&str) -> String {
    |words: &str| bench.printed(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
}

/// Changes of CPUs and memory by an amount, and the alternative names of the vendor's subcommands.
#[test]
fn everyday_verbs_and_their_other_names_work() {
    let bench = Bench::new().with("domains.json", ALL);
    let ldm = ldm(&bench);
    let refused = |words: &str| bench.refused(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    for words in [
        // add-vswitch would create the switch on this host if root runs the test.
        "init-system -i domains.json",
        "add-config c1",
        "add-domain d1",
        "add-vcpu 2 d1",
        "add-memory 1G d1",
        "rm-vcpu 1 d1",
        "add-dom d2",
        "add-core 2 d2",
        "remove-core 1 d2",
        "add-vcpu -c 1 d2",
        "add-mem 1g d2",
        "rm-mem 256m d2",
        "set-var kernel=/boot/vmlinuz boot-args=quiet d2",
        "add-vnet v admin-vsw d1",
    ] {
        ldm(words);
    }
    let listed = ldm("list -p");
    assert!(listed.contains("|name=d1|") && listed.contains("|ncpu=1|mem=1073741824|"), "{listed}");
    assert!(ldm("list-constraints -p d2").contains("CORE|count=2\nMEMORY|size=805306368\n"));
    assert_eq!(ldm("list-config"), ldm("ls-spconfig"));
    assert!(ldm("ls-config").contains("c1"));
    assert_eq!(ldm("list-variable boot-args d2"), "boot-args=quiet\n");
    assert!(refused("add-vswitch sw0").contains("add-vsw: DOMAIN is missing"));
    assert!(refused("add-core 1 d1").contains("set-core"));
    assert!(refused("rm-vcpu 1 d2").contains("remove-core"));
    assert!(refused("rm-vcpu 5 d1").contains("there are only 1 vCPUs"));
    assert!(refused("stop-domain -r -h d1").contains("cannot be used with"));
    assert!(refused("stop-domain -a d1").contains("cannot be used with"));
    let told = refused("add-cpu 2 d1");
    assert_eq!(told.split("tip:").nth(1).and_then(|tip| tip.split('\'').nth(1)), Some("add-vcpu"), "{told}");
    ldm("rm-dom d2");
    ldm("remove-dom -a");
    assert!(!ldm("list -p").contains("|name=d1|"));
}

#[test]
fn a_part_of_a_list_can_be_changed() {
    let bench = Bench::new().with("domains.json", ALL);
    let ldm = ldm(&bench);
    ["init-system -i domains.json", "add-vnet vid=11,22 v admin-vsw mars"].iter().for_each(|words| drop(ldm(words)));
    let line = || {
        ldm("list -o network -p mars").lines().find(|line| line.starts_with("VNET|name=v|")).expect("a vnet").to_owned()
    };
    let field = |name: &str| {
        let line = line();
        let found = line.split('|').find_map(|field| field.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
        found.expect("a field")
    };
    ldm("set-vnet alt-mac-addrs=+auto v mars");
    let first = field("alt-mac-addrs");
    ldm("set-vnet alt-mac-addrs=+auto,auto v mars");
    let all = field("alt-mac-addrs");
    assert!(all.starts_with(&first) && all.split(',').count() == 3, "{first} {all}");
    ldm(&format!("set-vnet alt-mac-addrs=-{first} v mars"));
    assert_eq!(field("alt-mac-addrs").split(',').count(), 2);
    ldm("set-vnet vid=+33 v mars");
    ldm("set-vnet vid=-11 v mars");
    assert_eq!(field("vid"), "22,33");
}

/// Scripts parse the fields of these lines.
#[test]
fn each_list_has_a_form_for_programs() {
    let bench = Bench::new();
    let ldm = ldm(&bench);
    ["create mars", "add-vcpu 1 mars"].iter().for_each(|words| drop(ldm(words)));
    for words in [
        "list -p",
        "list -l -p",
        "list -e -p",
        "list-bindings -p",
        "list-constraints -p",
        "list-services -p",
        "list-devices -p",
        "list-io -p",
        "list-io -l -p",
        "ls-io -p",
        "list-dependencies -p",
        "list-dependencies -l -p",
    ] {
        assert!(ldm(words).starts_with("VERSION 1."), "{words}");
    }
    for line in ldm("list-io -p").lines().skip(2) {
        let keys: Vec<&str> = line.split('|').filter_map(|field| field.split('=').next()).collect();
        assert_eq!(&keys[..6], ["", "dev", "alias", "status", "domain", "type"], "{line}");
    }
}

/// Less common forms of the vendor's subcommands.
#[test]
fn further_forms_of_the_vendors_verbs_work() {
    let bench = Bench::new().with("domains.json", ALL);
    let ldm = ldm(&bench);
    ldm("init-system -s -i domains.json");
    assert!(!ldm("list -p").contains("|name=mars|") && ldm("list-services").contains("admin-vsw"));
    let told = bench.refused(&["ldm", "init-system", "-f", "-i", "domains.json"]);
    assert!(told.contains("already exists"), "{told}");
    let told = bench.refused(&["ldm", "init-system", "-i", "domains.json"]);
    assert!(told.contains("add those in the file to them (-f)"), "{told}");
    ldm("add-domain failure-policy=reset autostart=yes d1");
    assert!(ldm("list -o domain -p d1").contains("CONTROL|failure-policy=reset|autostart=yes\n"));
    ldm("add-domain master=d1 d2");
    ldm("set-domain failure-policy=stop d1");
    fs::write(bench.path().join("before.json"), ldm("list-constraints --json")).expect("a file of the test");
    ldm("set-domain master= failure-policy=panic d2");
    ldm("set-vcpu 2 d2");
    ldm("set-domain -i before.json");
    let d2 = ldm("list -o domain,cpu -p d2");
    assert!(d2.contains("failure-policy=ignore") && d2.contains("master=d1\n") && d2.contains("VCPU|count=2"), "{d2}");
    for words in ["list-services -e -p", "list-bindings -e", "list-constraints -e d1", "list -o core d2"] {
        ldm(words);
    }
    // A missing backend is reported even with --quiet.
    let told = bench.refused(&["--quiet", "ldm", "add-vdsdev", "nothing.img", "new@primary-vds0"]);
    assert!(told.contains("error[bad-backend]"), "{told}");
    ldm("add-vdsdev -q nothing.img new@primary-vds0");
    // The switch is not created on this host, because nothing uses it yet.
    ldm("add-vsw -q net-dev=nolink0 later primary");
    assert_eq!(ldm("list-services -p primary"), ldm("list-services -p"));
    assert!(!ldm("list-services -p d1").contains("later"));
    ldm("add-vnet v spare-vsw d1");
    ldm("set-vnet vswitch=later v d1");
    assert!(ldm("list -o network -p d1").contains("|service=later@primary|"));
    assert!(ldm("list-dependencies -p d1").contains("|ldom=d1|dependency=primary|"));
    assert!(!ldm("list-dependencies -p d2").contains("|ldom="));
    assert!(bench.refused(&["ldm", "list-dependencies", "d3"]).contains("there is no domain `d3`"));
}

#[test]
fn memory_is_rounded_up_only_on_request_and_with_a_message() {
    let bench = Bench::new();
    let ldm = ldm(&bench);
    ldm("create mars");
    for (words, size, told) in [
        ("set-memory --auto-adj 1000M mars", "1073741824", "memory of mars set to 1 GiB: 1000 MiB rounded up"),
        ("add-mem --auto-adj 100K mars", "1342177280", "memory of mars set to 1280 MiB: 1048676 KiB rounded up"),
        ("rm-mem --auto-adj 300M mars", "1073741824", "memory of mars set to 1 GiB: 980 MiB rounded up"),
        ("rm-mem --auto-adj 512M mars", "536870912", ""),
        ("add-mem 100M mars", "641728512", ""),
    ] {
        let words: Vec<&str> = ["ldm"].into_iter().chain(words.split(' ')).collect();
        let output = bench.vtax(&words);
        assert_eq!(printed(&output), "", "{words:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(told) && said.is_empty() == told.is_empty(), "{words:?}: {said}");
        assert!(ldm("list -o memory -p mars").contains(&format!("MEMORY|size={size}\n")), "{words:?}");
    }
    assert!(bench.refused(&["ldm", "set-memory", "100K", "mars"]).contains("whole MiB"));
}

#[test]
fn cores_are_named_by_their_numbers() {
    let bench = Bench::new();
    let ldm = ldm(&bench);
    ["create mars", "add-core cid=0 mars"].iter().for_each(|words| drop(ldm(words)));
    assert!(ldm("list -o core -p mars").contains("CORE|count=1|cid=0\n"));
    assert!(ldm("list-constraints mars").contains("CORE\n    CID\n    0\n"));
    for format in ["--json", "-x"] {
        let text = ldm(&format!("list-constraints {format}"));
        let other = Bench::new().with("mars", &text);
        other.printed(&["ldm", "init-system", "-i", "mars"]);
        assert_eq!(other.printed(&["ldm", "list-constraints", format]), text);
    }
    for (words, why) in [
        ("add-core cid=0,99999 mars", "there is no core 99999: this host has cores 0 to "),
        ("add-core cid=x mars", "e.g. cid=4,5"),
        ("set-core two mars", "use a number of cores"),
        ("add-core 1 mars", "add-core cid= and remove-core cid= change"),
        ("rm-core cid=1 mars", "there are only the cores 0"),
    ] {
        let told = bench.refused(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
        assert!(told.contains(why), "{words}: {told}");
    }
    ldm("rm-core cid=0 mars");
    assert!(!ldm("list -o cpu -p mars").contains("CORE"));
}

/// A script must not assume that it has a feature that Linux lacks.
#[test]
fn unsupported_words_are_refused_with_the_reason_and_change_nothing() {
    let bench = Bench::new().with("domains.json", ALL);
    let ldm = ldm(&bench);
    ldm("init-system -i domains.json");
    let before = ldm("list-constraints --json");
    for (words, why) in [
        ("migrate-domain -n -p /root/password mars ssh:other", "ssh-copy-id"),
        ("migrate -f -n mars ssh:other", "migrate-domain -f is not supported: a domain that migrates despite"),
        ("ls-rsrc-group", "List cores with list-devices"),
        ("bind-dom -q mars", "bind-domain -q is not supported: bind uses the backend of each disk and NIC"),
        ("bind -f mars", "cannot skip its checks"),
        ("set-vswitch -q mtu=9000 admin-vsw", "add-vsw has -q"),
        ("stop -m soon mars", "exec DOMAIN -- wall MESSAGE"),
        ("stop -q mars", "-t"),
        ("list -S", "ras-mc-ctl"),
        ("ls-devices -S", "ras-mc-ctl"),
        ("rm-vcpu -f 1 mars", "nothing to force"),
        ("rm-vsw -f admin-vsw", "rm-vnet"),
        ("add-vdsdev -f /dev/null null@primary-vds0", "mpgroup"),
        ("init-system -r -i domains.json", "doesn't reboot this host"),
        ("list-config -r", "no autosaved configurations"),
        ("set-memory mblock=0x1000000:1G mars", "Linux allocates pages from anywhere"),
        ("add-vnet mode=hybrid v admin-vsw mars", "add-vnet mode= is not supported: hybrid vnets require the NIU"),
        ("set-vnet pvlan=4,isolated admin-net mars", "no private VLANs"),
        ("add-vsw inter-vnet-link=on sw0 primary", "always pass through the switch"),
        ("set-domain max-cores=4 mars", "set-domain max-cores= is not supported: a domain never has more cores"),
        ("add-domain hostid=1 d1", "SPARC"),
        ("set-vcons log=off mars", "each console always has a 1 MiB log"),
        ("create-vf vid=7 pci_0/net0", "one untagged VLAN"),
        ("set-variable auto-boot?=false mars", "it belongs to OpenBoot"),
    ] {
        let told = bench.refused(&["ldm"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
        assert!(told.contains(why), "{words}: {told}");
        assert_eq!(ldm("list-constraints --json"), before, "{words}");
    }
}

/// Returns a bench with a fake ssh, whose only host has a separate results directory.
fn with_remote() -> Bench {
    let bench = Bench::new();
    let (bin, there) = (bench.path().join("bin"), bench.path().join("there"));
    fs::create_dir(&bin).expect("a directory");
    symlink(env!("CARGO_BIN_EXE_vtax"), bin.join("vtax")).expect("a link");
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\ncase \"$*\" in *' there '*) ;; *) echo no route >&2; exit 255 ;; esac\n\
         PATH='{}':$PATH VTAX_STATE='{}' exec sh -c \"$last\"\n",
        bin.display(),
        there.display()
    );
    fs::write(bin.join("ssh"), script).expect("a file of the test");
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    bench
}

fn over_ssh(bench: &Bench, words: &str) -> Output {
    let words: Vec<&str> = words.split(' ').collect();
    let path = format!("{}:{}", bench.path().join("bin").display(), env::var("PATH").unwrap_or_default());
    bench.command(&words).env("PATH", path).output().expect("vtax runs")
}

#[test]
fn another_machine_is_configured_over_ssh() {
    let bench = with_remote();
    let there = |words: &str| over_ssh(&bench, &format!("ldm --host ssh:there {words}"));
    assert_eq!(printed(&there("add-domain mars")), "");
    assert_eq!(printed(&there("set-vcpu 2 mars")), "");
    assert!(printed(&there("list-constraints")).contains("VCPU"), "the domain is there");
    assert!(printed(&there("list -p mars")).contains("name=mars|state=inactive"));
    assert!(printed(&there("list-devices -p core")).starts_with("VERSION"));
    assert!(!printed(&over_ssh(&bench, "ldm list")).contains("mars"), "it is not here");
    let started = printed(&there("start-reconf primary"));
    assert!(started.starts_with("Initiating a delayed reconfiguration"), "{started}");
}

#[test]
fn a_remote_host_refuses_like_a_local_one() {
    let bench = with_remote();
    let refused = |words: &str, status: i32| {
        let output = over_ssh(&bench, words);
        assert_eq!(output.status.code(), Some(status), "{words}");
        String::from_utf8(output.stderr).expect("text")
    };
    let here = refused("ldm set-vcpu 2 mars", 2);
    assert_eq!(refused("ldm --host ssh:there set-vcpu 2 mars", 2), here);
    assert!(refused("ldm --host ssh:there add-vdsdev disk.img root@vds", 2).contains("disk.img"), "not a path there");
    assert!(refused("ldm --host ssh:there exec mars -- true", 2).contains("this machine only"));
    assert!(refused("ldm --host mars list", 2).contains("ssh:HOST"));
    let lost = refused("ldm --host ssh:elsewhere list", 69);
    assert!(lost.contains("no route") && lost.contains("elsewhere"), "{lost}");
}
