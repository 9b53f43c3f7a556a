//! The files of a host, and what its drivers report.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::Path,
};

use vtax_host::inspect::{HostFacts, NicSource, SystemRoot};
use vtax_model::nic::{Coalescing, NicFacts, Rings};
use vtax_tune::{HostSetting, Proposal};

/// A fake host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    files: BTreeMap<String, String>,
    nics: BTreeMap<String, NicFacts>,
}

impl NicSource for Machine {
    fn nic(&self, link: &str) -> NicFacts {
        self.nics.get(link).cloned().unwrap_or_default()
    }
}

impl Machine {
    pub(crate) fn facts(&self) -> HostFacts {
        self.facts_of(self.tree())
    }

    pub(crate) fn tree(&self) -> SystemRoot {
        SystemRoot::invented(&self.files)
    }

    /// Returns the facts of these files with the reports of this host's drivers.
    pub(crate) fn facts_of(&self, tree: SystemRoot) -> HostFacts {
        HostFacts::read(&tree, self)
    }

    /// Returns the paths of its files, one of each kind: of those that differ only in numbers, the last.
    pub(crate) fn paths(&self) -> Vec<String> {
        let kind = |path: &String| path.replace(|c: char| c.is_ascii_digit(), "");
        let kinds: BTreeMap<String, &String> = self.files.keys().map(|path| (kind(path), path)).collect();
        kinds.into_values().cloned().collect()
    }

    /// Adds a link that is up and has a small MTU.
    pub(crate) fn odd_link(&mut self, name: &str, index: u32) {
        self.link(name, index, 600, 1);
    }

    /// Eight sockets of 512 CPUs.
    pub(crate) fn many_cpus() -> Machine {
        let mut machine = Machine::with_cpus(8, 512);
        machine.idle_states(&[("POLL", 0), ("C1", 2), ("C6", 133)]);
        machine.link("eno1", 2, 1500, 8);
        machine.device("eno1", "ice", 25_000, 1, 40..48, |queue| 512 + queue);
        machine
    }

    /// Writes the files that `proposals` change and those of `/etc` below a directory. Links and threads are not
    /// included.
    pub(crate) fn write_to(&self, root: &Path, proposals: &[Proposal]) {
        let changed: BTreeSet<String> = proposals.iter().filter_map(file).collect();
        let wanted = |path: &String| path.starts_with("etc/") || path.ends_with("/ifindex") || changed.contains(path);
        for (path, text) in self.files.iter().filter(|(path, _)| wanted(path)) {
            let place = root.join(path);
            fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
            fs::write(place, text).expect("a file");
        }
    }

    pub(crate) fn put(&mut self, path: &str, text: impl ToString) {
        self.files.insert(path.to_owned(), text.to_string() + "\n");
    }

    pub(crate) fn remove(&mut self, path: &str) {
        self.files.remove(path).expect("a file of this host");
    }

    pub(crate) fn every_cpu(&mut self, file: &str, text: &str) {
        let cpus = self.files.keys().filter_map(|path| path.strip_suffix("/topology/physical_package_id"));
        let paths: Vec<String> = cpus.map(|folder| format!("{folder}/{file}")).collect();
        paths.iter().for_each(|path| self.put(path, text));
    }

    pub(crate) fn offload(&mut self, link: &str, name: &str, on: bool) {
        self.nics.get_mut(link).expect("a NIC").offloads.insert(name.into(), on);
    }

    pub(crate) fn coalescing(&mut self, link: &str, rx_us: u32) {
        self.nics.get_mut(link).expect("a NIC").coalescing = Some(Coalescing { rx_us, ..Coalescing::default() });
    }

    pub(crate) fn all_interrupts_to(&mut self, cpu: &str) {
        let lists: Vec<String> =
            self.files.keys().filter(|path| path.ends_with("effective_affinity_list")).cloned().collect();
        lists.iter().for_each(|path| self.put(path, cpu));
    }

    pub(crate) fn no_xps(&mut self, link: &str) {
        let of_link = format!("sys/class/net/{link}/queues/tx-");
        let masks: Vec<String> = self
            .files
            .keys()
            .filter(|path| path.starts_with(&of_link) && path.ends_with("xps_cpus"))
            .cloned()
            .collect();
        masks.iter().for_each(|path| self.put(path, "0"));
    }

    /// Applies a change as the kernel would.
    pub(crate) fn apply(&mut self, proposal: &Proposal) {
        match &proposal.setting {
            HostSetting::Sysctl { key, value } => {
                self.put(&format!("proc/sys/{}", key.replace('.', "/")), value);
            }
            HostSetting::Sysfs { path, value } => self.put(&format!("sys/{}", path.raw()), value),
            HostSetting::InterruptCpus { number, value } => {
                self.put(&format!("proc/irq/{number}/smp_affinity_list"), value);
                self.put(&format!("proc/irq/{number}/effective_affinity_list"), value);
            }
            HostSetting::ThreadCpus { pid, tid, value, .. } => {
                self.put(&format!("proc/{pid}/task/{tid}/status"), format!("Cpus_allowed_list:\t{value}"));
            }
            HostSetting::LinkMtu { link, value } => self.put(&format!("sys/class/net/{}/mtu", link.raw()), value),
            HostSetting::LinkFeature { link, feature, value } => self.offload(link.raw(), feature.raw(), value.0),
            HostSetting::LinkRxUsecs { link, value } => self.coalescing(link.raw(), *value),
            HostSetting::LinkRxRing { .. } | HostSetting::LinkAdaptiveRx { .. } => {}
        }
    }

    /// Returns a machine with this many sockets and CPUs per socket. Each socket is a NUMA node, and each core has two
    /// threads.
    fn with_cpus(sockets: u32, each: u32) -> Machine {
        let mut machine = Machine::default();
        let all = sockets * each;
        machine.put("sys/devices/system/cpu/online", format!("0-{}", all - 1));
        for cpu in 0..all {
            let socket = cpu / each;
            let first = cpu / 2 * 2;
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            machine.put(&format!("{folder}/topology/physical_package_id"), socket);
            machine.put(&format!("{folder}/topology/thread_siblings_list"), format!("{first}-{}", first + 1));
        }
        for node in 0..sockets {
            let list = format!("{}-{}", node * each, node * each + each - 1);
            machine.put(&format!("sys/devices/system/node/node{node}/cpulist"), list);
        }
        machine.sysctls(&[
            ("net/core/netdev_budget", "300"),
            ("net/core/netdev_max_backlog", "1000"),
            ("net/core/default_qdisc", "fq_codel"),
            ("net/core/busy_read", "0"),
            ("net/core/rps_sock_flow_entries", "0"),
            ("net/ipv4/tcp_congestion_control", "cubic"),
            ("net/ipv4/tcp_moderate_rcvbuf", "1"),
            ("net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
        ]);
        machine.put("proc/net/softnet_stat", "00ffffff 00000000 00000001 0 0 0 0 0 0 0 0 0 00000000");
        machine
    }

    fn sysctls(&mut self, settings: &[(&str, &str)]) {
        settings.iter().for_each(|(name, value)| self.put(&format!("proc/sys/{name}"), value));
    }

    fn idle_states(&mut self, states: &[(&str, u32)]) {
        self.put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle");
        for (number, (name, latency)) in states.iter().enumerate() {
            self.every_cpu(&format!("cpuidle/state{number}/name"), name);
            self.every_cpu(&format!("cpuidle/state{number}/latency"), &latency.to_string());
            self.every_cpu(&format!("cpuidle/state{number}/disable"), "0");
        }
    }

    fn frequency(&mut self, governor: &str, preference: Option<&str>) {
        self.every_cpu("cpufreq/scaling_governor", governor);
        preference.into_iter().for_each(|wish| self.every_cpu("cpufreq/energy_performance_preference", wish));
    }

    fn link(&mut self, name: &str, index: u32, mtu: u32, queues: u32) {
        let folder = format!("sys/class/net/{name}");
        for (file, text) in [("ifindex", index), ("mtu", mtu), ("type", 1)] {
            self.put(&format!("{folder}/{file}"), text);
        }
        self.put(&format!("{folder}/flags"), "0x1003");
        for queue in 0..queues {
            self.put(&format!("{folder}/queues/rx-{queue}/rps_cpus"), "0");
            self.put(&format!("{folder}/queues/rx-{queue}/rps_flow_cnt"), "0");
            self.put(&format!("{folder}/queues/tx-{queue}/xps_cpus"), format!("{:x}", 1u64 << queue));
        }
        self.put(&format!("{folder}/gro_flush_timeout"), "0");
        self.put(&format!("{folder}/statistics/rx_packets"), "90000000");
        let on = ["rx-checksum", "rx-gro", "tx-checksum-ip-generic", "tx-generic-segmentation", "tx-scatter-gather"];
        let offloads = on.into_iter().chain(["tx-tcp-segmentation"]).map(|name| (name.into(), true)).collect();
        self.nics.insert(name.to_owned(), NicFacts { offloads, ..NicFacts::default() });
    }

    /// A NIC whose interrupts, numbered from `interrupts.start`, are delivered to the CPUs given by `to`.
    fn device(
        &mut self,
        name: &str,
        driver: &str,
        mbps: u32,
        node: i32,
        interrupts: Range<u32>,
        to: impl Fn(u32) -> u32,
    ) {
        let device = format!("sys/class/net/{name}/device");
        self.put(&format!("{device}/uevent"), format!("DRIVER={driver}\nPCI_SLOT_NAME=0000:3b:00.0"));
        self.put(&format!("{device}/numa_node"), node);
        self.put(&format!("sys/class/net/{name}/speed"), mbps);
        let cpus = self.files.keys().filter(|path| path.ends_with("physical_package_id")).count();
        let mut table = (0..cpus).map(|cpu| format!(" CPU{cpu}")).collect::<String>() + "\n";
        for (queue, number) in interrupts.enumerate() {
            self.put(&format!("{device}/msi_irqs/{number}"), "msix");
            self.put(&format!("proc/irq/{number}/smp_affinity_list"), format!("0-{}", cpus - 1));
            self.put(&format!("proc/irq/{number}/effective_affinity_list"), to(queue as u32));
            let counts = (0..cpus).map(|cpu| if cpu as u32 == to(queue as u32) { " 90000" } else { " 0" });
            table += &format!("{number}:{} PCI-MSI-edge {name}-TxRx-{queue}\n", counts.collect::<String>());
        }
        self.put("proc/interrupts", table);
        let facts = self.nics.get_mut(name).expect("a link");
        facts.rings = Some(Rings { rx: 512, tx: 512, rx_most: 4096, tx_most: 4096 });
        facts.coalescing = Some(Coalescing { rx_us: 1, adaptive_rx: true, ..Coalescing::default() });
        facts.offloads.insert("rx-lro".into(), false);
    }

    fn port_of(&mut self, link: &str, bridge: &str) {
        self.put(&format!("sys/class/net/{link}/master/uevent"), format!("INTERFACE={bridge}"));
        self.put(&format!("sys/class/net/{bridge}/bridge/stp_state"), "0");
    }

    fn process(&mut self, pid: u32, comm: &str, cmdline: &str) {
        let fields: Vec<String> = (4..=30).map(|field| field.to_string()).collect();
        self.put(&format!("proc/{pid}/comm"), comm);
        self.put(&format!("proc/{pid}/cmdline"), cmdline);
        self.put(&format!("proc/{pid}/stat"), format!("{pid} ({comm}) S {}", fields.join(" ")));
    }

    fn thread(&mut self, pid: u32, tid: u32, comm: &str, allowed: &str) {
        self.put(&format!("proc/{pid}/task/{tid}/comm"), comm);
        self.put(&format!("proc/{pid}/task/{tid}/status"), format!("Cpus_allowed_list:\t{allowed}"));
    }

    /// Eight CPUs, a wireless link, power saving.
    pub(crate) fn laptop() -> Machine {
        let mut machine = Machine::with_cpus(1, 8);
        machine.put("proc/sys/kernel/hostname", "laptop");
        machine.idle_states(&[("POLL", 0), ("C1", 1), ("C6", 170), ("C10", 890)]);
        machine.frequency("powersave", Some("balance_performance"));
        machine.link("wlp2s0", 2, 1500, 1);
        machine.device("wlp2s0", "iwlwifi", 0, -1, 130..132, |queue| queue);
        machine
    }

    /// The source's larger machine, with a current kernel: eight sockets of ten cores, and a 10 Gb/s port with 16
    /// queues, whose node is not reported.
    pub(crate) fn eight_sockets() -> Machine {
        let mut machine = Machine::with_cpus(8, 20);
        machine.put("proc/sys/kernel/hostname", "x4800");
        machine.put("etc/sysctl.conf", "# as installed\nnet.ipv4.tcp_wmem = 4096 65536 4194304");
        machine.link("eth4", 4, 1500, 16);
        machine.device("eth4", "ixgbe", 10_000, -1, 64..80, |queue| queue * 10);
        machine
    }

    /// Two sockets of eight CPUs; a port of 25 Gb/s on node 1 under a bridge; libvirt with a guest whose threads are
    /// next to it; Docker.
    pub(crate) fn kvm_host() -> Machine {
        let mut machine = Machine::with_cpus(2, 8);
        machine.put("proc/sys/kernel/hostname", "kvm1");
        machine.put("proc/cmdline", "BOOT_IMAGE=/vmlinuz intel_iommu=on iommu=pt");
        machine.idle_states(&[("POLL", 0), ("C1", 2), ("C6", 133)]);
        machine.frequency("performance", None);
        machine.sysctls(&[
            ("net/bridge/bridge-nf-call-iptables", "1"),
            ("net/netfilter/nf_conntrack_count", "1200"),
            ("net/netfilter/nf_conntrack_max", "262144"),
        ]);
        machine.link("eno1", 2, 1500, 8);
        machine.device("eno1", "ice", 25_000, 1, 40..48, |queue| 8 + queue);
        machine.link("br0", 3, 1500, 1);
        machine.link("vnet0", 4, 1500, 1);
        machine.port_of("eno1", "br0");
        machine.port_of("vnet0", "br0");
        machine.process(700, "dockerd", "dockerd");
        machine.process(701, "virtqemud", "virtqemud");
        machine.process(
            900,
            "qemu-system-x86",
            "qemu-system-x86_64\0-name\0guest=web\0-netdev\0tap,id=a,queues=4,vhost=on",
        );
        for vcpu in 0..4 {
            machine.thread(900, 901 + vcpu, &format!("CPU {vcpu}/KVM"), "8-15");
        }
        machine.thread(900, 905, "vhost-900", "8-15");
        machine
    }

    /// Four virtual CPUs and a virtio NIC with a queue for each.
    pub(crate) fn cloud_guest() -> Machine {
        let mut machine = Machine::with_cpus(1, 4);
        machine.put("proc/sys/kernel/hostname", "ip-10-0-0-7");
        machine.put("proc/cpuinfo", "flags\t\t: fpu hypervisor");
        machine.link("eth0", 2, 9001, 4);
        machine.device("eth0", "ena", 0, -1, 24..29, |queue| queue % 4);
        machine
    }

    /// Output of `record.sh`, and the reports of the same machine's link drivers.
    pub(crate) fn recorded(files: &str, nics: &str) -> Machine {
        let mut machine = Machine { nics: serde_json::from_str(nics).expect("JSON"), ..Machine::default() };
        for line in files.lines() {
            let (path, text) = line.split_once(':').expect("a path before each line");
            let file = machine.files.entry(path.to_owned()).or_default();
            *file += &text.replace("\\0", "\0");
            file.push('\n');
        }
        machine
    }

    /// A machine with two virtual CPUs, on which vtax was developed.
    pub(crate) fn two_vcpus() -> Machine {
        Machine::recorded(include_str!("recorded/two-vcpus.txt"), include_str!("recorded/two-vcpus.json"))
    }

    /// Files and drivers of `recorded/NAME`.
    pub(crate) fn named(name: &str) -> Machine {
        let read = |ending: &str| {
            let file = format!("{}/tests/hosts/recorded/{name}.{ending}", env!("CARGO_MANIFEST_DIR"));
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
        };
        Machine::recorded(&read("txt"), &read("json"))
    }

    /// An emulated server, as seen by a host of a lab in it: a NIC on node 1 whose interrupts are delivered to CPU 0,
    /// and a guest whose threads run on node 0.
    pub(crate) fn emulated_server() -> Machine {
        Machine::recorded(include_str!("recorded/emulated-server.txt"), include_str!("recorded/emulated-server.json"))
    }
}

/// Returns the file that a proposal changes.
fn file(proposal: &Proposal) -> Option<String> {
    match &proposal.setting {
        HostSetting::Sysctl { key, .. } => Some(format!("proc/sys/{}", key.replace('.', "/"))),
        HostSetting::Sysfs { path, .. } => Some(format!("sys/{}", path.raw())),
        HostSetting::InterruptCpus { number, .. } => Some(format!("proc/irq/{number}/smp_affinity_list")),
        _ => None,
    }
}
