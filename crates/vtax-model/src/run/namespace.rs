//! A network namespace of vtax's machine that was an endpoint, as found.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    endpoint::ContainerEngine,
    foreign::ForeignText,
    units::{ByteSize, Span},
};

/// An existing network namespace. vtax's agent was in it and in no other namespace or cgroup of its processes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamespaceRecord {
    /// The container that it belongs to, if that was named.
    pub container: Option<ContainerRecord>,
    /// Limits of the named process or container.
    #[serde(default)]
    pub limits: ProcessLimits,
}

/// A container as its engine described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// The engine that ran it.
    pub engine: ContainerEngine,
    /// Its name there.
    pub name: ForeignText,
    /// Its ID. A new one after it was created again.
    pub id: ForeignText,
    /// Name of its image.
    pub image: ForeignText,
    /// Its network mode, e.g. `bridge`.
    pub network: ForeignText,
}

/// Restrictions of a process that others of its machine don't have.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// The lowest CPU quota of its cgroup and its ancestors.
    pub cpu: Option<CpuQuota>,
    /// The lowest memory limit of its cgroup and its ancestors.
    pub memory: Option<ByteSize>,
    /// True if it may not open raw sockets (`CAP_NET_RAW`).
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub no_raw_sockets: bool,
    /// True if a seccomp filter restricts its system calls.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub seccomp: bool,
    /// True if its root file system is read-only.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub read_only_root: bool,
}

/// CPU time that the processes of a cgroup may use in each period (`cpu.max`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// The CPU time.
    pub time: Span,
    /// The period, after which the time starts again.
    pub period: Span,
}

impl NamespaceRecord {
    /// Returns true if samples of both belong together: a container that was created again has another ID.
    pub fn is_same_as(&self, other: &NamespaceRecord) -> bool {
        let plain = |record: &NamespaceRecord| {
            let mut record = record.clone();
            record.container.iter_mut().for_each(|container| container.id = ForeignText::default());
            record
        };
        plain(self) == plain(other)
    }
}

impl CpuQuota {
    /// Returns the quota of these lengths. None if the period is zero.
    pub fn new(time: Duration, period: Duration) -> Option<CpuQuota> {
        (!period.is_zero()).then_some(CpuQuota { time: Span(time), period: Span(period) })
    }

    /// Returns the equivalent number of CPUs.
    pub fn cpus(self) -> f64 {
        self.time.0.as_secs_f64() / self.period.0.as_secs_f64()
    }
}

/// Format: `0.5 CPUs`.
impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = (self.cpus() * 1000.0).round() / 1000.0;
        let plural = if cpus == 1.0 { "" } else { "s" };
        write!(f, "{cpus} CPU{plural}")
    }
}

/// Each limit in words. Nothing if there is none.
impl fmt::Display for ProcessLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = [
            self.cpu.map(|quota| format!("a quota of {quota}")),
            self.memory.map(|memory| format!("{memory} of memory")),
            self.no_raw_sockets.then(|| "no raw sockets (CAP_NET_RAW)".to_owned()),
            self.seccomp.then(|| "a seccomp filter".to_owned()),
            self.read_only_root.then(|| "a read-only root file system".to_owned()),
        ];
        f.write_str(&texts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, cpu: Option<CpuQuota>) -> NamespaceRecord {
        let container = ContainerRecord {
            engine: ContainerEngine::Podman,
            name: "web".into(),
            id: id.into(),
            image: "web:1".into(),
            network: "bridge".into(),
        };
        NamespaceRecord { container: Some(container), limits: ProcessLimits { cpu, ..ProcessLimits::default() } }
    }

    #[test]
    fn a_container_is_the_same_with_the_same_limits() {
        let half = CpuQuota::new(Duration::from_millis(50), Duration::from_millis(100));
        assert!(record("1", half).is_same_as(&record("2", half)));
        assert!(!record("1", half).is_same_as(&record("1", None)));
        let text = serde_json::to_string(&record("1", half)).expect("JSON");
        assert_eq!(serde_json::from_str::<NamespaceRecord>(&text).expect("the same"), record("1", half));
    }

    #[test]
    fn limits_are_reported_in_words() {
        let quota = |millis| CpuQuota::new(Duration::from_millis(millis), Duration::from_millis(100));
        let limits = ProcessLimits {
            cpu: quota(50),
            memory: Some(ByteSize(64 << 20)),
            no_raw_sockets: true,
            seccomp: true,
            read_only_root: true,
        };
        assert_eq!(
            limits.to_string(),
            "a quota of 0.5 CPUs, 64 MiB of memory, no raw sockets (CAP_NET_RAW), a seccomp filter, a read-only root \
             file system"
        );
        assert_eq!(quota(100).expect("a period").to_string(), "1 CPU");
        assert_eq!(ProcessLimits::default().to_string(), "");
        assert_eq!(CpuQuota::new(Duration::from_millis(1), Duration::ZERO), None);
    }
}
