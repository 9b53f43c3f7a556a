//! Metrics for Prometheus: OpenMetrics text, which the textfile collector of node_exporter reads too.
//!
//! Two series for each host and metric, not one for each pair, so that a thousand hosts give a few thousand series.

use std::fmt::{self, Write as _};

use vtax_model::foreign::ForeignText;

use super::MeshReport;
use crate::verdict::{MeshDirection, MeshFinding};

impl MeshReport {
    /// Returns gauges of the whole mesh, and of each end in each direction.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        gauge(&mut text, "vtax_mesh_ends", "NICs to measure.", [(String::new(), self.ends as f64)]);
        gauge(
            &mut text,
            "vtax_mesh_lost_ends",
            "NICs that stopped answering.",
            [(String::new(), self.lost.len() as f64)],
        );
        let noise = self.noise.map(|noise| (String::new(), noise));
        gauge(&mut text, "vtax_mesh_noise_ratio", "Standard deviation of a test as a share of its value.", noise);
        let ends = || self.figures.iter().map(|figure| (labels(&figure.end, figure.direction), figure));
        let values = ends().map(|(labels, figure)| (labels, figure.value));
        match self.test.is_time() {
            true => gauge(&mut text, "vtax_mesh_round_trip_seconds", "Median round-trip time over partners.", values),
            false => gauge(&mut text, "vtax_mesh_rate_bits_per_second", "Median rate over partners.", values),
        }
        let slower = ends().filter_map(|(labels, figure)| Some((labels, figure.figure?.slower)));
        gauge(&mut text, "vtax_mesh_slower_ratio", "Share by which a NIC is slower than the fleet.", slower);
        let hosts = self.findings.iter().filter_map(|finding| match finding {
            MeshFinding::Host(host) => Some(host),
            _ => None,
        });
        let slow = hosts.flat_map(|host| host.slow.iter().map(|slow| (labels(&host.end, slow.direction), 1.0)));
        gauge(&mut text, "vtax_mesh_slow", "1 if the NIC is reported as slow.", slow);
        text.push_str("# EOF\n");
        text
    }
}

fn gauge(text: &mut String, name: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
    let _ = write!(text, "# TYPE {name} gauge\n# HELP {name} {help}\n");
    for (labels, value) in values {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn labels(end: &ForeignText, direction: MeshDirection) -> String {
    let direction = if direction == MeshDirection::Sends { "sends" } else { "receives" };
    format!("{{end=\"{}\",direction=\"{direction}\"}}", Escaped(end))
}

/// A label's value: printable, with special characters escaped.
struct Escaped<'a>(&'a ForeignText);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().replace('\\', "\\\\").replace('"', "\\\""))
    }
}
