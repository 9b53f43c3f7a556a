//! Verbs that bind, start, stop and unbind domains.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};
use vtax_domain::MigrationId;
use vtax_guest::migration::MigrationChannel;
use vtax_model::topology::Name;
use vtax_sys::process::ProcessId;

use super::super::{
    super::io::{DestroyArgs, VfChoice, VfCount},
    vntsd::VntsdArgs,
};

/// Domains by name, or all of them.
#[derive(Debug, Args)]
pub(crate) struct WhichDomains {
    /// All domains except primary
    #[arg(short, conflicts_with = "domains")]
    pub(in crate::cli::ldm) all: bool,
    /// Domains
    #[arg(required_unless_present = "all", value_name = "DOMAIN")]
    pub(in crate::cli::ldm) domains: Vec<Name>,
}

/// Domains by name, or from a file that adds them.
#[derive(Debug, Args)]
pub(crate) struct NamedOrAdded {
    /// File with domains to add first, e.g. domains.json, as written by list-constraints --json or -x
    #[arg(short, value_name = "FILE", conflicts_with = "domains")]
    pub(in crate::cli::ldm) input: Option<PathBuf>,
    /// Domains
    #[arg(required_unless_present = "input", value_name = "DOMAIN")]
    pub(in crate::cli::ldm) domains: Vec<Name>,
}

/// Domains by name, from a file that adds them, or all.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// All domains except primary
    #[arg(short, conflicts_with_all = ["named", "input"])]
    pub(in crate::cli::ldm) all: bool,
    /// File with domains to add and bind first, e.g. domains.json, as written by list-constraints --json or -x
    #[arg(short, value_name = "FILE", conflicts_with = "named")]
    pub(in crate::cli::ldm) input: Option<PathBuf>,
    /// Domains
    #[arg(required_unless_present_any = ["all", "input"], id = "named", value_name = "DOMAIN")]
    pub(in crate::cli::ldm) domains: Vec<Name>,
}

/// Physical function, and properties of its new virtual functions.
#[derive(Debug, Args)]
pub(crate) struct CreateVfArgs {
    #[command(flatten)]
    pub(in crate::cli::ldm) choice: VfChoice,
    /// Properties of the new functions and the physical function, in any order
    #[arg(required = true, value_name = "KEY=VALUE|PF")]
    pub(in crate::cli::ldm) words: Vec<String>,
}

/// Physical function whose virtual functions are removed.
#[derive(Debug, Args)]
pub(crate) struct DestroyVfArgs {
    /// Number of functions to remove: max or all of them, since Linux removes them together
    #[arg(short, value_name = "N|max", default_value = "max")]
    pub(in crate::cli::ldm) number: VfCount,
    #[command(flatten)]
    pub(in crate::cli::ldm) which: DestroyArgs,
}

/// Options for stopping domains.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Stop immediately; without -f, a domain with a disk image has one minute to shut down
    #[arg(short, conflicts_with_all = ["seconds", "halt"])]
    pub(in crate::cli::ldm) force: bool,
    /// Restart the domains once they have stopped
    #[arg(short, conflicts_with = "halt")]
    pub(in crate::cli::ldm) reboot: bool,
    /// Only request a shutdown; a domain that doesn't shut down in time keeps running
    #[arg(short = 'h')]
    pub(in crate::cli::ldm) halt: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Shutdown timeout in seconds, e.g. 30
    #[arg(short = 't', value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(in crate::cli::ldm) seconds: Option<u32>,
}

/// Verbs that bind, start, stop and unbind domains, and act in running ones.
#[derive(Debug, Subcommand)]
pub(crate) enum LifecycleVerb {
    /// Bind resources to domains
    ///
    /// A bound domain has its CPUs, memory, virtual NICs and console port; QEMU runs with its CPUs stopped. If a
    /// resource is unavailable, the domain gets nothing. Requires root.
    #[command(name = "bind-domain", visible_alias = "bind")]
    Bind {
        #[command(flatten)]
        which: NamedOrAdded,
    },
    /// Release resources of stopped domains
    #[command(name = "unbind-domain", visible_alias = "unbind")]
    Unbind {
        #[command(flatten)]
        which: WhichDomains,
    },
    /// Start bound domains
    ///
    /// Domains keep running when this command ends. A rebooting domain gets its current constraints.
    #[command(name = "start-domain", visible_alias = "start")]
    Start {
        #[command(flatten)]
        which: StartArgs,
    },
    /// Create all switches, then bind and start domains with autostart=yes
    ///
    /// The unit vtax-domains.service runs this when the host boots. Masters start before the domains that depend on
    /// them. A domain that can't be started doesn't prevent others from starting. Requires root.
    Autostart,
    /// Stop domains; they stay bound
    #[command(name = "stop-domain", visible_alias = "stop", disable_help_flag = true)]
    Stop {
        #[command(flatten)]
        how: StopArgs,
        #[command(flatten)]
        which: WhichDomains,
    },
    /// Crash the kernels of running domains with a non-maskable interrupt
    ///
    /// Linux panics if `kernel.unknown_nmi_panic` is 1 in the domain, and writes a crash dump if kdump is set up there.
    #[command(name = "panic-domain", visible_alias = "panic")]
    Panic {
        /// Domains
        #[arg(required = true, value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
    /// Release all resources of domains, running or not; find them by their marks if the record is damaged
    Release {
        /// Domains, or switches whose record is damaged [default: all domains and switches]
        #[arg(value_name = "DOMAIN")]
        domains: Vec<Name>,
    },
}

/// Verbs that act on this machine only.
#[derive(Debug, Subcommand)]
pub(crate) enum LocalVerb {
    /// Run a command in an active domain through vtax's agent
    ///
    /// A domain that boots a kernel contains the agent, and busybox if a statically linked one was on the host when the
    /// domain was bound. A domain that boots an image has an agent only if its system starts `vtax-agent --port`. The
    /// command gets standard input unless it is a terminal: vtax first reads all of it, at most 512 KiB. vtax exits
    /// with the command's exit status. Requires root.
    Exec {
        /// Domain
        domain: Name,
        /// Command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Serve the consoles of bound domains over telnet
    ///
    /// Each console group has one port on 127.0.0.1. The first session on a console writes, others only read. ~? at the
    /// beginning of a line lists the other commands. bind starts this service if it isn't running.
    Vntsd(VntsdArgs),
    /// Watch a domain while it runs (started by `vtax ldm start`)
    #[command(hide = true)]
    Supervise {
        /// Domain
        domain: Name,
    },
    /// Settle the migration of a domain when the process that moves it has died (started by `vtax ldm migrate-domain`)
    #[command(hide = true)]
    SettleMigration {
        /// Domain
        domain: Name,
        /// The process
        #[arg(value_name = "PID@START")]
        mover: ProcessId,
    },
    /// Receive a domain's memory on standard input (started by `vtax ldm migrate-domain` on another host)
    #[command(hide = true)]
    ReceiveGuest {
        /// Domain
        domain: Name,
        /// Identity of the attempt
        #[arg(value_name = "ID")]
        id: MigrationId,
    },
    /// Receive a domain's disk on standard input (started by `vtax ldm migrate-domain` on another host)
    #[command(hide = true)]
    ReceiveDisk {
        /// Domain
        domain: Name,
        /// Identity of the attempt
        #[arg(value_name = "ID")]
        id: MigrationId,
    },
    /// Receive a channel of a domain's memory on standard input (started by `vtax ldm migrate-domain` on another host)
    #[command(hide = true)]
    ReceiveChannel {
        /// Domain
        domain: Name,
        /// Identity of the attempt
        #[arg(value_name = "ID")]
        id: MigrationId,
        /// Channel: main or memory
        channel: MigrationChannel,
    },
    /// Connect standard input and output to a domain's agent (started by `vtax ldm migrate-domain` on another host)
    #[command(hide = true)]
    ReachAgent {
        /// Domain
        domain: Name,
    },
}
