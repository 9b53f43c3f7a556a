//! Constraint files: JSON or XML, as printed by `list-constraints`.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use miette::miette;
use vtax_domain::{AddedDomains, DomainChange, ldm_xml};
use vtax_model::domain::Configuration;

use crate::exit::Stop;

/// Returns the order that adds the domains in a file, and binds or starts them.
pub(super) fn add_domains(file: &Path, until: AddedDomains) -> Result<DomainChange, Stop> {
    let configuration = Box::new(read(file)?);
    if until != AddedDomains::Inactive && configuration.domains.is_empty() {
        let shown = file.display();
        return Err(Stop::input(miette!(code = "bad-constraints", "{shown} contains no domain; use a file with one")));
    }
    Ok(DomainChange::AddDomains { configuration, until })
}

pub(super) fn set_domains(file: &Path) -> Result<DomainChange, Stop> {
    Ok(DomainChange::SetDomains { configuration: Box::new(read(file)?) })
}

pub(super) fn init_system(file: &Path, force: bool, only_services: bool) -> Result<DomainChange, Stop> {
    Ok(DomainChange::InitSystem { configuration: Box::new(read(file)?), force, only_services })
}

fn read(file: &Path) -> Result<Configuration, Stop> {
    let shown = file.display();
    let text = text_of(file).map_err(|error| Stop::input(miette!(code = "file", "cannot read {shown}: {error}")))?;
    let wrong = |why: String| {
        Stop::input(miette!(
            code = "bad-constraints",
            "{shown}: {why}; use a file written by vtax ldm list-constraints --json or -x"
        ))
    };
    match text.trim_start().starts_with('<') {
        true => ldm_xml::read(&text).map_err(|error| wrong(error.to_string())),
        false => serde_json::from_str(&text).map_err(|error| wrong(error.to_string())),
    }
}

/// Reads a file up to the maximum length of constraint files, because a pipe, for example, may have no end.
fn text_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(file)?.take(ldm_xml::LONGEST + 1).read_to_string(&mut text)? as u64;
    match length > ldm_xml::LONGEST {
        true => Err(io::Error::other(format!("larger than {} MiB", ldm_xml::LONGEST >> 20))),
        false => Ok(text),
    }
}
