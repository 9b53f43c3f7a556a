//! A change of any kind, as a step of a journal.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_journal::{Step, Undone};
use vtax_model::{
    cpus::CpuSet,
    nic::{Channels, Coalescing},
};
use vtax_sys::{
    process::{Pid, ProcessId},
    sysctl::SysctlKey,
};

use crate::{
    error::ChangeError,
    host::HostAccess,
    knob::{
        AnyValueChange, ChangeReceipt, FoundValue, ValueChange,
        driver::{
            InterruptDelays, LinkChannels, LinkCoalescing, LinkFeature, LinkRings, OnOff, QueueCounts, RingSizes,
        },
        irq::IrqAffinity,
        link::{LinkAt, LinkMtu, LinkTxQueue},
        sysctl::Sysctl,
        sysfs::SysfsFile,
        thread::ThreadAffinity,
    },
    namespace::NamespaceRef,
    text::KernelText,
};

/// A change of a machine's setting, with the value from before.
///
/// A `plan_…` function reads the value that is there. It changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the types say it")]
pub enum Change {
    Sysctl(ValueChange<Sysctl>),
    Sysfs(ValueChange<SysfsFile>),
    Irq(ValueChange<IrqAffinity>),
    Mtu(ValueChange<LinkMtu>),
    TxQueue(ValueChange<LinkTxQueue>),
    Feature(ValueChange<LinkFeature>),
    Rings(ValueChange<LinkRings>),
    Coalescing(ValueChange<LinkCoalescing>),
    Channels(ValueChange<LinkChannels>),
    Thread(ValueChange<ThreadAffinity>),
}

impl Change {
    /// Sets a kernel setting, of this machine or of a network namespace.
    pub fn plan_sysctl(
        host: &mut HostAccess,
        namespace: Option<NamespaceRef>,
        key: SysctlKey,
        value: &str,
    ) -> Result<Change, ChangeError> {
        let knob = Sysctl { namespace, key };
        ValueChange::plan(knob, host, |_| KernelText::new(value)).map(Change::Sysctl)
    }

    /// Writes to a file of sysfs. `path` is relative to `/sys`, such as `class/net/eth0/queues/rx-0/rps_cpus`. A link's
    /// directory is there only in the link's own network namespace.
    pub fn plan_sysfs(
        host: &mut HostAccess,
        namespace: Option<NamespaceRef>,
        path: &str,
        value: &str,
    ) -> Result<Change, ChangeError> {
        let knob = SysfsFile::find(host, namespace, path)?;
        ValueChange::plan(knob, host, |_| KernelText::new(value)).map(Change::Sysfs)
    }

    /// Lets an interrupt go to these CPUs only.
    pub fn plan_irq(host: &mut HostAccess, irq: u32, cpus: &CpuSet) -> Result<Change, ChangeError> {
        let knob = IrqAffinity::find(host, irq)?;
        ValueChange::plan(knob, host, |_| cpus.clone()).map(Change::Irq)
    }

    /// Sets the MTU of a link.
    pub fn plan_mtu(host: &mut HostAccess, link: LinkAt, mtu: u32) -> Result<Change, ChangeError> {
        ValueChange::plan(LinkMtu { link }, host, |_| mtu).map(Change::Mtu)
    }

    /// Sets how many packets may wait in a link's queue.
    pub fn plan_tx_queue(host: &mut HostAccess, link: LinkAt, length: u32) -> Result<Change, ChangeError> {
        ValueChange::plan(LinkTxQueue { link }, host, |_| length).map(Change::TxQueue)
    }

    /// Switches a feature of a link on or off, by the kernel's name of it (`rx-gro`, `tx-tcp-segmentation`).
    pub fn plan_feature(host: &mut HostAccess, link: LinkAt, feature: &str, on: bool) -> Result<Change, ChangeError> {
        let knob = LinkFeature { link, feature: feature.to_owned() };
        ValueChange::plan(knob, host, |_| OnOff(on)).map(Change::Feature)
    }

    /// Sets the descriptors of a link's queues. `edit` gets those that are there.
    pub fn plan_rings(
        host: &mut HostAccess,
        link: LinkAt,
        edit: impl FnOnce(&mut RingSizes),
    ) -> Result<Change, ChangeError> {
        ValueChange::plan(LinkRings { link }, host, |was| edited(*was, edit)).map(Change::Rings)
    }

    /// Sets how long a link holds interrupts back. `edit` gets what is there.
    pub fn plan_coalescing(
        host: &mut HostAccess,
        link: LinkAt,
        edit: impl FnOnce(&mut Coalescing),
    ) -> Result<Change, ChangeError> {
        let choose = |was: &InterruptDelays| InterruptDelays(edited(was.0, edit));
        ValueChange::plan(LinkCoalescing { link }, host, choose).map(Change::Coalescing)
    }

    /// Sets the queues of a link. `edit` gets those that are there.
    pub fn plan_channels(
        host: &mut HostAccess,
        link: LinkAt,
        edit: impl FnOnce(&mut Channels),
    ) -> Result<Change, ChangeError> {
        let choose = |was: &QueueCounts| QueueCounts(edited(was.0, edit));
        ValueChange::plan(LinkChannels { link }, host, choose).map(Change::Channels)
    }

    /// Lets a thread run on these CPUs only.
    pub fn plan_thread(
        host: &mut HostAccess,
        process: ProcessId,
        tid: Pid,
        cpus: &CpuSet,
    ) -> Result<Change, ChangeError> {
        let knob = ThreadAffinity::find(host, process, tid)?;
        ValueChange::plan(knob, host, |_| cpus.clone()).map(Change::Thread)
    }

    /// What is changed, such as "sysctl net.ipv4.tcp_rmem of this machine".
    pub fn name(&self) -> String {
        self.any().name()
    }

    /// Whether the new value is the one that was there when the change was planned. Leave such a change out.
    pub fn changes_nothing(&self) -> bool {
        self.any().changes_nothing()
    }

    /// What the setting is now.
    pub fn found(&self, host: &mut HostAccess) -> Result<FoundValue, ChangeError> {
        self.any().found(host)
    }

    fn any(&self) -> &dyn AnyValueChange {
        match self {
            Change::Sysctl(change) => change,
            Change::Sysfs(change) => change,
            Change::Irq(change) => change,
            Change::Mtu(change) => change,
            Change::TxQueue(change) => change,
            Change::Feature(change) => change,
            Change::Rings(change) => change,
            Change::Coalescing(change) => change,
            Change::Channels(change) => change,
            Change::Thread(change) => change,
        }
    }
}

fn edited<T>(mut value: T, edit: impl FnOnce(&mut T)) -> T {
    edit(&mut value);
    value
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
        self.name() == other.name()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any().fmt(f)
    }
}
