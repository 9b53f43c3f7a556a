//! The kernel as a lab's steps see it: its namespaces, each with an open netlink connection, and its guests.

mod apply;
mod devices;
mod files;
mod guests;
mod pci;
mod sweep;

use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use vtax_guest::{LinkName, process::Qemu};
use vtax_journal::{JournalError, LockHolder, Record, Undone};
use vtax_model::{guest::Mac, nic::NicFacts, options::CongestionControl, topology::Name, units::Mtu};
use vtax_sys::{
    SysError, directory,
    netlink::{
        IfIndex, IfName, Link, LinkChange, LinkKind, MacAddr, NewLink as KernelLink, NewMacvtap, NewRoute, NewTap,
        NextHop, Qdisc, Rtnl, Tbf,
    },
    netns::{NetNs, NsId},
    nic, sysctl,
};

pub(crate) use apply::undo;

use crate::{
    blueprint::Blueprint,
    error::LabError,
    mark::mark,
    place::Place,
    processes::{self, Census},
    step::{LabStep, LinkRecipe},
    world::BuildingStopped,
};

/// `lo` is the first link of every namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: IfIndex = IfIndex(1);

/// The namespaces and guests of one lab. The steps of the lab work on it.
#[derive(Debug)]
pub struct Site {
    lab: Name,
    /// [`LabStep::Verify`] compares the kernel with it. It is not needed to remove a lab.
    blueprint: Option<Arc<Blueprint>>,
    directory: PathBuf,
    pins: PathBuf,
    /// The lock of the lab's directory, while this process builds the lab, has it for itself, or removes it. It tells
    /// a living lab from an abandoned one even if the journal is gone.
    lock: Option<File>,
    /// Guests that were started, whether or not they still run.
    guests: HashMap<Name, Qemu>,
    stacks: HashMap<Name, Stack>,
    /// The identities of namespaces that the journal recorded.
    recorded: HashMap<Name, String>,
    census: Option<Census>,
    stopped: BuildingStopped,
}

/// The directory in a lab's directory where its namespaces are pinned.
pub(crate) const PINS: &str = "netns";

#[derive(Debug)]
struct Stack {
    namespace: Arc<NetNs>,
    rtnl: Rtnl,
    /// The indices of links. An index doesn't change while the lab is up, so the kernel is asked only once.
    indices: HashMap<LinkName, IfIndex>,
}

/// Journal record of a completed step: the identity of a namespace, of a guest's process, or of a file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Receipt(Option<String>);

impl Site {
    /// `directory` is the lab's own. It needn't exist.
    pub(crate) fn new(lab: &Name, directory: &Path) -> Site {
        let (guests, stacks, recorded, stopped) = Default::default();
        let (lab, directory, pins) = (lab.clone(), directory.to_owned(), directory.join(PINS));
        Site { lab, blueprint: None, directory, pins, lock: None, guests, stacks, recorded, census: None, stopped }
    }

    pub(crate) fn building(mut self, blueprint: &Arc<Blueprint>) -> Site {
        self.blueprint = Some(Arc::clone(blueprint));
        self
    }

    /// Steps are taken until `stopped` is set.
    pub(crate) fn until(mut self, stopped: &BuildingStopped) -> Site {
        self.stopped = stopped.clone();
        self
    }

    fn check_goes_on(&self) -> Result<(), LabError> {
        if self.stopped.is_set() { Err(LabError::Stopped { name: self.lab.clone() }) } else { Ok(()) }
    }

    /// Takes over the namespaces and guests that a journal recorded.
    pub(crate) fn recall(&mut self, records: &[Record<LabStep>]) {
        for record in records {
            let Some(receipt @ Receipt(Some(id))) = record.progress.receipt() else { continue };
            match &record.step {
                LabStep::CreateNamespace { namespace } => drop(self.recorded.insert(namespace.clone(), id.clone())),
                LabStep::StartGuest { launch, .. } => self.recall_guest(launch, receipt),
                _ => {}
            }
        }
    }

    pub(crate) fn make_directory(&mut self) -> Result<(), LabError> {
        directory::create_private(&self.pins).map_err(LabError::file("create", &self.pins))?;
        self.claim()
    }

    /// Locks the lab's directory. It is an error if a living process has it.
    pub(crate) fn claim(&mut self) -> Result<(), LabError> {
        if self.lock.is_some() {
            return Ok(());
        }
        let directory = match File::open(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            directory => directory.map_err(LabError::file("open", &self.directory))?,
        };
        match directory.try_lock() {
            Ok(()) => self.lock = Some(directory),
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Busy { id: self.lab.to_string(), by: LockHolder::of(&self.directory) }.into());
            }
            Err(TryLockError::Error(error)) => return Err(LabError::file("lock", &self.directory)(error)),
        }
        Ok(())
    }

    /// A lab that is kept belongs to no process.
    pub(crate) fn release(&mut self) {
        self.lock = None;
    }

    /// Removes the lab's directory if it is empty. Otherwise the steps that failed have named what is left.
    pub(crate) fn remove_directory(&self) {
        self.remove_drafts();
        let _ = fs::remove_dir(&self.pins);
        let _ = fs::remove_dir(self.device_marks());
        let _ = fs::remove_dir(&self.directory);
    }

    pub(crate) fn namespace(&mut self, name: &Name) -> Result<Arc<NetNs>, LabError> {
        self.stack(name).map(|stack| Arc::clone(&stack.namespace))
    }

    /// All links of a namespace as they are now.
    pub(crate) fn links(&mut self, namespace: &Name) -> Result<Vec<Link>, LabError> {
        self.stack(namespace)?.rtnl.links().map_err(LabError::kernel(namespace))
    }

    pub(crate) fn set_mtu(&mut self, place: &Place, mtu: u32) -> Result<(), LabError> {
        let change = LinkChange { mtu: Some(mtu), ..LinkChange::default() };
        self.change(place, &change)
    }

    /// Driver and kernel data of a link.
    pub(crate) fn nic(&mut self, place: &Place) -> Result<NicFacts, LabError> {
        let name = kernel_name(place)?;
        self.namespace(&place.namespace)?.run(|| nic::describe(&name)).map_err(LabError::kernel(place))
    }

    pub(crate) fn qdisc(&mut self, place: &Place) -> Result<Option<Qdisc>, LabError> {
        let index = self.index(place)?;
        self.stack(&place.namespace)?.rtnl.root_qdisc(index).map_err(LabError::kernel(place))
    }

    pub(crate) fn limit_rate(&mut self, place: &Place, limit: Tbf) -> Result<(), LabError> {
        let index = self.index(place)?;
        self.stack(&place.namespace)?.rtnl.set_tbf(index, &limit).map_err(LabError::kernel(place))
    }

    pub(crate) fn has_limit(&mut self, place: &Place, limit: Tbf) -> Result<(), LabError> {
        let found = self.qdisc(place)?.and_then(|qdisc| qdisc.tbf);
        if found.is_some_and(|tbf| tbf.is(&limit)) {
            return Ok(());
        }
        Err(LabError::link(&self.lab, place, "does not have the rate that was set"))
    }

    fn stack(&mut self, name: &Name) -> Result<&mut Stack, LabError> {
        if !self.stacks.contains_key(name) {
            let namespace = NetNs::open(&self.pin(name)).map_err(LabError::kernel(name))?;
            if self.recorded.get(name).is_some_and(|id| *id != namespace.id().to_string()) {
                return Err(LabError::Replaced { lab: self.lab.clone(), namespace: name.clone() });
            }
            let rtnl = Rtnl::open_in(&namespace).map_err(LabError::kernel(name))?;
            self.stacks.insert(name.clone(), Stack::new(namespace, rtnl));
        }
        Ok(self.stacks.get_mut(name).expect("it has just been put there"))
    }

    pub(crate) fn pin(&self, namespace: &Name) -> PathBuf {
        self.pins.join(namespace.as_str())
    }

    fn create_namespace(&mut self, name: &Name) -> Result<Receipt, LabError> {
        let mark = mark(&self.lab, name);
        let made = NetNs::create_at(&self.pin(name), || furnish(&mark));
        let (namespace, rtnl) = made.map_err(LabError::kernel(name))?;
        let id = namespace.id().to_string();
        self.stacks.insert(name.clone(), Stack::new(namespace, rtnl));
        Ok(Receipt(Some(id)))
    }

    fn is_pinned(&self, name: &Name, receipt: &Receipt) -> Result<(), LabError> {
        let found = NetNs::open(&self.pin(name)).map_err(LabError::kernel(name))?.id().to_string();
        if receipt.0.as_ref() == Some(&found) {
            return Ok(());
        }
        Err(LabError::Replaced { lab: self.lab.clone(), namespace: name.clone() })
    }

    fn remove_namespace(&mut self, name: &Name, receipt: Option<&Receipt>) -> Result<Undone, LabError> {
        self.stacks.remove(name);
        let path = self.pin(name);
        let recorded = receipt.and_then(|receipt| receipt.0.as_deref());
        let expected: Option<NsId> = recorded.map(str::parse).transpose().map_err(LabError::kernel(name))?;
        self.evict(name, &path, expected)?;
        let removed = NetNs::remove_at(&path, expected).map_err(LabError::kernel(name))?;
        Ok(if removed { Undone::Reverted } else { Undone::AlreadyGone })
    }

    /// Ends the processes in a namespace. What the lab didn't make stays: `remove_at` reports it.
    fn evict(&mut self, name: &Name, path: &Path, expected: Option<NsId>) -> Result<(), LabError> {
        let Ok(namespace) = NetNs::open(path) else { return Ok(()) };
        let ours = expected.is_none_or(|id| id == namespace.id());
        if !ours || !self.census.get_or_insert_with(Census::take).is_occupied(namespace.id()) {
            return Ok(());
        }
        let holders = processes::evict(&namespace, &self.lab).map_err(LabError::kernel(name))?;
        if holders.is_empty() { Ok(()) } else { Err(LabError::Occupied { namespace: name.clone(), holders }) }
    }

    fn create_link(&mut self, at: &Place, kind: &LinkRecipe, mtu: Mtu) -> Result<(), LabError> {
        match kind {
            LinkRecipe::Veth { peer } => {
                let peer_ns = self.namespace(&peer.namespace)?;
                let name = kernel_name(peer)?;
                let kind = LinkKind::Veth { peer: name, peer_ns: Some(&peer_ns), peer_mtu: Some(mtu.get()) };
                self.make(&at.namespace, at, kind, mtu)
            }
            LinkRecipe::Bridge => self.make(&at.namespace, at, LinkKind::Bridge, mtu),
            LinkRecipe::Tap { queues } => self.make_tap(at, *queues, mtu),
            LinkRecipe::Macvlan { parent } => {
                let kind = LinkKind::Macvlan { parent: self.index(parent)? };
                self.make(&parent.namespace, at, kind, mtu)
            }
            LinkRecipe::Macvtap { parent, mac } => self.make_macvtap(at, parent, *mac, mtu),
            LinkRecipe::Ipvlan { parent } => {
                let kind = LinkKind::Ipvlan { parent: self.index(parent)? };
                self.make(&parent.namespace, at, kind, mtu)
            }
            LinkRecipe::Vxlan { parent, vni, local, remote } => {
                let kind = LinkKind::Vxlan {
                    vni: *vni,
                    local: (*local).into(),
                    remote: (*remote).into(),
                    port: LinkRecipe::VXLAN_PORT,
                    parent: Some(self.index(parent)?),
                    learning: false,
                };
                self.make(&parent.namespace, at, kind, mtu)
            }
        }
    }

    /// Makes a link in the namespace of `at`, by the namespace `home`, where the link below it is.
    fn make(&mut self, home: &Name, at: &Place, kind: LinkKind<'_>, mtu: Mtu) -> Result<(), LabError> {
        let target = self.namespace(&at.namespace)?;
        let into_ns = (*home != at.namespace).then_some(&*target);
        let link = KernelLink { mtu: Some(mtu.get()), into_ns, ..KernelLink::new(kernel_name(at)?, kind) };
        self.stack(home)?.rtnl.create_link(&link).map_err(LabError::kernel(at))
    }

    fn make_tap(&mut self, at: &Place, queues: u32, mtu: Mtu) -> Result<(), LabError> {
        let namespace = self.namespace(&at.namespace)?;
        let tap = NewTap { name: kernel_name(at)?, multi_queue: queues > 1 };
        tap.create_in(&namespace).map_err(LabError::kernel(at))?;
        self.set_mtu(at, mtu.get())
    }

    /// The link is made with an index whose device file is its own.
    fn make_macvtap(&mut self, at: &Place, parent: &Place, mac: Mac, mtu: Mtu) -> Result<(), LabError> {
        let (name, parent, mac) = (kernel_name(at)?, self.index(parent)?, MacAddr(mac.octets()));
        let link = NewMacvtap { name, parent, mac, mtu: mtu.get() };
        let index = link.create(&mut self.stack(&at.namespace)?.rtnl).map_err(LabError::kernel(at))?;
        self.stack(&at.namespace)?.indices.insert(at.link.clone(), index);
        Ok(())
    }

    fn enable_link(&mut self, at: &Place, bridge: Option<&LinkName>, mark: &str) -> Result<(), LabError> {
        let bridge = bridge.map(|bridge| self.index(&Place::new(&at.namespace, bridge.clone()))).transpose()?;
        let change = LinkChange {
            up: Some(true),
            master: bridge.map(Some),
            alias: Some(mark.to_owned()),
            ..LinkChange::default()
        };
        self.change(at, &change)?;
        self.hasten(at)
    }

    /// Makes the kernel see a wire's carrier at once.
    ///
    /// The kernel delays events that are not urgent by up to a second. Until then the link counts as down, and as a
    /// bridge's port it forwards nothing. The first links of two namespaces have the same index. So the kernel takes a
    /// veth link for one that stands on itself, and its event for not urgent unless its queue is about to change
    /// (`linkwatch_urgent_event`). When a link is opened for the second time, its queue changes.
    fn hasten(&mut self, at: &Place) -> Result<(), LabError> {
        let wires = self.blueprint.iter().flat_map(|blueprint| &blueprint.wires);
        if !wires.into_iter().any(|wire| wire.ends.contains(at)) {
            return Ok(());
        }
        let index = self.index(at)?;
        let link = self.stack(&at.namespace)?.rtnl.existing_link(index).map_err(LabError::kernel(at))?;
        if link.lower_up && !link.running && link.parent == Some(index) {
            for up in [false, true] {
                self.change(at, &LinkChange { up: Some(up), ..LinkChange::default() })?;
            }
        }
        Ok(())
    }

    fn change(&mut self, at: &Place, change: &LinkChange<'_>) -> Result<(), LabError> {
        let name = kernel_name(at)?;
        self.stack(&at.namespace)?.rtnl.set_link(&name, change).map_err(LabError::kernel(at))
    }

    fn index(&mut self, at: &Place) -> Result<IfIndex, LabError> {
        let stack = self.stack(&at.namespace)?;
        if let Some(index) = stack.indices.get(&at.link) {
            return Ok(*index);
        }
        let name = kernel_name(at)?;
        let index = stack.rtnl.existing_link(&name).map_err(LabError::kernel(at))?.index;
        stack.indices.insert(at.link.clone(), index);
        Ok(index)
    }

    fn add_address(&mut self, at: &Place, address: Ipv4Net) -> Result<(), LabError> {
        let index = self.index(at)?;
        let stack = self.stack(&at.namespace)?;
        stack.rtnl.add_address(index, IpNet::V4(address)).map_err(LabError::kernel(at))
    }

    fn add_route(&mut self, namespace: &Name, to: Ipv4Net, via: Ipv4Addr) -> Result<(), LabError> {
        let next_hop = NextHop::Via(via.into());
        let route = NewRoute { dest: IpNet::V4(to), next_hop, source: None, congestion: None };
        self.stack(namespace)?.rtnl.add_route(&route).map_err(LabError::kernel(namespace))
    }

    /// Adds a route to one address. The kernel prefers it to the route to the network.
    pub(crate) fn set_congestion(&mut self, by: &Place, to: Ipv4Addr, name: CongestionControl) -> Result<(), LabError> {
        let next_hop = NextHop::Link(self.index(by)?);
        let route = NewRoute { dest: IpAddr::V4(to).into(), next_hop, source: None, congestion: Some(name) };
        self.stack(&by.namespace)?.rtnl.add_route(&route).map_err(LabError::kernel(by))
    }

    fn set_sysctl(&mut self, namespace: &Name, key: &str, value: &str) -> Result<(), LabError> {
        let inside = self.namespace(namespace)?;
        let written = key.parse().and_then(|key| sysctl::write(&inside, &key, value));
        written.map(|_| ()).map_err(LabError::kernel(namespace))
    }
}

impl Stack {
    fn new(namespace: NetNs, rtnl: Rtnl) -> Stack {
        Stack { namespace: Arc::new(namespace), rtnl, indices: HashMap::new() }
    }
}

/// Prepares and marks a new namespace, and opens the connection to it.
///
/// IPv6 is off for all later links. A lab speaks IPv4 only. With IPv6, the kernel would greet all neighbours
/// from each new link: on a bridge of n zones these are n² packets in the middle of a measurement. A kernel
/// without IPv6 has nothing to switch off.
fn furnish(mark: &str) -> Result<Rtnl, SysError> {
    let failed = |setting: &'static str| move |error| SysError::plain("set", setting, error);
    let setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    match fs::write(setting, "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(setting)(error)),
        _ => {}
    }
    // The root of the namespace may open ICMP sockets. At first nobody may, not even root.
    let range = "/proc/sys/net/ipv4/ping_group_range";
    fs::write(range, "0 0").map_err(failed(range))?;
    let mut rtnl = Rtnl::open()?;
    let change = LinkChange { up: Some(true), alias: Some(mark.to_owned()), ..LinkChange::default() };
    rtnl.set_link(LOOPBACK, &change)?;
    Ok(rtnl)
}

fn kernel_name(place: &Place) -> Result<IfName, LabError> {
    place.link.as_str().parse().map_err(LabError::kernel(place))
}
