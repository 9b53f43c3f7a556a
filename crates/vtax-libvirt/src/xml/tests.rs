use proptest::prelude::*;
use vtax_model::foreign::ForeignText;

use super::*;

const REAL: &str = include_str!("../fixtures/real.xml");
const VHOST: &str = include_str!("../fixtures/vhost.xml");
const KINDS: &str = include_str!("../fixtures/kinds.xml");

fn good(text: &str) -> Described {
    read(text).expect("good XML")
}

fn refused(text: &str) -> String {
    read(text).expect_err("refused").to_string()
}

/// Replaces a part of the text, which must contain it.
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn a_domain_of_a_real_libvirt_is_read() {
    let Described { record, nics, .. } = good(REAL);
    assert_eq!((record.name.raw(), record.accel, record.vcpus), ("web server.v1", Accelerator::Tcg, 2));
    assert_eq!((record.machine.raw(), record.memory), ("pc-q35-10.0", ByteSize(256 << 20)));
    assert_eq!(record.vcpu_pins, [(0, "1".into()), (1, "0".into())].into());
    assert_eq!(nics.len(), 1);
    let XmlNic { facts, alias, open } = &nics[0];
    assert_eq!((alias.as_deref(), *open, facts.backend), (Some("net0"), true, None));
    assert_eq!(
        (facts.source.as_ref().map(ForeignText::raw), facts.target.as_ref().map(ForeignText::raw)),
        (Some("h4br"), Some("vnet0"))
    );
}

#[test]
fn multiqueue_vhost_with_pins_is_read() {
    let Described { record, nics, .. } = good(VHOST);
    assert!(record.hugepages && record.accel == Accelerator::Kvm);
    assert_eq!((record.vcpus, record.nodes.as_ref().map(ForeignText::raw)), (4, Some("0")));
    assert_eq!(record.vcpu_pins, [(0, "2"), (1, "3"), (2, "4,20")].map(|(vcpu, cpus)| (vcpu, cpus.into())).into());
    assert_eq!(
        (record.emulator_pin.as_ref().map(ForeignText::raw), &record.io_pins),
        (Some("0-1"), &[(1, "1".into())].into())
    );
    let [network, bridge] = nics.as_slice() else { panic!("two NICs") };
    assert_eq!(
        (network.facts.source.as_ref().map(ForeignText::raw), network.facts.queues, network.open),
        (Some("virbr0"), 1, true)
    );
    let expected = DomainNic {
        name: None,
        vlan: None,
        maxbw: None,
        kind: "bridge".into(),
        mac: Some("52:54:00:aa:00:02".into()),
        model: Some("virtio".into()),
        method: Some(IoMethod::Paravirtual),
        backend: Some(Flavour::Backend(Backend::Vhost)),
        queues: 4,
        rx_ring: Some(1024),
        tx_ring: Some(512),
        packed: true,
        mtu: Some(9000),
        source: Some("br-data".into()),
        target: Some("vnet7".into()),
        pci: None,
    };
    assert_eq!(bridge.facts, expected);
    assert!(!bridge.open && network.facts.mac.as_ref().map(ForeignText::raw) == Some("52:54:00:aa:00:01"));
}

#[test]
fn each_kind_of_nic_is_of_its_method() {
    let Described { record, nics, .. } = good(KINDS);
    let shown: Vec<String> = nics
        .iter()
        .map(|XmlNic { facts, open, .. }| {
            let tap = if *open { " or who knows" } else { "" };
            let place = facts.pci.as_ref().or(facts.source.as_ref()).map_or("-", ForeignText::raw);
            format!("{} {}{tap} at {place}", facts.kind, facts.label().unwrap_or_default())
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
    assert_eq!(record.vcpu_pins, [(0, "0-1".into()), (1, "0-1".into())].into(), "as all are");
    assert_eq!(record.emulator_pin.as_ref().map(ForeignText::raw), Some("0-1"));
}

#[test]
fn an_option_that_is_missing_is_usual_and_one_that_is_wrong_is_named() {
    let plain = "<domain type='qemu'><name>a</name><memory>1024</memory></domain>";
    let Described { record, nics, .. } = good(plain);
    assert_eq!((record.vcpus, record.memory, nics.len()), (1, ByteSize(1 << 20), 0));
    assert!(refused(&with(plain, "<name>a</name>", "")).contains("no <name>"));
    assert!(refused(&with(plain, "<memory>1024</memory>", "")).contains("no <memory>"));
    assert!(refused(&with(plain, "qemu", "xen")).contains("hypervisor `xen`"));
    assert!(
        refused(&with(VHOST, "queues='4'", "queues='many'")).contains("invalid number of queues `many` in its XML")
    );
    assert!(refused(&with(VHOST, "vcpu='1'", "vcpu='-1'")).contains("invalid thread's number `-1` in its XML"));
    assert!(
        refused(&with(VHOST, "unit='KiB'>16777216", "unit='KiB'>18446744073709551615"))
            .contains("invalid amount of memory")
    );
    assert!(refused("<network><name>a</name></network>").contains("a <network>, not a <domain>"));
    assert!(refused("").contains("root") && read("<domain").is_err() && read("error: no").is_err());
}

#[test]
fn hostile_xml_is_refused() {
    let bomb = "<!DOCTYPE d [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;\">]>\
        <domain type='kvm'><name>&b;</name></domain>";
    assert!(refused(bomb).contains("DTD"), "{}", refused(bomb));
    let file = "<!DOCTYPE d [<!ENTITY f SYSTEM \"file:///etc/passwd\">]><domain type='kvm'><name>&f;</name></domain>";
    assert!(refused(file).contains("DTD"));
    assert!(refused("<domain type='kvm'><name>&f;</name></domain>").contains("entity"));
    let wide = format!("<domain type='kvm'>{}</domain>", "<a/>".repeat(NODES_MOST as usize + 1));
    assert!(refused(&wide).contains("nodes"), "{}", refused(&wide));
    assert!(refused(&" ".repeat(BYTES_MOST + 1)).contains("more than the limit"));
    let many = with(KINDS, "<vcpu placement='static' cpuset='0-1'>2<", "<vcpu cpuset='0'>4294967295<");
    assert!(good(&many).record.vcpu_pins.len() < 10_000);
}

#[test]
fn all_parts_of_a_domain_are_read() {
    let told = [REAL, VHOST, KINDS].map(|text| format!("{:#?}", good(text).machine));
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn vlans_are_those_of_one_tag_or_of_a_trunk() {
    let vlans = |vlan: &str| {
        let text = with(KINDS, "<source dev='eno1' mode='bridge'/>", &format!("<source dev='eno1'/>{vlan}"));
        let found = good(&text).machine.links[0].vlans.clone();
        (found.native, found.tagged)
    };
    assert_eq!(vlans("<vlan><tag id='42'/></vlan>"), (Some(42), vec![]));
    assert_eq!(vlans("<vlan trunk='yes'><tag id='42'/></vlan>"), (None, vec![42]));
    let native = "<vlan trunk='yes'><tag id='42'/><tag id='123' nativeMode='untagged'/><tag id='7'/></vlan>";
    assert_eq!(vlans(native), (Some(123), vec![42, 7]));
    let text = with(KINDS, "<source dev='eno1' mode='bridge'/>", "<vlan><tag id='x'/></vlan>");
    assert!(refused(&text).contains("invalid VLAN `x` in its XML"));
}

/// Regardless of depth, parsing must not exhaust the stack.
#[test]
fn deep_xml_is_read_or_refused() {
    let depth = 90_000;
    let deep = format!("<domain type='kvm'>{}{}</domain>", "<a>".repeat(depth), "</a>".repeat(depth));
    let _ = read(&deep);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text: String) {
        let _ = read(&text);
    }

    /// A piece of a valid domain is copied elsewhere, or cut out.
    #[test]
    fn no_broken_domain_makes_the_reader_panic(from in 0..3000_usize, length in 0..200_usize, to in 0..3000_usize) {
        for text in [REAL, VHOST, KINDS] {
            let characters: Vec<char> = text.chars().collect();
            let piece: String = characters.iter().skip(from).take(length).collect();
            let (before, after) = characters.split_at(to.min(characters.len()));
            let _ = read(&(before.iter().collect::<String>() + &piece + &after.iter().collect::<String>()));
            let cut = characters.iter().enumerate().filter(|(at, _)| !(from..from + length).contains(at));
            let _ = read(&cut.map(|(_, character)| *character).collect::<String>());
        }
    }
}

#[test]
fn fuzz_domain_xml() {
    vtax_fuzz::fuzz_text("domain-xml", &[REAL, VHOST, KINDS], |text| {
        let Described { record, nics, machine } = read(text).inspect_err(|error| drop(error.to_string())).ok()?;
        let written = serde_json::to_string(&record).expect("it can be written");
        assert_eq!(serde_json::from_str::<DomainRecord>(&written).expect("it can be read"), record);
        assert!(machine.others.len() + machine.links.len() + machine.disks.len() <= NODES_MOST as usize);
        nics.iter().for_each(|nic| drop(serde_json::to_string(&nic.facts).expect("it can be written")));
        // A control character takes six bytes in JSON.
        let most = 6 * (BYTES_MOST + text.len());
        assert!(written.len() <= most, "{} bytes of {} bytes of XML", written.len(), text.len());
        Some(())
    });
}
