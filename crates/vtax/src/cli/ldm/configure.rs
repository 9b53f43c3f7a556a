//! Verbs that configure domains' constraints.

use std::collections::BTreeSet;

use miette::miette;
use vtax_domain::{ConfigName, HostCapacity};
use vtax_model::{
    domain::{
        AltMac, Configuration, ConsoleService, CpuDemand, DomainError, FailurePolicy, NewSwitch, NewVnet, PRIMARY,
        PortRange, SizeChange, SwitchChange, UserName, Variable, VirtualConsole, VnetChange, adjusted_memory,
    },
    spelling::there_are,
    topology::Name,
    vf::Vlan,
};

use super::{
    change::ChangingHost,
    verbs::{self, DeferredCheck, MemoryArgs, WhichDomains},
    vntsd,
    words::{Grammar, LdmWords, YesOrNo},
};
use crate::exit::{Blamed, Exit, Stop};

const ADD_VNET: Grammar = Grammar::new(
    "add-vnet",
    &["mac-addr", "alt-mac-addrs", "pvid", "vid", "mtu", "id", "maxbw", "linkprop"],
    &["VNET", "SWITCH", "DOMAIN"],
);
const SET_VNET: Grammar = Grammar::new(
    "set-vnet",
    &["mac-addr", "alt-mac-addrs", "pvid", "vid", "mtu", "id", "maxbw", "linkprop", "vswitch"],
    &["VNET", "DOMAIN"],
);
const ADD_VSW: Grammar =
    Grammar::new("add-vsw", &["net-dev", "mac-addr", "mtu", "default-vlan-id", "pvid", "vid"], &["SWITCH", "DOMAIN"]);
const SET_VSW: Grammar =
    Grammar::new("set-vsw", &["net-dev", "mac-addr", "mtu", "pvid", "vid"], &["SWITCH", "DOMAIN"]).or_one_less();
const ADD_VCC: Grammar = Grammar::new("add-vcc", &["port-range", "users"], &["SERVICE", "DOMAIN"]);
const SET_VCC: Grammar = Grammar::new("set-vcc", &["port-range", "users"], &["SERVICE"]);
const SET_VCONS: Grammar = Grammar::new("set-vcons", &["port", "group", "service"], &["DOMAIN"]);
const DOMAIN_KEYS: &[&str] = &["failure-policy", "master", "autostart"];
const ADD_DOMAIN: Grammar = Grammar::new("add-domain", DOMAIN_KEYS, &["DOMAIN"]);
const SET_DOMAIN: Grammar = Grammar::new("set-domain", DOMAIN_KEYS, &["DOMAIN"]);

/// Changes the configuration and saves it.
fn edit(
    host: ChangingHost<'_>,
    change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
) -> Result<Exit, Stop> {
    host.edit(change)?;
    Ok(Exit::Done)
}

/// Adds domains without properties, or one domain with properties.
pub(super) fn add_domains(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    if words.iter().any(|word| word.contains('=')) {
        let words = ADD_DOMAIN.read(words)?;
        let (name, settings): (Name, _) = (words.name(0)?, DomainSettings::of(&words)?);
        return edit(host, |all| all.add_domain(&name).and_then(|()| settings.apply(all, &name)));
    }
    let names = words.iter().map(|word| domain_name(word)).collect::<Result<Vec<Name>, Stop>>()?;
    edit(host, |all| names.iter().try_for_each(|name| all.add_domain(name)))
}

pub(super) fn remove_domains(host: ChangingHost<'_>, which: &WhichDomains) -> Result<Exit, Stop> {
    host.change(|change| {
        let names: Vec<Name> = match which.all {
            true => change.configuration().domains.keys().cloned().collect(),
            false => which.domains.clone(),
        };
        if let Some(bound) = change.bound()?.iter().find(|bound| names.contains(bound.name())) {
            let (name, state) = (bound.name(), bound.state());
            return Err(Stop::input(miette!(
                code = "domain-state",
                "{name} is {state}; only an inactive domain can be removed: stop it and unbind it first"
            )));
        }
        change.edit(|all| all.remove_domains(&names))?;
        Ok(Exit::Done)
    })
}

pub(super) fn set_cpus(host: ChangingHost<'_>, domain: &Name, cpus: CpuDemand) -> Result<Exit, Stop> {
    check_cores(&cpus)?;
    edit(host, |all| all.set_cpus(domain, cpus))
}

pub(super) fn change_cpus(
    host: ChangingHost<'_>,
    domain: &Name,
    change: SizeChange,
    by: CpuDemand,
) -> Result<Exit, Stop> {
    if change == SizeChange::Add {
        check_cores(&by)?;
    }
    edit(host, |all| all.change_cpus(domain, change, by))
}

/// Refuses cores that this host doesn't have.
fn check_cores(cpus: &CpuDemand) -> Result<(), Stop> {
    let CpuDemand::Cids(ids) = cpus else { return Ok(()) };
    let count = HostCapacity::look().cores.len();
    match ids.iter().find(|id| **id as usize >= count) {
        Some(id) => Err(Stop::input(miette!(
            code = "no-such-object",
            "there is no core {id}: this host has cores 0 to {} (vtax ldm list-devices -a core)",
            count.saturating_sub(1)
        ))),
        None => Ok(()),
    }
}

/// Sets the memory of a domain to a size, or changes it by that size.
pub(super) fn size_memory(host: ChangingHost<'_>, args: &MemoryArgs, change: Option<SizeChange>) -> Result<Exit, Stop> {
    let MemoryArgs { auto_adj, memory, domain } = args;
    let mut adjusted = None;
    host.edit(|all| {
        let wanted = change.map_or(Ok(*memory), |change| all.changed_memory(domain, change, *memory))?;
        let size = if *auto_adj { adjusted_memory(wanted)? } else { wanted };
        adjusted = (size != wanted).then_some((wanted, size));
        all.set_memory(domain, size)
    })?;
    if let Some((wanted, size)) = adjusted {
        tell!("memory of {domain} set to {size}: {wanted} rounded up to a multiple of 256 MiB");
    }
    Ok(Exit::Done)
}

/// Sets variables, e.g. `image=debian.qcow2`; the domain comes last.
pub(super) fn set_variables(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
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
    edit(host, |all| values.into_iter().try_for_each(|(variable, value)| all.set_variable(&domain, variable, value)))
}

pub(super) fn remove_variables(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let (domain, variables) = some_of_domain(words, "a variable")?;
    let variables = variables_of(variables)?;
    edit(host, |all| variables.into_iter().try_for_each(|variable| all.remove_variable(&domain, variable)))
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
        let there = there_are(written, &known);
        let why = verbs::variable(written).map(|why| format!(": {why}")).unwrap_or_default();
        Stop::input(miette!(code = "no-such-object", "there is no variable `{written}`{why}; {there}"))
    })
}

/// Properties of a domain itself; only those present are set.
struct DomainSettings {
    policy: Option<FailurePolicy>,
    masters: Option<Vec<Name>>,
    autostart: Option<YesOrNo>,
}

impl DomainSettings {
    fn of(words: &LdmWords<'_>) -> Result<DomainSettings, Stop> {
        Ok(DomainSettings {
            policy: words.property("failure-policy")?,
            masters: words.list("master")?,
            autostart: words.property("autostart")?,
        })
    }

    fn apply(self, all: &mut Configuration, domain: &Name) -> Result<(), DomainError> {
        self.policy.map_or(Ok(()), |policy| all.set_failure_policy(domain, policy))?;
        self.autostart.map_or(Ok(()), |YesOrNo(yes)| all.set_autostart(domain, yes))?;
        self.masters.map_or(Ok(()), |masters| all.set_masters(domain, masters))
    }
}

pub(super) fn set_domain(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_DOMAIN.read(words)?;
    words.some_property()?;
    let (domain, settings): (Name, _) = (words.name(0)?, DomainSettings::of(&words)?);
    edit(host, |all| settings.apply(all, &domain))
}

/// A switch in a guest has no link on the host that could be missing.
pub(super) fn add_switch(host: ChangingHost<'_>, words: &[String], check: DeferredCheck) -> Result<Exit, Stop> {
    let words = ADD_VSW.read(words)?;
    let new = NewSwitch {
        name: words.name(0)?,
        service: words.name(1)?,
        default_vlan: words.property("default-vlan-id")?,
        change: SwitchChange { vids: vids(&words)?, ..switch_change(&words)? },
    };
    if check.deferred && new.service.as_str() == PRIMARY {
        return edit(host, |all| all.add_switch(new));
    }
    let name = new.name.clone();
    host.edit_switch(&name, |all| all.add_switch(new))
}

pub(super) fn set_switch(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_VSW.read(words)?;
    words.some_property()?;
    let name: Name = words.name(0)?;
    let service: Option<Name> = words.optional_name(1)?;
    let (change, vids) = (switch_change(&words)?, words.list_change::<Vlan>("vid")?);
    host.edit_switch(&name, |all| {
        let found = all.switch(&name)?;
        let vids = vids.map(|vids| vids.applied(found.vids.iter().copied()).into_iter().collect());
        match service {
            Some(service) if service != found.service => {
                Err(DomainError::OtherService { switch: name.clone(), service: found.service.clone(), named: service })
            }
            _ => all.set_switch(&name, SwitchChange { vids, ..change }),
        }
    })
}

fn switch_change(words: &LdmWords<'_>) -> Result<SwitchChange, Stop> {
    Ok(SwitchChange {
        net_dev: words.property("net-dev")?,
        mac: words.property("mac-addr")?,
        mtu: words.property("mtu")?,
        pvid: words.property("pvid")?,
        vids: None,
    })
}

fn vids(words: &LdmWords<'_>) -> Result<Option<BTreeSet<Vlan>>, Stop> {
    Ok(words.list("vid")?.map(|vids: Vec<Vlan>| vids.into_iter().collect()))
}

pub(super) fn remove_switch(host: ChangingHost<'_>, name: &Name) -> Result<Exit, Stop> {
    host.edit_switch(name, |all| all.remove_switch(name))
}

pub(super) fn add_vnet(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = ADD_VNET.read(words)?;
    let change = VnetChange { alt_macs: words.list("alt-mac-addrs")?, vids: vids(&words)?, ..vnet_change(&words)? };
    let new = NewVnet { name: words.name(0)?, switch: words.name(1)?, domain: words.name(2)?, change };
    let (domain, vnet) = (new.domain.clone(), new.name.clone());
    host.edit_vnet(&domain, &vnet, |all| all.add_vnet(new))
}

pub(super) fn set_vnet(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_VNET.read(words)?;
    words.some_property()?;
    let (name, domain): (Name, Name) = (words.name(0)?, words.name(1)?);
    let change = vnet_change(&words)?;
    let (alts, vids) = (words.list_change::<AltMac>("alt-mac-addrs")?, words.list_change::<Vlan>("vid")?);
    host.edit_vnet(&domain, &name, |all| {
        let had = all.vnet(&domain, &name)?;
        let alt_macs = alts.map(|alts| alts.applied(had.alt_macs.iter().copied().map(AltMac::Given)));
        let vids = vids.map(|vids| vids.applied(had.vlans.vids.iter().copied()).into_iter().collect());
        all.set_vnet(&domain, &name, VnetChange { alt_macs, vids, ..change })
    })
}

/// Returns all properties except the lists, which can be changed in part.
fn vnet_change(words: &LdmWords<'_>) -> Result<VnetChange, Stop> {
    Ok(VnetChange {
        switch: words.property("vswitch")?,
        mac: words.property("mac-addr")?,
        alt_macs: None,
        pvid: words.property("pvid")?,
        vids: None,
        mtu: words.property("mtu")?,
        id: words.property("id")?,
        maxbw: words.property("maxbw")?,
        linkprop: words.property("linkprop")?,
    })
}

pub(super) fn remove_vnet(host: ChangingHost<'_>, name: &Name, domain: &Name) -> Result<Exit, Stop> {
    host.edit_vnet(domain, name, |all| all.remove_vnet(domain, name))
}

pub(super) fn add_console_service(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = ADD_VCC.read(words)?;
    let (name, domain): (Name, Name) = (words.name(0)?, words.name(1)?);
    let ports = words.property("port-range")?.unwrap_or(PortRange::USUAL);
    let users = users(&words)?.filter(|users| !users.is_empty());
    edit(host, |all| all.add_console_service(&name, ConsoleService { domain, ports, users }))
}

pub(super) fn set_console_service(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_VCC.read(words)?;
    words.some_property()?;
    let name: Name = words.name(0)?;
    let (ports, users) = (words.property("port-range")?, users(&words)?);
    edit(host, |all| all.set_console_service(&name, ports, users))
}

/// Returns the users permitted to use a service's consoles. Each must be a user of this host.
fn users(words: &LdmWords<'_>) -> Result<Option<BTreeSet<UserName>>, Stop> {
    let Some(users) = words.list::<UserName>("users")? else { return Ok(None) };
    match users.iter().find(|user| vntsd::user_id(user).is_none()) {
        Some(nobody) => Err(Stop::input(miette!(
            code = "no-such-user",
            "users: this host has no user `{nobody}`; see getent passwd"
        ))),
        None => Ok(Some(users.into_iter().collect())),
    }
}

pub(super) fn remove_console_service(host: ChangingHost<'_>, name: &Name) -> Result<Exit, Stop> {
    edit(host, |all| all.remove_console_service(name))
}

pub(super) fn set_console(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_VCONS.read(words)?;
    words.some_property()?;
    let domain: Name = words.name(0)?;
    let change = VirtualConsole {
        service: words.property("service")?,
        group: words.property("group")?,
        port: words.property("port")?,
    };
    edit(host, |all| all.set_console(&domain, change))
}

pub(super) fn save_configuration(host: ChangingHost<'_>, name: &ConfigName) -> Result<Exit, Stop> {
    host.change(|change| change.store().save(change.id(), name).or_input())?;
    Ok(Exit::Done)
}

pub(super) fn remove_saved(host: ChangingHost<'_>, name: &ConfigName) -> Result<Exit, Stop> {
    host.change(|change| change.store().remove_saved(change.id(), name).or_input())?;
    Ok(Exit::Done)
}

/// Loads a saved configuration. All domains must be inactive, so that nothing that they have is lost.
pub(super) fn set_saved(host: ChangingHost<'_>, name: &ConfigName) -> Result<Exit, Stop> {
    host.change(|change| {
        if let Some(bound) = change.bound()?.first() {
            let (name, state) = (bound.name(), bound.state());
            return Err(Stop::input(miette!(
                code = "domain-state",
                "{name} is {state}; loading a saved configuration requires all domains to be inactive"
            )));
        }
        let mut state = change.state().clone();
        state.no_pending().or_input()?;
        state.configuration = change.store().read_saved(change.id(), name).or_input()?;
        state.current = Some(name.clone()).filter(|name| !name.is_factory_default());
        change.write(&state)?;
        Ok(Exit::Done)
    })
}
