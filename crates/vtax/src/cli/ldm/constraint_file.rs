//! Constraint files: JSON or XML, as printed by `list-constraints`.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use miette::miette;
use vtax_domain::ldm_xml;
use vtax_model::{domain::Configuration, topology::Name};

use super::{
    change::{ChangingHost, HostChange},
    lifecycle,
};
use crate::exit::{Blamed, Exit, Stop};

/// Adds the domains in a file. The switches and console services that they use must exist.
pub(super) fn add_domains(host: ChangingHost<'_>, file: &Path) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    host.edit(|all| all.add_domains_of(&configuration))?;
    Ok(Exit::Done)
}

/// Adds the domains in a file and runs `act` on them. If it fails, releases and removes them again.
pub(super) fn with_added(
    host: ChangingHost<'_>,
    file: &Path,
    act: impl FnOnce(&HostChange<'_>, &[Name]) -> Result<(), Stop>,
) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    let names: Vec<Name> = configuration.domains.keys().cloned().collect();
    if names.is_empty() {
        let shown = file.display();
        return Err(Stop::input(miette!(code = "bad-constraints", "{shown} contains no domain; use a file with one")));
    }
    host.change(|change| {
        // A user who may not bind domains adds none.
        change.domains()?;
        let added = &change.edited_further(|all| all.add_domains_of(&configuration))?;
        act(added, &names).inspect_err(|_| {
            if let Err(left) = lifecycle::remove(added, &names) {
                tell!("{left}");
            }
        })?;
        Ok(Exit::Done)
    })
}

/// Sets the properties of existing domains from a file.
pub(super) fn set_domains(host: ChangingHost<'_>, file: &Path) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    host.edit(|all| all.set_domains_of(&configuration))?;
    Ok(Exit::Done)
}

/// Adds the domains and services in a file, or only its services. Without `force`, the host must have none.
pub(super) fn init_system(host: ChangingHost<'_>, file: &Path, force: bool, services: bool) -> Result<Exit, Stop> {
    let mut configuration = read(file)?;
    host.change(|change| {
        let none = Configuration::new(change.id());
        let mut state = change.state().clone();
        state.no_pending().or_input()?;
        if !force && state.configuration != none {
            return Err(Stop::input(miette!(
                code = "not-factory-default",
                "init-system requires a host without domains and services, and this one has some; run set-spconfig \
                 factory-default first, or add those in the file to them (-f)"
            )));
        }
        if services {
            configuration =
                Configuration { primary: none.primary, domains: none.domains, devices: none.devices, ..configuration };
        }
        state.configuration.add_all_of(configuration).or_input()?;
        change.write(&state)?;
        Ok(Exit::Done)
    })
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
