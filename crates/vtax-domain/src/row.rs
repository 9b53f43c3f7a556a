//! Domains as shown in lists.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_model::{domain::DomainState, topology::Name, units::ByteSize};

use crate::ServiceUtilization;

/// Domain in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainRow {
    /// Domain name, unique on this host.
    pub name: Name,
    /// Stage that the domain has reached; lists put inactive domains last.
    pub state: DomainState,
    /// Further details of its state.
    pub flags: DomainFlags,
    /// Its console's address, if it currently has one.
    pub console: Option<ConsolePlace>,
    /// Its current CPUs, or those in its constraints if it has none yet.
    pub vcpus: u32,
    /// Memory, as with the CPUs.
    pub memory: ByteSize,
    /// Current utilization of its CPUs in percent, while it runs.
    pub utilization: Option<f64>,
    /// CPU time that the host spends on its behalf, while it runs; for primary, on behalf of all domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceUtilization>,
    /// Time since it was started, while it runs.
    pub uptime: Option<Duration>,
}

/// Address of a console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsolePlace {
    /// The host's own serial port or screen.
    Uart,
    /// TCP port of the console service.
    Port(u16),
}

/// Flags of a domain. Of the six letters of `ldm`, the first is always `-`: vtax has no corresponding state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainFlags {
    /// `n` or `t`: it runs.
    pub running: Option<RunningSystem>,
    /// `d`: it is in a delayed reconfiguration.
    pub delayed: bool,
    /// `c`: it controls the other domains.
    pub control: bool,
    /// `v`: it serves others with virtual devices.
    pub service: bool,
    /// `s`, `t` or `e`: it migrates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationFlag>,
}

/// Part of a host in a domain's migration that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrationFlag {
    /// The domain leaves this host.
    Source,
    /// The domain arrives here.
    Target,
    /// The process that moved it has died, and the end of the migration isn't settled yet.
    Interrupted,
}

/// Progress of the system in a running domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunningSystem {
    /// It runs normally.
    Normal,
    /// The firmware or the boot loader runs, or the system is just starting.
    Transition,
}

impl DomainFlags {
    /// Returns the flags in words, for programs.
    pub fn words(&self) -> Vec<&'static str> {
        let running = self.running.map(|system| match system {
            RunningSystem::Normal => "normal",
            RunningSystem::Transition => "transition",
        });
        let others =
            [(self.delayed, "delayed-reconfiguration"), (self.control, "control"), (self.service, "vio-service")];
        let others = others.into_iter().filter(|(set, _)| *set).map(|(_, word)| word);
        let migration = self.migration.map(|migration| match migration {
            MigrationFlag::Source => "migration-source",
            MigrationFlag::Target => "migration-target",
            MigrationFlag::Interrupted => "migration-error",
        });
        running.into_iter().chain(others).chain(migration).collect()
    }
}

impl fmt::Display for DomainFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set: bool, letter: char| if set { letter } else { '-' };
        let running = match self.running {
            Some(RunningSystem::Normal) => 'n',
            Some(RunningSystem::Transition) => 't',
            None => '-',
        };
        let migration = match self.migration {
            Some(MigrationFlag::Source) => 's',
            Some(MigrationFlag::Target) => 't',
            Some(MigrationFlag::Interrupted) => 'e',
            None => '-',
        };
        let [delayed, control, service] =
            [(self.delayed, 'd'), (self.control, 'c'), (self.service, 'v')].map(|(set, letter)| flag(set, letter));
        let letters = ['-', running, delayed, control, service, migration];
        f.pad(&String::from_iter(letters))
    }
}

impl DomainRow {
    /// Sorts as in lists: `primary`, the other bound domains by name, then the inactive ones.
    pub fn sort(rows: &mut [DomainRow]) {
        rows.sort_by_key(|row| (!row.flags.control, !row.state.is_bound(), row.name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_has_its_letter_and_word() {
        let flags =
            |migration| DomainFlags { running: Some(RunningSystem::Normal), migration, ..DomainFlags::default() };
        let all = [
            (None, "-n----", None),
            (Some(MigrationFlag::Source), "-n---s", Some("migration-source")),
            (Some(MigrationFlag::Target), "-n---t", Some("migration-target")),
            (Some(MigrationFlag::Interrupted), "-n---e", Some("migration-error")),
        ];
        for (migration, letters, word) in all {
            assert_eq!(flags(migration).to_string(), letters);
            assert_eq!(flags(migration).words(), ["normal"].into_iter().chain(word).collect::<Vec<_>>());
        }
    }
}
