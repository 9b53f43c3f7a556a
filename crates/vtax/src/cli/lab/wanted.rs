//! What a lab is to be made of, as the command line names it.

use std::path::Path;

use anyhow::Context;
use vtax_lab::{Facts, GuestNeeds};
use vtax_model::{
    located::Source,
    study::{Study, is_lab_file},
    topology::{Name, Topology},
};

use crate::{
    cli::Places,
    exit::{Blamed, Stop},
    study,
};

/// What a lab is to be made of.
pub(super) enum Wanted {
    Lab(Topology),
    Study(Box<Study>),
}

impl Wanted {
    /// A lab file, a study file or a built-in study.
    pub(super) fn read(what: &str) -> Result<Wanted, Stop> {
        if let Some(study) = Study::built_in(what) {
            return Ok(Wanted::Study(Box::new(study)));
        }
        let text = std::fs::read_to_string(what)
            .with_context(|| format!("`{what}` is neither a built-in study nor a file that can be read"))
            .or_input()?;
        let source = Source { name: what, text: &text };
        match is_lab_file(&text) {
            true => Ok(Wanted::Lab(Topology::parse(source).or_input()?)),
            false => Ok(Wanted::Study(Box::new(Study::parse(source).or_input()?))),
        }
    }

    pub(super) fn name(&self) -> &Name {
        match self {
            Wanted::Lab(topology) => &topology.name,
            Wanted::Study(study) => &study.id,
        }
    }

    /// Of a study, the lab that it would use here.
    pub(super) fn topology(self, facts: &Facts) -> Topology {
        let study = match self {
            Wanted::Lab(topology) => return topology,
            Wanted::Study(study) => study,
        };
        let unavailable = study::unavailable(&study, facts);
        for row in &unavailable {
            eprintln!("left out: {}: {}", row.method, row.unsupported);
        }
        let rows = study::available(&study, &unavailable);
        study::arrange(&study, study.id.clone(), &rows).topology
    }

    /// What this machine must have for its guests; nothing if it has none.
    pub(super) fn needs(&self, kernel: Option<&Path>, places: &Places) -> Result<Option<GuestNeeds>, Stop> {
        let guests = match self {
            Wanted::Lab(topology) => !topology.guests.is_empty(),
            Wanted::Study(study) => study.rows.iter().any(|row| study.attach(*row).is_some()),
        };
        if !guests {
            return Ok(None);
        }
        let needs = GuestNeeds::new(&study::agent_program(places)?, kernel);
        Ok(Some(match self {
            Wanted::Lab(topology) => needs.of_lab(topology),
            Wanted::Study(study) => needs.of_study(study),
        }))
    }
}

/// The name of a lab, given as that or by its file.
pub(super) fn lab_name(lab: &str) -> Result<Name, Stop> {
    match Path::new(lab).is_file() {
        true => Ok(Wanted::read(lab)?.name().clone()),
        false => lab.parse().or_input(),
    }
}
