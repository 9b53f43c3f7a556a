//! Conversion of a libvirt domain to constraints, and a record of what is lost.

use std::collections::{BTreeMap, BTreeSet};

use vtax_libvirt::{LibvirtBootDevice, LibvirtDisk, LibvirtLink, LibvirtMachine, LibvirtVlans};
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

/// Lines of the report.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Imported settings.
    pub(super) kept: Vec<ForeignText>,
    /// Settings that were not imported, each with a reason.
    pub(super) lost: Vec<ForeignText>,
}

/// Adds a domain with the machine's constraints.
pub(super) fn carry(machine: &LibvirtMachine, name: &Name, all: &mut Configuration) -> Result<Carried, DomainError> {
    let mut import = Import { name, all, carried: Carried::default(), switches: BTreeMap::new() };
    import.all.add_domain(name)?;
    import.size(machine)?;
    import.boot(machine)?;
    for (number, link) in machine.links.iter().enumerate() {
        import.link(number, link)?;
    }
    import.carried.lost.extend(machine.others.iter().cloned());
    Ok(import.carried)
}

struct Import<'a> {
    name: &'a Name,
    all: &'a mut Configuration,
    carried: Carried,
    /// Switches of the machine's interfaces, each with the kind and name that libvirt has in its place.
    switches: BTreeMap<Name, (ForeignText, ForeignText)>,
}

impl Import<'_> {
    fn keep(&mut self, line: String) {
        self.carried.kept.push(line.into());
    }

    fn lose(&mut self, line: String) {
        self.carried.lost.push(line.into());
    }

    fn size(&mut self, machine: &LibvirtMachine) -> Result<(), DomainError> {
        const MIB: u64 = 1 << 20;
        let cpus = CpuDemand::Vcpus(machine.vcpus);
        self.all.set_cpus(self.name, cpus.clone())?;
        self.keep(cpus.to_string());
        let memory = ByteSize(machine.memory.0.div_ceil(MIB).saturating_mul(MIB));
        self.all.set_memory(self.name, memory)?;
        self.keep(format!("memory {memory}"));
        Ok(())
    }

    /// A kernel takes precedence over a disk, as in libvirt.
    fn boot(&mut self, machine: &LibvirtMachine) -> Result<(), DomainError> {
        let boot = &machine.boot;
        for (variable, value) in [(Variable::Kernel, &boot.kernel), (Variable::BootArgs, &boot.cmdline)] {
            let Some(value) = value else { continue };
            self.all.set_variable(self.name, variable, value.raw().to_owned())?;
            self.keep(format!("{variable} {value}"));
        }
        if let Some(initrd) = &boot.initrd {
            self.lose(format!("the initrd {initrd}: kernels boot with vtax's own"));
        }
        let first = if boot.kernel.is_some() { &LibvirtBootDevice::Nothing } else { &machine.boot_device };
        for (place, disk) in machine.disks.iter().enumerate() {
            self.disk(disk, *first == LibvirtBootDevice::Disk(place))?;
        }
        if let LibvirtBootDevice::Other(what) = first {
            self.lose(format!("its first boot device, {what}: set an image (set-variable image=FILE {})", self.name));
        }
        Ok(())
    }

    /// The disk that libvirt boots becomes the image; otherwise there is none.
    fn disk(&mut self, disk: &LibvirtDisk, is_first: bool) -> Result<(), DomainError> {
        let target = disk.target.as_ref().map(|target| format!(" {target}")).unwrap_or_default();
        let format = disk.file_format.as_ref().map(ForeignText::raw);
        let is_bootable = disk.device == "disk" && matches!(format, Some("qcow2" | "raw"));
        if let Some(image) = disk.source.as_ref().filter(|_| is_bootable && is_first) {
            self.all.set_variable(self.name, Variable::Image, image.raw().to_owned())?;
            self.keep(format!("image {image}"));
            self.lose(format!("writes to the disk{target}: changes to an image are discarded when the domain stops"));
            disk.others.iter().for_each(|other| self.lose(format!("the disk{target}: {other}")));
            return Ok(());
        }
        let source = disk.source.as_ref().map_or("empty".to_owned(), ForeignText::to_string);
        let boots = if is_first { ", its boot device" } else { "" };
        let remedy = match (&disk.source, disk.is_local) {
            (None, _) => "domains have no removable-media drives".to_owned(),
            (Some(_), true) => format!("add it to {} with add-vdsdev and add-vdisk", self.name),
            (Some(_), false) => "a volume is a file or a block device of this host".to_owned(),
        };
        self.lose(format!("the {}{target} ({source}){boots}: {remedy}", disk.device));
        Ok(())
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
            self.lose(format!("{what}: not connected to a bridge, network or link of the host"));
            return Ok(());
        };
        let mtu = self.mtu(&what, link);
        let switch = self.switch(link, source, mtu)?;
        let vlans = self.vlans(&what, &link.vlans);
        let mac = self.mac(&what, link);
        let change =
            VnetChange { mac, mtu, pvid: vlans.0, vids: Some(vlans.1.into_iter().collect()), ..VnetChange::default() };
        let new = NewVnet { name: vnet.clone(), switch: switch.clone(), domain: self.name.clone(), change };
        self.all.add_vnet(new)?;
        let told = told(self.all.vnet(self.name, &vnet)?);
        self.keep(format!("vnet {vnet} on switch {switch}: {told}"));
        if let Some(model) = link.model.as_ref().filter(|model| *model != "virtio") {
            self.lose(format!("{what}: its model {model}; vnets are virtio NICs"));
        }
        for other in &link.others {
            self.lose(format!("{what}: {other}"));
        }
        Ok(())
    }

    /// Returns the switch with the name of the source, or with the source as net-dev; else a new one. Only this source
    /// uses it.
    fn switch(&mut self, link: &LibvirtLink, source: &ForeignText, mtu: Option<Mtu>) -> Result<Name, DomainError> {
        let of = (link.kind.clone(), source.clone());
        let known = self.switches.iter().find(|(_, other)| **other == of).map(|(name, _)| name.clone());
        let found = known.or_else(|| self.own_switch(link, source));
        let name = match found {
            Some(name) => name,
            None => self.new_switch(link, source, mtu)?,
        };
        self.switches.insert(name.clone(), of);
        Ok(name)
    }

    /// Returns an existing switch for this source.
    fn own_switch(&self, link: &LibvirtLink, source: &ForeignText) -> Option<Name> {
        let is_macvtap = link.kind == "direct";
        let derived = derived(link, source);
        let leads_there = |switch: &Switch| !is_macvtap || switch.host_link() == Some(source.raw());
        // A bridge may have the name of a switch that was created for another one.
        let is_own = !ENDINGS.iter().any(|ending| source.raw().ends_with(ending));
        let is_named = |name: &Name| is_own && name.as_str() == source.raw() || *name == derived;
        let matches = |(name, switch): &(&Name, &Switch)| {
            let is_free = !self.switches.contains_key(*name);
            is_free && leads_there(switch) && (is_macvtap || is_named(name))
        };
        // A switch that a user named so takes precedence over one that was created for such a source.
        let mut found: Vec<&Name> = self.all.switches.iter().filter(matches).map(|(name, _)| name).collect();
        found.sort_by_key(|name| name.as_str() != source.raw());
        found.first().map(|name| (*name).clone())
    }

    fn new_switch(&mut self, link: &LibvirtLink, source: &ForeignText, mtu: Option<Mtu>) -> Result<Name, DomainError> {
        let is_macvtap = link.kind == "direct";
        let first = derived(link, source);
        let mut numbered =
            (2..).map(|number| format!("{first}{number}").parse().expect("a name by its letters and length"));
        let is_taken = |name: &Name| self.all.switches.contains_key(name);
        let name =
            if is_taken(&first) { numbered.find(|name| !is_taken(name)).expect("numbers don't end") } else { first };
        let net_dev = is_macvtap.then(|| source.raw().to_owned());
        let change = SwitchChange { net_dev, mtu, ..SwitchChange::default() };
        let service = PRIMARY.parse().expect("a name");
        self.all.add_switch(NewSwitch { name: name.clone(), service, default_vlan: None, change })?;
        if is_macvtap {
            self.keep(format!("new switch {name} with net-dev {source}"));
        } else {
            self.keep(format!("new switch {name}"));
            self.lose(format!(
                "the {} {source} itself: {name} is separate; connect it to the outside with set-vsw net-dev=LINK \
                 {name}",
                link.kind
            ));
        }
        Ok(name)
    }

    fn mac(&mut self, what: &str, link: &LibvirtLink) -> Option<Mac> {
        let written = link.mac.as_ref()?;
        let mac = written.raw().parse().ok();
        if mac.is_none() {
            self.lose(format!("{what}: its invalid address {written}; vtax has chosen another"));
        }
        mac
    }

    fn mtu(&mut self, what: &str, link: &LibvirtLink) -> Option<Mtu> {
        let written = link.mtu?;
        let mtu = Mtu::try_from(i64::from(written)).ok().filter(|mtu| Switch::MTUS.contains(&mtu.get()));
        if mtu.is_none() {
            self.lose(format!("{what}: its mtu {written}; vnets support 1500 to 16000"));
        }
        mtu
    }

    fn vlans(&mut self, what: &str, vlans: &LibvirtVlans) -> (Option<Vlan>, BTreeSet<Vlan>) {
        let mut read = |number: u32| {
            let vlan = Vlan::try_from(i64::from(number)).ok();
            if vlan.is_none() {
                self.lose(format!("{what}: its invalid VLAN {number}"));
            }
            vlan
        };
        let tagged: BTreeSet<Vlan> = vlans.tagged.iter().filter_map(|number| read(*number)).collect();
        let native = vlans.native.and_then(read);
        if native.is_none() && !tagged.is_empty() {
            self.lose(format!(
                "{what}: a trunk that drops untagged frames; the vnet's are in the switch's default VLAN"
            ));
        }
        (native, tagged)
    }
}

/// Name suffixes of switches created for bridges and links, and for networks.
const ENDINGS: [&str; 2] = ["-vsw", "-net"];

/// Returns `br0-vsw` for the bridge br0 and `br0-net` for the network br0, which may be a different one. A source name
/// that is too long or has characters not allowed in names gets a number computed from the whole name, so that no two
/// share a name.
fn derived(link: &LibvirtLink, source: &ForeignText) -> Name {
    const LONGEST: usize = 24;
    const KEPT: usize = 14;
    let source = source.raw();
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let is_plain = source.len() <= LONGEST && source.chars().all(is_letter);
    let text = match is_plain && source.starts_with(|first: char| first.is_ascii_lowercase()) {
        true => source.to_owned(),
        false => {
            let small = source.chars().take(KEPT).map(|letter| letter.to_ascii_lowercase());
            let kept: String = small.map(|letter| if is_letter(letter) { letter } else { '-' }).collect();
            let start = if kept.starts_with(|first: char| first.is_ascii_lowercase()) { "" } else { "br" };
            format!("{start}{kept}-{:08x}", hash(source))
        }
    };
    let [of_bridge, of_network] = ENDINGS;
    let ending = if link.kind == "network" { of_network } else { of_bridge };
    format!("{text}{ending}").parse().expect("a name by its letters and length")
}

/// 32-bit FNV-1a: it must never change, because switch names depend on it.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
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
