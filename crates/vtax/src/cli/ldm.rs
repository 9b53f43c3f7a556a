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

use vtax_model::domain::{CpuDemand, SizeChange};
use vtax_run::Locations;

pub(super) use self::host::release_hosts;
pub(crate) use self::verbs::LdmArgs;
pub(super) use self::verbs::{tip, with_aliases};
use self::{
    change::ChangingHost,
    host::LdmHost,
    verbs::{CancelledOperation, ConfigureVerb, LdmVerb, LifecycleVerb, MemoryArgs, ShowVerb, Words},
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
        ConfigureVerb::AddDomain { domains, input: None } => configure::add_domains(host, &domains),
        ConfigureVerb::RemoveDomain(which) => configure::remove_domains(host, &which),
        ConfigureVerb::SetDomain(Words { words }) => configure::set_domain(host, &words),
        ConfigureVerb::SetCore(cpus) => configure::set_cpus(host, &cpus.domain, CpuDemand::Cores(cpus.count)),
        ConfigureVerb::SetVcpu(cpus) => configure::set_cpus(host, &cpus.domain, cpus.demand()),
        ConfigureVerb::AddCore(cpus) => {
            configure::change_cpus(host, &cpus, SizeChange::Add, CpuDemand::Cores(cpus.count))
        }
        ConfigureVerb::RemoveCore(cpus) => {
            configure::change_cpus(host, &cpus, SizeChange::Remove, CpuDemand::Cores(cpus.count))
        }
        ConfigureVerb::AddVcpu(cpus) => configure::change_cpus(host, &cpus, SizeChange::Add, cpus.demand()),
        ConfigureVerb::RemoveVcpu(cpus) => configure::change_cpus(host, &cpus, SizeChange::Remove, cpus.demand()),
        ConfigureVerb::SetMemory(MemoryArgs { memory, domain }) => configure::set_memory(host, &domain, memory),
        ConfigureVerb::AddMemory(size) => configure::change_memory(host, &size, SizeChange::Add),
        ConfigureVerb::RemoveMemory(size) => configure::change_memory(host, &size, SizeChange::Remove),
        ConfigureVerb::SetVariable { words } => configure::set_variables(host, &words),
        ConfigureVerb::RemoveVariable { words } => configure::remove_variables(host, &words),
        ConfigureVerb::AddVsw(Words { words }) => configure::add_switch(host, &words),
        ConfigureVerb::SetVsw(Words { words }) => configure::set_switch(host, &words),
        ConfigureVerb::RemoveVsw { switch } => configure::remove_switch(host, &switch),
        ConfigureVerb::AddVnet(Words { words }) => configure::add_vnet(host, &words),
        ConfigureVerb::SetVnet(Words { words }) => configure::set_vnet(host, &words),
        ConfigureVerb::RemoveVnet { vnet, domain } => configure::remove_vnet(host, &vnet, &domain),
        ConfigureVerb::AddVds { service, domain } => disks::add_service(host, &service, domain),
        ConfigureVerb::RemoveVds { force, service } => disks::remove_service(host, &service, force),
        ConfigureVerb::AddVdsdev { quiet, words } => disks::add_volume(host, &words.words, quiet),
        ConfigureVerb::SetVdsdev(Words { words }) => disks::set_volume(host, &words),
        ConfigureVerb::RemoveVdsdev { force, volume } => disks::remove_volume(host, &volume, force),
        ConfigureVerb::AddVdisk(Words { words }) => disks::add_disk(host, &words),
        ConfigureVerb::SetVdisk(Words { words }) => disks::set_disk(host, &words),
        ConfigureVerb::RemoveVdisk { disk, domain } => disks::remove_disk(host, &disk, &domain),
        ConfigureVerb::AddIo { device, domain } => assign::add_device(host, &device, &domain),
        ConfigureVerb::RemoveIo { device, domain } => assign::remove_device(host, &device, &domain),
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
        ConfigureVerb::InitSystem { input } => constraint_file::init_system(host, &input),
    }
}

fn live(verb: LifecycleVerb, host: &LdmHost) -> Result<Exit, Stop> {
    let changing = ChangingHost::new(host);
    match verb {
        LifecycleVerb::Bind { domains } => lifecycle::bind(changing, &domains),
        LifecycleVerb::Unbind { which } => lifecycle::unbind(changing, &which),
        LifecycleVerb::Autostart => lifecycle::autostart(changing),
        LifecycleVerb::Start { which } => lifecycle::start(changing, &which),
        LifecycleVerb::Stop { how, which } => lifecycle::stop(changing, &which, &how),
        LifecycleVerb::Exec { domain, command } => exec::exec(host, &domain, &command),
        LifecycleVerb::Vntsd(args) => vntsd::vntsd(host, &args),
        LifecycleVerb::CreateVf(args) => assign::create_functions(changing, &args),
        LifecycleVerb::DestroyVf(args) => assign::destroy_functions(changing, &args),
        LifecycleVerb::Supervise { domain } => lifecycle::supervise(host, &domain),
        LifecycleVerb::Release => lifecycle::release(changing),
    }
}

fn show(verb: ShowVerb, host: &LdmHost) -> Result<Exit, Stop> {
    match verb {
        ShowVerb::List(args) => show::list(host, &args),
        ShowVerb::ListBindings { parseable, json, domains } => show::bindings(host, parseable, json, &domains),
        ShowVerb::ListConstraints { format, domains } => show::constraints(host, format, &domains),
        ShowVerb::ListServices { parseable } => show::services(host, parseable),
        ShowVerb::ListDevices(args) => show::host_devices(host, &args),
        ShowVerb::ListIo(args) => show::devices(host, &args),
        ShowVerb::ListDependencies { long, parseable } => show::dependencies(host, long, parseable),
        ShowVerb::ListVariable { words } => show::variables(host, &words),
        ShowVerb::ListSpconfig => show::saved(host),
    }
}
