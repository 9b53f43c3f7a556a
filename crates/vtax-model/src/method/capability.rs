//! Capabilities of I/O methods: what a domain supports, depending on its attachment.
//!
//! `vtax methods`, the planner's refusals and the book read the same table. Its facts are those of Linux, QEMU and KVM;
//! where vtax itself does less, e.g. changes a slot only at a domain's next boot, the table states what vtax does.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Capabilities of one way of attaching a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Restriction of the domain to VLANs, from outside.
    pub vlan: TrafficControl,
    /// Limit of its rate, from outside.
    pub rate_limit: TrafficControl,
    /// Moving it to another host while it runs.
    pub live_migration: Ability,
    /// Adding and removing the NIC while the domain runs.
    pub hot_plug: Ability,
    /// Maximum number of domains that can be attached this way.
    pub count: GuestCount,
    /// Exclusive part of the system or of the hardware.
    pub isolation: Isolation,
    /// Dependency: the domain or program whose failure interrupts its network.
    pub failover: Failover,
    /// Types of devices that can be attached this way.
    pub devices: Devices,
    /// Part of the host that handles each packet.
    pub host_cpu: HostWork,
}

/// Column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "as of `Capabilities`")]
pub enum Capability {
    Vlan,
    RateLimit,
    LiveMigration,
    HotPlug,
    Count,
    Isolation,
    Failover,
    Devices,
    HostCpu,
}

/// Possibility: yes, no, or sometimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Ability {
    Yes,
    /// Possible with some hardware or programs only.
    Depends {
        reason: &'static str,
    },
    No {
        reason: &'static str,
    },
}

/// Where a setting can be imposed on the domain, so that the domain cannot evade it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TrafficControl {
    /// The NIC. The host sets it for each virtual function.
    Nic {
        by: &'static str,
    },
    /// The host, at one of its links.
    Host {
        by: &'static str,
    },
    /// Possible with some programs only.
    Depends {
        reason: &'static str,
    },
    No {
        reason: &'static str,
    },
}

/// Maximum number of domains that can be attached this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestCount {
    /// The host itself.
    One,
    /// As many as the host has memory and addresses for.
    Unlimited,
    /// One per port of a bridge, see [`GuestCount::BRIDGE_PORTS`].
    SwitchPorts,
    /// One per virtual function.
    Functions,
    /// One per device.
    Devices,
    /// One per root complex.
    RootComplexes,
    /// One per wire.
    Wires,
}

impl GuestCount {
    /// A bridge has ten bits for port numbers (`BR_PORT_BITS`), and 0 isn't one. The wire is a port as well.
    pub const BRIDGE_PORTS: usize = 1023;
}

/// Exclusive part of the system or of the hardware. A zone always shares the host's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Isolation {
    /// Only an address.
    Address,
    /// A network stack. The host's kernel forwards its packets.
    Stack,
    /// A kernel. The host forwards its packets.
    Kernel,
    /// A virtual function of a shared NIC.
    Function,
    /// A device, or a wire's end.
    Device,
    /// A root complex with everything below it.
    #[serde(rename = "complex")]
    #[strum(serialize = "complex")]
    RootComplex,
}

/// Dependency of the domain's network, in addition to the host's kernel, which every domain needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failover {
    /// The host's own links, without a switch between them and the domain that another could replace.
    Host,
    /// The service domain of its switch. A vnet on another service domain's switch can take over.
    Switch,
    /// The program that serves its rings.
    Backend,
    /// The physical function of its virtual function, and so the domain that has it.
    PhysicalFunction,
    /// The domain that has the root port above its device.
    RootPort,
    /// No other domain can interrupt it.
    Nobody,
    /// The process that carries its traffic.
    Process,
}

/// Types of devices that can be attached this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// NICs.
    Net,
    /// NICs and disks.
    NetAndDisk,
    /// Whatever a card offers as virtual functions.
    Functions,
    /// Any PCI device.
    Pci,
}

/// Part of the host that handles each packet, and takes CPU time for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostWork {
    /// The whole stack of a zone or of the host.
    Stack,
    /// A thread of the host's kernel (vhost).
    Vhost,
    /// QEMU copies each packet between kernel and user space.
    Qemu,
    /// The program that serves the rings.
    Backend,
    /// A process that copies all data between sockets.
    Process,
    /// None, except interrupts.
    Interrupts,
}

/// An answer of the table, as a word and as a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CapabilityAnswer {
    /// Column.
    #[serde(skip)]
    pub capability: Capability,
    /// A word for tables, such as `yes`, `some` or `VFs`.
    #[serde(rename = "answer")]
    pub word: &'static str,
    /// Sentence without a full stop; empty for a plain yes.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
}

impl Capability {
    /// Every column, in the order of tables.
    pub const ALL: [Capability; 9] = *Capability::VARIANTS.as_array().expect("there are nine");

    /// Heading of a column in a terminal.
    pub fn head(self) -> &'static str {
        match self {
            Capability::Vlan => "VLAN",
            Capability::RateLimit => "RATE",
            Capability::LiveMigration => "MIGRATE",
            Capability::HotPlug => "HOT-PLUG",
            Capability::Count => "AT MOST",
            Capability::Isolation => "ISOLATION",
            Capability::Failover => "NEEDS",
            Capability::Devices => "DEVICES",
            Capability::HostCpu => "HOST CPU",
        }
    }

    /// Name in text.
    pub fn title(self) -> &'static str {
        match self {
            Capability::Vlan => "VLAN filter",
            Capability::RateLimit => "rate limit",
            Capability::LiveMigration => "live migration",
            Capability::HotPlug => "hot-plug",
            Capability::Count => "at most",
            Capability::Isolation => "isolation",
            Capability::Failover => "depends on",
            Capability::Devices => "devices",
            Capability::HostCpu => "host CPU",
        }
    }
}

impl Capabilities {
    /// Returns the answer in a column.
    pub fn answer(&self, capability: Capability) -> CapabilityAnswer {
        let (word, reason) = match capability {
            Capability::Vlan => self.vlan.words(),
            Capability::RateLimit => self.rate_limit.words(),
            Capability::LiveMigration => self.live_migration.words(),
            Capability::HotPlug => self.hot_plug.words(),
            Capability::Count => self.count.words(),
            Capability::Isolation => self.isolation.words(),
            Capability::Failover => self.failover.words(),
            Capability::Devices => self.devices.words(),
            Capability::HostCpu => self.host_cpu.words(),
        };
        CapabilityAnswer { capability, word, reason }
    }

    /// Returns the answers in all columns.
    pub fn answers(&self) -> [CapabilityAnswer; 9] {
        Capability::ALL.map(|capability| self.answer(capability))
    }

    /// Returns why a lab file cannot set this option for a domain with these capabilities; none if it can, or if the
    /// table doesn't cover the option. Files have `vlan` and `rate` for virtual functions, on which the NIC enforces them.
    pub(crate) fn refuses(&self, option: &str) -> Option<&'static str> {
        let control = match option {
            "vlan" => self.vlan,
            "rate" => self.rate_limit,
            _ => return None,
        };
        (!control.is_of_functions()).then_some(control.words().1)
    }
}

impl Ability {
    /// Returns true if it is possible with all hardware and programs.
    pub fn is_yes(self) -> bool {
        self == Ability::Yes
    }

    /// Returns the reason why it isn't always possible.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Ability::Yes => None,
            Ability::Depends { reason } | Ability::No { reason } => Some(reason),
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Ability::Yes => ("yes", ""),
            Ability::Depends { reason } => ("some", reason),
            Ability::No { reason } => ("no", reason),
        }
    }
}

impl TrafficControl {
    /// Returns true if it is a setting of each virtual function.
    pub fn is_of_functions(self) -> bool {
        matches!(self, TrafficControl::Nic { .. })
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            TrafficControl::Nic { by } => ("NIC", by),
            TrafficControl::Host { by } => ("host", by),
            TrafficControl::Depends { reason } => ("some", reason),
            TrafficControl::No { reason } => ("no", reason),
        }
    }
}

const _: () = assert!(GuestCount::BRIDGE_PORTS == 1023, "the words below have this number");

impl GuestCount {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            GuestCount::One => ("1", "it is the host itself"),
            GuestCount::Unlimited => ("unlimited", "only memory and addresses limit the number"),
            GuestCount::SwitchPorts => ("1022", "per wire: a Linux bridge has 1023 ports, and the wire takes one"),
            GuestCount::Functions => ("VFs", "one per virtual function of the NIC"),
            GuestCount::Devices => {
                ("devices", "one per device; for guests, the devices of an IOMMU group count as one")
            }
            GuestCount::RootComplexes => ("complexes", "one per root complex that the host can spare"),
            GuestCount::Wires => ("wires", "one per wire"),
        }
    }
}

impl Isolation {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Isolation::Address => ("address", "the stack, its ports, routes and firewall are the host's"),
            Isolation::Stack => ("stack", "a separate network stack; the host's kernel and the wire's end are shared"),
            Isolation::Kernel => ("kernel", "a separate system; the host forwards its packets, with those of others"),
            Isolation::Function => ("function", "a virtual function; the NIC, its link and bandwidth are shared"),
            Isolation::Device => ("device", "a whole device or wire's end, used exclusively"),
            Isolation::RootComplex => ("complex", "everything below a root complex, so that no PCIe link is shared"),
        }
    }
}

impl Failover {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Failover::Host => ("host", "it uses the host's own links, and fails with them"),
            Failover::Switch => (
                "switch",
                "without the service domain of its switch it has no network; a second vnet on another service domain's \
                 switch can take over",
            ),
            Failover::Process => ("process", "without the process that carries its traffic it has no network"),
            Failover::Backend => ("backend", "without the program that serves its rings it has no network"),
            Failover::PhysicalFunction => {
                ("PF", "a reset of the physical function or of its driver interrupts all its virtual functions")
            }
            Failover::RootPort => ("primary", "primary keeps the root port above the device; a reset there resets it"),
            Failover::Nobody => ("nobody", "no other domain can interrupt it"),
        }
    }
}

impl Devices {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Devices::Net => ("net", "zones get network links only"),
            Devices::NetAndDisk => ("net,disk", "NICs and disks, each added individually; no other devices"),
            Devices::Functions => ("any VF", "any type offered as virtual functions, usually NICs"),
            Devices::Pci => ("any PCI", "any PCI device"),
        }
    }
}

impl HostWork {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            HostWork::Stack => ("stack", "the host's kernel runs the network stack and the links below it"),
            HostWork::Vhost => ("vhost", "a kernel thread per pair of queues copies each packet"),
            HostWork::Qemu => ("QEMU", "QEMU copies each packet, between kernel and user space"),
            HostWork::Backend => {
                ("backend", "another program copies each packet; most of them poll and occupy whole CPUs")
            }
            HostWork::Process => (
                "process",
                "a process copies all data between sockets of the host and the zone; the host's network stack runs for \
                 both sides",
            ),
            HostWork::Interrupts => (
                "none",
                "the device reads and writes the guest's memory; without posted interrupts, the host passes on its \
                 interrupts",
            ),
        }
    }
}
