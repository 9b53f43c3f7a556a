//! `vtax ldm import`: a domain is to have what one of libvirt has.

mod carry;
#[cfg(test)]
mod tests;

use std::{fmt, str::FromStr};

use clap::Args;
use miette::miette;
use vtax_model::topology::Name;
use vtax_run::libvirt::{self, LibvirtMachine};

use self::carry::{Carried, carry};
use super::change::ChangingHost;
use crate::{
    exit::{Exit, Stop},
    terminal::print,
};

#[derive(Debug, Args)]
pub(crate) struct ImportDomainArgs {
    /// The domain of libvirt; it needn't run
    #[arg(value_name = "libvirt:NAME")]
    source: LibvirtName,
    /// The name that the domain gets here [default: the one that it has]
    #[arg(long = "as", value_name = "DOMAIN")]
    name: Option<Name>,
}

/// `libvirt:web`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibvirtName(String);

impl FromStr for LibvirtName {
    type Err = String;

    fn from_str(text: &str) -> Result<LibvirtName, String> {
        let name = text.strip_prefix("libvirt:").filter(|name| !name.is_empty());
        name.map(|name| LibvirtName(name.to_owned())).ok_or_else(|| {
            format!("`{text}` names no domain of libvirt; write libvirt:NAME, as virsh list --all shows it")
        })
    }
}

pub(super) fn import(host: ChangingHost<'_>, args: &ImportDomainArgs) -> Result<Exit, Stop> {
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

/// Its own name, if that is one that vtax takes.
fn own_name(machine: &LibvirtMachine) -> Result<Name, Stop> {
    let given = machine.name.raw().parse();
    given.map_err(|error| Stop::input(miette!(code = "bad-name", "{error}; give it another here: --as DOMAIN")))
}

/// What a user reads of an import.
struct Imported<'a> {
    machine: &'a LibvirtMachine,
    name: &'a Name,
    carried: &'a Carried,
}

impl fmt::Display for Imported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Imported { machine, name, carried } = self;
        writeln!(f, "{name} is to have, as {} of libvirt has:", machine.name)?;
        carried.kept.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        if !carried.lost.is_empty() {
            writeln!(f, "It won't have:")?;
        }
        carried.lost.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}
