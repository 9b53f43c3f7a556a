//! Words of the verbs that configure domains' constraints.

use miette::miette;
use vtax_domain::{DomainChange, DomainEdit};
use vtax_model::{
    domain::{
        ConsoleService, Constraints, NewSwitch, NewVnet, PRIMARY, PortRange, Switch, Variable, VirtualConsole,
        VirtualNic,
    },
    spelling::available,
    topology::Name,
};

use super::{
    grammars::{ADD_DOMAIN, ADD_VCC, ADD_VNET, ADD_VSW, SET_DOMAIN, SET_VCC, SET_VCONS, SET_VNET, SET_VSW},
    verbs::{self, DeferredCheck},
};
use crate::exit::Stop;

/// Adds domains without properties, or one domain with properties.
pub(super) fn add_domains(words: &[String]) -> Result<DomainChange, Stop> {
    if words.iter().any(|word| word.contains('=')) {
        let words = ADD_DOMAIN.read(words)?;
        return edit(DomainEdit::AddDomain { domain: words.name(0)?, settings: words.change::<Constraints>()? });
    }
    let domains = words.iter().map(|word| domain_name(word)).collect::<Result<Vec<Name>, Stop>>()?;
    edit(DomainEdit::AddDomains { domains })
}

pub(super) fn edit(edit: DomainEdit) -> Result<DomainChange, Stop> {
    Ok(DomainChange::Edit { edit })
}

/// Sets variables, e.g. `image=debian.qcow2`; the domain comes last.
pub(super) fn set_variables(words: &[String]) -> Result<DomainChange, Stop> {
    let (domain, assignments) = some_of_domain(words, "VARIABLE=VALUE, e.g. image=debian.qcow2")?;
    let set = |assignment: &String| {
        let (variable, value) = assignment.split_once('=').ok_or_else(|| {
            Stop::input(miette!(
                code = "usage",
                "invalid assignment `{assignment}`: use VARIABLE=VALUE, e.g. image=debian.qcow2"
            ))
        })?;
        Ok((variable_of(variable)?, value.to_owned()))
    };
    let values = assignments.iter().map(set).collect::<Result<Vec<_>, Stop>>()?;
    edit(DomainEdit::SetVariables { domain, values })
}

pub(super) fn remove_variables(words: &[String]) -> Result<DomainChange, Stop> {
    let (domain, variables) = some_of_domain(words, "a variable")?;
    edit(DomainEdit::RemoveVariables { domain, variables: variables_of(variables)? })
}

/// Splits the words into the domain, which comes last, and the others.
pub(super) fn of_domain(words: &[String]) -> Result<(Name, &[String]), Stop> {
    let (domain, others) = words.split_last().expect("clap requires one");
    Ok((domain_name(domain)?, others))
}

fn domain_name(written: &str) -> Result<Name, Stop> {
    let wrong = |error| Stop::input(miette!(code = "usage", "`{written}` is not a domain name: {error}"));
    written.parse().map_err(wrong)
}

fn some_of_domain<'a>(words: &'a [String], what: &str) -> Result<(Name, &'a [String]), Stop> {
    match of_domain(words)? {
        (_, []) => Err(Stop::input(miette!(code = "usage", "missing {what}, followed by the domain"))),
        found => Ok(found),
    }
}

pub(super) fn variables_of(words: &[String]) -> Result<Vec<Variable>, Stop> {
    words.iter().map(|word| variable_of(word)).collect()
}

fn variable_of(written: &str) -> Result<Variable, Stop> {
    use strum::VariantArray;
    let known: Vec<&str> = Variable::VARIANTS.iter().map(Into::into).collect();
    written.parse().map_err(|_| {
        let there = available(written, &known);
        let why = verbs::variable(written).map(|why| format!(": {why}")).unwrap_or_default();
        Stop::input(miette!(code = "no-such-object", "there is no variable `{written}`{why}; {there}"))
    })
}

pub(super) fn set_domain(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_DOMAIN.read(words)?;
    edit(DomainEdit::SetDomain { domain: words.name(0)?, settings: words.change::<Constraints>()? })
}

/// A switch in a guest has no link on the host that could be missing.
pub(super) fn add_switch(words: &[String], check: DeferredCheck) -> Result<DomainChange, Stop> {
    let words = ADD_VSW.read(words)?;
    let (default_vlan, change) = words.change::<Switch>()?;
    let new = NewSwitch { name: words.name(0)?, service: words.name(1)?, default_vlan, change };
    let is_stored = check.deferred && new.service.as_str() == PRIMARY;
    let edit = DomainEdit::AddSwitch { new };
    Ok(if is_stored { DomainChange::EditStored { edit } } else { DomainChange::Edit { edit } })
}

pub(super) fn set_switch(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VSW.read(words)?;
    let (_, change) = words.change::<Switch>()?;
    edit(DomainEdit::SetSwitch { switch: words.name(0)?, service: words.optional_name(1)?, change })
}

pub(super) fn add_vnet(words: &[String]) -> Result<DomainChange, Stop> {
    let words = ADD_VNET.read(words)?;
    let (name, switch, domain) = (words.name(0)?, words.name(1)?, words.name(2)?);
    edit(DomainEdit::AddVnet { new: NewVnet { name, switch, domain, change: words.change::<VirtualNic>()? } })
}

pub(super) fn set_vnet(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VNET.read(words)?;
    edit(DomainEdit::SetVnet { vnet: words.name(0)?, domain: words.name(1)?, change: words.change::<VirtualNic>()? })
}

pub(super) fn add_console_service(words: &[String]) -> Result<DomainChange, Stop> {
    let words = ADD_VCC.read(words)?;
    let (ports, users) = words.change::<ConsoleService>()?;
    let (ports, users) = (ports.unwrap_or(PortRange::USUAL), users.filter(|users| !users.is_empty()));
    let service = ConsoleService { domain: words.name(1)?, ports, users };
    edit(DomainEdit::AddConsoleService { name: words.name(0)?, service })
}

pub(super) fn set_console_service(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VCC.read(words)?;
    let (ports, users) = words.change::<ConsoleService>()?;
    edit(DomainEdit::SetConsoleService { name: words.name(0)?, ports, users })
}

pub(super) fn set_console(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_VCONS.read(words)?;
    edit(DomainEdit::SetConsole { domain: words.name(0)?, change: words.change::<VirtualConsole>()? })
}
