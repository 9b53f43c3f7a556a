//! Planning of guests: with a tap on the host's virtual switch, or with a macvtap on the wire's end, or with a PCI
//! device. The switch belongs to the wire's end and is created with it.

use std::path::PathBuf;

use ipnet::IpNet;
use vtax_change::pci::DriverState;
use vtax_model::{
    guest::{EmulatedNic, Mac, VirtioNic, Vnet},
    method::DomainKind,
    topology::Guest,
};
use vtax_step::{AssignDevice, LendVf, LentVf, LinkRecipe, Place, StartGuest, VFIO};
use vtax_sys::{netlink::MacAddr, pci::PciAddress};

use super::{fitting::Fitting, method::Uplink};
use crate::{
    blueprint::{LabEndpoint, PlannedGuest},
    facts::PciDevice,
    script::PlanScript,
    step::LabStep,
};
use vtax_guest::{
    launch::{Boot, GuestDisks, Launch, NicKind, NicLaunch, Seed},
    threads::GuestPins,
    vdisk::DiskLaunch,
};

pub(crate) struct GuestAttachment<'a> {
    pub(crate) guest: &'a Guest,
    pub(crate) fitting: Fitting,
    pub(crate) uplink: &'a Uplink,
    pub(crate) address: IpNet,
    pub(crate) mac: Mac,
    pub(crate) directory: PathBuf,
    pub(crate) disks: PlannedDisks,
}

/// The disks of one guest.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlannedDisks {
    pub(crate) disks: Vec<DiskLaunch>,
    /// The controllers assigned to it completely.
    pub(crate) controllers: Vec<PciDevice>,
}

impl GuestAttachment<'_> {
    /// `paravirtual`: virtio-net on a tap or a macvtap.
    pub(crate) fn with_virtio(&self, nic: VirtioNic, script: &mut PlanScript) {
        let tap = self.tap(nic.vnet, script);
        self.on_tap(NicKind::Virtio { tap: tap.link.clone(), nic }, tap, script);
    }

    /// `emulated`: a NIC that QEMU emulates, on a tap.
    pub(crate) fn with_model(&self, model: EmulatedNic, script: &mut PlanScript) {
        let tap = self.tap(Vnet::Bridge, script);
        self.on_tap(NicKind::Emulated { tap: tap.link.clone(), model }, tap, script);
    }

    /// `sr-iov`: a virtual function, which vfio-pci hands to QEMU.
    pub(crate) fn with_function(&self, function: &LentVf, script: &mut PlanScript) {
        let lent = LentVf { driver: VFIO.to_owned(), ..function.clone() };
        script.step(LabStep::LendVf(LendVf { at: self.uplink.wire.clone(), function: Box::new(lent) }));
        let nic = NicKind::Vfio { device: function.device, driver: function.driver.clone() };
        self.start(nic, Vec::new(), vec![self.uplink.wire.clone()], script);
    }

    /// `assigned` and `root-domain`: the NIC at the host's end of the wire, and the companions that must be assigned
    /// with it.
    pub(crate) fn with_devices(&self, nic: &PciDevice, companions: &[PciDevice], script: &mut PlanScript) {
        for device in std::iter::once(nic).chain(companions) {
            let was = DriverState::from(device);
            script.step(LabStep::AssignDevice(AssignDevice { device: device.device, was }));
        }
        let others = companions.iter().map(|companion| companion.device).collect();
        let kind = NicKind::Vfio { device: nic.device, driver: nic.driver.clone().unwrap_or_default() };
        self.start(kind, others, vec![self.uplink.wire.clone()], script);
    }

    fn tap(&self, vnet: Vnet, script: &mut PlanScript) -> Place {
        let (name, tap) = (&self.guest.name, script.vnet(&self.guest.host));
        let (recipe, switch) = match vnet {
            Vnet::Macvtap => (LinkRecipe::Macvtap { parent: self.uplink.wire.clone(), mac: self.mac }, None),
            Vnet::Bridge => {
                (LinkRecipe::Tap { queues: self.fitting.attach.queues() }, Some(&self.uplink.stack[0].link))
            }
        };
        script.link(&tap, recipe, name);
        script.enable(&tap, switch, name);
        tap
    }

    fn on_tap(&self, nic: NicKind, tap: Place, script: &mut PlanScript) {
        self.start(nic, Vec::new(), self.uplink.below([tap]), script);
    }

    /// Adds the guest itself, after everything that it opens. The last step starts QEMU.
    fn start(&self, nic: NicKind, devices: Vec<PciAddress>, stack: Vec<Place>, script: &mut PlanScript) {
        let GuestAttachment { guest, fitting, address, mac, .. } = self;
        let (name, host, pins) = (&guest.name, &guest.host, GuestPins::of(&guest.size));
        let launch = self.launch(nic, devices);
        for controller in &self.disks.controllers {
            let was = DriverState { has_disk: true, ..DriverState::from(controller) };
            script.step(LabStep::AssignDevice(AssignDevice { device: controller.device, was }));
        }
        let start = StartGuest { host: Some(host.clone()), launch: Box::new(launch.clone()), pins: pins.clone() };
        script.step(LabStep::StartGuest(start));
        script.blueprint.endpoints.push(LabEndpoint {
            name: name.clone(),
            kind: DomainKind::Guest,
            host: host.clone(),
            method: guest.attach.method(),
            flavour: fitting.flavour,
            wire: guest.wire.clone(),
            address: address.addr(),
            interface: stack[0].link.clone(),
            namespace: host.clone(),
            mtu: script.blueprint.mtu,
            stack,
            published: None,
        });
        script.blueprint.guests.push(PlannedGuest {
            name: name.clone(),
            host: host.clone(),
            attach: fitting.attach,
            mac: *mac,
            address: *address,
            masters: guest.masters.clone(),
            pins,
            launch,
        });
    }

    fn launch(&self, nic: NicKind, devices: Vec<PciAddress>) -> Launch {
        let GuestAttachment { guest, fitting, address, mac, directory, disks, .. } = self;
        let Fitting { engine, agent, .. } = fitting;
        let seed = match engine.boot {
            // The agent is in the initramfs.
            Boot::Kernel { .. } => None,
            Boot::Disk { .. } => Some(Seed { agent: agent.clone(), address: *address }),
        };
        let launch = Launch {
            nics: vec![NicLaunch::new(MacAddr(mac.octets()), nic)],
            devices,
            seed,
            lent: guest.lent.clone(),
            disks: GuestDisks { ports: disks.disks.len() as u32, disks: disks.disks.clone() },
            ..Launch::new(guest.name.clone(), directory.clone(), engine.clone(), &guest.size)
        };
        launch.with_firmware_for_devices()
    }
}
