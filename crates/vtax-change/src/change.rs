//! A change of any kind, as a step of a journal.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_journal::{Step, Undone};
use vtax_model::cpus::CpuSet;
use vtax_sys::{
    ethtool::DriverSetting,
    process::{Pid, ProcessId},
    sysctl::SysctlKey,
};

use crate::{
    error::ChangeError,
    host::HostAccess,
    knob::{
        AnyValueChange, ChangeReceipt, FoundValue, ValueChange,
        cpuset::{CpusetGroup, CpusetHierarchy, GroupPresence, ThreadCpuset},
        driver::{LinkDriver, LinkFeature, OnOff},
        irq::IrqAffinity,
        kept::{KeptChange, KeptLine},
        link::{LinkAt, LinkMtu, LinkTxQueue},
        sysctl::Sysctl,
        sysfs::SysfsFile,
        thread::ThreadAffinity,
    },
    namespace::NamespaceRef,
    own_file::OwnFile,
    text::KernelText,
};

/// A change of a machine's setting, with the previous value.
///
/// The `plan_…` functions read the current value and change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    Sysctl(ValueChange<Sysctl>),
    Sysfs(ValueChange<SysfsFile>),
    Irq(ValueChange<IrqAffinity>),
    Mtu(ValueChange<LinkMtu>),
    TxQueue(ValueChange<LinkTxQueue>),
    Feature(ValueChange<LinkFeature>),
    Driver(ValueChange<LinkDriver>),
    Thread(ValueChange<ThreadAffinity>),
    CpusetGroup(ValueChange<CpusetGroup>),
    ThreadCpuset(ValueChange<ThreadCpuset>),
    Kept(KeptChange),
}

impl Change {
    /// Plans the change of a kernel setting, of this machine or of a network namespace.
    pub fn plan_sysctl(
        host: &mut HostAccess,
        namespace: Option<NamespaceRef>,
        key: SysctlKey,
        value: &str,
    ) -> Result<Change, ChangeError> {
        let knob = Sysctl { namespace, key };
        ValueChange::plan(knob, host, KernelText::new(value)).map(Change::Sysctl)
    }

    /// Plans the change of a namespace's kernel setting, or of the machine's: a few settings below `net` belong to the
    /// machine, and a namespace doesn't have them or may only read them.
    pub fn plan_sysctl_for(
        host: &mut HostAccess,
        namespace: Option<NamespaceRef>,
        key: SysctlKey,
        value: &str,
    ) -> Result<Change, ChangeError> {
        let has_own = host.is_writable(namespace.as_ref(), &key.below_proc())? == Some(true);
        Change::plan_sysctl(host, namespace.filter(|_| has_own), key, value)
    }

    /// Plans the change of a file of sysfs. `path` is relative to `/sys`, such as
    /// `class/net/eth0/queues/rx-0/rps_cpus`. A link's directory exists only in the link's own network namespace.
    pub fn plan_sysfs(
        host: &mut HostAccess,
        namespace: Option<NamespaceRef>,
        path: &str,
        value: &str,
    ) -> Result<Change, ChangeError> {
        let knob = SysfsFile::find(host, namespace, path)?;
        ValueChange::plan(knob, host, KernelText::new(value)).map(Change::Sysfs)
    }

    /// Plans to restrict an interrupt to these CPUs.
    pub fn plan_irq(host: &mut HostAccess, irq: u32, cpus: &CpuSet) -> Result<Change, ChangeError> {
        let knob = IrqAffinity::find(host, irq)?;
        ValueChange::plan(knob, host, cpus.clone()).map(Change::Irq)
    }

    pub fn plan_mtu(host: &mut HostAccess, link: LinkAt, mtu: u32) -> Result<Change, ChangeError> {
        ValueChange::plan(LinkMtu { link }, host, mtu).map(Change::Mtu)
    }

    pub fn plan_tx_queue(host: &mut HostAccess, link: LinkAt, length: u32) -> Result<Change, ChangeError> {
        ValueChange::plan(LinkTxQueue { link }, host, length).map(Change::TxQueue)
    }

    /// Plans to enable or disable a feature of a link, by its kernel name (`rx-gro`, `tx-tcp-segmentation`).
    pub fn plan_feature(host: &mut HostAccess, link: LinkAt, feature: &str, on: bool) -> Result<Change, ChangeError> {
        let knob = LinkFeature { link, feature: feature.into() };
        ValueChange::plan(knob, host, OnOff(on)).map(Change::Feature)
    }

    /// Plans the change of a number in a link's driver: a ring size, an interrupt delay or a queue count.
    pub fn plan_driver(
        host: &mut HostAccess,
        link: LinkAt,
        setting: DriverSetting,
        value: u32,
    ) -> Result<Change, ChangeError> {
        ValueChange::plan(LinkDriver { link, setting }, host, value).map(Change::Driver)
    }

    /// Plans to restrict a thread to these CPUs.
    pub fn plan_thread(
        host: &mut HostAccess,
        process: ProcessId,
        tid: Pid,
        cpus: &CpuSet,
    ) -> Result<Change, ChangeError> {
        let knob = ThreadAffinity::find(host, process, tid)?;
        ValueChange::plan(knob, host, cpus.clone()).map(Change::Thread)
    }

    /// Plans the creation of a group below this one that confines threads to these CPUs.
    pub fn plan_cpuset_group(
        host: &mut HostAccess,
        hierarchy: &CpusetHierarchy,
        group: &str,
        cpus: &CpuSet,
    ) -> Result<Change, ChangeError> {
        let knob = CpusetGroup::below(hierarchy, group, cpus)?;
        ValueChange::plan(knob, host, GroupPresence::Present).map(Change::CpusetGroup)
    }

    /// Plans to move a thread to the group that [`Change::plan_cpuset_group`] creates below its own.
    pub fn plan_thread_cpuset(
        host: &mut HostAccess,
        hierarchy: &CpusetHierarchy,
        process: ProcessId,
        tid: Pid,
        cpus: &CpuSet,
    ) -> Result<Change, ChangeError> {
        let knob = ThreadCpuset::find(host, hierarchy, process, tid)?;
        let confined = knob.confined(host, cpus)?;
        ValueChange::plan(knob, host, confined).map(Change::ThreadCpuset)
    }

    /// Plans to persist another change across reboots, with a line in one of vtax's files.
    pub fn plan_kept(host: &mut HostAccess, line: KeptLine, value: &str, keeps: Change) -> Result<Change, ChangeError> {
        KeptChange::plan(line, host, value, keeps).map(Change::Kept)
    }

    /// Returns the change that this one persists across reboots.
    pub fn keeps(&self) -> Option<&Change> {
        match self {
            Change::Kept(kept) => Some(kept.keeps()),
            _ => None,
        }
    }

    /// Returns the name of the changed setting, such as "sysctl net.ipv4.tcp_rmem of this machine".
    pub fn name(&self) -> String {
        self.any().name()
    }

    /// Returns the new value.
    pub fn value(&self) -> String {
        self.any().value()
    }

    /// Returns true if the setting already had the new value when the change was planned. Skip such a change.
    pub fn changes_nothing(&self) -> bool {
        self.any().changes_nothing()
    }

    /// Returns the current value of the setting.
    pub fn found(&self, host: &mut HostAccess) -> Result<FoundValue, ChangeError> {
        self.any().found(host)
    }

    /// Returns true if the kernel has lost the change, because the machine was rebooted since.
    pub fn is_forgotten(&self, host: &HostAccess) -> bool {
        self.any().is_forgotten(host)
    }

    /// Returns true if the kernel has lost the change, but the setting has the new value again.
    pub fn is_there_again(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        self.any().is_there_again(host)
    }

    pub(crate) fn undo_again(&self, host: &mut HostAccess) -> Result<(), ChangeError> {
        self.any().undo_again(host)
    }

    fn any(&self) -> &dyn AnyValueChange {
        match self {
            Change::Sysctl(change) => change,
            Change::Sysfs(change) => change,
            Change::Irq(change) => change,
            Change::Mtu(change) => change,
            Change::TxQueue(change) => change,
            Change::Feature(change) => change,
            Change::Driver(change) => change,
            Change::Thread(change) => change,
            Change::CpusetGroup(change) => change,
            Change::ThreadCpuset(change) => change,
            Change::Kept(change) => change,
        }
    }
}

impl Step for Change {
    type World = HostAccess;
    type Receipt = ChangeReceipt;
    type Error = ChangeError;

    fn describe(&self) -> String {
        self.to_string()
    }

    fn apply(&self, host: &mut HostAccess) -> Result<ChangeReceipt, ChangeError> {
        self.any().apply(host)
    }

    fn read_back(&self, _: &ChangeReceipt, host: &mut HostAccess) -> Result<(), ChangeError> {
        self.any().read_back(host)
    }

    fn undo(&self, receipt: Option<&ChangeReceipt>, host: &mut HostAccess) -> Result<Undone, ChangeError> {
        self.any().undo(receipt, host)
    }

    fn changes_the_same(&self, other: &Change) -> bool {
        // Undoing a line also restores the setting that it persists.
        self.name() == other.name() || self.keeps() == Some(other)
    }

    fn finish(host: &mut HostAccess) {
        OwnFile::tidy(host);
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any().fmt(f)
    }
}
