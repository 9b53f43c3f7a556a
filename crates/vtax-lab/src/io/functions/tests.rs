use vtax_step::{Place, TakeNic};

use super::*;
use crate::{facts::PciFacts, io::owners::Owners, survey::pci_tests::facts};

const PF: &str = "pci_0/slot2/PF1";

fn list(change: impl FnOnce(&mut PciFacts)) -> IoList {
    let mut facts = facts();
    change(&mut facts);
    IoList::of(facts, &Owners::default())
}

fn device<'a>(facts: &'a mut PciFacts, name: &str) -> &'a mut PciDevice {
    facts.devices.iter_mut().find(|device| device.name == name).expect("a device")
}

fn some(count: u32) -> NewVfs {
    NewVfs { count: NonZeroU32::new(count), ..NewVfs::default() }
}

fn steps_of(list: &IoList, wish: &NewVfs) -> String {
    let plan = list.new_vfs(PF, wish).expect("they can be made");
    plan.steps.iter().map(|step| format!("{step}\n")).collect()
}

#[test]
fn new_functions_are_recorded_by_their_physical_function() {
    let plan = list(|_| {}).new_vfs(PF, &some(2)).expect("they can be made");
    assert_eq!((record(plan.made.device).as_str(), plan.made.count), ("io-0000-01-00-1", 2));
    assert_eq!((plan.name.as_str(), plan.warning), (PF, None));
}

#[test]
fn settings_are_made_before_a_driver_reads_them() {
    let plain = steps_of(&list(|_| {}), &some(2));
    let tagged = NewVfs { vlan: 7.try_into().ok(), trust: Some(true), ..some(1) };
    let one = NewVfs { mac: "02:00:5e:10:00:01".parse().ok(), mtu: 9000.try_into().ok(), ..tagged };
    let configured = steps_of(&list(|_| {}), &one);
    let all = NewVfs { count: None, ..tagged };
    let all = steps_of(&list(|_| {}), &all);
    // With automatic probing disabled, new functions have no driver.
    let unprobed = list(|facts| device(facts, PF).sriov.as_mut().expect("a PF").autoprobe = false);
    let unprobed = steps_of(&unprobed, &some(1));
    insta::assert_snapshot!([plain, configured, all, unprobed].join("\n"));
}

#[test]
fn a_nic_with_the_default_route_may_have_some_with_a_warning() {
    let list = list(|facts| device(facts, PF).kept = Some("it carries the default route (eno2)".into()));
    let warning = list.new_vfs(PF, &some(1)).expect("they can be made").warning.expect("a warning");
    assert!(warning.contains("default route"), "{warning}");
}

#[test]
fn impossible_functions_are_refused_with_a_reason() {
    let refused = |change: fn(&mut PciDevice), wish: NewVfs| {
        let list = list(|facts| change(device(facts, PF)));
        list.new_vfs(PF, &wish).expect_err("it can't be").to_string()
    };
    let trust = NewVfs { trust: Some(true), ..some(1) };
    let rate = |text: &str| NewVfs { rate: text.parse().ok(), ..some(1) };
    let lent = {
        let mut owners = Owners::default();
        let at = Place::wire(&"sut".parse().expect("a name"), 0);
        let device = "0000:01:00.1".parse().expect("an address");
        let step = LabStep::TakeNic(TakeNic { device, at, mtu: Mtu::ETHERNET, was: None });
        owners.take(&"rack".parse().expect("a name"), &step);
        IoList::of(facts(), &owners).new_vfs(PF, &some(1)).expect_err("a lab has it").to_string()
    };
    let told = [
        list(|_| {}).new_vfs("eth9", &some(1)).expect_err("no such").to_string(),
        list(|_| {}).new_vfs("pci_0/slot2/PF0.VF0", &some(1)).expect_err("a VF").to_string(),
        list(|_| {}).new_vfs("pci_0/03", &some(1)).expect_err("no PF").to_string(),
        list(|_| {}).new_vfs("pci_0/slot2/PF0", &some(1)).expect_err("has some").to_string(),
        lent,
        refused(|_| {}, some(64)),
        refused(|_| {}, NewVfs { mac: "02:00:5e:10:00:01".parse().ok(), ..some(2) }),
        refused(|_| {}, NewVfs { mtu: 16_000.try_into().ok(), ..some(1) }),
        refused(|_| {}, rate("1500k")),
        refused(|pf| pf.netdev.as_mut().expect("a link").up = false, rate("100M")),
        refused(|pf| pf.netdev = None, trust),
        refused(|pf| pf.driver = None, some(1)),
        refused(|pf| pf.driver = Some("vfio-pci".into()), some(1)),
        refused(
            |pf| pf.sriov.as_mut().expect("a PF").autoprobe = false,
            NewVfs { mtu: 9000.try_into().ok(), ..some(1) },
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn all_of_a_physical_function_are_removed_unless_one_is_in_use() {
    let functions = ["pci_0/slot2/PF0.VF0", "pci_0/slot2/PF0.VF1"];
    let free = |facts: &mut PciFacts| {
        for name in functions {
            let function = device(facts, name);
            (function.netdev, function.driver) = (None, None);
        }
    };
    let removal = list(free).removal("pci_0/slot2/PF0", &[]).expect("nobody has them");
    assert_eq!(removal.names, functions);
    let refused = |change: fn(&mut PciDevice), name: &str| {
        let list = list(|facts| {
            free(facts);
            change(device(facts, functions[1]));
        });
        list.removal(name, &[]).expect_err("it can't be").to_string()
    };
    let told = [
        refused(|_| {}, functions[0]),
        refused(|vf| vf.driver = Some("vfio-pci".into()), "pci_0/slot2/PF0"),
        refused(|vf| vf.driver = Some("igbvf".into()), "pci_0/slot2/PF0"),
        refused(|vf| vf.kept = Some("it carries your ssh session".into()), "pci_0/slot2/PF0"),
        refused(|_| {}, PF),
        refused(|_| {}, "pci_0/03"),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn the_only_one_may_be_named_itself() {
    let list = list(|facts| {
        device(facts, "pci_0/slot2/PF0").virtfns.truncate(1);
        let function = device(facts, "pci_0/slot2/PF0.VF0");
        (function.netdev, function.driver) = (None, None);
    });
    let removal = list.removal("pci_0/slot2/PF0.VF0", &[]).expect("nobody has it");
    assert_eq!((removal.device.to_string().as_str(), removal.names.len()), ("0000:01:00.0", 1));
}
