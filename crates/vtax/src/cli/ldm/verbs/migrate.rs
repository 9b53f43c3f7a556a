//! Arguments of `migrate-domain`.

use std::{num::NonZeroU8, str::FromStr};

use clap::Args;
use vtax_model::{
    endpoint::LabHost,
    migration::MigrationSettings,
    topology::Name,
    units::{BitRate, Span, UnitError},
};

use super::remote;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Check only: print all reasons why the domain cannot move, and an estimate of its total and suspend time; exit
    /// status 1 if there is a reason
    #[arg(short = 'n')]
    pub(in crate::cli::ldm) dry_run: bool,
    /// Cancel the domain's migration running in another terminal; resolve it if that vtax was killed
    #[arg(short = 'c', conflicts_with_all = ["dry_run", "target", "MoveOptions"])]
    pub(in crate::cli::ldm) cancel: bool,
    /// Move all domains to TARGET, one after another, masters first; nothing moves unless all can, e.g. ssh:hostb
    #[arg(long, value_name = "TARGET", conflicts_with_all = ["cancel", "domain", "json"])]
    pub(in crate::cli::ldm) all: Option<MigrationTarget>,
    #[command(flatten)]
    pub(in crate::cli::ldm) how: MoveOptions,
    /// Domain, and its new name at the target if it differs, e.g. mars:mars2
    #[arg(value_name = "DOMAIN[:NEWNAME]", required_unless_present = "all")]
    pub(in crate::cli::ldm) domain: Option<MovedDomain>,
    /// Host that the domain moves to: ssh:HOST, or LAB/HOST on the machine of the source
    #[arg(value_name = "TARGET", required_unless_present_any = ["cancel", "all"])]
    pub(in crate::cli::ldm) target: Option<MigrationTarget>,
}

/// Options of a migration.
#[derive(Debug, Args)]
pub(crate) struct MoveOptions {
    /// Don't encrypt: others on the path can then read and change the domain's memory
    #[arg(long)]
    pub(in crate::cli::ldm) plain: bool,
    /// Expected suspend time at which the domain switches to the target, e.g. 100ms
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = suspend_time)]
    pub(in crate::cli::ldm) max_suspend: Span,
    /// Bandwidth limit, e.g. 1G [default: none]
    #[arg(long, value_name = "RATE", value_parser = bandwidth)]
    pub(in crate::cli::ldm) bandwidth: Option<BitRate>,
    /// Number of parallel connections for memory, 1 to 8, each encrypted by its own thread, e.g. 4
    #[arg(long, value_name = "N", default_value = "1", value_parser = channels)]
    pub(in crate::cli::ldm) channels: NonZeroU8,
    /// Before sending memory, copy disks that TARGET does not share to the empty files that it exports for them
    #[arg(long)]
    pub(in crate::cli::ldm) copy_disks: bool,
    /// Time limit for memory, until the switchover; then the domain stays where it is, e.g. 2m
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(in crate::cli::ldm) timeout: Span,
    /// Throttle the domain's CPUs, by up to 99 %, while it dirties memory faster than it is sent
    #[arg(long)]
    pub(in crate::cli::ldm) auto_converge: bool,
    /// Print JSON (vtax.migration/v1; with -n, vtax.migration-check/v1)
    #[arg(long)]
    pub(in crate::cli::ldm) json: bool,
}

impl MoveOptions {
    /// Returns what determines the times of a migration.
    pub(in crate::cli::ldm) fn settings(&self) -> MigrationSettings {
        let MoveOptions { plain, max_suspend, bandwidth, timeout, .. } = *self;
        let (encrypted, channels) = (!plain, self.channels.get());
        MigrationSettings { encrypted, channels, bandwidth, max_suspend: max_suspend.0, time: timeout.0 }
    }

    /// Returns the number of channels in addition to QEMU's main one; None if that has the memory, too.
    pub(in crate::cli::ldm) fn several_channels(&self) -> Option<NonZeroU8> {
        Some(self.channels).filter(|channels| channels.get() > 1)
    }
}

/// QEMU's limit is 2,000 s, and it counts milliseconds.
fn suspend_time(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: UnitError| error.to_string())?;
    match (Span::from_millis(1)..=Span::from_millis(2_000_000)).contains(&span) {
        true => Ok(span),
        false => Err("use 1ms to 2000s".to_owned()),
    }
}

/// By default, sshd accepts ten connections at a time that aren't logged in yet (`MaxStartups`).
fn channels(text: &str) -> Result<NonZeroU8, String> {
    let count = text.parse().ok().filter(|count: &NonZeroU8| count.get() <= 8);
    count.ok_or_else(|| "use 1 to 8".to_owned())
}

/// With less, not even the smallest domain would move.
fn bandwidth(text: &str) -> Result<BitRate, String> {
    let rate: BitRate = text.parse().map_err(|error: UnitError| error.to_string())?;
    if rate.bits() >= 1_000_000 { Ok(rate) } else { Err("use at least 1M".to_owned()) }
}

impl MovedDomain {
    /// Returns a domain that keeps its name.
    pub(in crate::cli::ldm) fn named(domain: &Name) -> MovedDomain {
        MovedDomain { domain: domain.clone(), new_name: domain.clone() }
    }
}

/// Domain with its name at the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MovedDomain {
    pub(in crate::cli::ldm) domain: Name,
    pub(in crate::cli::ldm) new_name: Name,
}

impl FromStr for MovedDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<MovedDomain, String> {
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        let (domain, new_name) = text.split_once(':').unwrap_or((text, text));
        Ok(MovedDomain { domain: name(domain)?, new_name: name(new_name)? })
    }
}

/// Host that a domain moves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MigrationTarget {
    /// Another machine, as ssh takes it.
    Machine(String),
    /// Host of a lab on the machine of the source.
    Lab(LabHost),
}

impl FromStr for MigrationTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<MigrationTarget, String> {
        match text.parse() {
            Ok(host) => Ok(MigrationTarget::Lab(host)),
            Err(_) if text.starts_with("ssh:") => remote(text).map(MigrationTarget::Machine),
            Err(_) => Err("use ssh:HOST, ssh:USER@HOST or LAB/HOST".to_owned()),
        }
    }
}

impl MigrationTarget {
    /// Returns the target as the user writes it.
    pub(in crate::cli::ldm) fn written(&self) -> String {
        match self {
            MigrationTarget::Machine(host) => format!("ssh:{host}"),
            MigrationTarget::Lab(host) => host.to_string(),
        }
    }
}

/// The target as messages name it.
impl std::fmt::Display for MigrationTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MigrationTarget::Machine(host) => f.write_str(host),
            MigrationTarget::Lab(host) => write!(f, "{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_keeps_its_name_unless_another_is_given() {
        let parsed =
            |text: &str| text.parse::<MovedDomain>().map(|it| (it.domain.to_string(), it.new_name.to_string()));
        assert_eq!(parsed("mars"), Ok(("mars".to_owned(), "mars".to_owned())));
        assert_eq!(parsed("mars:mars2"), Ok(("mars".to_owned(), "mars2".to_owned())));
        assert!(["mars:", ":mars2", "a:b:c", "../x"].iter().all(|text| parsed(text).is_err()));
    }

    #[test]
    fn a_target_is_a_machine_or_a_host_of_a_lab() {
        let parsed = |text: &str| text.parse::<MigrationTarget>().map(|target| target.to_string());
        assert_eq!(parsed("ssh:root@hostb").as_deref(), Ok("root@hostb"));
        assert_eq!(parsed("rack/sut").as_deref(), Ok("rack/sut"));
        for text in ["ssh:root@hostb", "rack/sut"] {
            assert_eq!(text.parse::<MigrationTarget>().map(|target| target.written()).as_deref(), Ok(text));
        }
        assert!(["hostb", "ssh:", "ssh:-oProxyCommand=x", ""].iter().all(|text| parsed(text).is_err()));
    }

    #[test]
    fn limits_that_nothing_could_keep_are_refused() {
        assert_eq!(suspend_time("100ms"), Ok(Span::from_millis(100)));
        assert!(["0s", "999us", "1h", "x"].iter().all(|text| suspend_time(text).is_err()));
        assert_eq!(channels("8").map(NonZeroU8::get), Ok(8));
        assert!(["0", "9", "-1", "x"].iter().all(|text| channels(text).is_err()));
        assert!(bandwidth("1G").is_ok());
        assert!(["0", "1", "999k"].iter().all(|text| bandwidth(text).is_err()));
    }
}
