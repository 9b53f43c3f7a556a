//! The four families of I/O that a guest can have, with their advantages and their uses, derived from the table of
//! capabilities.

use strum::VariantArray;

use super::{
    IoMethod,
    capability::{Ability, Capabilities, Devices, Failover, GuestCount, HostWork, Isolation},
};

/// Family of methods that attach guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
pub enum Family {
    /// Virtual functions.
    SrIov,
    /// Whole devices.
    DirectIo,
    /// Whole root complexes.
    RootDomains,
    /// Devices that QEMU or the host's kernel provides.
    VirtualIo,
}

/// Advantages and disadvantages of a family, and when to choose and to avoid it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// Advantages.
    pub pros: Vec<&'static str>,
    /// Disadvantages.
    pub cons: Vec<&'static str>,
    /// Requirements that it meets better than others.
    pub choose_when: Vec<&'static str>,
    /// Requirements that it doesn't meet.
    pub avoid_when: Vec<&'static str>,
}

enum Point {
    Pro(&'static str),
    Con(&'static str),
    Choose(&'static str),
    Avoid(&'static str),
}

use Point::{Avoid, Choose, Con, Pro};

impl Family {
    /// Every family, in the order of tables.
    pub const ALL: [Family; 4] = *Family::VARIANTS.as_array().expect("there are four");

    /// Name in text.
    pub fn title(self) -> &'static str {
        match self {
            Family::SrIov => "SR-IOV",
            Family::DirectIo => "Direct I/O",
            Family::RootDomains => "Root domains",
            Family::VirtualIo => "Virtual I/O",
        }
    }

    /// Methods of the family. The first one represents it.
    pub fn methods(self) -> &'static [IoMethod] {
        match self {
            Family::SrIov => &[IoMethod::SrIov],
            Family::DirectIo => &[IoMethod::Assigned],
            Family::RootDomains => &[IoMethod::RootDomain],
            Family::VirtualIo => &[IoMethod::Paravirtual, IoMethod::Emulated],
        }
    }

    /// Returns the implications of its first method's capabilities.
    pub fn advice(self) -> Advice {
        let mut advice = Advice::default();
        for point in points(&self.methods()[0].variants()[0].capabilities()) {
            match point {
                Pro(text) => advice.pros.push(text),
                Con(text) => advice.cons.push(text),
                Choose(text) => advice.choose_when.push(text),
                Avoid(text) => advice.avoid_when.push(text),
            }
        }
        advice
    }
}

fn points(of: &Capabilities) -> Vec<Point> {
    let columns = [
        of_host_cpu(of.host_cpu),
        of_count(of.count),
        of_isolation(of.isolation),
        of_devices(of.devices),
        of_migration(of.live_migration),
        of_hot_plug(of.hot_plug),
        of_failover(of.failover),
    ];
    columns.into_iter().flatten().collect()
}

fn of_host_cpu(host_cpu: HostWork) -> Vec<Point> {
    match host_cpu {
        HostWork::Interrupts => vec![Pro("bare-metal performance: packets bypass the host")],
        _ => vec![
            Con("some overhead: mostly latency, and CPU time of the host for each packet"),
            Avoid("bare-metal latency or packet rates are required"),
        ],
    }
}

fn of_count(count: GuestCount) -> Vec<Point> {
    match count {
        GuestCount::Functions => vec![
            Pro("the finest division of PCIe devices: one card serves as many guests as it has virtual functions"),
            Con("requires a card with SR-IOV"),
            Choose("many guests need bare-metal latency"),
        ],
        GuestCount::Devices => vec![
            Con("no more guests than devices that can be assigned separately"),
            Con("not every card: all devices of an IOMMU group are assigned together"),
        ],
        GuestCount::RootComplexes => vec![Con("no more guests than root complexes that the host can spare")],
        GuestCount::Unlimited | GuestCount::SwitchPorts => vec![
            Pro("almost no limit to the number of virtual devices"),
            Pro("no special hardware"),
            Choose("many, mostly small guests share a machine (consolidation)"),
        ],
        GuestCount::One | GuestCount::Wires => Vec::new(),
    }
}

fn of_isolation(isolation: Isolation) -> Vec<Point> {
    match isolation {
        Isolation::Function => vec![Con("the guests of a card share its bandwidth")],
        Isolation::Device => {
            vec![Pro("a dedicated device"), Choose("a guest needs a dedicated or special card")]
        }
        Isolation::RootComplex => vec![
            Pro("the highest isolation: no I/O hardware is shared"),
            Choose("few, important guests with high CPU, memory and I/O requirements"),
        ],
        Isolation::Kernel => vec![Con("guests share the host's I/O hardware, and may slow each other down")],
        Isolation::Address | Isolation::Stack => Vec::new(),
    }
}

fn of_devices(devices: Devices) -> Vec<Point> {
    match devices {
        Devices::Functions => vec![
            Pro("NICs, InfiniBand and storage, if the card offers them as virtual functions"),
            Choose("a function of a storage card would replace many virtual disks"),
        ],
        Devices::Pci => vec![Pro("any type of card")],
        Devices::NetAndDisk => vec![
            Con("only networks and disks: no tape drives and no host bus adapters"),
            Con("each virtual disk is added individually"),
            Avoid("other devices than networks and disks are required"),
        ],
        Devices::Net => Vec::new(),
    }
}

fn of_migration(live_migration: Ability) -> Vec<Point> {
    let is_required = "live migration is required";
    match live_migration {
        Ability::Yes => vec![Pro("live migration"), Choose(is_required)],
        Ability::Depends { .. } => vec![
            Con("no live migration, except with a few drivers, which vtax does not use"),
            Choose("the guests need no live migration"),
            Avoid(is_required),
        ],
        Ability::No { .. } => vec![
            Con("no live migration"),
            Choose("live migration is not required, or impractical because of the guest's size and activity"),
            Avoid(is_required),
        ],
    }
}

fn of_hot_plug(hot_plug: Ability) -> Vec<Point> {
    match hot_plug {
        Ability::Yes => vec![Pro("dynamic reconfiguration: added and removed while the guest runs")],
        Ability::Depends { .. } => Vec::new(),
        Ability::No { .. } => {
            vec![Con("no dynamic reconfiguration"), Avoid("devices must be added or removed while the guest runs")]
        }
    }
}

fn of_failover(failover: Failover) -> Vec<Point> {
    match failover {
        Failover::Switch => vec![
            Pro("redundant service domains: one can be maintained while another serves the guests"),
            Choose("guests must survive the maintenance of a service domain"),
        ],
        Failover::PhysicalFunction => vec![
            Con("depends on the domain that has the physical function"),
            Avoid("availability has the highest priority"),
        ],
        Failover::RootPort => {
            vec![Con("depends on the domain that has the root complex"), Avoid("availability has the highest priority")]
        }
        Failover::Nobody => vec![Pro("independent of all other domains, except for the console")],
        Failover::Backend | Failover::Process | Failover::Host => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Side = fn(&Advice) -> &Vec<&'static str>;

    /// The comparison of these families in the series "What's up with LDoms", part 11, point by point.
    const PUBLISHED: [(Family, Side, &[&str]); 12] = [
        (Family::SrIov, |it| &it.pros, &["finest division", "bare-metal", "InfiniBand and storage", "dynamic reconf"]),
        (Family::SrIov, |it| &it.cons, &["requires a card", "no live migration", "depends on the domain"]),
        (Family::SrIov, |it| &it.choose_when, &["many guests", "no live migration", "many virtual disks"]),
        (Family::DirectIo, |it| &it.pros, &["dedicated device", "bare-metal", "any type of card"]),
        (
            Family::DirectIo,
            |it| &it.cons,
            &["than devices", "not every card", "no live migration", "no dynamic", "depends on the domain"],
        ),
        (Family::DirectIo, |it| &it.choose_when, &["dedicated or special card"]),
        (Family::RootDomains, |it| &it.pros, &["independent", "highest isolation", "bare-metal", "any type of card"]),
        (Family::RootDomains, |it| &it.cons, &["root complexes", "no live migration", "no dynamic"]),
        (Family::RootDomains, |it| &it.choose_when, &["high CPU, memory and I/O", "not required, or impractical"]),
        (
            Family::VirtualIo,
            |it| &it.pros,
            &["live migration", "dynamic reconf", "no special hardware", "almost no limit", "redundant service"],
        ),
        (
            Family::VirtualIo,
            |it| &it.cons,
            &["only networks and disks", "latency", "disk is added individually", "share the host's I/O hardware"],
        ),
        (Family::VirtualIo, |it| &it.choose_when, &["consolidation", "small guests", "live migration is required"]),
    ];

    #[test]
    fn the_published_comparison_follows_from_the_table() {
        for (family, side, points) in PUBLISHED {
            let advice = family.advice();
            let derived = side(&advice);
            for point in points {
                assert!(derived.iter().any(|text| text.contains(point)), "{family:?}: no `{point}` in {derived:?}");
            }
        }
        let first = Family::SrIov.advice();
        assert!(first.avoid_when.iter().any(|text| text.contains("availability")), "{first:?}");
    }

    #[test]
    fn derived_advice_is_never_empty_or_repeated() {
        for family in Family::ALL {
            let Advice { pros, cons, choose_when, avoid_when } = family.advice();
            for side in [pros, cons, choose_when] {
                let mut texts = side.clone();
                texts.dedup();
                assert!(!side.is_empty() && texts == side, "{family:?}: {side:?}");
            }
            assert!(!avoid_when.is_empty(), "{family:?}");
        }
    }
}
