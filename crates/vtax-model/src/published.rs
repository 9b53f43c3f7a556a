//! The published figures of the classic studies, to stand beside ours.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{
    study::Row,
    units::Mtu,
    workload::{TestKind, Transport},
};

const FILES: [(&str, &str); 5] = [
    ("ip-instances", include_str!("../data/published/ip-instances.toml")),
    ("ovm3-tuning", include_str!("../data/published/ovm3-tuning.toml")),
    ("sparc-t7-1", include_str!("../data/published/sparc-t7-1.toml")),
    ("vdisk", include_str!("../data/published/vdisk.toml")),
    ("vmdq", include_str!("../data/published/vmdq.toml")),
];

/// Figures that somebody published for a study.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Published {
    /// The study.
    pub id: String,
    /// As the source has it.
    pub title: String,
    /// On what they were measured.
    pub testbed: String,
    #[serde(default)]
    cell: Vec<PublishedCell>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct PublishedCell {
    transport: Option<Transport>,
    method: Option<String>,
    path: Option<String>,
    #[serde(default)]
    rtt: BTreeMap<String, f64>,
    #[serde(default)]
    bandwidth: BTreeMap<String, f64>,
    system: Option<String>,
    real: Option<f64>,
    user: Option<f64>,
    sys: Option<f64>,
}

/// The `time` of a published file transfer, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedTime<'a> {
    /// The machine.
    pub system: &'a str,
    /// Elapsed.
    pub real: f64,
    /// CPU in user space.
    pub user: f64,
    /// CPU in the kernel.
    pub sys: f64,
}

impl Published {
    /// The figures for a study, if any were published.
    pub fn of(study: &str) -> Option<Published> {
        let (_, text) = FILES.into_iter().find(|(id, _)| *id == study)?;
        Some(toml::from_str(text).expect("a test reads every published file"))
    }

    /// The mean RTT in µs (RR) or the bandwidth in Mb/s (stream) of a cell.
    pub fn figure(&self, row: Row, transport: Transport, test: TestKind, mtu: Mtu) -> Option<f64> {
        let name = row.to_string();
        let cell =
            self.cell.iter().find(|cell| cell.transport == Some(transport) && cell.method.as_ref() == Some(&name))?;
        let figures = match test {
            TestKind::Rr => &cell.rtt,
            TestKind::Stream => &cell.bandwidth,
            TestKind::Crr | TestKind::Cc | TestKind::Maerts | TestKind::Bidirectional | TestKind::File => return None,
        };
        figures.get(&mtu.to_string()).copied()
    }

    /// The file transfers of a row, one for each machine of the source.
    pub fn times(&self, row: Row) -> impl Iterator<Item = PublishedTime<'_>> {
        let name = row.to_string();
        let of_row = move |cell: &&PublishedCell| cell.path.as_ref() == Some(&name);
        self.cell.iter().filter(of_row).filter_map(PublishedCell::time)
    }
}

impl PublishedCell {
    fn time(&self) -> Option<PublishedTime<'_>> {
        Some(PublishedTime { system: self.system.as_deref()?, real: self.real?, user: self.user?, sys: self.sys? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_file_reads() {
        for (id, _) in FILES {
            assert_eq!(Published::of(id).expect("listed").id, id);
        }
        assert_eq!(Published::of("demo"), None);
    }

    #[test]
    fn the_t7_1_figures_are_those_of_the_source() {
        let published = Published::of("sparc-t7-1").expect("listed");
        let mtu = |bytes| Mtu::try_from(bytes).expect("possible");
        let row = |name: &str| name.parse().expect("known");
        let figure = |name, transport, test, bytes| published.figure(row(name), transport, test, mtu(bytes));
        assert_eq!(figure("sr-iov", Transport::Udp, TestKind::Rr, 9000), Some(63.0));
        assert_eq!(figure("paravirtual", Transport::Tcp, TestKind::Stream, 1500), Some(4800.0));
        assert_eq!(figure("bridge", Transport::Tcp, TestKind::Stream, 1500), None);
    }

    #[test]
    fn the_ip_instances_times_are_those_of_both_machines() {
        let published = Published::of("ip-instances").expect("listed");
        let times: Vec<_> = published.times("shared-to-shared".parse().expect("known")).collect();
        assert_eq!(times[0], PublishedTime { system: "V210", real: 6.6, user: 0.1, sys: 5.3 });
        assert_eq!(times[1].system, "X4200");
    }
}
