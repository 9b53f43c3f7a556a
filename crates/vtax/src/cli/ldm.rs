//! `vtax ldm`.

mod assign;
mod configure;
mod constraint_file;
mod disks;
mod exec;
mod import;
mod layout;
mod lifecycle;
mod notices;
mod orders;
mod show;
mod verbs;
mod vntsd;
mod words;

use std::sync::{Arc, Mutex, PoisonError};

use miette::miette;
use vtax_domain::{DomainHost, DomainOrder, DomainReply, LdmHost};
use vtax_lab::World;
use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_run::{Locations, labs};

pub(crate) use self::verbs::LdmArgs;
use self::verbs::{LdmVerb, LifecycleVerb, ShowVerb};
pub(super) use self::verbs::{refusal, tip, with_aliases, with_vendors_q};
use crate::exit::{Blamed, Exit, Stop};

pub(super) fn ldm(args: LdmArgs, places: &Locations) -> Result<Exit, Stop> {
    let verb = args.verb;
    on_host(places, args.within, |host| match verb {
        LdmVerb::Configure(verb) => execute(host, orders::of(verb)?),
        LdmVerb::Import(args) => import::import(host, &args),
        LdmVerb::Live(verb) => live(verb, host),
        LdmVerb::Show(verb) => show(verb, host),
    })
}

/// Releases the resources of the lab hosts' domains before the lab goes down.
pub(super) fn release_hosts(world: &World, lab: &Name, places: &Locations) -> Result<(), Stop> {
    let begin = DomainHost::folders_of(lab);
    for folder in world.folders().or_infrastructure()? {
        let Some(host) = folder.strip_prefix(&begin).and_then(|host| host.parse().ok()) else { continue };
        let within = LabHost { lab: lab.clone(), host };
        let release = |host: &LdmHost| execute(host, DomainOrder::Release { domains: Vec::new() });
        on_host(places, Some(within.clone()), release).map_err(|error| {
            Stop::infrastructure(miette!(
                code = "not-unbound",
                "cannot release the domains of {within}, so the lab stays up: {error}"
            ))
        })?;
    }
    Ok(())
}

/// Opens a host, and acts on it in its network. What happens there is printed at once.
fn on_host(
    places: &Locations,
    within: Option<LabHost>,
    act: impl FnOnce(&LdmHost) -> Result<Exit, Stop> + Send,
) -> Result<Exit, Stop> {
    let printed = Arc::new(Mutex::new(Ok(())));
    let heard = Arc::clone(&printed);
    let host = labs::ldm_host(places, within, move |notice| {
        if let Err(stop) = notices::show(&notice) {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Err(stop);
        }
    })?;
    let done = host.run(|| act(&host))??;
    let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::replace(&mut *printed, Ok(())).map(|()| done)
}

fn execute(host: &LdmHost, order: DomainOrder) -> Result<Exit, Stop> {
    match host.execute(order)? {
        DomainReply::Done => Ok(Exit::Done),
    }
}

fn live(verb: LifecycleVerb, host: &LdmHost) -> Result<Exit, Stop> {
    let order = match verb {
        LifecycleVerb::Bind { which } => lifecycle::bind(which)?,
        LifecycleVerb::Unbind { which } => DomainOrder::Unbind { which: which.chosen() },
        LifecycleVerb::Autostart => DomainOrder::Autostart,
        LifecycleVerb::Start { which } => lifecycle::start(which)?,
        LifecycleVerb::Panic { domains } => DomainOrder::Panic { domains },
        LifecycleVerb::Stop { how, which } => lifecycle::stop(which, &how),
        LifecycleVerb::Release { domains } => DomainOrder::Release { domains },
        LifecycleVerb::Exec { domain, command } => return exec::exec(host, &domain, &command),
        LifecycleVerb::Vntsd(args) => return vntsd::vntsd(host, &args),
        LifecycleVerb::CreateVf(args) => return assign::create_functions(host, &args),
        LifecycleVerb::DestroyVf(args) => return assign::destroy_functions(host, &args),
        LifecycleVerb::Supervise { domain } => {
            host.supervise(&domain)?;
            return Ok(Exit::Done);
        }
    };
    execute(host, order)
}

fn show(verb: ShowVerb, host: &LdmHost) -> Result<Exit, Stop> {
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
