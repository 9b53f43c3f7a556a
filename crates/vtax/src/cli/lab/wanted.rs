//! The definition of a lab that the command line names.

use std::path::Path;

use vtax_lab::{Facts, GuestNeeds};
use vtax_model::{
    located::Source,
    study::{Study, is_lab_file},
    topology::{Name, Topology},
};
use vtax_run::study;

use crate::{
    cli::Locations,
    exit::{Blamed, Stop},
};

pub(super) enum LabRequest {
    Lab(Topology),
    Study(Box<Study>),
}

impl LabRequest {
    /// A lab file, a study file or a built-in study.
    pub(super) fn read(what: &str) -> Result<LabRequest, Stop> {
        if let Some(study) = Study::built_in(what) {
            return Ok(LabRequest::Study(Box::new(study)));
        }
        let text = study::read_text(what)?;
        let source = Source { name: what, text: &text };
        match is_lab_file(&text) {
            true => Ok(LabRequest::Lab(Topology::parse(source).or_input()?)),
            false => Ok(LabRequest::Study(Box::new(Study::parse(source).or_input()?))),
        }
    }

    pub(super) fn name(&self) -> &Name {
        match self {
            LabRequest::Lab(topology) => &topology.name,
            LabRequest::Study(study) => &study.id,
        }
    }

    /// Returns the lab that a study would use here.
    pub(super) fn topology(self, facts: &Facts) -> Topology {
        let study = match self {
            LabRequest::Lab(topology) => return topology,
            LabRequest::Study(study) => study,
        };
        let unavailable = study::unavailable(&study, facts);
        for row in &unavailable {
            tell!("skipped: {}: {}", row.method, row.unsupported);
        }
        let rows = study::available(&study, &unavailable);
        study::topology(&study, &rows)
    }

    /// Returns the requirements of its guests on this machine; nothing without guests.
    pub(super) fn needs(&self, kernel: Option<&Path>, places: &Locations) -> Result<Option<GuestNeeds>, Stop> {
        let guests = match self {
            LabRequest::Lab(topology) => !topology.guests.is_empty(),
            LabRequest::Study(study) => study.rows.iter().any(|row| study.attach(*row).is_some()),
        };
        if !guests {
            return Ok(None);
        }
        let needs = GuestNeeds::new(&places.agent_program()?, kernel);
        Ok(Some(match self {
            LabRequest::Lab(topology) => needs.of_lab(topology),
            LabRequest::Study(study) => needs.of_study(study),
        }))
    }
}

/// Returns the name of a lab, given as a name or a file.
pub(super) fn lab_name(lab: &str) -> Result<Name, Stop> {
    match Path::new(lab).is_file() {
        true => Ok(LabRequest::read(lab)?.name().clone()),
        false => lab.parse().or_input(),
    }
}
