//! The kernel's per-CPU counters of received packets (`/proc/net/softnet_stat`).

use serde::{Deserialize, Serialize};

use super::SystemRoot;

/// One CPU's counters since boot. They wrap at 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SoftnetCpu {
    /// CPU number: the 13th column since Linux 5.14, the number of the line (from 0) before.
    pub cpu: u32,
    /// Packets processed.
    pub processed: u32,
    /// Packets that were dropped because its backlog was full (`netdev_max_backlog`).
    pub dropped: u32,
    /// Times that it had to stop with work left (`netdev_budget`).
    pub squeezed: u32,
}

pub(super) fn softnet(tree: &SystemRoot) -> Vec<SoftnetCpu> {
    const TABLE: &str = "proc/net/softnet_stat";
    let Some(table) = tree.text(TABLE) else { return Vec::new() };
    let cpus: Vec<SoftnetCpu> = table.lines().enumerate().filter_map(|(line, text)| parse(line as u32, text)).collect();
    if cpus.is_empty() || cpus.len() < table.lines().count() {
        tree.odd(TABLE, &table);
    }
    cpus
}

/// The columns are hexadecimal. The CPU's number is the 13th, since Linux 5.14; earlier, the lines are in the order of
/// the online CPUs (`softnet_seq_show`, net/core/net-procfs.c).
fn parse(line: u32, text: &str) -> Option<SoftnetCpu> {
    let columns: Vec<u32> =
        text.split_whitespace().map(|word| u32::from_str_radix(word, 16)).collect::<Result<_, _>>().ok()?;
    let [processed, dropped, squeezed, ..] = columns.as_slice() else { return None };
    let cpu = columns.get(12).copied().unwrap_or(line);
    Some(SoftnetCpu { cpu, processed: *processed, dropped: *dropped, squeezed: *squeezed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_by_position() {
        let new = "000000ff 00000001 00000002 0 0 0 0 0 0 0 0 0 00000003 0 0\n0000000a 0 0 0 0 0 0 0 0 0 0 0 5 0 0\n";
        let tree = SystemRoot::invented([("proc/net/softnet_stat", new)]);
        let first = SoftnetCpu { cpu: 3, processed: 255, dropped: 1, squeezed: 2 };
        assert_eq!(softnet(&tree), [first, SoftnetCpu { cpu: 5, processed: 10, ..SoftnetCpu::default() }]);
    }

    #[test]
    fn lines_of_an_old_kernel_are_numbered_and_malformed_ones_omitted() {
        let old = "1 0 0 0 0 0 0 0 0 0\nbroken\n2 0\n2 0 1 0 0 0 0 0 0 0\n";
        let tree = SystemRoot::invented([("proc/net/softnet_stat", old)]);
        let cpus: Vec<_> = softnet(&tree).iter().map(|cpu| (cpu.cpu, cpu.processed)).collect();
        assert_eq!(cpus, [(0, 1), (3, 2)]);
    }
}
