//! Verbs that show domains.

use clap::{Args, Subcommand};
use vtax_model::topology::Name;

use super::super::show::{ConstraintFormat, LdmListArgs, ListDevicesArgs, ListIoArgs};

/// Oracle's option for resources that are created automatically.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Extended {
    /// Include automatically created resources; vtax's lists always do
    #[arg(short = 'e')]
    extended: bool,
}

/// Read-only verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowVerb {
    /// List domains: state, console, CPUs, memory, utilization, uptime
    #[command(name = "list-domain", visible_aliases = ["list", "ls", "ls-domain"])]
    List(LdmListArgs),
    /// Show bound domains' resources: CPUs, links, ports, dropped frames
    ListBindings {
        #[command(flatten)]
        extended: Extended,
        /// Print machine-readable output with |-separated fields
        #[arg(short, conflicts_with = "json")]
        parseable: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Domains to show [default: all]
        #[arg(value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
    /// Show domains' constraints
    ListConstraints {
        #[command(flatten)]
        extended: Extended,
        #[command(flatten)]
        format: ConstraintFormat,
        /// Domains to show [default: all]
        #[arg(value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
    /// List switches, console services and disk services
    ListServices {
        #[command(flatten)]
        extended: Extended,
        /// Print machine-readable output with |-separated fields
        #[arg(short)]
        parseable: bool,
        /// Domains whose services to show [default: all]
        #[arg(value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
    /// List available cores, CPUs, memory and PCI devices; -a adds those in use
    ///
    /// Memory that the kernel reserved for itself at boot is bound to _sys_. Domains' memory has no address (PA),
    /// because Linux allocates pages from anywhere.
    ListDevices(ListDevicesArgs),
    /// List root complexes, slots, physical and virtual functions, and their domains
    ListIo(ListIoArgs),
    /// List dependencies between domains
    ListDependencies {
        /// Show the devices that cause the dependencies
        #[arg(short)]
        long: bool,
        /// Print machine-readable output with |-separated fields
        #[arg(short)]
        parseable: bool,
        /// Domains whose dependencies to show [default: all]
        #[arg(value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
    /// Show a domain's variables
    #[command(override_usage = "vtax ldm list-variable [VARIABLE…] DOMAIN", visible_aliases = ["ls-variable", "list-var", "ls-var"])]
    ListVariable {
        /// Variables [default: all], followed by the domain
        #[arg(required = true, value_name = "VARIABLE|DOMAIN")]
        words: Vec<String>,
    },
    /// List saved configurations
    ListSpconfig,
}
