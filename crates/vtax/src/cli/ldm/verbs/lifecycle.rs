//! The verbs that bind, start, stop and unbind domains.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};
use vtax_model::topology::Name;

use super::super::{
    super::io::{DestroyArgs, VfChoice, VfCount},
    vntsd::VntsdArgs,
};

/// Domains by their names, or all.
#[derive(Debug, Args)]
pub(crate) struct WhichDomains {
    /// All of them but primary
    #[arg(short, conflicts_with = "domains")]
    pub(in crate::cli::ldm) all: bool,
    /// The domains
    #[arg(required_unless_present = "all")]
    pub(in crate::cli::ldm) domains: Vec<Name>,
}

/// Domains by their names, or those that a file adds.
#[derive(Debug, Args)]
pub(crate) struct NamedOrAdded {
    /// First add all domains in FILE, as written by list-constraints --json or -x
    #[arg(short, value_name = "FILE", conflicts_with = "domains")]
    pub(in crate::cli::ldm) input: Option<PathBuf>,
    /// The domains
    #[arg(required_unless_present = "input")]
    pub(in crate::cli::ldm) domains: Vec<Name>,
}

/// Domains by their names, those that a file adds, or all.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// All of them but primary
    #[arg(short, conflicts_with_all = ["named", "input"])]
    pub(in crate::cli::ldm) all: bool,
    /// First add and bind all domains in FILE, as written by list-constraints --json or -x
    #[arg(short, value_name = "FILE", conflicts_with = "named")]
    pub(in crate::cli::ldm) input: Option<PathBuf>,
    /// The domains
    #[arg(required_unless_present_any = ["all", "input"], id = "named", value_name = "DOMAINS")]
    pub(in crate::cli::ldm) domains: Vec<Name>,
}

/// A physical function, and the properties of its new virtual functions.
#[derive(Debug, Args)]
pub(crate) struct CreateVfArgs {
    #[command(flatten)]
    pub(in crate::cli::ldm) choice: VfChoice,
    /// Properties of the new functions, and the physical function, in any order
    #[arg(required = true, value_name = "KEY=VALUE|PF")]
    pub(in crate::cli::ldm) words: Vec<String>,
}

/// A physical function whose virtual functions are removed.
#[derive(Debug, Args)]
pub(crate) struct DestroyVfArgs {
    /// Number of functions to remove: Linux removes all of them together, so max or their number
    #[arg(short, value_name = "N|max", default_value = "max")]
    pub(in crate::cli::ldm) number: VfCount,
    #[command(flatten)]
    pub(in crate::cli::ldm) which: DestroyArgs,
}

/// The way to stop domains.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Stop them immediately. Without this, a domain with a disk image is asked to shut down, and has a minute for it
    #[arg(short, conflicts_with_all = ["seconds", "halt"])]
    pub(in crate::cli::ldm) force: bool,
    /// Start them again once they have stopped
    #[arg(short, conflicts_with = "halt")]
    pub(in crate::cli::ldm) reboot: bool,
    /// Only request a shutdown; a domain that has not shut down in time keeps running
    #[arg(short = 'h')]
    pub(in crate::cli::ldm) halt: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Seconds that a domain has to shut down
    #[arg(short = 't', value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(in crate::cli::ldm) seconds: Option<u32>,
}

/// The verbs that bind, start, stop and unbind domains, and act in those that run.
#[derive(Debug, Subcommand)]
pub(crate) enum LifecycleVerb {
    /// Give domains all that they are to have, and don't start them yet
    ///
    /// A domain gets its CPUs, its memory, its virtual NICs and the port of its console; QEMU is there, with its CPUs
    /// stopped. If something can't be had, the domain gets nothing. Needs root.
    #[command(name = "bind-domain", visible_alias = "bind")]
    Bind {
        #[command(flatten)]
        which: NamedOrAdded,
    },
    /// Take back what domains have; they must not run
    #[command(name = "unbind-domain", visible_alias = "unbind")]
    Unbind {
        #[command(flatten)]
        which: WhichDomains,
    },
    /// Start domains that are bound
    ///
    /// A domain runs on when this command has ended. When it reboots, it gets what it is to have by then.
    #[command(name = "start-domain", visible_alias = "start")]
    Start {
        #[command(flatten)]
        which: StartArgs,
    },
    /// Make all switches, and bind and start the domains that have autostart=yes
    ///
    /// The unit vtax-domains.service does this when the host has booted. Masters come before those that depend on them. A
    /// domain that can't be started keeps no other from it. Needs root.
    Autostart,
    /// Stop domains; they stay bound
    #[command(name = "stop-domain", visible_alias = "stop", disable_help_flag = true)]
    Stop {
        #[command(flatten)]
        how: StopArgs,
        #[command(flatten)]
        which: WhichDomains,
    },
    /// Make the kernels of running domains panic, with a non-maskable interrupt
    ///
    /// Linux panics if `kernel.unknown_nmi_panic` is 1 in the domain, and writes a crash dump if kdump is set up there.
    #[command(name = "panic-domain", visible_alias = "panic")]
    Panic {
        /// The domains
        #[arg(required = true)]
        domains: Vec<Name>,
    },
    /// Run a command in a domain that is active, by vtax's agent in it
    ///
    /// A domain that boots a kernel has the agent, and busybox if a statically linked one was on the host when the domain was
    /// bound. A domain that boots an image has what its system starts: `vtax-agent --port`. The command gets standard input
    /// only if that is no terminal: vtax reads it to its end first, and takes at most 512 KiB. vtax ends with the command's exit
    /// status. Needs root.
    Exec {
        /// The domain
        domain: Name,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Serve the consoles of bound domains at their ports, to telnet
    ///
    /// A group of consoles has one port of 127.0.0.1. The first session at a console writes, others read. ~? at the
    /// beginning of a line shows what else can be done. bind starts this service if it doesn't run.
    Vntsd(VntsdArgs),
    /// Make virtual functions of a physical function, and keep them
    #[command(
        override_usage = "vtax ldm create-vf [-n N|max] [OPTIONS] [mac-addr=MAC] [pvid=VLAN] [mtu=BYTES] PF",
        name = "create-vf"
    )]
    CreateVf(CreateVfArgs),
    /// Remove all virtual functions of a physical function
    #[command(name = "destroy-vf")]
    DestroyVf(DestroyVfArgs),
    /// Watch a domain as long as it runs (started by `vtax ldm start`)
    #[command(hide = true)]
    Supervise {
        /// The domain
        domain: Name,
    },
    /// Take back all that domains have, running or not; by its marks if their record is damaged
    Release {
        /// Domains, or switches whose record is damaged [default: all domains and switches]
        #[arg(value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
}
