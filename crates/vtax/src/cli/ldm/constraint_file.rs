//! Files with what domains are to have: JSON or XML, as `list-constraints` prints them.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use miette::miette;
use vtax_domain::ldm_xml;
use vtax_model::domain::Configuration;

use super::change::ChangingHost;
use crate::exit::{Blamed, Exit, Stop};

/// Adds the domains of a file. The switches and console services that they use must be there.
pub(super) fn add_domains(host: ChangingHost<'_>, file: &Path) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    host.edit(|all| all.add_domains_of(&configuration))?;
    Ok(Exit::Done)
}

/// Adds the domains and services of a file to a configuration that has none yet.
pub(super) fn init_system(host: ChangingHost<'_>, file: &Path) -> Result<Exit, Stop> {
    let configuration = read(file)?;
    host.change(|change| {
        let mut state = change.state().clone();
        state.no_pending().or_input()?;
        if state.configuration != Configuration::new(change.id()) {
            return Err(Stop::input(miette!(
                code = "not-factory-default",
                "init-system needs a host without domains and services, and this one has some; set-spconfig factory-default \
                 first"
            )));
        }
        state.configuration = configuration.rebuilt(change.id()).or_input()?;
        change.write(&state)?;
        Ok(Exit::Done)
    })
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
