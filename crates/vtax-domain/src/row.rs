//! Domains as lists show them.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_model::{domain::DomainState, topology::Name, units::ByteSize};

/// A domain in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainRow {
    /// Domain name, unique on this host.
    pub name: Name,
    /// Stage that the domain has reached; lists put inactive domains last.
    pub state: DomainState,
    /// What more there is to say of its state.
    pub flags: DomainFlags,
    /// How its console is reached, if it has one at the moment.
    pub console: Option<ConsolePlace>,
    /// The CPUs that it has, or that it is to have if it has none yet.
    pub vcpus: u32,
    /// As with the CPUs.
    pub memory: ByteSize,
    /// The share of its CPUs' time that it uses at the moment, in percent, while it runs.
    pub utilization: Option<f64>,
    /// The time since it was started, while it runs.
    pub uptime: Option<Duration>,
}

/// How a console is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConsolePlace {
    /// By the host's own serial port or screen.
    Uart,
    /// At this TCP port of the console service.
    Port(u16),
}

/// The flags of a domain. Of the six letters of `ldm`, the first and sixth are always `-`: vtax has no state that they would
/// tell.
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
}

/// How far the system in a running domain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunningSystem {
    /// It runs as usual.
    Normal,
    /// The firmware or the boot loader runs, or the system is just starting.
    Transition,
}

impl DomainFlags {
    /// In words, for programs.
    pub fn words(&self) -> Vec<&'static str> {
        let running = self.running.map(|system| match system {
            RunningSystem::Normal => "normal",
            RunningSystem::Transition => "transition",
        });
        let others =
            [(self.delayed, "delayed-reconfiguration"), (self.control, "control"), (self.service, "vio-service")];
        running.into_iter().chain(others.into_iter().filter(|(set, _)| *set).map(|(_, word)| word)).collect()
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
        let letters = ['-', running, flag(self.delayed, 'd'), flag(self.control, 'c'), flag(self.service, 'v'), '-'];
        f.pad(&String::from_iter(letters))
    }
}

impl DomainRow {
    /// The order of lists: `primary`, the others that are bound by name, then the inactive ones.
    pub fn sort(rows: &mut [DomainRow]) {
        rows.sort_by_key(|row| (!row.flags.control, !row.state.is_bound(), row.name.clone()));
    }
}
