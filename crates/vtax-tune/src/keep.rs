//! Which changes can be kept over a restart of the machine, and by which line of a file.
//!
//! Only files of ours are written. What a file of somebody else sets stays as that file says.

mod link;
mod sysctl;

use std::{fs, os::unix::fs::MetadataExt};

use serde::{Deserialize, Serialize};
use vtax_change::{Change, ChangeError, HostAccess, KeptLine, NamespaceRef};
use vtax_host::inspect::HostFacts;
use vtax_model::foreign::ForeignText;

use crate::{
    plan::each,
    setting::{HostSetting, Proposal},
};

/// Changes, and the lines that keep them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeptPlan {
    /// What is changed now, as of [`crate::plan()`].
    pub changes: Vec<Change>,
    /// What keeps it.
    pub lines: Vec<Change>,
    /// What nothing of vtax's can keep.
    pub not_kept: Vec<NotKept>,
}

/// A change that is lost at the next start of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// Setting and new value, in words.
    pub change: ForeignText,
    /// Why vtax doesn't keep it.
    pub because: ForeignText,
    /// What would keep it.
    pub instead: ForeignText,
}

/// A line with its value.
type Line = (KeptLine, String);

/// Why there is none, and what its user can do instead.
struct Refusal {
    because: String,
    instead: String,
}

impl Refusal {
    fn new(because: impl Into<String>, instead: impl Into<String>) -> Refusal {
        Refusal { because: because.into(), instead: instead.into() }
    }
}

/// Makes changes of proposals, as [`crate::plan()`] does, and finds for each the line that keeps it. What has its value
/// already gets a line, too. `standing` are the changes that are made: what one of them has set is brought back as it was
/// when its line goes after a restart.
///
/// # Errors
/// A setting that is gone since it was looked at, or that can't be read; a file of vtax's that can't be read.
pub fn plan_kept(
    host: &mut HostAccess,
    facts: &HostFacts,
    namespace: Option<&NamespaceRef>,
    proposals: &[Proposal],
    standing: &[Change],
) -> Result<KeptPlan, ChangeError> {
    let mut plan = KeptPlan::default();
    for (proposal, change) in each(host, namespace, proposals)? {
        match line(host, facts, namespace, &proposal.setting)? {
            Ok((line, value)) => {
                let line = Change::plan_kept(host, line, &value, made(&change, standing).clone())?;
                plan.lines.extend(Some(line).filter(|line| !line.changes_nothing()));
            }
            Err(Refusal { because, instead }) => {
                let (because, instead) = (because.into(), instead.into());
                let change = format!("{}: {}", change.name(), change.value()).into();
                plan.not_kept.push(NotKept { change, because, instead });
            }
        }
        plan.changes.extend(Some(change).filter(|change| !change.changes_nothing()));
    }
    Ok(plan)
}

/// The change that has set what has its value already.
fn made<'a>(change: &'a Change, standing: &'a [Change]) -> &'a Change {
    let same = |made: &&Change| made.name() == change.name() && made.value() == change.value();
    standing.iter().rev().find(same).filter(|_| change.changes_nothing()).unwrap_or(change)
}

fn line(
    host: &HostAccess,
    facts: &HostFacts,
    namespace: Option<&NamespaceRef>,
    setting: &HostSetting,
) -> Result<Result<Line, Refusal>, ChangeError> {
    let found = match setting {
        HostSetting::InterruptCpus { .. } => Err(Refusal::new(
            "interrupts come with their driver, after all files of settings were read",
            "a policy script of irqbalance keeps it, or one that runs when the driver is there",
        )),
        HostSetting::ThreadCpus { .. } => Err(Refusal::new(
            "the thread ends with its guest",
            "libvirt keeps it: virsh vcpupin or emulatorpin with --config",
        )),
        _ if namespace.is_some() => Err(Refusal::new(
            "it is in a network namespace, which ends with the machine",
            "change it again when the namespace is there",
        )),
        _ if !is_first_network(host) => Err(Refusal::new(
            "vtax runs in a network namespace, and files of settings are for the machine's first one",
            "run vtax outside of it",
        )),
        HostSetting::Sysctl { key, value } => sysctl::line(facts, key, value.raw()),
        setting => link::line(host, facts, setting),
    };
    Ok(match found {
        Ok((line, _)) if let Some(because) = line.file.obstacle(host)? => {
            Err(Refusal::new(because, "set it where this host keeps such settings"))
        }
        found => found,
    })
}

/// Whether this process has the network of the first one. If that can't be told, it has.
fn is_first_network(host: &HostAccess) -> bool {
    let of = |process: &str| fs::metadata(host.place(&format!("/proc/{process}/ns/net"))).map(|found| found.ino()).ok();
    of("1").is_none_or(|first| of("self") == Some(first))
}
