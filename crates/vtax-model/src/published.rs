//! Published figures of the classic studies, shown next to measured ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    cell::{Cell, Instrument, Medium},
    foreign::ForeignText,
    study::Row,
    units::{ByteSize, Mtu},
    workload::{TestFamily, Transport, Workload, WorkloadSizes},
};

const FILES: [(&str, &str); 6] = [
    ("ip-instances", include_str!("../data/published/ip-instances.toml")),
    ("migration", include_str!("../data/published/migration.toml")),
    ("ovm3-tuning", include_str!("../data/published/ovm3-tuning.toml")),
    ("sparc-t7-1", include_str!("../data/published/sparc-t7-1.toml")),
    ("vdisk", include_str!("../data/published/vdisk.toml")),
    ("vmdq", include_str!("../data/published/vmdq.toml")),
];

/// The published figures of a study.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Published {
    /// The study.
    pub id: String,
    /// The source's title.
    pub title: ForeignText,
    /// The test system.
    pub testbed: ForeignText,
    /// Caveats for comparisons with them, if any.
    pub note: Option<ForeignText>,
    /// Size of the study's file, if these are times of files: other sizes take other times.
    file: Option<ByteSize>,
    /// Peak figures, for a source without a table.
    pub peak: Option<PublishedPeak>,
    /// Tax of the response time, for a source without a table.
    pub tax_percent: Option<PublishedTax>,
    /// Suspend time of a migration, for a source without a table.
    pub suspend: Option<PublishedSuspend>,
    #[serde(default)]
    cell: Vec<PublishedCell>,
}

/// Peak figures of disks.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPeak {
    /// I/O operations completed per second.
    pub iops: f64,
    /// 10^9 bytes per second.
    pub throughput_gb_s: f64,
}

/// Percent of the response time of bare metal.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTax {
    /// Largest figure of the implementation that the source replaces.
    pub old_implementation_up_to: f64,
    /// Upper bound of the one that it presents.
    pub new_implementation_at_most: f64,
}

/// Suspend time of a migration that a source names.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSuspend {
    /// Shortest observed time.
    pub seconds: f64,
    /// Number of the control domain's cores in that case.
    pub cores: u32,
    /// Number of the control domain's cores recommended for the shortest time, according to the
    /// source's own source.
    pub advised_cores: u32,
}

/// Entry of the file for a row: for the whole row, or for one test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedCell {
    transport: Option<Transport>,
    method: Option<String>,
    path: Option<String>,
    /// RR: µs, by MTU.
    #[serde(default)]
    rtt: BTreeMap<String, f64>,
    /// RR: ms, by the bytes of request and response.
    #[serde(default)]
    latency: BTreeMap<String, f64>,
    /// Streams: Mb/s, by MTU.
    #[serde(default)]
    bandwidth: BTreeMap<String, f64>,
    /// Streams: Gb/s.
    gbps: Option<f64>,
    /// The only MTU that the figure applies to.
    mtu: Option<Mtu>,
    system: Option<ForeignText>,
    /// Files: seconds.
    real: Option<f64>,
    user: Option<f64>,
    sys: Option<f64>,
}

/// A figure that a source has for a cell.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    /// The machine and its state, if the source has several: `large, tuned`.
    pub system: Option<ForeignText>,
    /// In the unit by which its test is compared: mean RTT in µs, Mb/s, seconds.
    pub value: f64,
    /// Files: CPU seconds in user space.
    pub user: Option<f64>,
    /// Files: CPU seconds in the kernel.
    pub sys: Option<f64>,
}

impl Published {
    /// Returns the figures for a study, if any were published.
    pub fn of(study: &str) -> Option<Published> {
        let (_, text) = FILES.into_iter().find(|(id, _)| *id == study)?;
        Some(toml::from_str(text).expect("a test reads every published file"))
    }

    /// Returns true if it has figures of the whole study, and not of its cells.
    pub fn is_of_whole_study(&self) -> bool {
        self.peak.is_some() || self.tax_percent.is_some() || self.suspend.is_some()
    }

    /// Returns the machines of the source, each once; none if there is only one, which needs no
    /// name.
    pub fn systems(&self) -> Vec<Option<ForeignText>> {
        let mut systems: Vec<Option<ForeignText>> = Vec::new();
        for published in &self.cell {
            if !systems.contains(&published.system) {
                systems.push(published.system.clone());
            }
        }
        systems
    }

    /// Returns the rows with figures but without any of these cells.
    pub fn rows_without_cell(&self, cells: &[Cell]) -> Vec<String> {
        let has_cell = |published: &PublishedCell| cells.iter().any(|cell| self.takes(published, cell));
        let without = self.cell.iter().filter(|published| !has_cell(published));
        let mut rows: Vec<String> = without.filter_map(|row| row.method.clone().or(row.path.clone())).collect();
        rows.dedup();
        rows
    }

    fn takes(&self, published: &PublishedCell, cell: &Cell) -> bool {
        let file = cell.net().and_then(|net| net.workload.file());
        let other_size = file.is_some_and(|size| self.file != Some(size));
        let of_transport = published.transport.is_none_or(|transport| Medium::Net(transport) == cell.medium());
        let of_mtu = published.mtu.is_none_or(|mtu| Some(mtu) == cell.mtu());
        published.is_of(cell.row) && !other_size && of_transport && of_mtu && published.figure(cell).is_some()
    }

    /// Returns the published figures for a cell: one for each machine of the source. The sources measured machines with
    /// their own settings, so none of their figures is for controlled conditions.
    pub fn figures(&self, cell: &Cell) -> Vec<PublishedFigure> {
        if cell.instrument != Instrument::System {
            return Vec::new();
        }
        let known = self.cell.iter().filter(|published| self.takes(published, cell));
        known.filter_map(|published| published.figure(cell)).collect()
    }
}

impl PublishedCell {
    /// A kind of NIC belongs to its method, of which no source has more than one.
    fn is_of(&self, row: Row) -> bool {
        let method = row.flavour().map(|flavour| flavour.method().to_string());
        let names = [Some(row.to_string()), method];
        [&self.method, &self.path].into_iter().flatten().any(|own| names.iter().flatten().any(|name| name == own))
    }

    fn figure(&self, cell: &Cell) -> Option<PublishedFigure> {
        let of_column = |figures: &BTreeMap<String, f64>| figures.get(&cell.column().to_string()).copied();
        let latency = || self.latency_us(&cell.net()?.workload);
        let kind = cell.kind();
        let value = match kind.family() {
            _ if !kind.is_plain() => None,
            TestFamily::Transactions => of_column(&self.rtt).or_else(latency),
            TestFamily::Streams => of_column(&self.bandwidth).or(self.gbps.map(|gbps| gbps * 1e3)),
            TestFamily::Files => self.real,
            TestFamily::Migrations => None,
        };
        Some(PublishedFigure { system: self.system.clone(), value: value?, user: self.user, sys: self.sys })
    }

    /// Returns the latency by the size of both messages.
    fn latency_us(&self, workload: &Workload) -> Option<f64> {
        match workload.sizes() {
            WorkloadSizes::Exchange { request, response } if request == response => {
                self.latency.get(&request.0.to_string()).map(|ms| ms * 1e3)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{located::Source, study::Study, workload::TestKind};

    #[test]
    fn every_published_file_reads() {
        for (id, _) in FILES {
            assert_eq!(Published::of(id).expect("listed").id, id);
        }
        assert_eq!(Published::of("demo"), None);
    }

    /// Published figures for the cells of a row in a built-in study: machine and value.
    fn figures(study: &str, row: &str, is: impl Fn(&Cell) -> bool) -> Vec<(ForeignText, f64)> {
        let cells = Study::built_in(study).expect("built in").cells;
        let of_row = |cell: &&Cell| cell.row.to_string() == row && is(cell);
        let published = Published::of(study).expect("listed");
        let of_cell = |cell: &Cell| published.figures(cell);
        let found = cells.iter().filter(of_row).flat_map(of_cell);
        found.map(|figure| (figure.system.unwrap_or_default(), figure.value)).collect()
    }

    fn is(transport: Transport, test: TestKind, mtu: u32) -> impl Fn(&Cell) -> bool {
        move |cell| (cell.medium(), cell.kind(), cell.mtu().map(Mtu::get)) == (Medium::Net(transport), test, Some(mtu))
    }

    #[test]
    fn the_t7_1_figures_are_those_of_the_source() {
        let figure = |row, transport, test, mtu| figures("sparc-t7-1", row, is(transport, test, mtu));
        assert_eq!(figure("sr-iov", Transport::Udp, TestKind::Rr, 9000), [(ForeignText::default(), 63.0)]);
        assert_eq!(figure("paravirtual", Transport::Tcp, TestKind::Stream, 1500), [(ForeignText::default(), 4800.0)]);
        assert_eq!(figure("bridge", Transport::Tcp, TestKind::Stream, 1500), []);
    }

    #[test]
    fn the_vdisk_figures_are_a_peak_and_two_bounds() {
        let published = Published::of("vdisk").expect("listed");
        let peak = published.peak.expect("a peak");
        assert_eq!((peak.iops, peak.throughput_gb_s), (150_000.0, 1.1));
        // The size of the I/Os isn't published; it follows from the other two.
        assert_eq!((peak.throughput_gb_s * 1e9 / peak.iops).round(), 7333.0);
        let tax = published.tax_percent.expect("bounds");
        assert_eq!((tax.old_implementation_up_to, tax.new_implementation_at_most), (55.0, 4.0));
    }

    #[test]
    fn the_migration_figures_are_those_of_the_article() {
        let suspend = Published::of("migration").expect("listed").suspend.expect("it has them");
        assert_eq!((suspend.seconds, suspend.cores, suspend.advised_cores), (0.1, 2, 3));
    }

    #[test]
    fn a_kind_of_nic_has_the_figures_of_its_method() {
        let text = r#"
            id = "kinds"
            title = "Kinds of NIC"
            baseline = "native"
            [matrix]
            methods = ["native", "paravirtual:vhost", "emulated:igb"]
            mtu = [1500]
            transports = ["tcp"]
            tests = ["rr"]
            [plan]
            samples = 1
            duration = "1s"
        "#;
        let cells = Study::parse(Source { name: "kinds.toml", text }).expect("a study").cells;
        let published = Published::of("sparc-t7-1").expect("listed");
        let values = cells.iter().map(|cell| published.figures(cell).first().map(|figure| figure.value));
        assert_eq!(values.collect::<Vec<_>>(), [Some(58.0), Some(91.0), None]);
    }

    #[test]
    fn the_vmdq_figures_are_those_that_the_source_prints() {
        let all = |row| figures("vmdq", row, |_| true);
        assert_eq!(all("native"), [(ForeignText::default(), 120.0)], "of 64 bytes only");
        assert_eq!((all("shared-queue")[0].1, all("queue-per-guest")[0].1), (240.0, 130.0));
    }

    #[test]
    fn the_ovm3_figures_are_of_two_machines() {
        let all = |row| figures("ovm3-tuning", row, |_| true);
        let of = |system: &str, value| (ForeignText::from(system), value);
        assert_eq!(all("host-to-guest"), [of("small, untuned", 7800.0), of("large, untuned", 3400.0)]);
        assert_eq!(all("host-to-guest+all"), [of("large, tuned", 8200.0)]);
        assert_eq!(all("guest-to-guest-across-hosts+all"), [of("large, tuned", 8200.0)]);
        assert_eq!(all("guest-to-guest"), []);
    }

    #[test]
    fn the_ip_instances_times_are_those_of_both_machines() {
        let cells = Study::built_in("ip-instances").expect("built in").cells;
        let row: Row = "shared-to-shared".parse().expect("known");
        let cell = cells.iter().find(|cell| cell.row == row).expect("a cell");
        let times = Published::of("ip-instances").expect("listed").figures(cell);
        let system = Some("V210".into());
        assert_eq!(times[0], PublishedFigure { system, value: 6.6, user: Some(0.1), sys: Some(5.3) });
        assert_eq!(times[1].system, Some("X4200".into()));
        let mut smaller = *cell;
        smaller.net_mut().expect("of a network").workload = Workload::File { size: ByteSize(100 << 20) };
        let published = Published::of("ip-instances").expect("listed");
        assert_eq!(published.figures(&smaller), [], "times of a file of another size");
    }
}
