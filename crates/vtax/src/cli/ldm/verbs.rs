//! The words of `vtax ldm`.

mod aliases;
mod lifecycle;
mod show;
mod unsupported;

use std::{collections::BTreeSet, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use vtax_domain::ConfigName;
use vtax_model::{
    domain::{CpuDemand, VolumeName},
    endpoint::LabHost,
    topology::Name,
    units::{ByteSize, UnitError},
};
use vtax_run::server::Stay;

pub(in crate::cli) use self::{
    aliases::{tip, with_aliases},
    unsupported::{refusal, with_vendors_q},
};
pub(crate) use self::{lifecycle::LifecycleVerb, show::ShowVerb};
pub(super) use self::{
    lifecycle::{CreateVfArgs, DestroyVfArgs, NamedOrAdded, StartArgs, StopArgs, WhichDomains},
    unsupported::{property, variable},
};
use super::import::ImportDomainArgs;

#[derive(Debug, Args)]
pub(crate) struct LdmArgs {
    /// Act on this host of a lab instead of this machine: its wires are the links for net-dev
    #[arg(long = "in", global = true, value_name = "LAB/HOST", help_heading = "Places")]
    pub(super) within: Option<LabHost>,
    #[command(subcommand)]
    pub(super) verb: LdmVerb,
}

impl LdmArgs {
    /// How long the verb needs the emulated server that carries it out: domains are there to stay.
    pub(in crate::cli) fn stay(&self) -> Stay {
        match self.verb {
            LdmVerb::Show(_) | LdmVerb::Live(LifecycleVerb::Exec { .. }) => Stay::Found,
            LdmVerb::Configure(_) | LdmVerb::Live(_) => Stay::Kept,
        }
    }

    /// Whether the verb hands standard input on.
    pub(in crate::cli) fn has_input(&self) -> bool {
        matches!(self.verb, LdmVerb::Live(LifecycleVerb::Exec { .. }))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum LdmVerb {
    #[command(flatten)]
    Configure(ConfigureVerb),
    #[command(flatten)]
    Live(LifecycleVerb),
    #[command(flatten)]
    Show(ShowVerb),
}

/// Words of which some are `key=value`.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// Names in this order, and properties anywhere among them
    #[arg(required = true, value_name = "KEY=VALUE|NAME")]
    pub(super) words: Vec<String>,
}

/// A number of CPUs, or of cores, and the domain.
#[derive(Debug, Args)]
pub(crate) struct CpuArgs {
    /// Count whole cores instead of virtual CPUs
    #[arg(short = 'c')]
    pub(super) cores: bool,
    /// How many
    pub(super) count: u32,
    /// The domain
    pub(super) domain: Name,
}

impl CpuArgs {
    /// What it asks for, of virtual CPUs unless it says cores.
    pub(super) fn demand(&self) -> CpuDemand {
        if self.cores { CpuDemand::Cores(self.count) } else { CpuDemand::Vcpus(self.count) }
    }
}

/// Whole cores, and the domain.
#[derive(Debug, Args)]
pub(crate) struct CoreArgs {
    /// How many, or which ones by their numbers in list-devices, e.g. 2 or cid=4,5
    #[arg(value_name = "COUNT|cid=CORE,…", value_parser = cores)]
    pub(super) cores: CpuDemand,
    /// The domain
    pub(super) domain: Name,
}

fn cores(text: &str) -> Result<CpuDemand, &'static str> {
    let wrong = |_| "write a number of cores, e.g. 2, or the numbers of cores, e.g. cid=4,5";
    match text.strip_prefix("cid=") {
        Some("") => Ok(CpuDemand::Cids(BTreeSet::new())),
        Some(ids) => ids.split(',').map(|id| id.parse().map_err(wrong)).collect::<Result<_, _>>().map(CpuDemand::Cids),
        None => text.parse().map(CpuDemand::Cores).map_err(wrong),
    }
}

/// An operation that can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CancelledOperation {
    /// A delayed reconfiguration
    Reconf,
}

/// A size, and the domain.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Round up what the domain has then to a multiple of 256M, and say so
    #[arg(long)]
    pub(super) auto_adj: bool,
    /// How much, e.g. 8G or 512M
    #[arg(value_parser = memory)]
    pub(super) memory: ByteSize,
    /// The domain
    pub(super) domain: Name,
}

fn memory(text: &str) -> Result<ByteSize, String> {
    match text.starts_with("mblock=") {
        true => {
            Err("Linux gives domains pages from anywhere, so no block can be named; write a size, e.g. 8G".to_owned())
        }
        false => text.parse().map_err(|error: UnitError| error.to_string()),
    }
}

/// Whether what is behind a device is looked for.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DeferredCheck {
    /// Don't look whether NET-DEV or BACKEND is there yet; bind does
    #[arg(short = 'q')]
    pub(super) deferred: bool,
}

/// Whether a change is only checked.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DryRun {
    /// Say whether it would be refused, and change nothing
    #[arg(short = 'n')]
    pub(super) dry_run: bool,
}

/// The verbs that say what domains are to have.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigureVerb {
    /// Add domains that have nothing yet, or those of a file with what they are to have
    ///
    /// The properties are those of set-domain, for a single domain.
    #[command(
        override_usage = "vtax ldm add-domain DOMAIN…\n       vtax ldm add-domain [failure-policy=ignore|panic|reset|stop] [master=DOMAIN,…] [autostart=yes|no] DOMAIN\n       vtax ldm add-domain -i FILE",
        name = "add-domain",
        visible_alias = "create"
    )]
    AddDomain {
        /// Add all domains of this file, which list-constraints has written with --json or -x
        #[arg(short, value_name = "FILE", conflicts_with = "words")]
        input: Option<PathBuf>,
        /// Names, and properties of a single domain
        #[arg(required_unless_present = "input", value_name = "KEY=VALUE|DOMAIN")]
        words: Vec<String>,
    },
    /// Remove inactive domains, and all that they were to have
    #[command(name = "remove-domain", visible_aliases = ["rm-domain", "destroy"])]
    RemoveDomain(WhichDomains),
    /// Say what a domain's failure does to others, which domains it depends on, and whether it starts with the host
    ///
    /// The failure policy belongs to the master: it says what happens to the domains that depend on it.
    #[command(
        override_usage = "vtax ldm set-domain [failure-policy=ignore|panic|reset|stop] [master=DOMAIN,…] [autostart=yes|no] DOMAIN\n       vtax ldm set-domain -i FILE",
        name = "set-domain"
    )]
    SetDomain {
        /// Set these properties of all domains of this file, and nothing else that it has
        #[arg(short, value_name = "FILE", conflicts_with = "words")]
        input: Option<PathBuf>,
        /// Properties, and the domain
        #[arg(required_unless_present = "input", value_name = "KEY=VALUE|DOMAIN")]
        words: Vec<String>,
    },
    /// Give a domain whole cores, which no other domain uses
    #[command(name = "set-core")]
    SetCore(CoreArgs),
    /// Give a domain more whole cores
    #[command(name = "add-core")]
    AddCore(CoreArgs),
    /// Take whole cores from a domain
    #[command(name = "remove-core", visible_alias = "rm-core")]
    RemoveCore(CoreArgs),
    /// Give a domain virtual CPUs, which share the host's CPUs with other domains
    #[command(name = "set-vcpu")]
    SetVcpu(CpuArgs),
    /// Give a domain more virtual CPUs
    #[command(name = "add-vcpu")]
    AddVcpu(CpuArgs),
    /// Take virtual CPUs from a domain
    #[command(name = "remove-vcpu", visible_alias = "rm-vcpu")]
    RemoveVcpu(CpuArgs),
    /// Give a domain memory
    #[command(name = "set-memory", visible_alias = "set-mem")]
    SetMemory(MemoryArgs),
    /// Give a domain more memory
    #[command(name = "add-memory", visible_alias = "add-mem")]
    AddMemory(MemoryArgs),
    /// Take memory from a domain
    #[command(name = "remove-memory", visible_aliases = ["rm-memory", "rm-mem"])]
    RemoveMemory(MemoryArgs),
    /// Set variables of a domain: kernel, image, boot-args
    #[command(override_usage = "vtax ldm set-variable VARIABLE=VALUE… DOMAIN", name = "set-variable", visible_aliases = ["set-var", "add-variable", "add-var"])]
    SetVariable {
        /// Variables with their values, and then the domain
        #[arg(required = true, value_name = "VARIABLE=VALUE|DOMAIN")]
        words: Vec<String>,
    },
    /// Remove variables of a domain
    #[command(override_usage = "vtax ldm remove-variable VARIABLE… DOMAIN", name = "remove-variable", visible_aliases = ["rm-variable", "rm-var"])]
    RemoveVariable {
        /// The variables, and then the domain
        #[arg(required = true, value_name = "VARIABLE|DOMAIN")]
        words: Vec<String>,
    },
    /// Add a virtual switch
    ///
    /// The switch connects the vnets of domains with each other, with primary, and by net-dev with the outside.
    #[command(
        override_usage = "vtax ldm add-vsw [-q] [net-dev=LINK] [mac-addr=MAC] [mtu=BYTES] [default-vlan-id=VLAN] [pvid=VLAN] [vid=VLAN,…] SWITCH primary",
        name = "add-vsw"
    )]
    AddVsw {
        #[command(flatten)]
        check: DeferredCheck,
        #[command(flatten)]
        words: Words,
    },
    /// Change a virtual switch
    #[command(
        override_usage = "vtax ldm set-vsw [net-dev=[LINK]] [mac-addr=MAC] [mtu=BYTES] [pvid=VLAN] [vid=[+|-][VLAN,…]] SWITCH [primary]",
        name = "set-vsw"
    )]
    SetVsw(Words),
    /// Remove a virtual switch that no vnet uses
    #[command(name = "remove-vsw", visible_alias = "rm-vsw")]
    RemoveVsw {
        /// The switch
        switch: Name,
    },
    /// Add a virtual NIC to a domain
    ///
    /// vtax chooses the MAC address if none is given, and gives the same again to a vnet of the same name.
    #[command(
        override_usage = "vtax ldm add-vnet [mac-addr=MAC] [alt-mac-addrs=auto|MAC,…] [pvid=VLAN] [vid=VLAN,…] [mtu=BYTES] [id=NUMBER] [maxbw=RATE] [linkprop=phys-state] VNET SWITCH DOMAIN",
        name = "add-vnet"
    )]
    AddVnet(Words),
    /// Change a virtual NIC of a domain
    ///
    /// With vswitch= it is a port of another switch when the domain boots again, with the same addresses.
    #[command(
        override_usage = "vtax ldm set-vnet [mac-addr=MAC] [alt-mac-addrs=[+|-]auto|MAC,…] [pvid=VLAN] [vid=[+|-][VLAN,…]] [mtu=BYTES] [id=NUMBER] [maxbw=RATE] [linkprop=[phys-state]] [vswitch=SWITCH] VNET DOMAIN",
        name = "set-vnet"
    )]
    SetVnet(Words),
    /// Remove a virtual NIC of a domain
    #[command(name = "remove-vnet", visible_alias = "rm-vnet")]
    RemoveVnet {
        /// The vnet
        vnet: Name,
        /// Its domain
        domain: Name,
    },
    /// Add a disk service, which exports files and block devices as volumes
    #[command(name = "add-vds", visible_alias = "add-vdiskserver")]
    AddVds {
        /// The service
        service: Name,
        /// The domain that it runs in: primary
        domain: Name,
    },
    /// Remove a disk service
    #[command(name = "remove-vds", visible_aliases = ["rm-vds", "rm-vdiskserver"])]
    RemoveVds {
        /// Its volumes go too, and the disks that are made of them
        #[arg(short)]
        force: bool,
        /// The service
        service: Name,
    },
    /// Export a file, a block device or a part of one as a volume
    ///
    /// ro: domains can't write to it, and several can have it. excl: no other program can use it meanwhile. slice: BACKEND is a
    /// partition; slice=OFFSET+SIZE is a part of BACKEND, as 1G+512M. Volumes of one mpgroup are paths to the same blocks.
    /// Without format=, a file whose name ends in .qcow2 is a qcow2, and any other one is raw.
    #[command(
        override_usage = "vtax ldm add-vdsdev [-q] [options=[ro,][slice,][excl]] [slice=OFFSET+SIZE] [mpgroup=GROUP] [format=raw|qcow2] BACKEND VOLUME@SERVICE",
        name = "add-vdsdev",
        visible_alias = "add-vdiskserverdevice"
    )]
    AddVdsdev {
        #[command(flatten)]
        check: DeferredCheck,
        #[command(flatten)]
        words: Words,
    },
    /// Change how a volume is exported
    ///
    /// Options and slice are those of all volumes of its mpgroup. No bound domain may have it.
    #[command(
        override_usage = "vtax ldm set-vdsdev [options=[ro,][slice,][excl]] [slice=[OFFSET+SIZE]] [mpgroup=[GROUP]] VOLUME@SERVICE",
        name = "set-vdsdev",
        visible_alias = "set-vdiskserverdevice"
    )]
    SetVdsdev(Words),
    /// Export a volume no longer
    #[command(name = "remove-vdsdev", visible_aliases = ["rm-vdsdev", "rm-vdiskserverdevice"])]
    RemoveVdsdev {
        /// The disks that are made of it go too
        #[arg(short)]
        force: bool,
        /// The volume
        #[arg(value_name = "VOLUME@SERVICE")]
        volume: VolumeName,
    },
    /// Add a virtual disk to a domain
    ///
    /// A domain that runs gets it at once. The domain finds it by its serial number, which is DISK.
    #[command(
        override_usage = "vtax ldm add-vdisk [timeout=SECONDS] [id=NUMBER] DISK VOLUME@SERVICE DOMAIN",
        name = "add-vdisk"
    )]
    AddVdisk(Words),
    /// Change a virtual disk of a domain
    #[command(
        override_usage = "vtax ldm set-vdisk [timeout=SECONDS] [volume=VOLUME@SERVICE] DISK DOMAIN",
        name = "set-vdisk"
    )]
    SetVdisk(Words),
    /// Take a virtual disk from a domain; what is on it stays
    #[command(name = "remove-vdisk", visible_alias = "rm-vdisk")]
    RemoveVdisk {
        /// The disk
        disk: Name,
        /// Its domain
        domain: Name,
    },
    /// Give a domain a PCI device for itself: a root complex, what is in a slot, or a virtual function
    ///
    /// A running domain gets a virtual function at once, anything else when it boots again. primary must have given a
    /// root complex or a slot up before (start-reconf, rm-io). The driver of the host lets go of the device when the
    /// domain is bound, and has it again when the domain is unbound.
    #[command(name = "add-io")]
    AddIo {
        #[command(flatten)]
        dry_run: DryRun,
        /// The device: its name in list-io, PCI address, link or MAC address
        device: String,
        /// The domain
        domain: Name,
    },
    /// Take a PCI device from a domain; from primary, so that other domains can have it
    #[command(name = "remove-io", visible_alias = "rm-io")]
    RemoveIo {
        #[command(flatten)]
        dry_run: DryRun,
        /// The device, as for add-io
        device: String,
        /// The domain
        domain: Name,
    },
    /// Say for a root complex whether domains may have what is below it, or set a virtual function
    ///
    /// iov is of a root complex, and waits for the host's next boot (start-reconf). The other properties are of a virtual
    /// function. Its VLAN changes at once, its address when its domain boots again. The NIC keeps the function to both. mtu is
    /// what its domain should use: only that sets it.
    #[command(
        override_usage = "vtax ldm set-io iov=on|off BUS\n       vtax ldm set-io [mac-addr=MAC] [pvid=[VLAN]] [mtu=BYTES] VF",
        name = "set-io"
    )]
    SetIo(Words),
    /// Begin a delayed reconfiguration: what is changed of primary waits for the host's next boot
    ///
    /// Until then no other domain can be changed. apply-reconf applies what needs no boot, cancel-reconf forgets all.
    #[command(name = "start-reconf", visible_alias = "start-reconfig")]
    StartReconf {
        /// primary
        domain: Name,
    },
    /// Forget what is pending in the delayed reconfiguration
    #[command(name = "cancel-reconf", visible_aliases = ["cancel-reconfig", "remove-reconf", "rm-reconf"])]
    CancelReconf {
        /// primary
        domain: Name,
    },
    /// Cancel an operation of a domain: its delayed reconfiguration
    #[command(name = "cancel-operation", visible_alias = "cancel-op")]
    CancelOperation {
        /// The operation
        operation: CancelledOperation,
        /// primary
        domain: Name,
    },
    /// Apply what is pending as far as it needs no boot of the host, and say what does
    #[command(name = "apply-reconf")]
    ApplyReconf,
    /// Add a console service
    #[command(
        override_usage = "vtax ldm add-vcc [port-range=FIRST-LAST] [users=USER,…] SERVICE primary",
        name = "add-vcc",
        visible_alias = "add-vconscon"
    )]
    AddVcc(Words),
    /// Change a console service: its ports, and which users of this host may use its consoles
    #[command(
        override_usage = "vtax ldm set-vcc [port-range=FIRST-LAST] [users=[USER,…]] SERVICE",
        name = "set-vcc",
        visible_alias = "set-vconscon"
    )]
    SetVcc(Words),
    /// Remove a console service that no domain names
    #[command(name = "remove-vcc", visible_aliases = ["rm-vcc", "rm-vconscon"])]
    RemoveVcc {
        /// The service
        service: Name,
    },
    /// Say how the console of a domain is reached
    ///
    /// Domains of one group share a port and a menu.
    #[command(
        override_usage = "vtax ldm set-vcons [port=PORT] [group=GROUP] [service=SERVICE] DOMAIN",
        name = "set-vcons",
        visible_alias = "set-vconsole"
    )]
    SetVcons(Words),
    /// Save what all domains are to have under a name
    #[command(name = "add-spconfig")]
    AddSpconfig {
        /// A new name
        name: ConfigName,
    },
    /// Bring a saved configuration into force; factory-default has no domains
    #[command(name = "set-spconfig")]
    SetSpconfig {
        /// The name
        name: ConfigName,
    },
    /// Remove a saved configuration
    #[command(name = "remove-spconfig", visible_alias = "rm-spconfig")]
    RemoveSpconfig {
        /// The name
        name: ConfigName,
    },
    /// Add a domain that is to have what one of libvirt has, and say line by line what it can't have
    ///
    /// virsh is asked, over a read-only connection: nothing of libvirt's domain is changed. Each interface becomes a vnet at
    /// the switch that has the name of its bridge or network, or its link as net-dev. Where there is none, a switch is added.
    Import(ImportDomainArgs),
    /// Add all domains and services that a file has (list-constraints --json or -x)
    #[command(name = "init-system")]
    InitSystem {
        /// Also if there are domains or services; none of the file may be among them
        #[arg(short)]
        force: bool,
        /// Add only the services: switches, console and disk services
        #[arg(short)]
        services: bool,
        /// The file
        #[arg(short, value_name = "FILE")]
        input: PathBuf,
    },
}
