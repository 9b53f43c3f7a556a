use proptest::prelude::*;

use super::*;

#[test]
fn each_kind_of_nic_has_one_name_everywhere() {
    for flavour in Flavour::ALL {
        assert_eq!(flavour.name().parse(), Ok(flavour));
        let row = Row::Device(flavour);
        assert_eq!(row.to_string(), format!("{}:{flavour}", flavour.method()));
        assert_eq!(row.to_string().parse(), Ok(row));
    }
    for (backend, name) in [(Backend::VhostUser, "vhost-user"), (Backend::Vhost, "vhost")] {
        assert_eq!(serde_json::to_value(backend).expect("a unit variant"), name);
        assert_eq!(Flavour::Backend(backend).name(), name);
    }
    for vnet in [Vnet::Bridge, Vnet::Macvtap] {
        assert_eq!(serde_json::to_value(vnet).expect("a unit variant"), vnet.to_string());
    }
    for wrong in ["paravirtual:e1000e", "emulated:vhost", "bridge:vhost", "paravirtual:", ":vhost", "vhost"] {
        assert!(wrong.parse::<Row>().is_err(), "{wrong}");
    }
}

#[test]
fn a_nic_is_stored_with_its_method() {
    let nics = [
        Attach::Paravirtual(VirtioNic { backend: Some(Backend::Userspace), queues: 4, ..VirtioNic::default() }),
        Attach::Emulated { model: EmulatedNic::Igb },
    ];
    for nic in nics {
        let json = serde_json::to_value(nic).expect("JSON");
        assert_eq!(json["method"], nic.method().to_string());
        assert_eq!(serde_json::from_value::<Attach>(json).expect("JSON"), nic);
    }
}

#[test]
fn machines_and_nics_that_cannot_be_are_refused_by_the_option() {
    let refused =
        |size: GuestSize, nic: VirtioNic| Attach::Paravirtual(nic).check(&size).expect_err("it can't be").option();
    let (size, nic) = (GuestSize::default(), VirtioNic::default());
    assert_eq!(refused(GuestSize { vcpus: 0, ..size.clone() }, nic), "vcpus");
    assert_eq!(refused(GuestSize { vcpus: 257, ..size.clone() }, nic), "vcpus");
    assert_eq!(refused(GuestSize { memory: ByteSize(1 << 20), ..size.clone() }, nic), "memory");
    assert_eq!(refused(GuestSize { memory: ByteSize((256 << 20) + 1), ..size.clone() }, nic), "memory");
    assert_eq!(refused(GuestSize { cpus: vec![0, 1], ..size.clone() }, nic), "cpus");
    let vhost_pins = GuestSize { vcpus: 2, vhost_cpus: vec![0, 1], ..size.clone() };
    assert_eq!(refused(vhost_pins.clone(), nic), "vhost_cpus");
    assert_eq!(Attach::Paravirtual(VirtioNic { queues: 2, ..nic }).check(&vhost_pins), Ok(()));
    assert_eq!(refused(size.clone(), VirtioNic { queues: 0, ..nic }), "queues");
    assert_eq!(refused(size.clone(), VirtioNic { queues: 2, ..nic }), "queues");
    assert_eq!(refused(size.clone(), VirtioNic { vectors: Some(2049), ..nic }), "vectors");
    assert_eq!(refused(size.clone(), VirtioNic { rx_ring: Some(300), ..nic }), "rx_ring");
    assert_eq!(refused(size.clone(), VirtioNic { tx_ring: Some(128), ..nic }), "tx_ring");
    assert_eq!(refused(size.clone(), VirtioNic { tx_ring: Some(512), ..nic }), "tx_ring");
    let vhost_user = VirtioNic { backend: Some(Backend::VhostUser), tx_ring: Some(512), ..nic };
    assert_eq!(Attach::Paravirtual(vhost_user).check(&size), Ok(()));
    assert_eq!(refused(size.clone(), VirtioNic { vnet: Vnet::Macvtap, ..vhost_user }), "vnet");
}

#[test]
fn rows_take_their_nic_from_the_defaults() {
    let virtio = VirtioNic { queues: 2, ..VirtioNic::default() };
    let defaults = GuestDefaults { virtio, model: EmulatedNic::Vmxnet3, ..GuestDefaults::default() };
    let attach = |row: &str| defaults.attach(row.parse().expect("a row"));
    assert_eq!(attach("paravirtual"), Some(Attach::Paravirtual(virtio)));
    let userspace = VirtioNic { backend: Some(Backend::Userspace), ..virtio };
    assert_eq!(attach("paravirtual:userspace"), Some(Attach::Paravirtual(userspace)));
    assert_eq!(attach("emulated"), Some(Attach::Emulated { model: EmulatedNic::Vmxnet3 }));
    assert_eq!(attach("emulated:igb"), Some(Attach::Emulated { model: EmulatedNic::Igb }));
    assert_eq!(attach("bridge"), None);
}

#[test]
fn addresses_of_nics_are_local_and_always_the_same() {
    let mac = Mac::of(&["rack", "db"]);
    assert_eq!(mac, Mac::of(&["rack", "db"]));
    assert_ne!(mac, Mac::of(&["rackd", "b"]), "where a word ends counts");
    assert_eq!(mac.octets()[0], 0x02);
    assert_eq!(mac.to_string().parse(), Ok(mac));
    for wrong in
        ["", "02:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "02-00-00-00-00-01"]
    {
        assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_words_give_a_valid_unicast_address(a in "[a-z][a-z0-9-]{0,31}", b in "[a-z][a-z0-9-]{0,31}") {
        let mac = Mac::of(&[&a, &b]);
        prop_assert_eq!(mac.to_string().parse::<Mac>(), Ok(mac));
    }
}
