//! `vtax ldm`.

mod assign;
mod change;
mod configure;
mod constraint_file;
mod disks;
mod exec;
mod host;
mod import;
mod layout;
mod lifecycle;
mod reconf;
mod show;
mod verbs;
mod vntsd;
mod words;

use vtax_model::domain::SizeChange;
use vtax_run::Locations;

pub(super) use self::host::release_hosts;
pub(crate) use self::verbs::LdmArgs;
pub(super) use self::verbs::{refusal, tip, with_aliases, with_vendors_q};
use self::{
    change::ChangingHost,
    host::LdmHost,
    verbs::{CancelledOperation, ConfigureVerb, CoreArgs, LdmVerb, LifecycleVerb, ShowVerb, Words},
};
use crate::exit::{Exit, Stop};

pub(super) fn ldm(args: LdmArgs, places: &Locations) -> Result<Exit, Stop> {
    let host = &LdmHost::new(places, args.within)?;
    match args.verb {
        LdmVerb::Configure(verb) => configure(verb, ChangingHost::new(host)),
        LdmVerb::Live(verb) => live(verb, host),
        LdmVerb::Show(verb) => show(verb, host),
    }
}

fn configure(verb: ConfigureVerb, host: ChangingHost<'_>) -> Result<Exit, Stop> {
    match verb {
        ConfigureVerb::AddDomain { input: Some(file), .. } => constraint_file::add_domains(host, &file),
        ConfigureVerb::AddDomain { words, input: None } => configure::add_domains(host, &words),
        ConfigureVerb::RemoveDomain(which) => configure::remove_domains(host, &which),
        ConfigureVerb::SetDomain { input: Some(file), .. } => constraint_file::set_domains(host, &file),
        ConfigureVerb::SetDomain { words, input: None } => configure::set_domain(host, &words),
        ConfigureVerb::SetCore(CoreArgs { cores, domain }) => configure::set_cpus(host, &domain, cores),
        ConfigureVerb::SetVcpu(cpus) => configure::set_cpus(host, &cpus.domain, cpus.demand()),
        ConfigureVerb::AddCore(CoreArgs { cores, domain }) => {
            configure::change_cpus(host, &domain, SizeChange::Add, cores)
        }
        ConfigureVerb::RemoveCore(CoreArgs { cores, domain }) => {
            configure::change_cpus(host, &domain, SizeChange::Remove, cores)
        }
        ConfigureVerb::AddVcpu(cpus) => configure::change_cpus(host, &cpus.domain, SizeChange::Add, cpus.demand()),
        ConfigureVerb::RemoveVcpu(cpus) => {
            configure::change_cpus(host, &cpus.domain, SizeChange::Remove, cpus.demand())
        }
        ConfigureVerb::SetMemory(size) => configure::size_memory(host, &size, None),
        ConfigureVerb::AddMemory(size) => configure::size_memory(host, &size, Some(SizeChange::Add)),
        ConfigureVerb::RemoveMemory(size) => configure::size_memory(host, &size, Some(SizeChange::Remove)),
        ConfigureVerb::SetVariable { words } => configure::set_variables(host, &words),
        ConfigureVerb::RemoveVariable { words } => configure::remove_variables(host, &words),
        ConfigureVerb::AddVsw { check, words } => configure::add_switch(host, &words.words, check),
        ConfigureVerb::SetVsw(Words { words }) => configure::set_switch(host, &words),
        ConfigureVerb::RemoveVsw { switch } => configure::remove_switch(host, &switch),
        ConfigureVerb::AddVnet(Words { words }) => configure::add_vnet(host, &words),
        ConfigureVerb::SetVnet(Words { words }) => configure::set_vnet(host, &words),
        ConfigureVerb::RemoveVnet { vnet, domain } => configure::remove_vnet(host, &vnet, &domain),
        ConfigureVerb::AddVds { service, domain } => disks::add_service(host, &service, domain),
        ConfigureVerb::RemoveVds { force, service } => disks::remove_service(host, &service, force),
        ConfigureVerb::AddVdsdev { check, words } => disks::add_volume(host, &words.words, check),
        ConfigureVerb::SetVdsdev(Words { words }) => disks::set_volume(host, &words),
        ConfigureVerb::RemoveVdsdev { force, volume } => disks::remove_volume(host, &volume, force),
        ConfigureVerb::AddVdisk(Words { words }) => disks::add_disk(host, &words),
        ConfigureVerb::SetVdisk(Words { words }) => disks::set_disk(host, &words),
        ConfigureVerb::RemoveVdisk { disk, domain } => disks::remove_disk(host, &disk, &domain),
        ConfigureVerb::AddIo { dry_run, device, domain } => assign::add_device(host, &device, &domain, dry_run),
        ConfigureVerb::RemoveIo { dry_run, device, domain } => assign::remove_device(host, &device, &domain, dry_run),
        ConfigureVerb::SetIo(Words { words }) => assign::set_device(host, &words),
        ConfigureVerb::StartReconf { domain } => reconf::start(host, &domain),
        ConfigureVerb::CancelReconf { domain } => reconf::cancel(host, &domain),
        ConfigureVerb::CancelOperation { operation: CancelledOperation::Reconf, domain } => {
            reconf::cancel(host, &domain)
        }
        ConfigureVerb::ApplyReconf => reconf::apply(host),
        ConfigureVerb::AddVcc(Words { words }) => configure::add_console_service(host, &words),
        ConfigureVerb::SetVcc(Words { words }) => configure::set_console_service(host, &words),
        ConfigureVerb::RemoveVcc { service } => configure::remove_console_service(host, &service),
        ConfigureVerb::SetVcons(Words { words }) => configure::set_console(host, &words),
        ConfigureVerb::AddSpconfig { name } => configure::save_configuration(host, &name),
        ConfigureVerb::SetSpconfig { name } => configure::set_saved(host, &name),
        ConfigureVerb::RemoveSpconfig { name } => configure::remove_saved(host, &name),
        ConfigureVerb::Import(args) => import::import(host, &args),
        ConfigureVerb::InitSystem { force, services, input } => {
            constraint_file::init_system(host, &input, force, services)
        }
    }
}

fn live(verb: LifecycleVerb, host: &LdmHost) -> Result<Exit, Stop> {
    let changing = ChangingHost::new(host);
    match verb {
        LifecycleVerb::Bind { which } => lifecycle::bind(changing, &which),
        LifecycleVerb::Unbind { which } => lifecycle::unbind(changing, &which),
        LifecycleVerb::Autostart => lifecycle::autostart(changing),
        LifecycleVerb::Start { which } => lifecycle::start(changing, &which),
        LifecycleVerb::Panic { domains } => lifecycle::panic(changing, &domains),
        LifecycleVerb::Stop { how, which } => lifecycle::stop(changing, &which, &how),
        LifecycleVerb::Exec { domain, command } => exec::exec(host, &domain, &command),
        LifecycleVerb::Vntsd(args) => vntsd::vntsd(host, &args),
        LifecycleVerb::CreateVf(args) => assign::create_functions(changing, &args),
        LifecycleVerb::DestroyVf(args) => assign::destroy_functions(changing, &args),
        LifecycleVerb::Supervise { domain } => lifecycle::supervise(host, &domain),
        LifecycleVerb::Release { domains } => lifecycle::release(changing, &domains),
    }
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
