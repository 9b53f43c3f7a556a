//! Requirements of guests on this machine, before they are searched for.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use vtax_model::{
    guest::{Attach, Flavour, GuestDefaults, System},
    study::{Row, Study},
    topology::{Cable, Guest, GuestDisk, NicName, Topology},
};

use crate::facts::{PciFacts, drivers_of_guest};

/// Requirements of guests on this machine.
#[derive(Debug, Clone)]
pub struct GuestNeeds {
    pub(super) agent: PathBuf,
    pub(super) kernel: Option<PathBuf>,
    /// Each system, with the module that drives a guest's NIC in it.
    pub(super) systems: BTreeSet<(System, String)>,
    pub(super) disks: BTreeSet<GuestDisk>,
    /// NICs of the machine to be assigned to guests. Their drivers are determined by the inspection of the machine.
    devices: Vec<Device>,
}

/// A NIC to be assigned to guests, or its virtual functions.
#[derive(Debug, Clone)]
struct Device {
    system: System,
    nic: NicName,
    functions: bool,
    /// The other modules required by the guest, each preceded by a comma.
    others: String,
}

impl GuestNeeds {
    /// Returns whether the user has named a kernel that isn't there.
    pub fn names_no_kernel(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| !kernel.exists())
    }

    /// No needs yet. `agent` is the program that becomes the first process of guests. `kernel` is for guests that do
    /// not name a kernel; if it is absent, a kernel is searched for.
    pub fn new(agent: &Path, kernel: Option<&Path>) -> GuestNeeds {
        let (systems, disks, devices) = Default::default();
        GuestNeeds { agent: agent.to_owned(), kernel: kernel.map(Path::to_owned), systems, disks, devices }
    }

    /// Adds the requirements of a lab's guests: their systems, disks, and the drivers of their NICs.
    #[must_use]
    pub fn of_lab(self, topology: &Topology) -> GuestNeeds {
        topology.guests.iter().fold(self, |needs, guest| {
            let wire = topology.wires.iter().find(|wire| wire.name == guest.wire);
            let at = wire.and_then(|wire| wire.ends.iter().position(|host| *host == guest.host));
            let nic = wire.and_then(|wire| wire.nics.clone()).zip(at).map(|(Cable(nics), at)| nics[at].clone());
            needs.with_guest(guest, nic.as_slice())
        })
    }

    /// Requirements of a study's rows.
    #[must_use]
    pub fn of_study(self, study: &Study) -> GuestNeeds {
        let nics = study.rows.iter().filter_map(|row| study.attach(*row));
        let cables = study.network().map_or(&[][..], |network| &network.cables);
        let cabled: Vec<NicName> = cables.iter().flat_map(|Cable(nics)| nics.clone()).collect();
        nics.fold(self, |needs, nic| needs.with(&study.guest.system, &nic, &cabled))
    }

    /// Requirements of every kind of NIC, for [`availability`](crate::availability) and
    /// [`guest_availability`](crate::guest_availability).
    #[must_use]
    pub fn of_methods(self) -> GuestNeeds {
        let defaults = GuestDefaults::default();
        let nics = Flavour::ALL.into_iter().filter_map(|flavour| defaults.attach(Row::Device(flavour)));
        nics.fold(self, |needs, nic| needs.with(&defaults.system, &nic, &[]))
    }

    /// Returns whether there are no guests at all.
    pub fn is_empty(&self) -> bool {
        self.systems.is_empty() && self.devices.is_empty()
    }

    /// Adds the requirements of a guest whose NIC is driven by this module, or by these, separated by commas.
    #[must_use]
    pub fn with_driver(mut self, system: &System, driver: &str) -> GuestNeeds {
        self.systems.insert((system.clone(), driver.to_owned()));
        self
    }

    /// Adds the requirements of a guest. `cabled` are the NICs that it may get.
    pub(super) fn with(self, system: &System, attach: &Attach, cabled: &[NicName]) -> GuestNeeds {
        self.with_modules(system, attach, cabled, "")
    }

    fn with_guest(mut self, guest: &Guest, cabled: &[NicName]) -> GuestNeeds {
        self.disks.extend(guest.disks.iter().cloned());
        let others = drivers_of_guest("", guest);
        let others = if others.is_empty() { others } else { format!(",{others}") };
        self.with_modules(&guest.system, &guest.attach, cabled, &others)
    }

    fn with_modules(mut self, system: &System, attach: &Attach, cabled: &[NicName], others: &str) -> GuestNeeds {
        if !attach.is_device() {
            // Each backend of virtio-net has the same driver.
            let driver = attach.flavour().map_or("virtio_net", Flavour::driver);
            return self.with_driver(system, &format!("{driver}{others}"));
        }
        let functions = matches!(attach, Attach::SrIov(_));
        let others = others.to_owned();
        let device =
            |nic: &NicName| Device { system: system.clone(), nic: nic.clone(), functions, others: others.clone() };
        self.devices.extend(cabled.iter().map(device));
        self
    }

    /// Adds the drivers of those NICs that this machine has.
    pub(super) fn resolved(self, pci: &PciFacts) -> GuestNeeds {
        let driver = |device: &Device| {
            let driver = pci.driver(pci.find(device.nic.as_str()).ok()?, device.functions)?;
            Some(driver + &device.others)
        };
        let found: Vec<(System, String)> =
            self.devices.iter().filter_map(|device| Some((device.system.clone(), driver(device)?))).collect();
        found.iter().fold(self, |needs, (system, driver)| needs.with_driver(system, driver))
    }
}
