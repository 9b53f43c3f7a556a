//! `vtax ldm import`: adds a domain with the constraints of a libvirt domain.

mod carry;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

use clap::Args;
use miette::miette;
use vtax_domain::LdmHost;
use vtax_model::topology::Name;
use vtax_run::libvirt::{self, LibvirtMachine};

use self::carry::{Carried, carry};
use crate::{
    exit::{Exit, Stop},
    terminal::print,
};

#[derive(Debug, Args)]
pub(crate) struct ImportDomainArgs {
    /// Libvirt domain, running or not, e.g. libvirt:web
    #[arg(value_name = "libvirt:NAME")]
    source: LibvirtName,
    /// Name of the new domain, e.g. mars [default: the libvirt domain's name]
    #[arg(long = "as", value_name = "DOMAIN")]
    name: Option<Name>,
}

/// Name of a libvirt domain, e.g. `libvirt:web`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibvirtName(String);

impl FromStr for LibvirtName {
    type Err = String;

    fn from_str(text: &str) -> Result<LibvirtName, String> {
        let name = text.strip_prefix("libvirt:").filter(|name| !name.is_empty());
        name.map(|name| LibvirtName(name.to_owned())).ok_or_else(|| {
            format!("`{text}` is not a libvirt domain; use libvirt:NAME, with a NAME that virsh list --all shows")
        })
    }
}

pub(super) fn import(host: &LdmHost, args: &ImportDomainArgs) -> Result<Exit, Stop> {
    let machine = libvirt::machine(&args.source.0)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => own_name(&machine)?,
    };
    let mut carried = Carried::default();
    host.edit(|all| {
        carried = carry(&machine, &name, all)?;
        Ok(())
    })?;
    print(&Imported { machine: &machine, name: &name, carried: &carried }.to_string())?;
    Ok(Exit::Done)
}

/// Returns the machine's own name, if vtax accepts it.
fn own_name(machine: &LibvirtMachine) -> Result<Name, Stop> {
    let given = machine.name.raw().parse();
    given.map_err(|error| Stop::input(miette!(code = "bad-name", "{error}; choose another name here: --as DOMAIN")))
}

/// Report of an import.
struct Imported<'a> {
    machine: &'a LibvirtMachine,
    name: &'a Name,
    carried: &'a Carried,
}

impl fmt::Display for Imported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Imported { machine, name, carried } = self;
        writeln!(f, "Imported libvirt domain {} as {name}:", machine.name)?;
        carried.kept.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        if !carried.lost.is_empty() {
            writeln!(f, "Not imported:")?;
        }
        carried.lost.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}
