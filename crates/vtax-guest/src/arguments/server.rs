//! Options that make a guest a server with its own guests, and NICs to assign to them.
//!
//! An IOMMU that remaps interrupts needs QEMU, and not KVM alone, to deliver them (`kernel-irqchip=split`).
//! If VFIO in the server is to use it, it has to report its changes (`caching-mode`). The second root complex
//! is a PCI expander bridge.

use vtax_model::{
    guest::Mac,
    server::{ServerDisk, ServerSpec},
};

use super::{Arguments, pci};
use crate::launch::{ROOT_TAG, STATE_DISK, STATE_SERIAL, server_disk};

pub(super) const MACHINE: &str = ",kernel-irqchip=split";
/// The CPU supports AMD's virtualization, which QEMU can emulate with nested pages; it can't emulate Intel's.
pub(super) const VIRTUALIZATION: &str = "+svm,+npt";
/// The IOMMU translates only for devices assigned by VFIO; the server's own devices keep their addresses. A kernel with
/// an internal error stops instead of continuing to measure. Hotplugged memory is brought online.
pub(super) const KERNEL: [&str; 4] = ["intel_iommu=on", "iommu=pt", "oops=panic", "memhp_default_state=online"];
/// Under TCG, a CPU on a VM exit sometimes loses an interrupt that arrives at that moment: `do_vmexit` clears a bit of
/// `interrupt_request` without the lock under which others set bits. With a one-shot timer, the CPU would then hang
/// forever. A periodic timer wakes it again.
pub(super) const TICKING: [&str; 2] = ["nohz=off", "highres=off"];
/// PID 1 switches to the host's files as its root.
pub(super) const AGENT: [&str; 3] = ["--guest", "--root", ROOT_TAG];

/// The first bus behind the expander. Each complex has half of the 256 buses.
const SECOND_COMPLEX: u32 = 128;

/// RAM comes in two kinds: that of the board, present from the start, and hotplugged modules.
///
/// If there is RAM above 4 GiB from the start, the firmware puts the registers of NICs above it too
/// (`pci_pad_mem64` of SeaBIOS). Then the registers of virtual functions can't be reached: QEMU 10.0 treats
/// their addresses as 32 bits wide, because `pcie_sriov_pf_init` sets them up too early.
pub(super) struct Ram {
    /// MiB present from the start.
    board: u64,
    /// MiB of each node's module. 0 means no module.
    module: u64,
}

impl Ram {
    /// A q35 has less than this below 4 GiB.
    const BELOW: u64 = 0xb00;
    /// Linux accepts modules whose size is a multiple of this (`memory_block_size_bytes`).
    const BLOCK: u64 = 128;
    const BOARD: u64 = 2048;

    pub(super) fn of(spec: &ServerSpec) -> Ram {
        let (all, nodes) = (spec.memory.0 >> 20, u64::from(spec.nodes));
        let module = match all < Ram::BELOW {
            true => 0,
            false => (all - Ram::BOARD) / (Ram::BLOCK * nodes) * Ram::BLOCK,
        };
        Ram { board: all - module * nodes, module }
    }

    /// The argument of `-m`.
    pub(super) fn sizes(&self, spec: &ServerSpec) -> String {
        match self.module {
            0 => format!("{}M", self.board),
            _ => format!("{}M,slots={},maxmem={}M", self.board, spec.nodes, spec.memory.0 >> 20),
        }
    }
}

pub(super) fn nodes(list: &mut Arguments, spec: &ServerSpec) {
    let ram = Ram::of(spec);
    for node in 0..spec.nodes {
        let nodes = u64::from(spec.nodes);
        let share = |all: u64| ((all * u64::from(node)).div_ceil(nodes), (all * u64::from(node + 1)).div_ceil(nodes));
        let ((first, next), (below, above)) = (share(u64::from(spec.cpus)), share(ram.board));
        list.add("-object", format!("memory-backend-memfd,id=ram{node},size={}M", above - below));
        // Linux accepts a node without CPUs. It still has memory and devices.
        let cpus = if first < next { format!(",cpus={first}-{}", next - 1) } else { String::new() };
        list.add("-numa", format!("node,nodeid={node}{cpus},memdev=ram{node}"));
        if ram.module > 0 {
            list.add("-object", format!("memory-backend-memfd,id=more{node},size={}M", ram.module));
            list.add("-device", format!("pc-dimm,id=module{node},memdev=more{node},node={node}"));
        }
    }
}

/// The IOMMU, the host's files, the second root complex, the NICs, the disk of state, and the empty disks.
///
/// A server may reboot, so a reset can't signal a kernel panic: `pvpanic` does, and QEMU exits.
pub(super) fn devices(list: &mut Arguments, spec: &ServerSpec) {
    list.add("-device", "intel-iommu,intremap=on,caching-mode=on");
    // Otherwise the firmware's hotplug gives each slot of the first root complex the number 0.
    list.add("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off");
    list.add("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap");
    list.add("-device", pci(&format!("virtio-9p-pci,fsdev=root,mount_tag={ROOT_TAG},bus=pcie.0")));
    let node = if spec.nodes > 1 { ",numa_node=1" } else { "" };
    list.add("-device", format!("pxb-pcie,id=complex1,bus=pcie.0,bus_nr={SECOND_COMPLEX}{node}"));
    for (cable, macs) in (1..).zip(spec.cables()) {
        for (complex, mac) in (0..).zip(macs) {
            nic(list, cable, complex, mac);
        }
    }
    // They come last, so that no other device's address depends on them.
    let file = format!(
        "driver=raw,node-name=state,discard=unmap,detect-zeroes=unmap,file.driver=file,file.filename={STATE_DISK}"
    );
    list.add("-blockdev", file);
    list.add("-device", pci(&format!("virtio-blk-pci,drive=state,serial={STATE_SERIAL},bus=pcie.0")));
    list.add("-device", "pvpanic-pci,bus=pcie.0");
    (spec.nics + 1..).zip(spec.empty_disks()).for_each(|(slot, which)| disk(list, slot, which));
}

/// A NIC in a dedicated slot. The cable is a hub with two ports.
fn nic(list: &mut Arguments, cable: u32, complex: u32, mac: Mac) {
    let bus = if complex == 0 { "pcie.0" } else { "complex1" };
    let slot = 2 * cable - 1 + complex;
    list.add("-netdev", format!("hubport,id=net{slot},hubid={cable}"));
    list.add("-device", format!("pcie-root-port,id=slot{slot},bus={bus},chassis={slot},slot={slot}"));
    list.add("-device", format!("igb,id=nic{slot},netdev=net{slot},bus=slot{slot},mac={mac},romfile="));
}

/// An empty disk in a dedicated slot, so that its controller has a separate IOMMU group. A virtio device uses the IOMMU
/// only on request; otherwise its address space would be the server's even if the device is assigned.
fn disk(list: &mut Arguments, slot: u32, which: ServerDisk) {
    let device = match which {
        ServerDisk::Nvme(_) => "nvme".to_owned(),
        ServerDisk::Virtio(_) => pci("virtio-blk-pci,iommu_platform=on"),
    };
    let file = server_disk(which);
    list.add("-blockdev", format!("driver=raw,node-name={which},discard=unmap,file.driver=file,file.filename={file}"));
    list.add("-device", format!("pcie-root-port,id=slot{slot},bus=pcie.0,chassis={slot},slot={slot}"));
    list.add("-device", format!("{device},drive={which},bus=slot{slot},serial=vtax-{which}"));
}
