//! CPU topology: sockets, NUMA nodes, cores.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_model::cpus::CpuSet;

use super::{
    SystemRoot, boot,
    cpu::{FOLDER, node_cpus, numbers, some_cpus},
};

/// The online CPUs, grouped by shared hardware.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTopology {
    /// All of them.
    pub online: CpuSet,
    /// CPUs reserved by an administrator: `isolcpus`, `nohz_full`, isolated partitions of control groups.
    pub isolated: CpuSet,
    /// The CPUs of each socket.
    pub sockets: Vec<CpuSet>,
    /// The CPUs of each NUMA node. If the kernel reports no nodes, there is one.
    pub nodes: BTreeMap<u32, CpuSet>,
    /// The hardware threads of each core.
    pub cores: Vec<CpuSet>,
}

impl CpuTopology {
    /// Reads them from a host's files.
    pub fn of(tree: &SystemRoot) -> CpuTopology {
        let online = tree
            .read_as(&format!("{FOLDER}/online"), some_cpus)
            .unwrap_or_else(|| numbers(tree).into_iter().collect::<CpuSet>());
        let mut nodes = node_cpus(tree);
        nodes.retain(|_, cpus| !cpus.is_empty());
        if nodes.is_empty() {
            nodes.insert(0, online.clone());
        }
        let grouped = |file: &str, is_sound: fn(&str) -> bool| {
            let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for cpu in online.iter() {
                let path = format!("{FOLDER}/cpu{cpu}/topology/{file}");
                let name = tree.read_as(&path, |text| is_sound(text).then(|| text.to_owned())).unwrap_or_default();
                groups.entry(name).or_default().push(cpu);
            }
            let mut groups: Vec<CpuSet> = groups.into_values().map(|cpus| cpus.into_iter().collect()).collect();
            groups.sort_by_key(|cpus| cpus.iter().next());
            groups
        };
        CpuTopology {
            isolated: isolated(tree),
            sockets: grouped("physical_package_id", |text| text.parse::<i64>().is_ok()),
            cores: grouped("thread_siblings_list", |text| some_cpus(text).is_some()),
            nodes,
            online,
        }
    }

    /// Returns those of `cpus` that aren't isolated.
    pub fn free(&self, cpus: &CpuSet) -> CpuSet {
        cpus.iter().filter(|cpu| !self.isolated.contains(*cpu)).collect()
    }

    /// The NUMA node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node)
    }

    /// The NUMA nodes that these CPUs are on, in ascending order.
    pub fn nodes_of(&self, cpus: &CpuSet) -> Vec<u32> {
        let has_one = |of_node: &CpuSet| cpus.iter().any(|cpu| of_node.contains(cpu));
        self.nodes.iter().filter(|(_, of_node)| has_one(of_node)).map(|(node, _)| *node).collect()
    }
}

/// `isolated` exists since Linux 4.2, `nohz_full` since 4.3 (with `(null)` for none), the file of control groups since
/// 6.7. If they are missing, the command line is used.
fn isolated(tree: &SystemRoot) -> CpuSet {
    let reported: CpuSet = tree.parsed(&format!("{FOLDER}/isolated")).unwrap_or_default();
    let lists = [format!("{FOLDER}/nohz_full"), "sys/fs/cgroup/cpuset.cpus.isolated".to_owned()];
    let listed = lists.iter().filter_map(|file| tree.text(file)?.parse::<CpuSet>().ok());
    let given = boot::command_line(tree);
    let asked = given.iter().filter_map(|word| cpus_of(word));
    [reported].into_iter().chain(listed).chain(asked).flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect()
}

/// The CPUs of `isolcpus=FLAG,LIST` or `nohz_full=LIST`.
fn cpus_of(word: &str) -> Option<CpuSet> {
    let (name, value) = word.split_once('=')?;
    if !["isolcpus", "nohz_full"].contains(&name) {
        return None;
    }
    let is_flag = |part: &&str| part.starts_with(|c: char| c.is_ascii_alphabetic());
    let list: Vec<&str> = value.trim_matches('"').split(',').skip_while(is_flag).collect();
    list.join(",").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_sockets() -> SystemRoot {
        let mut files = vec![(format!("{FOLDER}/online"), "0-7\n".to_owned())];
        for cpu in 0..8 {
            let mut put = |file: &str, text: String| files.push((format!("{FOLDER}/cpu{cpu}/topology/{file}"), text));
            put("physical_package_id", format!("{}\n", cpu / 4));
            put("thread_siblings_list", format!("{}-{}\n", cpu / 2 * 2, cpu / 2 * 2 + 1));
        }
        for (node, list) in [(0, "0-3\n"), (1, "4-7\n"), (2, "\n")] {
            files.push((format!("sys/devices/system/node/node{node}/cpulist"), list.to_owned()));
        }
        SystemRoot::invented(files)
    }

    #[test]
    fn cpus_are_grouped_by_shared_hardware() {
        let tree = two_sockets();
        let found = CpuTopology::of(&tree);
        let sets = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("CPUs")).collect::<Vec<CpuSet>>();
        assert_eq!(found.sockets, sets(&["0-3", "4-7"]));
        assert_eq!(found.cores, sets(&["0-1", "2-3", "4-5", "6-7"]));
        assert_eq!(found.nodes.keys().collect::<Vec<_>>(), [&0, &1], "node 2 has memory only");
        assert_eq!((found.node_of(5), found.node_of(9)), (Some(1), None));
        assert_eq!(found.nodes_of(&"3-4".parse().expect("CPUs")), [0, 1]);
    }

    #[test]
    fn a_kernel_that_reports_no_nodes_has_one() {
        let tree = SystemRoot::invented([(format!("{FOLDER}/online"), "0-1\n")]);
        let found = CpuTopology::of(&tree);
        assert_eq!((found.nodes.len(), found.sockets.len(), found.cores.len()), (1, 1, 1));
    }
}
