//! `vtax ldm`.

mod assign;
mod configure;
mod constraint_file;
mod disks;
mod exec;
mod grammars;
mod import;
mod layout;
mod lifecycle;
mod migrate;
mod notices;
mod orders;
mod show;
mod target;
mod verbs;
mod vntsd;
mod words;

use std::{cell::RefCell, io, sync::Arc};

use miette::miette;
use vtax_domain::{DomainChange, DomainHost, LdmHost};
use vtax_lab::World;
use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_run::{
    Locations, OrderRefusal, OrderServer, RemoteLdm, labs, reach_agent, receive_channel, receive_disk, receive_guest,
};
use vtax_wire::ssh::Ssh;

pub(crate) use self::verbs::LdmArgs;
pub(super) use self::{
    grammars::with_grammars,
    verbs::{refusal, tip, with_aliases, with_vendors_q},
};
use self::{
    migrate::MigrationSource,
    notices::Printed,
    target::LdmTarget,
    verbs::{LdmVerb, LocalVerb, OrderVerb, ShowVerb},
};
use crate::exit::{Blamed, Exit, Stop};

pub(super) fn ldm(args: LdmArgs, places: &Locations) -> Result<Exit, Stop> {
    let LdmArgs { host, within, verb } = args;
    match (verb, host) {
        (LdmVerb::Order(verb), None) => on_host(places, within, |host| act(verb, || Ok(LdmTarget::Here(host)))),
        (LdmVerb::Order(verb), Some(host)) => {
            let printed = Printed::default();
            let connect = || RemoteLdm::connect(&Ssh::user(), &host, within.as_ref(), printed.hear());
            printed.and(act(verb, || Ok(LdmTarget::There(RefCell::new(connect()?)))))
        }
        (LdmVerb::Local(verb), None) => on_host(places, within, |host| local(verb, host, places)),
        (LdmVerb::Migrate(args), host) => migrate::migrate(&MigrationSource { host, within }, &args, places),
        (LdmVerb::Serve { .. }, None) => serve(places, within),
        (LdmVerb::Local(_) | LdmVerb::Serve { .. }, Some(host)) => Err(Stop::input(miette!(
            code = "usage",
            "this verb acts on this machine only; log in to {host}, and run it there"
        ))),
    }
}

/// Gives a verb's order to the host. Invalid words are reported first.
fn act<'a>(verb: OrderVerb, open: impl FnOnce() -> Result<LdmTarget<'a>, Stop>) -> Result<Exit, Stop> {
    let change = match verb {
        OrderVerb::Configure(verb) => orders::of(verb)?,
        OrderVerb::Live(verb) => lifecycle::of(verb)?,
        OrderVerb::Import(args) => return import::import(args, &open()?),
        OrderVerb::Show(verb) => return show(verb, &open()?),
    };
    open()?.change(change)
}

/// Releases the resources of the lab hosts' domains before the lab goes down.
pub(super) fn release_hosts(world: &World, lab: &Name, places: &Locations) -> Result<(), Stop> {
    let begin = DomainHost::folders_of(lab);
    for folder in world.folders().or_infrastructure()? {
        let Some(host) = folder.strip_prefix(&begin).and_then(|host| host.parse().ok()) else { continue };
        let within = LabHost { lab: lab.clone(), host };
        let release = |host: &LdmHost| LdmTarget::Here(host).change(DomainChange::Release { domains: Vec::new() });
        on_host(places, Some(within.clone()), release).map_err(|error| {
            Stop::infrastructure(miette!(
                code = "not-unbound",
                "cannot release the domains of {within}, so the lab stays up: {error}"
            ))
        })?;
    }
    Ok(())
}

/// Opens a host, and acts on it in its network.
fn on_host(
    places: &Locations,
    within: Option<LabHost>,
    act: impl FnOnce(&LdmHost) -> Result<Exit, Stop> + Send,
) -> Result<Exit, Stop> {
    let printed = Printed::default();
    let host = labs::ldm_host(places, within, printed.hear())?;
    printed.and(host.run(|| act(&host))?)
}

/// Executes the orders of another vtax.
fn serve(places: &Locations, within: Option<LabHost>) -> Result<Exit, Stop> {
    let server = Arc::new(OrderServer::new(io::stdout()));
    let heard = Arc::clone(&server);
    let host = labs::ldm_host(places, within, move |notice| heard.notice(notice));
    server.serve(io::stdin(), |order| Ok(host.as_ref().map_err(OrderRefusal::from)?.execute(order)?))?;
    Ok(Exit::Done)
}

fn local(verb: LocalVerb, host: &LdmHost, places: &Locations) -> Result<Exit, Stop> {
    match verb {
        LocalVerb::Exec { domain, command } => exec::exec(host, &domain, &command),
        LocalVerb::Vntsd(args) => vntsd::vntsd(host, &args),
        LocalVerb::Supervise { domain } => {
            host.supervise(&domain)?;
            Ok(Exit::Done)
        }
        LocalVerb::SettleMigration { domain, mover } => migrate::settle(host, &domain, mover, places),
        LocalVerb::ReceiveGuest { domain, id } => {
            receive_guest(host, &domain, &id, io::stdin(), io::stdout())?;
            Ok(Exit::Done)
        }
        LocalVerb::ReceiveChannel { domain, id, channel } => {
            receive_channel(host, (&domain, &id), channel, io::stdin(), io::stdout())?;
            Ok(Exit::Done)
        }
        LocalVerb::ReceiveDisk { domain, id } => {
            receive_disk(host, &domain, &id, io::stdin(), io::stdout())?;
            Ok(Exit::Done)
        }
        LocalVerb::ReachAgent { domain } => {
            reach_agent(host, &domain, io::stdin(), io::stdout())?;
            Ok(Exit::Done)
        }
    }
}

fn show(verb: ShowVerb, host: &LdmTarget<'_>) -> Result<Exit, Stop> {
    match verb {
        ShowVerb::List(args) => show::list(host, &args),
        ShowVerb::ListBindings { parseable, json, domains, .. } => show::bindings(host, parseable, json, &domains),
        ShowVerb::ListConstraints { format, domains, .. } => show::constraints(host, format, &domains),
        ShowVerb::ListServices { parseable, domains, .. } => show::services(host, parseable, &domains),
        ShowVerb::ListDevices(args) => show::host_devices(host, &args),
        ShowVerb::ListIo(args) => show::devices(host, &args),
        ShowVerb::ListDependencies { long, parseable, domains } => show::dependencies(host, long, parseable, &domains),
        ShowVerb::ListVariable { words } => show::variables(host, &words),
        ShowVerb::ListSpconfig => show::saved(host),
    }
}
