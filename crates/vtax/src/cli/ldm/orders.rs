//! Orders of the verbs that configure.

use vtax_domain::{AddedDomains, DomainChange, DomainEdit};
use vtax_model::{
    domain::{CpuDemand, SizeChange},
    topology::Name,
};

use super::{
    assign, configure, constraint_file, disks,
    verbs::{CancelledOperation, ConfigureVerb, CoreArgs, MemoryArgs, Words},
};
use crate::exit::Stop;

pub(super) fn of(verb: ConfigureVerb) -> Result<DomainChange, Stop> {
    Ok(match verb {
        ConfigureVerb::AddDomain { input: Some(file), .. } => {
            constraint_file::add_domains(&file, AddedDomains::Inactive)?
        }
        ConfigureVerb::AddDomain { words, input: None } => configure::add_domains(&words)?,
        ConfigureVerb::RemoveDomain(which) => DomainChange::RemoveDomains { which: which.chosen() },
        ConfigureVerb::SetDomain { input: Some(file), .. } => constraint_file::set_domains(&file)?,
        ConfigureVerb::SetDomain { words, input: None } => configure::set_domain(&words)?,
        ConfigureVerb::SetCore(CoreArgs { cores, domain }) => edit(DomainEdit::SetCpus { domain, cpus: cores }),
        ConfigureVerb::SetVcpu(cpus) => edit(DomainEdit::SetCpus { cpus: cpus.demand(), domain: cpus.domain }),
        ConfigureVerb::AddCore(CoreArgs { cores, domain }) => resize(domain, SizeChange::Add, cores),
        ConfigureVerb::RemoveCore(CoreArgs { cores, domain }) => resize(domain, SizeChange::Remove, cores),
        ConfigureVerb::AddVcpu(cpus) => resize(cpus.domain.clone(), SizeChange::Add, cpus.demand()),
        ConfigureVerb::RemoveVcpu(cpus) => resize(cpus.domain.clone(), SizeChange::Remove, cpus.demand()),
        ConfigureVerb::SetMemory(size) => memory(size, None),
        ConfigureVerb::AddMemory(size) => memory(size, Some(SizeChange::Add)),
        ConfigureVerb::RemoveMemory(size) => memory(size, Some(SizeChange::Remove)),
        ConfigureVerb::SetVariable { words } => configure::set_variables(&words)?,
        ConfigureVerb::RemoveVariable { words } => configure::remove_variables(&words)?,
        ConfigureVerb::AddVsw { check, words } => configure::add_switch(&words.words, check)?,
        ConfigureVerb::SetVsw(Words { words }) => configure::set_switch(&words)?,
        ConfigureVerb::RemoveVsw { switch } => edit(DomainEdit::RemoveSwitch { switch }),
        ConfigureVerb::AddVnet(Words { words }) => configure::add_vnet(&words)?,
        ConfigureVerb::SetVnet(Words { words }) => configure::set_vnet(&words)?,
        ConfigureVerb::RemoveVnet { vnet, domain } => edit(DomainEdit::RemoveVnet { domain, vnet }),
        ConfigureVerb::AddVds { service, domain } => edit(DomainEdit::AddDiskService { service, domain }),
        ConfigureVerb::RemoveVds { force, service } => DomainChange::RemoveDiskService { service, force },
        ConfigureVerb::AddVdsdev { check, words } => disks::add_volume(&words.words, check)?,
        ConfigureVerb::SetVdsdev(Words { words }) => disks::set_volume(&words)?,
        ConfigureVerb::RemoveVdsdev { force, volume } => DomainChange::RemoveVolume { volume, force },
        ConfigureVerb::AddVdisk(Words { words }) => disks::add_disk(&words)?,
        ConfigureVerb::SetVdisk(Words { words }) => disks::set_disk(&words)?,
        ConfigureVerb::RemoveVdisk { disk, domain } => edit(DomainEdit::RemoveDisk { domain, disk }),
        ConfigureVerb::AddIo { dry_run, device, domain } => {
            DomainChange::AddDevice { device, domain, dry_run: dry_run.dry_run }
        }
        ConfigureVerb::RemoveIo { dry_run, device, domain } => {
            DomainChange::RemoveDevice { device, domain, dry_run: dry_run.dry_run }
        }
        ConfigureVerb::SetIo(Words { words }) => assign::set_device(&words)?,
        ConfigureVerb::CreateVf(args) => assign::create_functions(&args)?,
        ConfigureVerb::DestroyVf(args) => assign::destroy_functions(args),
        ConfigureVerb::StartReconf { domain } => DomainChange::StartReconfiguration { domain },
        ConfigureVerb::CancelReconf { domain }
        | ConfigureVerb::CancelOperation { operation: CancelledOperation::Reconf, domain } => {
            DomainChange::CancelReconfiguration { domain }
        }
        ConfigureVerb::ApplyReconf => DomainChange::ApplyReconfiguration,
        ConfigureVerb::AddVcc(Words { words }) => configure::add_console_service(&words)?,
        ConfigureVerb::SetVcc(Words { words }) => configure::set_console_service(&words)?,
        ConfigureVerb::RemoveVcc { service } => edit(DomainEdit::RemoveConsoleService { name: service }),
        ConfigureVerb::SetVcons(Words { words }) => configure::set_console(&words)?,
        ConfigureVerb::AddSpconfig { name } => DomainChange::SaveConfiguration { name },
        ConfigureVerb::SetSpconfig { name } => DomainChange::LoadConfiguration { name },
        ConfigureVerb::RemoveSpconfig { name } => DomainChange::RemoveConfiguration { name },
        ConfigureVerb::InitSystem { force, services, input } => constraint_file::init_system(&input, force, services)?,
    })
}

fn edit(edit: DomainEdit) -> DomainChange {
    DomainChange::Edit { edit }
}

fn resize(domain: Name, change: SizeChange, by: CpuDemand) -> DomainChange {
    edit(DomainEdit::ChangeCpus { domain, change, by })
}

fn memory(args: MemoryArgs, change: Option<SizeChange>) -> DomainChange {
    let MemoryArgs { auto_adj, memory, domain } = args;
    DomainChange::SizeMemory { domain, memory, change, adjust: auto_adj }
}
