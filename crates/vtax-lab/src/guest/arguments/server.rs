//! What makes a guest a server that can have guests of its own, with NICs to give them.
//!
//! An IOMMU that remaps interrupts wants them delivered by QEMU and not by KVM's model alone
//! (`kernel-irqchip=split`), and one that VFIO inside is to use has to tell of its changes
//! (`caching-mode`). The second root complex is a PCI expander bridge.

use vtax_model::{guest::Mac, server::ServerSpec};

use super::{Arguments, pci};
use crate::guest::launch::ROOT_TAG;

/// Options of the machine.
pub(super) const MACHINE: &str = ",kernel-irqchip=split";
/// With AMD's virtualization, which QEMU can translate, nested pages included; Intel's it can't.
pub(super) const TRANSLATED_CPU: &str = "max,+svm,+npt";
/// The server's own devices keep their addresses: only what VFIO has is translated. A kernel that has
/// gone wrong ends, and doesn't measure on. Memory that is plugged in is used.
pub(super) const KERNEL: [&str; 4] = ["intel_iommu=on", "iommu=pt", "oops=panic", "memhp_default_state=online"];
/// Translated, a CPU that leaves a guest now and then loses word of an interrupt which comes at that very
/// moment (`do_vmexit` clears a bit of `interrupt_request` without the lock under which others set some),
/// and with a timer that has to be set anew each time it would stand still for ever after. One that ticks
/// by itself makes it look again.
pub(super) const TICKING: [&str; 2] = ["nohz=off", "highres=off"];
/// PID 1 goes to live in the host's files.
pub(super) const AGENT: [&str; 3] = ["--guest", "--root", ROOT_TAG];

/// The first bus behind the expander: each complex has half of the 256.
const SECOND_COMPLEX: u32 = 128;

/// RAM as two kinds: what a board has from the start, and modules that are plugged in.
///
/// With RAM above 4 GiB from the start the firmware puts NICs' registers there, too (`pci_pad_mem64` of
/// SeaBIOS), and those of virtual functions are out of reach then: QEMU 10.0 takes their addresses for 32
/// bits, as `pcie_sriov_pf_init` makes them before it knows better.
pub(super) struct Ram {
    /// MiB from the start.
    board: u64,
    /// MiB of each node's module; none if 0.
    module: u64,
}

impl Ram {
    /// A q35 has less than this below 4 GiB.
    const BELOW: u64 = 0xb00;
    /// Linux takes modules that are a multiple of this (`memory_block_size_bytes`).
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

/// Each node's share of CPUs and RAM.
pub(super) fn nodes(list: &mut Arguments, spec: &ServerSpec) {
    let ram = Ram::of(spec);
    for node in 0..spec.nodes {
        let nodes = u64::from(spec.nodes);
        let share = |all: u64| ((all * u64::from(node)).div_ceil(nodes), (all * u64::from(node + 1)).div_ceil(nodes));
        let ((first, next), (below, above)) = (share(u64::from(spec.cpus)), share(ram.board));
        list.add("-object", format!("memory-backend-memfd,id=ram{node},size={}M", above - below));
        // Linux takes a node without CPUs: it has memory, and devices.
        let cpus = if first < next { format!(",cpus={first}-{}", next - 1) } else { String::new() };
        list.add("-numa", format!("node,nodeid={node}{cpus},memdev=ram{node}"));
        if ram.module > 0 {
            list.add("-object", format!("memory-backend-memfd,id=more{node},size={}M", ram.module));
            list.add("-device", format!("pc-dimm,id=module{node},memdev=more{node},node={node}"));
        }
    }
}

/// The IOMMU, the host's files, the second root complex, and the NICs.
pub(super) fn devices(list: &mut Arguments, spec: &ServerSpec) {
    list.add("-device", "intel-iommu,intremap=on,caching-mode=on");
    // The firmware's way to plug devices calls each slot of the first root complex 0.
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
}

/// A NIC in a slot of its own, at its end of the cable: a hub with two ports.
fn nic(list: &mut Arguments, cable: u32, complex: u32, mac: Mac) {
    let bus = if complex == 0 { "pcie.0" } else { "complex1" };
    let slot = 2 * cable - 1 + complex;
    list.add("-netdev", format!("hubport,id=net{slot},hubid={cable}"));
    list.add("-device", format!("pcie-root-port,id=slot{slot},bus={bus},chassis={slot},slot={slot}"));
    list.add("-device", format!("igb,id=nic{slot},netdev=net{slot},bus=slot{slot},mac={mac},romfile="));
}
