//! Host settings and proposed values.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_change::OnOff;
use vtax_model::{cpus::CpuSet, foreign::ForeignText};

/// A setting that vtax can read, write and restore, with the new value in the setting's own type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum HostSetting {
    /// A setting below `/proc/sys`, such as `net.core.rmem_max`.
    Sysctl {
        key: String,
        value: ForeignText,
    },
    /// A file below `/sys`.
    Sysfs {
        path: ForeignText,
        value: ForeignText,
    },
    /// CPU affinity of an interrupt.
    InterruptCpus {
        number: u32,
        value: CpuSet,
    },
    /// CPU affinity of a thread. Its process is identified by pid and start time.
    ThreadCpus {
        pid: u32,
        start_ticks: u64,
        tid: u32,
        value: CpuSet,
    },
    LinkMtu {
        link: ForeignText,
        value: u32,
    },
    /// An offload, by the kernel's name.
    LinkFeature {
        link: ForeignText,
        feature: ForeignText,
        value: OnOff,
    },
    /// Descriptors of each receive queue.
    LinkRxRing {
        link: ForeignText,
        value: u32,
    },
    /// Delay of an interrupt for received packets, in microseconds.
    LinkRxUsecs {
        link: ForeignText,
        value: u32,
    },
    /// True if the driver adapts this delay.
    LinkAdaptiveRx {
        link: ForeignText,
        value: OnOff,
    },
}

/// A rule's proposal for one setting. It may come from another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The setting with its new value.
    #[serde(flatten)]
    pub setting: HostSetting,
    /// The value that the rule found, as the host shows it.
    pub now: ForeignText,
}

impl HostSetting {
    pub(crate) fn sysctl(key: &str, value: impl ToString) -> HostSetting {
        HostSetting::Sysctl { key: key.to_owned(), value: value.to_string().into() }
    }

    pub(crate) fn sysfs(path: String, value: impl ToString) -> HostSetting {
        HostSetting::Sysfs { path: path.into(), value: value.to_string().into() }
    }

    /// Returns the setting of a link's file. `file` is relative to the link's directory in `/sys/class/net`.
    pub(crate) fn of_link(link: &ForeignText, file: &str, value: impl ToString) -> HostSetting {
        HostSetting::sysfs(format!("class/net/{}/{file}", link.raw()), value)
    }

    pub(crate) fn instead_of(self, now: impl Into<ForeignText>) -> Proposal {
        Proposal { setting: self, now: now.into() }
    }

    /// Returns the name of the setting, without the value.
    fn name(&self) -> String {
        match self {
            HostSetting::Sysctl { key, .. } => ForeignText::from(key.as_str()).to_string(),
            HostSetting::Sysfs { path, .. } => format!("/sys/{path}"),
            HostSetting::InterruptCpus { number, .. } => format!("CPUs of interrupt {number}"),
            HostSetting::ThreadCpus { pid, tid, .. } => format!("CPUs of thread {tid} of process {pid}"),
            HostSetting::LinkMtu { link, .. } => format!("MTU of {link}"),
            HostSetting::LinkFeature { link, feature, .. } => format!("{feature} of {link}"),
            HostSetting::LinkRxRing { link, .. } => format!("receive ring of {link}"),
            HostSetting::LinkRxUsecs { link, .. } => format!("rx-usecs of {link}"),
            HostSetting::LinkAdaptiveRx { link, .. } => format!("adaptive-rx of {link}"),
        }
    }

    fn value(&self) -> &dyn fmt::Display {
        match self {
            HostSetting::Sysctl { value, .. } | HostSetting::Sysfs { value, .. } => value,
            HostSetting::InterruptCpus { value, .. } | HostSetting::ThreadCpus { value, .. } => value,
            HostSetting::LinkMtu { value, .. }
            | HostSetting::LinkRxRing { value, .. }
            | HostSetting::LinkRxUsecs { value, .. } => value,
            HostSetting::LinkFeature { value, .. } | HostSetting::LinkAdaptiveRx { value, .. } => value,
        }
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proposal { setting, now } = self;
        let (name, value) = (setting.name(), setting.value());
        match now.is_empty() {
            true => write!(f, "{name}: none -> {value}"),
            false => write!(f, "{name}: {now} -> {value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> impl Strategy<Value = HostSetting> {
        let text = || "\\PC{0,12}".prop_map(ForeignText::from);
        let cpus = || proptest::collection::vec(0..CpuSet::MOST, 0..5).prop_map(CpuSet::from_iter);
        let on = || any::<bool>().prop_map(OnOff);
        prop_oneof![
            ("\\PC{0,12}", text()).prop_map(|(key, value)| HostSetting::Sysctl { key, value }),
            (text(), text()).prop_map(|(path, value)| HostSetting::Sysfs { path, value }),
            (any::<u32>(), cpus()).prop_map(|(number, value)| HostSetting::InterruptCpus { number, value }),
            (any::<u32>(), any::<u64>(), cpus()).prop_map(|(tid, start_ticks, value)| HostSetting::ThreadCpus {
                pid: tid,
                start_ticks,
                tid,
                value
            }),
            (text(), any::<u32>()).prop_map(|(link, value)| HostSetting::LinkMtu { link, value }),
            (text(), any::<u32>()).prop_map(|(link, value)| HostSetting::LinkRxRing { link, value }),
            (text(), any::<u32>()).prop_map(|(link, value)| HostSetting::LinkRxUsecs { link, value }),
            (text(), on()).prop_map(|(link, value)| HostSetting::LinkAdaptiveRx { link, value }),
            (text(), text(), on()).prop_map(|(link, feature, value)| HostSetting::LinkFeature { link, feature, value }),
        ]
    }

    #[test]
    fn a_value_has_its_own_type_in_json() {
        let json = |setting: HostSetting| serde_json::to_string(&setting.instead_of("x")).unwrap();
        let link = || ForeignText::from("eth0");
        assert_eq!(
            json(HostSetting::LinkMtu { link: link(), value: 1500 }),
            r#"{"kind":"link-mtu","link":"eth0","value":1500,"now":"x"}"#
        );
        assert_eq!(
            json(HostSetting::LinkAdaptiveRx { link: link(), value: OnOff(true) }),
            r#"{"kind":"link-adaptive-rx","link":"eth0","value":true,"now":"x"}"#
        );
        assert_eq!(
            json(HostSetting::InterruptCpus { number: 7, value: [1, 0, 5].into_iter().collect() }),
            r#"{"kind":"interrupt-cpus","number":7,"value":"0-1,5","now":"x"}"#
        );
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        for text in [
            r#"{"kind":"link-mtu","link":"eth0","value":"large","now":""}"#,
            r#"{"kind":"link-mtu","link":"eth0","value":-1,"now":""}"#,
            r#"{"kind":"link-adaptive-rx","link":"eth0","value":"on","now":""}"#,
            r#"{"kind":"interrupt-cpus","number":7,"value":"all","now":""}"#,
        ] {
            assert!(serde_json::from_str::<Proposal>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_messages_are_read_back(setting in settings(), now in "\\PC{0,12}") {
            let proposal = setting.instead_of(now);
            let text = serde_json::to_string(&proposal).unwrap();
            prop_assert_eq!(serde_json::from_str::<Proposal>(&text).unwrap(), proposal.clone());
            prop_assert!(proposal.to_string().contains(" -> "));
        }
    }
}
