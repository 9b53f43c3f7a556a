//! What of a libvirt domain becomes constraints, and what can't.

use std::collections::BTreeSet;

use vtax_model::{
    domain::{
        Configuration, CpuDemand, DomainError, NewSwitch, NewVnet, PRIMARY, Switch, SwitchChange, Variable, VirtualNic,
        VnetChange,
    },
    foreign::ForeignText,
    guest::Mac,
    topology::Name,
    units::{ByteSize, Mtu},
    vf::Vlan,
};
use vtax_run::libvirt::{LibvirtDisk, LibvirtLink, LibvirtMachine, LibvirtVlans};

use super::super::layout;

/// Lines about an import.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// What the domain is to have now.
    pub(super) kept: Vec<String>,
    /// What it can't have, each with the reason.
    pub(super) lost: Vec<String>,
}

/// Adds a domain that is to have what the machine has.
pub(super) fn carry(machine: &LibvirtMachine, name: &Name, all: &mut Configuration) -> Result<Carried, DomainError> {
    let mut import = Import { name, all, carried: Carried::default() };
    import.all.add_domain(name)?;
    import.size(machine)?;
    import.boot(machine)?;
    for (number, link) in machine.links.iter().enumerate() {
        import.link(number, link)?;
    }
    import.carried.lost.extend(machine.others.iter().map(ForeignText::to_string));
    Ok(import.carried)
}

struct Import<'a> {
    name: &'a Name,
    all: &'a mut Configuration,
    carried: Carried,
}

impl Import<'_> {
    fn keep(&mut self, line: String) {
        self.carried.kept.push(line);
    }

    fn lose(&mut self, line: String) {
        self.carried.lost.push(line);
    }

    fn size(&mut self, machine: &LibvirtMachine) -> Result<(), DomainError> {
        const MIB: u64 = 1 << 20;
        let cpus = CpuDemand::Vcpus(machine.vcpus);
        self.all.set_cpus(self.name, cpus)?;
        self.keep(cpus.to_string());
        let memory = ByteSize(machine.memory.0.div_ceil(MIB).saturating_mul(MIB));
        self.all.set_memory(self.name, memory)?;
        self.keep(format!("memory {}", layout::memory(memory)));
        Ok(())
    }

    /// A kernel comes before a disk, for libvirt too.
    fn boot(&mut self, machine: &LibvirtMachine) -> Result<(), DomainError> {
        let boot = &machine.boot;
        for (variable, value) in [(Variable::Kernel, &boot.kernel), (Variable::BootArgs, &boot.cmdline)] {
            let Some(value) = value else { continue };
            self.all.set_variable(self.name, variable, value.raw().to_owned())?;
            self.keep(format!("{variable} {value}"));
        }
        if let Some(initrd) = &boot.initrd {
            self.lose(format!("the initrd {initrd}: a kernel boots with vtax's own"));
        }
        let mut has_system = boot.kernel.is_some();
        for disk in &machine.disks {
            has_system = self.disk(disk, has_system)?;
        }
        Ok(())
    }

    /// Whether the domain has something to boot then.
    fn disk(&mut self, disk: &LibvirtDisk, has_system: bool) -> Result<bool, DomainError> {
        let target = disk.target.as_ref().map(|target| format!(" {target}")).unwrap_or_default();
        let source = disk.source.as_ref().map_or("nothing in it".to_owned(), ForeignText::to_string);
        let format = disk.file_format.as_ref().map(ForeignText::raw);
        let is_bootable = disk.device == "disk" && matches!(format, Some("qcow2" | "raw"));
        match &disk.source {
            Some(image) if is_bootable && !has_system => {
                self.all.set_variable(self.name, Variable::Image, image.raw().to_owned())?;
                self.keep(format!("image {image}"));
                self.lose(format!("what it writes to the disk{target}: writes to an image are gone when it stops"));
                Ok(true)
            }
            _ => {
                self.lose(format!("the {}{target} ({source}): domains have no disks yet", disk.device));
                Ok(has_system)
            }
        }
    }

    fn link(&mut self, number: usize, link: &LibvirtLink) -> Result<(), DomainError> {
        let vnet: Name = format!("net{number}").parse().expect("a name");
        let what = format!("the {} interface {number}", link.kind);
        if number >= VirtualNic::MOST as usize {
            self.lose(format!("{what}: a domain has at most {} vnets", VirtualNic::MOST));
            return Ok(());
        }
        let source = link.source.as_ref().filter(|_| ["bridge", "network", "direct"].contains(&link.kind.raw()));
        let Some(source) = source else {
            self.lose(format!("{what}: it is at no bridge, network or link of the host"));
            return Ok(());
        };
        let mtu = self.mtu(&what, link);
        let switch = self.switch(link, source, mtu)?;
        let vlans = self.vlans(&what, &link.vlans);
        let mac = self.mac(&what, link);
        let change = VnetChange { mac, mtu, pvid: vlans.0, vids: Some(vlans.1), ..VnetChange::default() };
        let new = NewVnet { name: vnet.clone(), switch: switch.clone(), domain: self.name.clone(), change };
        self.all.add_vnet(new)?;
        let told = told(self.all.vnet(self.name, &vnet)?);
        self.keep(format!("vnet {vnet} at the switch {switch}: {told}"));
        if let Some(model) = link.model.as_ref().filter(|model| *model != "virtio") {
            self.lose(format!("{what}: its model {model}; a vnet is a virtio NIC"));
        }
        for other in &link.others {
            self.lose(format!("{what}: {other}"));
        }
        Ok(())
    }

    /// The switch that has the name of its source, or the source as net-dev; else a new one.
    fn switch(&mut self, link: &LibvirtLink, source: &ForeignText, mtu: Option<Mtu>) -> Result<Name, DomainError> {
        let is_macvtap = link.kind == "direct";
        let matches = |(name, switch): &(&Name, &Switch)| {
            *name.as_str() == *source.raw() || is_macvtap && switch.host_link() == Some(source.raw())
        };
        let derived = derived(source.raw());
        let found = self.all.switches.iter().find(matches).map(|(name, _)| name.clone());
        if let Some(name) = found.or(self.all.switches.contains_key(&derived).then(|| derived.clone())) {
            return Ok(name);
        }
        let net_dev = is_macvtap.then(|| source.raw().to_owned());
        let change = SwitchChange { net_dev, mtu, ..SwitchChange::default() };
        let service = PRIMARY.parse().expect("a name");
        self.all.add_switch(NewSwitch { name: derived.clone(), service, default_vlan: None, change })?;
        if is_macvtap {
            self.keep(format!("a new switch {derived} with net-dev {source}"));
        } else {
            self.keep(format!("a new switch {derived}"));
            self.lose(format!(
                "the {} {source} itself: {derived} is apart from it; connect it with the outside: set-vsw net-dev=LINK {derived}",
                link.kind
            ));
        }
        Ok(derived)
    }

    fn mac(&mut self, what: &str, link: &LibvirtLink) -> Option<Mac> {
        let written = link.mac.as_ref()?;
        let mac = written.raw().parse().ok();
        if mac.is_none() {
            self.lose(format!("{what}: its address {written}, which is none; vtax has chosen another"));
        }
        mac
    }

    fn mtu(&mut self, what: &str, link: &LibvirtLink) -> Option<Mtu> {
        let written = link.mtu?;
        let mtu = Mtu::try_from(i64::from(written)).ok().filter(|mtu| Switch::MTUS.contains(&mtu.get()));
        if mtu.is_none() {
            self.lose(format!("{what}: its mtu {written}; vnets have 1500 to 16000"));
        }
        mtu
    }

    fn vlans(&mut self, what: &str, vlans: &LibvirtVlans) -> (Option<Vlan>, BTreeSet<Vlan>) {
        let mut read = |number: u32| {
            let vlan = Vlan::try_from(i64::from(number)).ok();
            if vlan.is_none() {
                self.lose(format!("{what}: its VLAN {number}, which is none"));
            }
            vlan
        };
        let tagged: BTreeSet<Vlan> = vlans.tagged.iter().filter_map(|number| read(*number)).collect();
        let native = vlans.native.and_then(read);
        if native.is_none() && !tagged.is_empty() {
            self.lose(format!(
                "{what}: a trunk without frames that have no tag; the vnet's are in the switch's default VLAN"
            ));
        }
        (native, tagged)
    }
}

/// `br0-vsw` for br0, in the letters of names.
fn derived(source: &str) -> Name {
    const LONGEST: usize = 24;
    let small = source.chars().take(LONGEST).map(|letter| letter.to_ascii_lowercase());
    let mut text: String = small.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    if !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        text.insert_str(0, "br");
    }
    format!("{text}-vsw").parse().expect("a name by its letters and length")
}

fn told(vnet: &VirtualNic) -> String {
    let mut told = format!("mac-addr {}", vnet.mac);
    if let Some(mtu) = vnet.mtu {
        told += &format!(", mtu {mtu}");
    }
    if let Some(pvid) = vnet.vlans.pvid {
        told += &format!(", pvid {pvid}");
    }
    if !vnet.vlans.vids.is_empty() {
        let vids: Vec<String> = vnet.vlans.vids.iter().map(Vlan::to_string).collect();
        told += &format!(", vid {}", vids.join(","));
    }
    told
}
