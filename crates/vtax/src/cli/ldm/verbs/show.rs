//! The verbs that show domains.

use clap::{Args, Subcommand};
use vtax_model::topology::Name;

use super::super::show::{ConstraintFormat, LdmListArgs, ListDevicesArgs, ListIoArgs};

/// Oracle's option for what is there by itself.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Extended {
    /// Show also what vtax has set up by itself; this list always has that
    #[arg(short = 'e')]
    extended: bool,
}

/// The verbs that change nothing.
#[derive(Debug, Subcommand)]
pub(crate) enum ShowVerb {
    /// List the domains: state, console, CPUs, memory, use, time since the start
    #[command(name = "list-domain", visible_aliases = ["list", "ls", "ls-domain"])]
    List(LdmListArgs),
    /// Show what bound domains have: CPUs, links, ports, and frames that were dropped
    #[command(name = "list-bindings", visible_alias = "ls-bindings")]
    ListBindings {
        #[command(flatten)]
        extended: Extended,
        /// Print them for programs, in fields with | between them
        #[arg(short, conflicts_with = "json")]
        parseable: bool,
        /// Print them as JSON
        #[arg(long)]
        json: bool,
        /// Only these domains
        domains: Vec<Name>,
    },
    /// Show what domains are to have
    #[command(name = "list-constraints", visible_alias = "ls-constraints")]
    ListConstraints {
        #[command(flatten)]
        extended: Extended,
        #[command(flatten)]
        format: ConstraintFormat,
        /// Only these domains
        domains: Vec<Name>,
    },
    /// List the switches, console and disk services
    #[command(name = "list-services", visible_alias = "ls-services")]
    ListServices {
        #[command(flatten)]
        extended: Extended,
        /// Print them for programs, in fields with | between them
        #[arg(short)]
        parseable: bool,
        /// Only those that these domains run
        domains: Vec<Name>,
    },
    /// List the cores, CPUs, memory and PCI devices that domains can have, and with -a who has the others
    ///
    /// Memory that the kernel has taken for itself when it booted is bound to _sys_. What a domain has has no address (PA):
    /// Linux gives it pages from anywhere.
    #[command(name = "list-devices", visible_aliases = ["ls-devices"])]
    ListDevices(ListDevicesArgs),
    /// List root complexes, slots, physical and virtual functions, with the domains that have them
    #[command(name = "list-io", visible_alias = "ls-io")]
    ListIo(ListIoArgs),
    /// List which domains depend on which
    #[command(name = "list-dependencies", visible_alias = "ls-dependencies")]
    ListDependencies {
        /// Show the devices by which they depend
        #[arg(short)]
        long: bool,
        /// Print them for programs, in fields with | between them
        #[arg(short)]
        parseable: bool,
        /// Only what these domains depend on
        domains: Vec<Name>,
    },
    /// Show the variables of a domain
    #[command(override_usage = "vtax ldm list-variable [VARIABLE…] DOMAIN", name = "list-variable", visible_aliases = ["ls-variable", "list-var", "ls-var"])]
    ListVariable {
        /// The variables [default: all], and then the domain
        #[arg(required = true, value_name = "VARIABLE|DOMAIN")]
        words: Vec<String>,
    },
    /// List the saved configurations
    #[command(name = "list-spconfig", visible_alias = "ls-spconfig")]
    ListSpconfig,
}
