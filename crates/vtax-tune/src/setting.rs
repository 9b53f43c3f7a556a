//! One setting of a host, and the value that a rule proposes for it.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

/// A setting that vtax can read, write and put back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum HostSetting {
    /// A setting below `/proc/sys`, such as `net.core.rmem_max`.
    Sysctl {
        key: String,
    },
    /// A file below `/sys`.
    Sysfs {
        path: ForeignText,
    },
    /// The CPUs that an interrupt may go to.
    InterruptCpus {
        number: u32,
    },
    /// The CPUs that a thread may run on. Its process is named by its pid and its start.
    ThreadCpus {
        pid: u32,
        start_ticks: u64,
        tid: u32,
    },
    LinkMtu {
        link: ForeignText,
    },
    /// An offload, by the kernel's name: `on` or `off`.
    LinkFeature {
        link: ForeignText,
        feature: ForeignText,
    },
    /// Descriptors of each receive queue.
    LinkRxRing {
        link: ForeignText,
    },
    /// Microseconds that an interrupt for received packets is held back.
    LinkRxUsecs {
        link: ForeignText,
    },
    /// Whether the driver chooses how long such interrupts are held back: `on` or `off`.
    LinkAdaptiveRx {
        link: ForeignText,
    },
}

/// What a rule proposes for one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Proposal {
    pub setting: HostSetting,
    pub now: ForeignText,
    pub value: String,
}

impl HostSetting {
    pub(crate) fn sysctl(key: &str) -> HostSetting {
        HostSetting::Sysctl { key: key.to_owned() }
    }

    /// `file` is below the folder of a link in `/sys/class/net`.
    pub(crate) fn of_link(link: &ForeignText, file: &str) -> HostSetting {
        HostSetting::Sysfs { path: format!("class/net/{}/{file}", link.raw()).into() }
    }

    pub(crate) fn to(self, now: impl Into<ForeignText>, value: impl fmt::Display) -> Proposal {
        Proposal { setting: self, now: now.into(), value: value.to_string() }
    }
}

impl fmt::Display for HostSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostSetting::Sysctl { key } => f.write_str(key),
            HostSetting::Sysfs { path } => write!(f, "/sys/{path}"),
            HostSetting::InterruptCpus { number } => write!(f, "CPUs of interrupt {number}"),
            HostSetting::ThreadCpus { pid, tid, .. } => write!(f, "CPUs of thread {tid} of process {pid}"),
            HostSetting::LinkMtu { link } => write!(f, "MTU of {link}"),
            HostSetting::LinkFeature { link, feature } => write!(f, "{feature} of {link}"),
            HostSetting::LinkRxRing { link } => write!(f, "receive ring of {link}"),
            HostSetting::LinkRxUsecs { link } => write!(f, "rx-usecs of {link}"),
            HostSetting::LinkAdaptiveRx { link } => write!(f, "adaptive-rx of {link}"),
        }
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proposal { setting, now, value } = self;
        match now.is_empty() {
            true => write!(f, "{setting}: none -> {value}"),
            false => write!(f, "{setting}: {now} -> {value}"),
        }
    }
}
