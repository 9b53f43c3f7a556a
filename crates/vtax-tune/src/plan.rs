//! Conversion of proposals to changes of the machine.

use vtax_change::{Change, ChangeError, HostAccess, LinkAt, NamespaceRef};
use vtax_model::foreign::ForeignText;
use vtax_sys::{
    ethtool::DriverSetting,
    process::{Pid, ProcessId},
};

use crate::setting::{HostSetting, Proposal};

/// Plans a change for each proposal, and reads the current value. A setting with several proposals is changed once, as
/// proposed by the first one that differs from the current value. Settings that already have their value are skipped.
///
/// # Errors
/// A setting that no longer exists, or is unreadable.
pub fn plan(
    host: &mut HostAccess,
    namespace: Option<&NamespaceRef>,
    proposals: &[Proposal],
) -> Result<Vec<Change>, ChangeError> {
    let changes = each(host, namespace, proposals)?.into_iter().map(|(_, change)| change);
    Ok(changes.filter(|change| !change.changes_nothing()).collect())
}

/// Returns each change with its proposal, including settings that already have their value.
pub(crate) fn each<'a>(
    host: &mut HostAccess,
    namespace: Option<&NamespaceRef>,
    proposals: &'a [Proposal],
) -> Result<Vec<(&'a Proposal, Change)>, ChangeError> {
    let mut changes: Vec<(&Proposal, Change)> = Vec::new();
    for proposal in proposals {
        let change = of_proposal(host, namespace.cloned(), proposal)?;
        match changes.iter_mut().find(|(_, other)| other.name() == change.name()) {
            None => changes.push((proposal, change)),
            Some(other) if other.1.changes_nothing() => *other = (proposal, change),
            Some(_) => {}
        }
    }
    Ok(changes)
}

fn of_proposal(
    host: &mut HostAccess,
    namespace: Option<NamespaceRef>,
    proposal: &Proposal,
) -> Result<Change, ChangeError> {
    match &proposal.setting {
        HostSetting::Sysctl { key, value } => Change::plan_sysctl_for(host, namespace, key.parse()?, value.raw()),
        HostSetting::Sysfs { path, value } => {
            // Only links differ between namespaces.
            let namespace = namespace.filter(|_| path.raw().starts_with("class/net/"));
            Change::plan_sysfs(host, namespace, path.raw(), value.raw())
        }
        HostSetting::InterruptCpus { number, value } => Change::plan_irq(host, *number, value),
        HostSetting::ThreadCpus { pid, start_ticks, tid, value } => {
            let process = ProcessId { pid: Pid(*pid), start_ticks: *start_ticks };
            Change::plan_thread(host, process, Pid(*tid), value)
        }
        HostSetting::LinkMtu { link, value } => {
            let link = find(host, namespace, link)?;
            Change::plan_mtu(host, link, *value)
        }
        HostSetting::LinkFeature { link, feature, value } => {
            let link = find(host, namespace, link)?;
            Change::plan_feature(host, link, feature.raw(), value.0)
        }
        HostSetting::LinkRxRing { link, value } => {
            let link = find(host, namespace, link)?;
            Change::plan_driver(host, link, DriverSetting::RxRing, *value)
        }
        HostSetting::LinkRxUsecs { link, value } => {
            let link = find(host, namespace, link)?;
            Change::plan_driver(host, link, DriverSetting::RxUsecs, *value)
        }
        HostSetting::LinkAdaptiveRx { link, value } => {
            let link = find(host, namespace, link)?;
            Change::plan_driver(host, link, DriverSetting::AdaptiveRx, u32::from(value.0))
        }
    }
}

fn find(host: &mut HostAccess, namespace: Option<NamespaceRef>, link: &ForeignText) -> Result<LinkAt, ChangeError> {
    LinkAt::find(host, namespace, &link.raw().parse()?)
}
