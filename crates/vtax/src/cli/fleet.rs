//! `vtax fleet`.

mod file;
mod list;
mod mesh;
mod page;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use vtax_fleet::{MeshComparison, MeshMatrix, MeshReport};

use super::{Locations, answer, print_json, report::write};
use crate::{
    exit::{Blamed, Exit, Stop},
    terminal::print,
};
use mesh::MeshArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Measure each host with many others in rounds, and name slow hosts, uplinks and paths
    Mesh(Box<MeshArgs>),
    /// List stored meshes, newest first
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare two meshes, e.g. last week's with this week's, and name the hosts that have changed
    Compare {
        /// Earlier mesh, e.g. mesh-20260102
        #[arg(value_name = "BEFORE")]
        before: String,
        /// Later mesh, e.g. mesh-20260109
        #[arg(value_name = "AFTER", default_value = "last")]
        after: String,
        /// Print the comparison as JSON (vtax.mesh-comparison/v1)
        #[arg(long)]
        json: bool,
    },
    /// Report on a stored mesh
    Show {
        /// Mesh: `last`, its name, a prefix of it, e.g. mesh-20260102, or its file
        #[arg(value_name = "MESH", default_value = "last")]
        mesh: String,
        /// HTML page with a matrix of all pairs to write, e.g. mesh.html
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
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
        FleetVerb::List { json } => answer(json, &list::meshes(&places.state_dir()?)?, |meshes| list::table(meshes)),
        FleetVerb::Compare { before, after, json } => {
            let state = places.state_dir()?;
            let read = |mesh: &str| file::read(&file::find(&state, mesh)?);
            let ((before, earlier), (after, later)) = (read(&before)?, read(&after)?);
            let compared = MeshComparison::of((&before, &earlier), (&after, &later)).or_input()?;
            answer(json, &compared, MeshComparison::summary)?;
            Ok(if compared.is_clean() { Exit::Done } else { Exit::NotReached })
        }
        FleetVerb::Show { mesh, html, form } => {
            let path = file::find(&places.state_dir()?, &mesh)?;
            let (header, samples) = file::read(&path)?;
            let report = MeshReport::of(&header, &samples);
            if let Some(html) = html {
                let page = page::page(&file::name(&path), &report, &MeshMatrix::of(&header, &samples));
                write("--html", &html, page.as_bytes())?;
            }
            form.print(&report)
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
