//! `vtax fleet`.

mod file;
mod mesh;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use vtax_fleet::MeshReport;

use super::{Locations, print_json};
use crate::{
    exit::{Exit, Stop},
    terminal::print,
};
use mesh::MeshArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Measure each host with many others in rounds, and name slow hosts, uplinks and paths
    Mesh(Box<MeshArgs>),
    /// Report on the stored samples of a mesh
    Show {
        /// File of samples, as named by `vtax fleet mesh`, e.g. mesh.jsonl
        #[arg(value_name = "FILE")]
        samples: PathBuf,
        #[command(flatten)]
        form: MeshForm,
    },
}

/// The form of a report.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub(super) struct MeshForm {
    /// Print the report as JSON (vtax.mesh/v1)
    #[arg(long)]
    json: bool,
    /// Print the figures of each host and direction as CSV
    #[arg(long)]
    csv: bool,
    /// Print metrics in OpenMetrics format, for the textfile collector of Prometheus' node_exporter
    #[arg(long)]
    openmetrics: bool,
}

pub(crate) fn fleet(verb: FleetVerb, places: &Locations) -> Result<Exit, Stop> {
    match verb {
        FleetVerb::Mesh(args) => mesh::mesh(&args, places),
        FleetVerb::Show { samples, form } => {
            let (header, samples) = file::read(&samples)?;
            form.print(&MeshReport::of(&header, &samples, Vec::new()))
        }
    }
}

impl MeshForm {
    fn print(self, report: &MeshReport) -> Result<Exit, Stop> {
        match self {
            MeshForm { json: true, .. } => print_json(report)?,
            MeshForm { csv: true, .. } => print(&report.csv())?,
            MeshForm { openmetrics: true, .. } => print(&report.open_metrics())?,
            _ => print(&report.summary())?,
        }
        Ok(if report.is_clean() { Exit::Done } else { Exit::NotReached })
    }
}
