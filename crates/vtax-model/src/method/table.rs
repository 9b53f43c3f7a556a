//! The table of capabilities: one row for each way of attaching a domain.

use super::capability::{Ability, Capabilities, Devices, Failover, GuestCount, HostWork, Isolation, TrafficControl};

/// CRIU can checkpoint processes and restore them elsewhere, but vtax does not use it.
const NO_ZONES: Ability =
    Ability::No { reason: "a zone's processes belong to the host's kernel; only virtual machines migrate live" };
const WITH_THE_WIRE: TrafficControl = TrafficControl::No {
    reason: "the zone's link is inside the zone; the host can only limit the wire's end, for all together",
};
const UNFILTERED: TrafficControl =
    TrafficControl::No { reason: "it has no VLAN filter; attach the zone to a VLAN link of the host (eno1.7) instead" };
/// A guest that has the NIC also configures it.
const WHOLE_NIC_UNFILTERED: TrafficControl = TrafficControl::No {
    reason: "the guest controls the whole NIC, so only the switch at the other end of the cable can filter VLANs",
};
const WHOLE_NIC_UNLIMITED: TrafficControl = TrafficControl::No {
    reason: "the guest controls the whole NIC, so only the switch at the other end of the cable can limit its rate",
};

pub(super) const NATIVE: Capabilities = Capabilities {
    vlan: TrafficControl::No {
        reason: "the host itself may send any tag; only the switch at the other end can filter",
    },
    rate_limit: TrafficControl::No {
        reason: "a limit on the wire's end applies to the host and to all its domains together",
    },
    live_migration: Ability::No { reason: "it is the host itself" },
    hot_plug: Ability::Depends { reason: "the slot and the NIC must support PCI hot-plug" },
    count: GuestCount::One,
    isolation: Isolation::Address,
    failover: Failover::Host,
    devices: Devices::Pci,
    host_cpu: HostWork::Stack,
};

/// A virtio NIC served by vhost, on a switch.
pub(super) const VHOST: Capabilities = Capabilities {
    vlan: TrafficControl::Host {
        by: "the host sets it at the port of the switch (pvid= and vid= of vtax ldm add-vnet)",
    },
    rate_limit: TrafficControl::Host {
        by: "the host sets it at the tap, for both directions (maxbw= of vtax ldm add-vnet)",
    },
    live_migration: Ability::Yes,
    hot_plug: Ability::Yes,
    count: GuestCount::SwitchPorts,
    isolation: Isolation::Kernel,
    failover: Failover::Switch,
    devices: Devices::NetAndDisk,
    host_cpu: HostWork::Vhost,
};

/// Capabilities of a virtio NIC on a macvtap: there is no switch.
pub(super) const fn on_macvtap(on_switch: Capabilities) -> Capabilities {
    Capabilities {
        vlan: TrafficControl::No {
            reason: "a macvtap has no VLAN filter; put it on a VLAN link of the host (eno1.7), or use a switch",
        },
        rate_limit: TrafficControl::Host { by: "the host limits the guest's sending at the macvtap (tc)" },
        count: GuestCount::Unlimited,
        failover: Failover::Host,
        ..on_switch
    }
}

/// A virtio NIC served by another program.
pub(super) const VHOST_USER: Capabilities = Capabilities {
    vlan: TrafficControl::Depends { reason: "the program must support VLANs, as Open vSwitch does" },
    rate_limit: TrafficControl::Depends { reason: "the program must support rate limits, as Open vSwitch does" },
    live_migration: Ability::Depends {
        reason: "QEMU refuses to migrate unless the program can log the pages that it writes (LOG_SHMFD)",
    },
    count: GuestCount::Unlimited,
    failover: Failover::Backend,
    host_cpu: HostWork::Backend,
    ..VHOST
};

pub(super) const EMULATED: Capabilities = Capabilities {
    hot_plug: Ability::Depends {
        reason: "PCI Express models can be plugged into root ports; rtl8139 is a conventional PCI device",
    },
    host_cpu: HostWork::Qemu,
    ..VHOST
};

/// A virtual function assigned to a guest.
pub(super) const FUNCTION: Capabilities = Capabilities {
    vlan: TrafficControl::Nic {
        by: "the host sets it for each virtual function: one VLAN, whose tag the domain does not see",
    },
    rate_limit: TrafficControl::Nic { by: "the host limits the sending of each virtual function" },
    live_migration: Ability::Depends {
        reason: "of the drivers for NICs, only mlx5_vfio_pci, pds_vfio_pci and virtio_vfio_pci can save a VF's state; \
                 vfio-pci, which vtax uses, cannot, so VFs of igb, ixgbe, i40e and others do not migrate",
    },
    hot_plug: Ability::Yes,
    count: GuestCount::Functions,
    isolation: Isolation::Function,
    failover: Failover::PhysicalFunction,
    devices: Devices::Functions,
    host_cpu: HostWork::Interrupts,
};

pub(super) const FUNCTION_OF_ZONE: Capabilities =
    Capabilities { live_migration: NO_ZONES, devices: Devices::Net, host_cpu: HostWork::Stack, ..FUNCTION };

/// A whole PCI endpoint assigned to a guest.
pub(super) const ASSIGNED: Capabilities = Capabilities {
    vlan: WHOLE_NIC_UNFILTERED,
    rate_limit: WHOLE_NIC_UNLIMITED,
    live_migration: Ability::No { reason: "vfio-pci cannot read the state of the device" },
    hot_plug: Ability::No {
        reason: "a slot is assigned with all its functions, at the guest's next boot; vtax plugs in virtual functions only",
    },
    count: GuestCount::Devices,
    isolation: Isolation::Device,
    failover: Failover::RootPort,
    devices: Devices::Pci,
    host_cpu: HostWork::Interrupts,
};

pub(super) const ROOT_DOMAIN: Capabilities = Capabilities {
    live_migration: Ability::No { reason: "vfio-pci cannot read the state of the devices" },
    hot_plug: Ability::No {
        reason: "a root complex is assigned as a whole, at the guest's next boot; vtax plugs in virtual functions only",
    },
    count: GuestCount::RootComplexes,
    isolation: Isolation::RootComplex,
    failover: Failover::Nobody,
    ..ASSIGNED
};

/// A zone on the host's stack.
pub(super) const SHARED_IP: Capabilities = Capabilities {
    vlan: TrafficControl::No { reason: "the zone has an address, but no separate link" },
    rate_limit: TrafficControl::No { reason: "the zone has no separate link; the host can only limit the wire's end" },
    isolation: Isolation::Address,
    ..ON_WIRE
};

/// A zone whose link is on the wire's end (macvlan, ipvlan).
pub(super) const ON_WIRE: Capabilities = Capabilities {
    vlan: UNFILTERED,
    rate_limit: WITH_THE_WIRE,
    live_migration: NO_ZONES,
    hot_plug: Ability::Yes,
    count: GuestCount::Unlimited,
    isolation: Isolation::Stack,
    failover: Failover::Host,
    devices: Devices::Net,
    host_cpu: HostWork::Stack,
};

pub(super) const VETH: Capabilities = Capabilities {
    vlan: TrafficControl::No { reason: "the host routes the zone's packets, so the zone sends no frames on the wire" },
    rate_limit: TrafficControl::Host { by: "the host sets it at its end of the veth pair (tc), for both directions" },
    ..ON_WIRE
};

pub(super) const BRIDGE: Capabilities = Capabilities {
    vlan: TrafficControl::Host { by: "the host sets it at the port of the bridge, if the bridge filters VLANs" },
    count: GuestCount::SwitchPorts,
    ..VETH
};

pub(super) const TUNNEL: Capabilities = Capabilities {
    vlan: TrafficControl::No {
        reason: "the tunnel's number (VNI) separates its frames; on the wire they are UDP of the host",
    },
    ..ON_WIRE
};

/// A NIC that is moved into a zone.
pub(super) const LINK_OF_ZONE: Capabilities = Capabilities {
    vlan: TrafficControl::No {
        reason: "the whole NIC is in the zone, so only the switch at the other end can filter VLANs",
    },
    rate_limit: TrafficControl::No {
        reason: "the whole NIC is in the zone, so only the switch at the other end can limit its rate",
    },
    count: GuestCount::Devices,
    isolation: Isolation::Device,
    failover: Failover::Nobody,
    ..ON_WIRE
};

pub(super) const WIRE_OF_ZONE: Capabilities = Capabilities { count: GuestCount::Wires, ..LINK_OF_ZONE };

/// A zone behind a dedicated bridge, with the address of its host.
pub(super) const TRANSLATED: Capabilities = Capabilities {
    vlan: TrafficControl::No {
        reason: "the host translates the zone's packets, so the zone sends no frames on the wire",
    },
    ..VETH
};

pub(super) const PROXIED: Capabilities =
    Capabilities { failover: Failover::Process, host_cpu: HostWork::Process, ..TRANSLATED };

/// A zone on a tap whose other end is a process.
pub(super) const RELAYED: Capabilities = Capabilities {
    vlan: TrafficControl::No {
        reason: "a process terminates the zone's connections and opens its own, so the zone sends no frames on the wire",
    },
    rate_limit: WITH_THE_WIRE,
    ..PROXIED
};
