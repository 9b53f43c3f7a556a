//! What a lab is to be made of, as the command line names it.

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

    /// Of a study, the lab that it would use here.
    pub(super) fn topology(self, facts: &Facts) -> Topology {
        let study = match self {
            LabRequest::Lab(topology) => return topology,
            LabRequest::Study(study) => study,
        };
        let unavailable = study::unavailable(&study, facts);
        for row in &unavailable {
            tell!("left out: {}: {}", row.method, row.unsupported);
        }
        let rows = study::available(&study, &unavailable);
        study::topology(&study, &rows)
    }

    /// What this machine must have for its guests; nothing if it has none.
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

/// The name of a lab, given as that or by its file.
pub(super) fn lab_name(lab: &str) -> Result<Name, Stop> {
    match Path::new(lab).is_file() {
        true => Ok(LabRequest::read(lab)?.name().clone()),
        false => lab.parse().or_input(),
    }
}
