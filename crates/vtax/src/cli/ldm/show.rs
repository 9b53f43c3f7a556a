//! Read-only verbs that show domains.

mod devices;
mod disks;
mod host_devices;
mod parseable;
mod pending;
mod resources;

use std::fmt::Write;

use clap::Args;
use serde::Serialize;
use vtax_domain::{
    Bindings, ConfigName, ConsolePlace, DomainFlags, DomainRow, DomainView, Down, HostCapacity, HostView,
    RunningSystem, StoredState, Utilization, ViewDepth, ldm_xml,
};
use vtax_model::{
    domain::{Configuration, Constraints, DomainState, PRIMARY},
    topology::Name,
    units::ByteSize,
};

pub(crate) use self::{devices::ListIoArgs, host_devices::ListDevicesArgs, resources::Resource};
pub(super) use self::{devices::devices, host_devices::host_devices};
use self::{
    disks::paths_now,
    pending::{NowByDomain, pending},
};
use super::{
    configure::{of_domain, variables_of},
    layout,
    target::LdmTarget,
};
use crate::{
    cli::answer,
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

#[derive(Debug, Args)]
pub(crate) struct LdmListArgs {
    /// Show each domain's resources
    #[arg(short, short_alias = 'e')]
    long: bool,
    /// Print machine-readable output with |-separated fields
    #[arg(short, conflicts_with = "json")]
    parseable: bool,
    /// Resources to show of each domain
    #[arg(short, conflicts_with = "json", value_enum, value_delimiter = ',', value_name = "RESOURCE,…")]
    output: Vec<Resource>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Domains to show [default: all]
    #[arg(value_name = "DOMAIN")]
    domains: Vec<Name>,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ConstraintFormat {
    /// Print JSON, as read by init-system and add-domain
    #[arg(long, conflicts_with = "xml")]
    json: bool,
    /// Print XML like Oracle's ldm, as read by init-system and add-domain
    #[arg(short = 'x')]
    xml: bool,
    /// Print machine-readable output with |-separated fields
    #[arg(short, conflicts_with_all = ["json", "xml"])]
    parseable: bool,
}

/// Domain in a list, with its constraints.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    row: DomainRow,
    constraints: &'a Constraints,
    /// Current resources, if it is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<&'a Constraints>,
    /// Resources that change at its next boot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<Resource>,
    /// Processes that should run for it, but don't.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    down: Vec<Down>,
}

pub(super) fn list(host: &LdmTarget<'_>, args: &LdmListArgs) -> Result<Exit, Stop> {
    let view = host.look(ViewDepth::Running)?;
    let HostView { state: StoredState { configuration: all, pending: reconfiguration, .. }, bound, down, .. } = &view;
    let mut rows = rows(&view, &args.domains)?;
    rows.iter_mut().filter(|row| row.flags.control).for_each(|row| row.flags.delayed = reconfiguration.is_some());
    let now = || -> NowByDomain { bound.iter().map(|bound| (bound.name().clone(), bound.now.clone())).collect() };
    if args.json {
        let now = now();
        let listed = rows.into_iter().map(|row| {
            let constraints = all.domain(&row.name).or_infrastructure()?;
            let now = now.get(&row.name);
            let pending = now.map(|now| pending(now, constraints)).unwrap_or_default();
            let down = down.iter().filter(|down| *down.domain() == row.name).cloned().collect();
            Ok(Listed { row, constraints, now, pending, down })
        });
        return answer(true, &listed.collect::<Result<Vec<_>, Stop>>()?, |_| String::new());
    }
    let resources = match args.output.as_slice() {
        [] if args.long => Resource::ALL,
        chosen => chosen,
    };
    print(&match (resources, args.parseable) {
        ([], false) => layout::domains(&rows),
        ([], true) => layout::parseable_domains(&rows),
        (resources, false) => resources::blocks(&rows, all, &now(), &paths_now(bound), resources, args.long),
        (resources, true) => parseable::domains(&rows, all, &now(), &paths_now(bound), resources),
    })?;
    let is_listed = |down: &&Down| rows.iter().any(|row| row.name == *down.domain());
    down.iter().filter(is_listed).for_each(|down| tell!("{down}"));
    Ok(Exit::Done)
}

/// Returns the listed domains in order. Named domains must exist.
fn rows(view: &HostView, named: &[Name]) -> Result<Vec<DomainRow>, Stop> {
    let HostView { state, bound, utilization: used, capacity, .. } = view;
    let all = &state.configuration;
    named.iter().try_for_each(|name| all.domain(name).map(drop)).or_input()?;
    let mut rows =
        vec![DomainRow { utilization: used.host, service: Some(used.all_services()), ..primary(all, bound, capacity) }];
    rows.extend(all.domains.iter().map(|(name, domain)| match bound.iter().find(|bound| bound.name() == name) {
        Some(bound) => with_resources(bound, used),
        None if view.unreadable.contains(name) => {
            DomainRow { state: DomainState::Damaged, ..inactive(name, domain, capacity) }
        }
        None => inactive(name, domain, capacity),
    }));
    rows.iter_mut().for_each(|row| row.flags.migration = view.migrations.get(&row.name).copied());
    rows.retain(|row| named.is_empty() || named.contains(&row.name));
    DomainRow::sort(&mut rows);
    Ok(rows)
}

/// Returns the host's row: everything that no other domain has.
fn primary(all: &Configuration, bound: &[DomainView], host: &HostCapacity) -> DomainRow {
    let service = !(all.switches.is_empty() && all.consoles.is_empty() && all.disk_services.is_empty());
    let cpus: usize = bound.iter().map(|bound| bound.bindings.cpus.len()).sum();
    let memory: u64 = bound.iter().map(|bound| bound.bindings.memory.0).sum();
    DomainRow {
        name: PRIMARY.parse().expect("a name"),
        state: DomainState::Active,
        flags: DomainFlags { running: Some(RunningSystem::Normal), control: true, service, ..DomainFlags::default() },
        console: Some(ConsolePlace::Uart),
        vcpus: host.cpus().len().saturating_sub(cpus) as u32,
        memory: ByteSize(host.memory.0.saturating_sub(memory)),
        utilization: None,
        service: None,
        uptime: Some(host.uptime),
    }
}

fn with_resources(bound: &DomainView, used: &Utilization) -> DomainRow {
    let state = bound.state;
    let system = if bound.is_up { RunningSystem::Normal } else { RunningSystem::Transition };
    DomainRow {
        name: bound.name().clone(),
        state,
        flags: DomainFlags { running: Some(system).filter(|_| state == DomainState::Active), ..DomainFlags::default() },
        console: bound.bindings.console.as_ref().map(|console| ConsolePlace::Port(console.port)),
        vcpus: bound.bindings.vcpus,
        memory: bound.bindings.memory,
        utilization: used.of(bound.name()),
        service: used.service_of(bound.name()),
        uptime: bound.uptime,
    }
}

fn inactive(name: &Name, domain: &Constraints, machine: &HostCapacity) -> DomainRow {
    DomainRow {
        name: name.clone(),
        state: DomainState::Inactive,
        flags: DomainFlags::default(),
        console: None,
        vcpus: domain.vcpus(machine.threads_per_core()),
        memory: domain.memory.unwrap_or(ByteSize(0)),
        utilization: None,
        service: None,
        uptime: None,
    }
}

/// Bound domain with its bindings.
#[derive(Debug, Serialize)]
struct ListedBindings {
    #[serde(flatten)]
    row: DomainRow,
    bindings: Bindings,
    /// Frames that a vnet sent from addresses other than its own.
    dropped: Vec<(Name, u64)>,
}

pub(super) fn bindings(host: &LdmTarget<'_>, parseable: bool, json: bool, domains: &[Name]) -> Result<Exit, Stop> {
    let view = host.look(ViewDepth::Running)?;
    let all = view.state.configuration;
    domains.iter().try_for_each(|name| all.domain(name).map(drop)).or_input()?;
    let wanted = view.bound.into_iter().filter(|bound| domains.is_empty() || domains.contains(bound.name()));
    let listed = wanted.map(|bound| {
        let row = with_resources(&bound, &view.utilization);
        ListedBindings { row, bindings: bound.bindings, dropped: bound.dropped }
    });
    let listed: Vec<ListedBindings> = listed.collect();
    if parseable {
        let of = |it: &ListedBindings| parseable::bindings(&it.row, &it.bindings, &it.dropped, &all);
        print(&(layout::parseable_head() + &listed.iter().map(of).collect::<String>()))?;
        return Ok(Exit::Done);
    }
    answer(json, &listed, |listed| {
        listed
            .iter()
            .map(|it| resources::bindings(&it.row, &it.bindings, &it.dropped, &all))
            .collect::<Vec<_>>()
            .join("\n")
    })
}

pub(super) fn constraints(host: &LdmTarget<'_>, format: ConstraintFormat, domains: &[Name]) -> Result<Exit, Stop> {
    let mut all = host.look(ViewDepth::Stored)?.state.configuration;
    domains.iter().try_for_each(|name| all.domain(name).map(drop)).or_input()?;
    all.domains.retain(|name, _| domains.is_empty() || domains.contains(name));
    if format.xml {
        print(&ldm_xml::write(&all))?;
        return Ok(Exit::Done);
    }
    if format.parseable {
        let of = |(name, domain): (&Name, &Constraints)| parseable::constraints(name, domain, &all);
        print(&(layout::parseable_head() + &all.domains.iter().map(of).collect::<String>()))?;
        return Ok(Exit::Done);
    }
    answer(format.json, &all, |all| {
        let of = |(name, domain): (&Name, &Constraints)| resources::constraints(name, domain, all);
        all.domains.iter().map(of).collect::<Vec<_>>().join("\n")
    })
}

pub(super) fn services(host: &LdmTarget<'_>, parseable: bool, domains: &[Name]) -> Result<Exit, Stop> {
    let mut all = host.look(ViewDepth::Stored)?.state.configuration;
    domains.iter().try_for_each(|name| all.domain(name).map(drop)).or_input()?;
    let is_shown = |domain: &Name| domains.is_empty() || domains.contains(domain);
    all.consoles.retain(|_, service| is_shown(&service.domain));
    all.switches.retain(|_, switch| is_shown(&switch.service));
    all.disk_services.retain(|_, service| is_shown(&service.domain));
    print(&if parseable { parseable::services(&all) } else { resources::services(&all) })?;
    Ok(Exit::Done)
}

pub(super) fn dependencies(host: &LdmTarget<'_>, long: bool, parseable: bool, domains: &[Name]) -> Result<Exit, Stop> {
    let all = host.look(ViewDepth::Stored)?.state.configuration;
    domains.iter().try_for_each(|name| all.domain(name).map(drop)).or_input()?;
    let mut text = if parseable {
        layout::parseable_head()
    } else if long {
        format!("{:<16} {:<16} {:<9} {}\n", "DOMAIN", "DEPENDENCY", "TYPE", "DEVICE")
    } else {
        format!("{:<16} {:<16} {}\n", "DOMAIN", "DEPENDENCY", "TYPE")
    };
    let mut told: Vec<String> = Vec::new();
    for found in all.dependencies().into_iter().filter(|found| domains.is_empty() || domains.contains(&found.domain)) {
        let (domain, on, kind) = (found.domain, found.on, found.kind);
        let line = match (parseable, long) {
            (true, true) => format!("DEPENDENCY|ldom={domain}|dependency={on}|type={kind}|dev={}\n", found.device),
            (true, false) => format!("DEPENDENCY|ldom={domain}|dependency={on}|type={kind}\n"),
            (false, true) => format!("{domain:<16} {on:<16} {kind:<9} {}\n", found.device),
            (false, false) => format!("{domain:<16} {on:<16} {kind}\n"),
        };
        if !told.contains(&line) {
            text += &line;
            told.push(line);
        }
    }
    print(&text)?;
    Ok(Exit::Done)
}

pub(super) fn variables(host: &LdmTarget<'_>, words: &[String]) -> Result<Exit, Stop> {
    let (domain, wanted) = of_domain(words)?;
    let wanted = variables_of(wanted)?;
    let all = host.look(ViewDepth::Stored)?.state.configuration;
    let variables = &all.domain(&domain).or_input()?.variables;
    let mut text = String::new();
    for (variable, value) in variables.iter().filter(|(variable, _)| wanted.is_empty() || wanted.contains(variable)) {
        let _ = writeln!(text, "{variable}={value}");
    }
    print(&text)?;
    Ok(Exit::Done)
}

pub(super) fn saved(host: &LdmTarget<'_>) -> Result<Exit, Stop> {
    let HostView { state, saved, .. } = host.look(ViewDepth::Stored)?;
    let current = state.current.unwrap_or_else(ConfigName::factory_default);
    let mut text = String::new();
    for name in [ConfigName::factory_default()].into_iter().chain(saved) {
        let mark = if name == current { " [current]" } else { "" };
        let _ = writeln!(text, "{name}{mark}");
    }
    print(&text)?;
    Ok(Exit::Done)
}
