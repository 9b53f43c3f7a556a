use vtax_libvirt::{LibvirtBoot, LibvirtBootDevice, LibvirtDisk, LibvirtLink, LibvirtVlans};
use vtax_model::{
    domain::{Configuration, CpuDemand, NewSwitch, PRIMARY, SwitchChange, Variable},
    units::ByteSize,
};

use super::*;
use crate::test_domains::{TestHost, configuration, name};

fn text(text: &str) -> ForeignText {
    text.to_owned().into()
}

fn link(kind: &str, source: &str, mac: &str) -> LibvirtLink {
    let source = Some(text(source)).filter(|source| !source.is_empty());
    LibvirtLink {
        kind: text(kind),
        source,
        mac: Some(text(mac)),
        model: Some(text("virtio")),
        ..LibvirtLink::default()
    }
}

fn disk(target: &str, device: &str, source: &str, format: Option<&str>) -> LibvirtDisk {
    LibvirtDisk {
        target: Some(text(target)),
        device: text(device),
        source: Some(text(source)),
        file_format: format.map(text),
        is_local: true,
        others: vec![],
    }
}

fn web() -> LibvirtMachine {
    LibvirtMachine {
        name: text("web"),
        vcpus: 2,
        memory: ByteSize((256 << 20) - 1),
        boot: LibvirtBoot::default(),
        links: vec![
            LibvirtLink {
                mtu: Some(9000),
                vlans: LibvirtVlans { native: Some(33), tagged: vec![44, 4095] },
                others: vec![text("queues=4"), text("<bandwidth>")],
                ..link("bridge", "br0", "52:54:00:00:00:01")
            },
            LibvirtLink { model: Some(text("e1000e")), ..link("network", "br0", "52:54:00:00:00:02") },
            LibvirtLink { mtu: Some(1280), ..link("direct", "eno1", "52:54:00:00:00:03") },
            LibvirtLink {
                vlans: LibvirtVlans { native: None, tagged: vec![7] },
                ..link("direct", "eno2", "none\n\u{1b}[2J")
            },
            link("user", "", "52:54:00:00:00:05"),
        ],
        disks: vec![
            disk("sda", "cdrom", "/iso/setup.iso", Some("raw")),
            disk("vda", "disk", "/images/web.qcow2", Some("qcow2")),
            disk("vdb", "disk", "/dev/vg/data", None),
        ],
        boot_device: LibvirtBootDevice::Disk(1),
        others: vec![text("the PCI device 0000:af:00.0")],
    }
}

/// Returns a host with one switch, whose net-dev is eno1.
fn host() -> Configuration {
    let mut all = Configuration::new("sun");
    let change = SwitchChange { net_dev: Some("eno1".to_owned()), ..SwitchChange::default() };
    let new = NewSwitch {
        name: "admin-vsw".parse().expect("a name"),
        service: PRIMARY.parse().expect("a name"),
        default_vlan: None,
        change,
    };
    all.add_switch(new).expect("it is new");
    all
}

fn imported(machine: &LibvirtMachine, all: &mut Configuration) -> String {
    let Carried { kept, lost } = carry(machine, &name("web"), all).expect("available");
    let lines = |lines: Vec<ForeignText>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    format!("{}Not imported:\n{}", lines(kept), lines(lost))
}

#[test]
fn kept_and_lost_settings_are_reported_line_by_line() {
    let mut all = host();
    insta::assert_snapshot!(imported(&web(), &mut all));
    insta::assert_snapshot!(serde_json::to_string_pretty(&all).expect("it can be written"));
}

#[test]
fn a_kernel_takes_precedence_over_a_disk() {
    let [kernel, initrd, cmdline] =
        ["/boot/vmlinuz", "/boot/initrd.gz", "quiet root=/dev/vda"].map(|it| Some(text(it)));
    let machine = LibvirtMachine { boot: LibvirtBoot { kernel, initrd, cmdline }, links: vec![], ..web() };
    let mut all = host();
    let told = imported(&machine, &mut all);
    let web = all.domain(&name("web")).expect("it is there");
    assert_eq!(web.cpus, Some(CpuDemand::Vcpus(2)));
    assert_eq!(web.variables.keys().copied().collect::<Vec<_>>(), [Variable::Kernel, Variable::BootArgs]);
    assert!(
        told.contains("the initrd /boot/initrd.gz: ") && told.contains("the disk vda (/images/web.qcow2): "),
        "{told}"
    );
}

#[test]
fn impossible_imports_are_refused_with_a_reason() {
    let refused = |machine: &LibvirtMachine, all: &mut Configuration| {
        carry(machine, &name("web"), all).expect_err("refused").to_string()
    };
    let mut all = host();
    assert!(refused(&LibvirtMachine { vcpus: 5000, ..web() }, &mut all.clone()).contains("`5000`"));
    assert!(refused(&LibvirtMachine { memory: ByteSize(1), ..web() }, &mut all.clone()).contains("at least 96 MiB"));
    imported(&web(), &mut all);
    assert!(refused(&web(), &mut all).contains("the domain `web` already exists"));
    let other = LibvirtMachine { name: text("Web 2"), ..web() };
    let second = carry(&other, &name("web-2"), &mut all).expect_err("its addresses are taken");
    assert!(second.to_string().contains("net0 of web already has the address 52:54:00:00:00:01"), "{second}");
}

#[test]
fn an_imported_domain_is_stored_under_a_free_name() {
    let host = TestHost::of_user();
    host.store(&configuration());
    let before = host.stored();
    let import = |machine: &str, name: Option<Name>| {
        let machine = LibvirtMachine { name: text(machine), ..web() };
        host.host.import_machine(machine, name)
    };
    for (machine, as_name, why) in
        [("Web 2", None, "--as DOMAIN"), ("web", Some(name("mars")), "`mars` already exists")]
    {
        let error = import(machine, as_name).expect_err(why);
        assert!(error.is_of_input() && error.to_string().contains(why), "{error}");
        assert_eq!(host.stored(), before, "{why}");
    }
    let import = import("Web 2", Some(name("web-2"))).expect("possible");
    assert_eq!((import.source.raw(), &import.domain), ("Web 2", &name("web-2")));
    assert_eq!(host.stored().domain(&name("web-2")).expect("it was added").cpus, Some(CpuDemand::Vcpus(2)));
    assert!(!import.kept.is_empty() && !import.lost.is_empty());
}
