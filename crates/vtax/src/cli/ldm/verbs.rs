//! Subcommands and options of `vtax ldm`.

mod aliases;
mod lifecycle;
mod migrate;
mod show;
mod sizes;
mod unsupported;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use vtax_domain::ConfigName;
use vtax_model::{domain::VolumeName, endpoint::LabHost, topology::Name};
use vtax_run::server::Stay;
use vtax_wire::ssh;

pub(in crate::cli) use self::{
    aliases::{tip, with_aliases},
    unsupported::{refusal, with_vendors_q},
};
pub(super) use self::{
    lifecycle::{CreateVfArgs, DestroyVfArgs, NamedOrAdded, StartArgs, StopArgs, WhichDomains},
    unsupported::{property, variable},
};
pub(crate) use self::{
    lifecycle::{LifecycleVerb, LocalVerb},
    migrate::{MigrateArgs, MigrationTarget, MoveOptions, MovedDomain},
    show::ShowVerb,
    sizes::{CoreArgs, CpuArgs, MemoryArgs},
};
use super::{
    grammars::{ADD_DOMAIN, SET_DOMAIN, SET_IO},
    import::ImportDomainArgs,
};

#[derive(Debug, Args)]
pub(crate) struct LdmArgs {
    /// Host to act on over ssh instead of this machine, e.g. ssh:root@vm1; it needs the same version of vtax
    #[arg(long, global = true, value_name = "ssh:HOST", value_parser = remote, help_heading = "Places")]
    pub(super) host: Option<String>,
    /// Host of a lab to act on instead of this machine, e.g. rack/sut; its wires are the links for net-dev
    #[arg(long = "in", global = true, value_name = "LAB/HOST", help_heading = "Places")]
    pub(super) within: Option<LabHost>,
    #[command(subcommand)]
    pub(super) verb: LdmVerb,
}

impl LdmArgs {
    /// Returns how long the verb needs the emulated server that runs it: domains outlive the command.
    pub(in crate::cli) fn stay(&self) -> Stay {
        match self.verb {
            LdmVerb::Order(OrderVerb::Show(_)) | LdmVerb::Local(LocalVerb::Exec { .. }) => Stay::Found,
            LdmVerb::Order(_) | LdmVerb::Local(_) | LdmVerb::Migrate(_) | LdmVerb::Serve { .. } => Stay::Kept,
        }
    }

    /// Returns true if the verb forwards standard input.
    pub(in crate::cli) fn has_input(&self) -> bool {
        matches!(
            self.verb,
            LdmVerb::Local(
                LocalVerb::Exec { .. }
                    | LocalVerb::ReceiveGuest { .. }
                    | LocalVerb::ReceiveChannel { .. }
                    | LocalVerb::ReceiveDisk { .. }
                    | LocalVerb::ReachAgent { .. }
            ) | LdmVerb::Serve { .. }
        )
    }
}

fn remote(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("ssh:").ok_or("use ssh:HOST or ssh:USER@HOST")?;
    ssh::check(host).map(|()| host.to_owned()).map_err(|error| error.to_string())
}

#[derive(Debug, Subcommand)]
pub(crate) enum LdmVerb {
    #[command(flatten)]
    Order(OrderVerb),
    #[command(flatten)]
    Local(LocalVerb),
    /// Move a domain, running or not, to another host
    ///
    /// If anything prevents it, all reasons are printed, and nothing changes. A running domain is suspended for a moment.
    /// If the migration fails, the domain stays where it is. Requires root on both hosts.
    #[command(
        name = "migrate-domain",
        visible_alias = "migrate",
        override_usage = "vtax ldm migrate-domain [-n] [OPTIONS] DOMAIN[:NEWNAME] TARGET\n       \
                          vtax ldm migrate-domain [-n] [OPTIONS] --all TARGET\n       \
                          vtax ldm migrate-domain -c DOMAIN"
    )]
    Migrate(MigrateArgs),
    /// Execute commands of another vtax on standard input (started by `vtax ldm --host ssh:HOST`)
    Serve {
        /// Use standard input and output
        #[arg(long, required = true)]
        stdio: bool,
    },
}

/// Verbs that are orders, to this machine or to another.
#[derive(Debug, Subcommand)]
pub(crate) enum OrderVerb {
    #[command(flatten)]
    Configure(ConfigureVerb),
    #[command(flatten)]
    Live(LifecycleVerb),
    /// Import a libvirt domain; list what is lost
    ///
    /// vtax queries virsh over a read-only connection, and doesn't change libvirt's domain. Each interface becomes a
    /// vnet on the switch named like its bridge or network, or on the switch with its link as net-dev. If there is
    /// none, a switch is added.
    Import(ImportDomainArgs),
    #[command(flatten)]
    Show(ShowVerb),
}

/// Command words, some of them `key=value`.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// Names in this order, with properties anywhere among them
    #[arg(required = true, value_name = "KEY=VALUE|NAME")]
    pub(super) words: Vec<String>,
}

/// An operation that can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CancelledOperation {
    /// A delayed reconfiguration
    Reconf,
}

/// Option that defers the check of a device's backend to `bind-domain`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DeferredCheck {
    /// Don't check that NET-DEV or BACKEND exists; bind-domain checks it
    #[arg(short = 'q')]
    pub(super) deferred: bool,
}

/// Option that only checks a change.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DryRun {
    /// Check whether the change is possible; don't make it
    #[arg(short = 'n')]
    pub(super) dry_run: bool,
}

/// Verbs that configure domains' constraints.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigureVerb {
    /// Add domains, either empty or with constraints from a file
    ///
    /// The properties are the same as for set-domain, and apply to a single domain.
    #[command(
        override_usage = format!("vtax ldm add-domain DOMAIN…\n       {}\n       vtax ldm add-domain -i FILE", ADD_DOMAIN.help()),
        visible_alias = "create"
    )]
    AddDomain {
        /// File with the domains to add, e.g. domains.json, as written by list-constraints --json or -x
        #[arg(short, value_name = "FILE", conflicts_with = "words")]
        input: Option<PathBuf>,
        /// Domain names, or one name with properties
        #[arg(required_unless_present = "input", value_name = "KEY=VALUE|DOMAIN")]
        words: Vec<String>,
    },
    /// Remove inactive domains and their constraints
    #[command(visible_aliases = ["rm-domain", "destroy"])]
    RemoveDomain(WhichDomains),
    /// Set a domain's failure policy, masters and autostart
    ///
    /// The failure policy belongs to the master: it defines what happens to the domains that depend on it.
    #[command(override_usage = format!("{}\n       vtax ldm set-domain -i FILE", SET_DOMAIN.help()))]
    SetDomain {
        /// File, e.g. domains.json: set these properties for all domains in it; ignore everything else
        #[arg(short, value_name = "FILE", conflicts_with = "words")]
        input: Option<PathBuf>,
        /// Properties and the domain
        #[arg(required_unless_present = "input", value_name = "KEY=VALUE|DOMAIN")]
        words: Vec<String>,
    },
    /// Assign whole cores to a domain; no other domain uses them
    SetCore(CoreArgs),
    /// Add whole cores to a domain
    AddCore(CoreArgs),
    /// Remove whole cores from a domain
    RemoveCore(CoreArgs),
    /// Set a domain's number of virtual CPUs, which share the host's CPUs
    SetVcpu(CpuArgs),
    /// Add virtual CPUs to a domain
    AddVcpu(CpuArgs),
    /// Remove virtual CPUs from a domain
    RemoveVcpu(CpuArgs),
    /// Set a domain's memory size
    #[command(visible_alias = "set-mem")]
    SetMemory(MemoryArgs),
    /// Add memory to a domain
    #[command(visible_alias = "add-mem")]
    AddMemory(MemoryArgs),
    /// Remove memory from a domain
    #[command(visible_aliases = ["rm-memory", "rm-mem"])]
    RemoveMemory(MemoryArgs),
    /// Set domain variables: kernel, image, boot-args
    #[command(override_usage = "vtax ldm set-variable VARIABLE=VALUE… DOMAIN", visible_aliases = ["set-var", "add-variable", "add-var"])]
    SetVariable {
        /// Variables with their values, followed by the domain
        #[arg(required = true, value_name = "VARIABLE=VALUE|DOMAIN")]
        words: Vec<String>,
    },
    /// Remove domain variables
    #[command(override_usage = "vtax ldm remove-variable VARIABLE… DOMAIN", visible_aliases = ["rm-variable", "rm-var"])]
    RemoveVariable {
        /// Variables, followed by the domain
        #[arg(required = true, value_name = "VARIABLE|DOMAIN")]
        words: Vec<String>,
    },
    /// Add a virtual switch
    ///
    /// The switch connects the vnets of domains with each other, with primary and, through net-dev, with the outside
    /// network.
    AddVsw {
        #[command(flatten)]
        check: DeferredCheck,
        #[command(flatten)]
        words: Words,
    },
    /// Change a virtual switch
    SetVsw(Words),
    /// Remove an unused virtual switch
    RemoveVsw {
        /// Switch
        switch: Name,
    },
    /// Add a virtual NIC to a domain
    ///
    /// If no MAC address is given, vtax chooses one, and reuses it for a vnet of the same name.
    AddVnet(Words),
    /// Change a domain's virtual NIC
    ///
    /// vswitch= moves it to another switch at the domain's next boot; its addresses stay the same.
    SetVnet(Words),
    /// Remove a domain's virtual NIC
    RemoveVnet {
        /// Virtual NIC
        vnet: Name,
        /// Domain
        domain: Name,
    },
    /// Add a disk service that exports files and block devices as volumes
    #[command(visible_alias = "add-vdiskserver")]
    AddVds {
        /// Service name
        service: Name,
        /// Domain that runs the service: primary
        domain: Name,
    },
    /// Remove a disk service
    #[command(visible_aliases = ["rm-vds", "rm-vdiskserver"])]
    RemoveVds {
        /// Also remove its volumes, and the disks backed by them
        #[arg(short)]
        force: bool,
        /// Service name
        service: Name,
    },
    /// Export a file, a block device or a part of one as a volume
    ///
    /// ro: read-only, so that several domains can share it. excl: no other program can use it while a domain has it.
    /// slice: BACKEND is a partition; slice=OFFSET+SIZE exports a part of BACKEND, e.g. 1G+512M. Volumes of one mpgroup
    /// are paths to the same blocks. Default format: qcow2 for file names that end in .qcow2, raw for all others.
    #[command(visible_alias = "add-vdiskserverdevice")]
    AddVdsdev {
        #[command(flatten)]
        check: DeferredCheck,
        #[command(flatten)]
        words: Words,
    },
    /// Change a volume's options, slice or mpgroup
    ///
    /// Options and slice apply to all volumes of its mpgroup. No bound domain may use the volume.
    #[command(visible_alias = "set-vdiskserverdevice")]
    SetVdsdev(Words),
    /// Stop exporting a volume
    #[command(visible_aliases = ["rm-vdsdev", "rm-vdiskserverdevice"])]
    RemoveVdsdev {
        /// Also remove the disks backed by it
        #[arg(short)]
        force: bool,
        /// Volume
        #[arg(value_name = "VOLUME@SERVICE")]
        volume: VolumeName,
    },
    /// Add a virtual disk to a domain
    ///
    /// A running domain gets it immediately. In the domain, the disk's serial number is DISK.
    AddVdisk(Words),
    /// Change a domain's virtual disk
    SetVdisk(Words),
    /// Remove a virtual disk from a domain; its data is kept
    RemoveVdisk {
        /// Virtual disk
        disk: Name,
        /// Domain
        domain: Name,
    },
    /// Assign a PCI device to a domain: a root complex, a slot or a virtual function
    ///
    /// A running domain gets a virtual function immediately, other devices at its next boot. A root complex or a slot
    /// must first be released by primary (start-reconf, rm-io). The host's driver is detached from the device when the
    /// domain is bound, and reattached when the domain is unbound.
    AddIo {
        #[command(flatten)]
        dry_run: DryRun,
        /// Device: its name in list-io, PCI address, link or MAC address
        device: String,
        /// Domain
        domain: Name,
    },
    /// Remove a PCI device from a domain, or from primary to make it available to other domains
    RemoveIo {
        #[command(flatten)]
        dry_run: DryRun,
        /// Device, as for add-io
        device: String,
        /// Domain
        domain: Name,
    },
    /// Configure a virtual function, or whether a root complex's devices can be assigned
    ///
    /// iov is a property of root complexes, and takes effect at the host's next boot (start-reconf). The others are
    /// properties of virtual functions. A VLAN change takes effect immediately, an address change at the domain's next
    /// boot; the NIC enforces both. mtu is the value that the domain should use: only the domain can set it.
    #[command(override_usage = format!("vtax ldm set-io iov=on|off BUS\n       {}", SET_IO.help()))]
    SetIo(Words),
    /// Create virtual functions of a physical function, persistently
    CreateVf(CreateVfArgs),
    /// Remove all virtual functions of a physical function
    DestroyVf(DestroyVfArgs),
    /// Begin a delayed reconfiguration: changes to primary take effect at the host's next boot
    ///
    /// Until then no other domain can be changed. apply-reconf applies all changes that need no reboot, cancel-reconf
    /// discards them.
    #[command(visible_alias = "start-reconfig")]
    StartReconf {
        /// Domain: primary
        domain: Name,
    },
    /// Discard the changes of the delayed reconfiguration
    #[command(visible_aliases = ["cancel-reconfig", "remove-reconf", "rm-reconf"])]
    CancelReconf {
        /// Domain: primary
        domain: Name,
    },
    /// Cancel a domain's operation: its delayed reconfiguration
    #[command(visible_alias = "cancel-op")]
    CancelOperation {
        /// Operation
        operation: CancelledOperation,
        /// Domain: primary
        domain: Name,
    },
    /// Apply pending changes that need no reboot of the host, and list those that do
    ApplyReconf,
    /// Add a console service
    #[command(visible_alias = "add-vconscon")]
    AddVcc(Words),
    /// Change a console service's ports and permitted users
    #[command(visible_alias = "set-vconscon")]
    SetVcc(Words),
    /// Remove an unused console service
    #[command(visible_aliases = ["rm-vcc", "rm-vconscon"])]
    RemoveVcc {
        /// Service name
        service: Name,
    },
    /// Configure a domain's console
    ///
    /// Domains of one group share a port and a menu.
    #[command(visible_alias = "set-vconsole")]
    SetVcons(Words),
    /// Save all domains' constraints as a configuration
    AddSpconfig {
        /// Name of the new configuration
        name: ConfigName,
    },
    /// Load a saved configuration; factory-default has no domains
    SetSpconfig {
        /// Configuration name
        name: ConfigName,
    },
    /// Remove a saved configuration
    RemoveSpconfig {
        /// Configuration name
        name: ConfigName,
    },
    /// Add all domains and services from a file (list-constraints --json or -x)
    InitSystem {
        /// Add to existing domains and services; none of the names in FILE may be in use
        #[arg(short)]
        force: bool,
        /// Add only the services: switches, console and disk services
        #[arg(short)]
        services: bool,
        /// File with the constraints, e.g. domains.json
        #[arg(short, value_name = "FILE")]
        input: PathBuf,
    },
}
