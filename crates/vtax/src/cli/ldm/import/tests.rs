use vtax_model::{
    domain::{Configuration, CpuDemand, NewSwitch, PRIMARY, SwitchChange, Variable},
    foreign::ForeignText,
    units::ByteSize,
};
use vtax_run::libvirt::{LibvirtBoot, LibvirtBootDevice, LibvirtDisk, LibvirtLink, LibvirtVlans};

use super::*;

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
    let name = own_name(machine).expect("a name");
    let carried = carry(machine, &name, all).expect("available");
    Imported { machine, name: &name, carried: &carried }.to_string()
}

#[test]
fn what_is_carried_over_and_what_is_not_is_told_line_by_line() {
    let mut all = host();
    insta::assert_snapshot!(imported(&web(), &mut all));
    insta::assert_snapshot!(serde_json::to_string_pretty(&all).expect("it can be written"));
}

#[test]
fn a_kernel_comes_before_a_disk() {
    let [kernel, initrd, cmdline] =
        ["/boot/vmlinuz", "/boot/initrd.gz", "quiet root=/dev/vda"].map(|it| Some(text(it)));
    let machine = LibvirtMachine { boot: LibvirtBoot { kernel, initrd, cmdline }, links: vec![], ..web() };
    let mut all = host();
    let told = imported(&machine, &mut all);
    let web = all.domain(&"web".parse().expect("a name")).expect("it is there");
    assert_eq!(web.cpus, Some(CpuDemand::Vcpus(2)));
    assert_eq!(web.variables.keys().copied().collect::<Vec<_>>(), [Variable::Kernel, Variable::BootArgs]);
    assert!(
        told.contains("the initrd /boot/initrd.gz: ") && told.contains("the disk vda (/images/web.qcow2): "),
        "{told}"
    );
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let refused = |machine: &LibvirtMachine, all: &mut Configuration| {
        let name: Name = "web".parse().expect("a name");
        carry(machine, &name, all).expect_err("refused").to_string()
    };
    let mut all = host();
    assert!(refused(&LibvirtMachine { vcpus: 5000, ..web() }, &mut all.clone()).contains("`5000`"));
    assert!(refused(&LibvirtMachine { memory: ByteSize(1), ..web() }, &mut all.clone()).contains("at least 96 MiB"));
    imported(&web(), &mut all);
    assert!(refused(&web(), &mut all).contains("the domain `web` already exists"));
    let other = LibvirtMachine { name: text("Web 2"), ..web() };
    assert!(own_name(&other).expect_err("no name").to_string().contains("--as DOMAIN"));
    let second = carry(&other, &"web-2".parse().expect("a name"), &mut all).expect_err("its addresses are taken");
    assert!(second.to_string().contains("net0 of web already has the address 52:54:00:00:00:01"), "{second}");
}

#[test]
fn a_source_is_written_with_its_kind() {
    assert_eq!("libvirt:a b".parse(), Ok(LibvirtName("a b".to_owned())));
    for wrong in ["web", "libvirt:", "ssh:web"] {
        assert!(wrong.parse::<LibvirtName>().expect_err(wrong).contains("use libvirt:NAME"));
    }
}
