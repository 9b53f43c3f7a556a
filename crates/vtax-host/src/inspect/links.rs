//! The links of this machine as sysfs shows them, with their queues.

use serde::{Deserialize, Serialize};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};

use super::{SystemRoot, cpu::mask};

const FOLDER: &str = "sys/class/net";

/// Network link, as its directory in `/sys/class/net` describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostLink {
    pub name: ForeignText,
    pub index: u32,
    pub is_up: bool,
    pub mtu: u32,
    /// Hardware type, real or emulated, by its number in `include/uapi/linux/if_arp.h`. None if not reported.
    pub hardware: Option<u32>,
    /// The device's name for the port (`phys_port_name`), such as `p0`, or `pf0vf3` for a function's representor.
    pub port_name: Option<ForeignText>,
    /// The device behind it, if any. Virtual links have none.
    pub device: Option<LinkDevice>,
    /// The bridge or bond that it is a port of.
    pub master: Option<ForeignText>,
    /// The links below it: a bridge's ports, a bond's members, a VLAN's base device.
    pub lower: Vec<ForeignText>,
    /// True if it is a bridge itself.
    pub is_bridge: bool,
    /// 10^6 bits a second, as negotiated.
    pub speed_mbps: Option<u32>,
    pub rx_queues: Vec<RxQueue>,
    pub tx_queues: Vec<TxQueue>,
    /// Number of times NAPI polls without the interrupt before it enables the interrupt again (`napi_defer_hard_irqs`).
    pub napi_defer_hard_irqs: Option<u32>,
    /// Nanoseconds after which held packets are delivered (`gro_flush_timeout`).
    pub gro_flush_timeout: Option<u64>,
    pub counters: LinkCounters,
}

/// Device with a driver behind a link, as `device` in the link's sysfs directory describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkDevice {
    /// Its driver, such as `ixgbe`.
    pub driver: ForeignText,
    /// Its PCI address, if it is on that bus.
    pub pci: Option<ForeignText>,
    /// The link's port of the device, from 0.
    pub port: Option<u32>,
    /// The NUMA node that it is attached to. None if the firmware doesn't report it, or if there is only one node.
    pub node: Option<u32>,
    /// Its interrupts, by their numbers.
    pub interrupts: Vec<u32>,
    /// True if it is a virtual function.
    pub is_vf: bool,
    /// Number of its virtual functions, if supported.
    pub vfs: Option<u32>,
}

/// A queue of received packets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RxQueue {
    /// The CPUs that packets are spread over (`rps_cpus`).
    pub rps_cpus: CpuSet,
    /// Entries of the table of flows (`rps_flow_cnt`).
    pub rps_flow_cnt: u32,
}

/// A queue of packets to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TxQueue {
    /// The CPUs whose packets it sends (`xps_cpus`). None if the kernel has no such setting for it.
    pub xps_cpus: Option<CpuSet>,
}

/// Counters since the link was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_missed_errors: u64,
}

/// `ARPHRD_ETHER`.
const ETHERNET: u32 = 1;

impl HostLink {
    /// Returns true if it carries Ethernet frames, or `None` if unknown.
    ///
    /// Bridges and their ports do, whatever the machine reports about them (`br_add_if`, net/bridge/br_if.c).
    pub fn is_ethernet(&self) -> Option<bool> {
        self.hardware.map(|hardware| hardware == ETHERNET).or(self.is_bridge.then_some(true))
    }

    /// Returns true if it represents a function's port inside the device, such as `pf0vf3`, `c1pf0vf0` or `pf0sf8`
    /// (`devlink_port_phys_port_name_get`, net/devlink/port.c). Its packets go through the device's own port.
    pub fn is_representor(&self) -> bool {
        let Some(name) = self.port_name.as_ref().map(ForeignText::raw) else { return false };
        let after_controller = name.strip_prefix('c').map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        after_controller.unwrap_or(name).starts_with("pf")
    }
}

pub(super) fn links(tree: &SystemRoot) -> Vec<HostLink> {
    let mut links: Vec<HostLink> = tree.names(FOLDER).into_iter().filter_map(|name| link(tree, &name)).collect();
    links.sort_by_key(|link| link.index);
    links
}

/// None if there is no such link: the directory also contains files, such as `bonding_masters`.
fn link(tree: &SystemRoot, name: &str) -> Option<HostLink> {
    let at = Attributes { tree, folder: format!("{FOLDER}/{name}") };
    Some(HostLink {
        index: at.number("ifindex")?,
        mtu: at.number("mtu")?,
        hardware: at.number("type"),
        port_name: at.text("phys_port_name").filter(|name| !name.is_empty()).map(ForeignText::from),
        is_up: at.flags()? & IFF_UP != 0,
        device: at.device(),
        master: at.variable("master/uevent", "INTERFACE").map(ForeignText::from),
        lower: at.names("").iter().filter_map(|name| name.strip_prefix("lower_")).map(ForeignText::from).collect(),
        is_bridge: at.number::<u32>("bridge/stp_state").is_some(),
        // If unknown, it is -1, or the file can't be read.
        speed_mbps: at.number("speed").filter(|speed| *speed > 0),
        rx_queues: at.queues("rx").iter().map(|queue| at.rx_queue(queue)).collect(),
        tx_queues: at.queues("tx").iter().map(|queue| at.tx_queue(queue)).collect(),
        napi_defer_hard_irqs: at.number("napi_defer_hard_irqs"),
        gro_flush_timeout: at.number("gro_flush_timeout"),
        counters: at.counters(),
        name: name.into(),
    })
}

/// The link is administratively up, with or without carrier (netdevice(7)).
const IFF_UP: u32 = 1;

/// The files of one link.
struct Attributes<'a> {
    tree: &'a SystemRoot,
    folder: String,
}

impl Attributes<'_> {
    fn text(&self, file: &str) -> Option<String> {
        self.tree.text(&format!("{}/{file}", self.folder))
    }

    fn number<T: std::str::FromStr>(&self, file: &str) -> Option<T> {
        self.tree.parsed(&format!("{}/{file}", self.folder))
    }

    fn flags(&self) -> Option<u32> {
        let flags = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        self.tree.read_as(&format!("{}/flags", self.folder), flags)
    }

    fn mask(&self, file: &str) -> Option<CpuSet> {
        self.tree.read_as(&format!("{}/{file}", self.folder), mask)
    }

    /// The value of `NAME=value`.
    fn variable(&self, file: &str, name: &str) -> Option<String> {
        let text = self.text(file)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(str::to_owned)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        self.tree.names(&format!("{}/{folder}", self.folder))
    }

    fn device(&self) -> Option<LinkDevice> {
        let driver = self.variable("device/uevent", "DRIVER")?;
        // The device of a virtio NIC is on the bus virtio, below the PCI device that has the rest.
        let parent = if driver == "virtio_net" { "device/.." } else { "device" };
        let numbers = self.names(&format!("{parent}/msi_irqs"));
        let mut interrupts: Vec<u32> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
        interrupts.sort_unstable();
        Some(LinkDevice {
            driver: driver.into(),
            pci: self.variable(&format!("{parent}/uevent"), "PCI_SLOT_NAME").map(ForeignText::from),
            port: self.number("dev_port"),
            node: self.number(&format!("{parent}/numa_node")),
            interrupts,
            is_vf: !self.names("device/physfn").is_empty(),
            vfs: self.number("device/sriov_numvfs"),
        })
    }

    /// The directories `queues/rx-0`, `queues/rx-1`, by number.
    fn queues(&self, kind: &str) -> Vec<u32> {
        let number = |name: &String| name.strip_prefix(kind)?.strip_prefix('-')?.parse().ok();
        let mut queues: Vec<u32> = self.names("queues").iter().filter_map(number).collect();
        queues.sort_unstable();
        queues
    }

    fn rx_queue(&self, number: &u32) -> RxQueue {
        let file = |name: &str| format!("queues/rx-{number}/{name}");
        RxQueue {
            rps_cpus: self.mask(&file("rps_cpus")).unwrap_or_default(),
            rps_flow_cnt: self.number(&file("rps_flow_cnt")).unwrap_or(0),
        }
    }

    fn tx_queue(&self, number: &u32) -> TxQueue {
        TxQueue { xps_cpus: self.mask(&format!("queues/tx-{number}/xps_cpus")) }
    }

    fn counters(&self) -> LinkCounters {
        let count = |name: &str| self.number(&format!("statistics/{name}")).unwrap_or(0);
        LinkCounters {
            rx_packets: count("rx_packets"),
            tx_packets: count("tx_packets"),
            rx_bytes: count("rx_bytes"),
            tx_bytes: count("tx_bytes"),
            rx_dropped: count("rx_dropped"),
            tx_dropped: count("tx_dropped"),
            rx_missed_errors: count("rx_missed_errors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_is_read_with_its_device_and_queues() {
        let files = [
            ("ifindex", "3"),
            ("mtu", "1500"),
            ("flags", "0x1003"),
            ("speed", "10000"),
            ("device/uevent", "DRIVER=ixgbe\nPCI_SLOT_NAME=0000:3b:00.0"),
            ("device/numa_node", "1"),
            ("device/msi_irqs/64", "msix"),
            ("device/msi_irqs/9", "msix"),
            ("device/sriov_numvfs", "0"),
            ("master/uevent", "DEVTYPE=bridge\nINTERFACE=br0"),
            ("queues/rx-0/rps_cpus", "00000000,0000000f"),
            ("queues/rx-0/rps_flow_cnt", "2048"),
            ("queues/tx-0/xps_cpus", "3"),
            ("queues/tx-10/traffic_class", "0"),
            ("queues/tx-2/xps_cpus", "4"),
            ("statistics/rx_missed_errors", "12"),
            ("napi_defer_hard_irqs", "0"),
        ]
        .map(|(file, text)| (format!("{FOLDER}/eth4/{file}"), format!("{text}\n")));
        let tree = SystemRoot::invented(files);
        let [link] = <[HostLink; 1]>::try_from(links(&tree)).expect("one link");
        let device = link.device.expect("a device");
        assert_eq!((device.driver.raw(), device.node, &device.interrupts[..]), ("ixgbe", Some(1), &[9, 64][..]));
        assert_eq!((device.is_vf, device.vfs, device.pci), (false, Some(0), Some("0000:3b:00.0".into())));
        assert_eq!(
            (link.is_up, link.mtu, link.speed_mbps, link.master),
            (true, 1500, Some(10_000), Some("br0".into()))
        );
        assert_eq!((link.rx_queues[0].rps_cpus.to_string(), link.rx_queues[0].rps_flow_cnt), ("0-3".into(), 2048));
        let xps: Vec<_> = link.tx_queues.iter().map(|queue| queue.xps_cpus.as_ref().map(CpuSet::to_string)).collect();
        assert_eq!(xps, [Some("0-1".into()), Some("2".into()), None], "in the order of their numbers");
        assert_eq!(link.counters.rx_missed_errors, 12);
    }

    #[test]
    fn representors_are_distinguished_from_ports() {
        let is_one = |name: &str| HostLink { port_name: Some(name.into()), ..HostLink::default() }.is_representor();
        assert!(["pf0vf0", "c1pf0vf3", "pf1sf88", "pf0", "c12pf0"].into_iter().all(is_one));
        assert!(!["p0", "p1s2", "0", "n3", "compute0"].into_iter().any(is_one));
        assert!(!HostLink::default().is_representor());
    }

    #[test]
    fn non_links_are_omitted_and_unknown_values_are_absent() {
        let tree = SystemRoot::invented([
            ("sys/class/net/bonding_masters", ""),
            ("sys/class/net/br0/ifindex", "4"),
            ("sys/class/net/br0/mtu", "1500"),
            ("sys/class/net/br0/flags", "0x1002"),
            ("sys/class/net/br0/speed", "-1"),
            ("sys/class/net/br0/bridge/stp_state", "0"),
            ("sys/class/net/odd/ifindex", "5"),
            ("sys/class/net/odd/mtu", "many"),
        ]);
        let [bridge] = <[HostLink; 1]>::try_from(links(&tree)).expect("one link");
        assert_eq!((bridge.is_bridge, bridge.is_up, bridge.speed_mbps, bridge.device), (true, false, None, None));
    }
}
