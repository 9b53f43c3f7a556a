//! Files with what domains are to have: JSON or XML, as `list-constraints` prints them.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use miette::miette;
use vtax_domain::ldm_xml;
use vtax_model::{domain::Configuration, topology::Name};

use super::{host::LdmHost, lifecycle};
use crate::exit::{Blamed, Exit, Stop};

/// Adds the domains of a file. The switches and console services that they use must be there.
pub(super) fn add_domains(host: &LdmHost, file: &Path) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    host.edit(|all| all.add_domains_of(&configuration))?;
    Ok(Exit::Done)
}

/// Adds the domains of a file, and has something done with them. If that fails, they are taken back, and removed.
pub(super) fn with_added(
    host: &LdmHost,
    file: &Path,
    act: impl FnOnce(&[Name]) -> Result<Exit, Stop>,
) -> Result<Exit, Stop> {
    // Who may not bind domains adds none.
    host.domains()?;
    let configuration = read(file)?;
    let names: Vec<Name> = configuration.domains.keys().cloned().collect();
    if names.is_empty() {
        let shown = file.display();
        return Err(Stop::input(miette!(code = "bad-constraints", "{shown} has no domain; name a file that has one")));
    }
    host.edit(|all| all.add_domains_of(&configuration))?;
    act(&names).inspect_err(|_| {
        if let Err(left) = lifecycle::remove(host, &names) {
            tell!("{left}");
        }
    })
}

/// Sets the properties of the domains of a file as they are there.
pub(super) fn set_domains(host: &LdmHost, file: &Path) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    host.edit(|all| all.set_domains_of(&configuration))?;
    Ok(Exit::Done)
}

/// Adds the domains and services of a file, or only its services. Without `force`, there must be none yet.
pub(super) fn init_system(host: &LdmHost, file: &Path, force: bool, services: bool) -> Result<Exit, Stop> {
    let mut configuration = read(file)?;
    if services {
        let none = Configuration::new(host.id());
        configuration =
            Configuration { primary: none.primary, domains: none.domains, devices: none.devices, ..configuration };
    }
    let locked = host.lock()?;
    let mut state = locked.read(host.id()).or_infrastructure()?;
    state.no_pending().or_input()?;
    if !force && state.configuration != Configuration::new(host.id()) {
        return Err(Stop::input(miette!(
            code = "not-factory-default",
            "init-system needs a host without domains and services, and this one has some; set-spconfig factory-default first, or \
             add those of the file to them (-f)"
        )));
    }
    state.configuration.add_all_of(configuration).or_input()?;
    locked.write(&state).or_infrastructure()?;
    Ok(Exit::Done)
}

fn read(file: &Path) -> Result<Configuration, Stop> {
    let shown = file.display();
    let text = text_of(file).map_err(|error| Stop::input(miette!(code = "file", "can't read {shown}: {error}")))?;
    let wrong = |why: String| {
        Stop::input(miette!(
            code = "bad-constraints",
            "{shown}: {why}; the file has to be one that vtax ldm list-constraints has written, with --json or -x"
        ))
    };
    match text.trim_start().starts_with('<') {
        true => ldm_xml::read(&text).map_err(|error| wrong(error.to_string())),
        false => serde_json::from_str(&text).map_err(|error| wrong(error.to_string())),
    }
}

/// A file that has no end, as a pipe, is read no further than any file with constraints is long.
fn text_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(file)?.take(ldm_xml::LONGEST + 1).read_to_string(&mut text)? as u64;
    match length > ldm_xml::LONGEST {
        true => Err(io::Error::other(format!("it has more than {} MiB", ldm_xml::LONGEST >> 20))),
        false => Ok(text),
    }
}
