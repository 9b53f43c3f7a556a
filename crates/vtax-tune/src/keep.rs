//! Persistence of changes across reboots: which changes, and through which line of a file.
//!
//! vtax writes only its own files. Settings in other files are not overridden.

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

/// Changes, and the lines that make them persistent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeptPlan {
    /// The changes, as planned by [`crate::plan()`].
    pub changes: Vec<Change>,
    /// Lines that make them persistent.
    pub lines: Vec<Change>,
    /// Changes that vtax cannot make persistent.
    pub not_kept: Vec<NotKept>,
}

/// A change that is lost at the next reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// Setting and new value, in words.
    pub change: ForeignText,
    /// The reason why vtax cannot make it persistent.
    pub because: ForeignText,
    /// An alternative.
    pub instead: ForeignText,
}

/// A line with its value.
type Line = (KeptLine, String);

/// The reason why there is no line, and an alternative.
struct Refusal {
    because: String,
    instead: String,
}

impl Refusal {
    fn new(because: impl Into<String>, instead: impl Into<String>) -> Refusal {
        Refusal { because: because.into(), instead: instead.into() }
    }
}

/// Plans changes from proposals, as [`crate::plan()`] does, and finds the line that makes each persistent. A setting
/// that already has its value gets a line as well. `standing` are the current changes: a setting changed by one of them
/// is restored when its line is removed after a reboot.
///
/// # Errors
/// A setting that no longer exists or is unreadable; an unreadable file of vtax's.
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

/// Returns the current change that has already set this value, or else the given one.
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
            "interrupts appear with their driver, after all settings files were read",
            "use an irqbalance policy script, or a script that runs after the driver is loaded",
        )),
        HostSetting::ThreadCpus { .. } => Err(Refusal::new(
            "the thread ends with its guest",
            "with libvirt: virsh vcpupin or emulatorpin with --config",
        )),
        _ if namespace.is_some() => Err(Refusal::new(
            "it is in a network namespace, which does not survive a reboot",
            "apply it again after the namespace is created",
        )),
        _ if !is_first_network(host) => Err(Refusal::new(
            "vtax runs in a network namespace, and settings files apply to the initial one",
            "run vtax outside of it",
        )),
        HostSetting::Sysctl { key, value } => sysctl::line(facts, key, value.raw()),
        setting => link::line(host, facts, setting),
    };
    Ok(match found {
        Ok((line, _)) if let Some(because) = line.file.obstacle(host)? => {
            Err(Refusal::new(because, "set it where this host configures such settings"))
        }
        found => found,
    })
}

/// Returns true if this process is in the initial network namespace, or if that is unknown.
fn is_first_network(host: &HostAccess) -> bool {
    let of = |process: &str| fs::metadata(host.place(&format!("/proc/{process}/ns/net"))).map(|found| found.ino()).ok();
    of("1").is_none_or(|first| of("self") == Some(first))
}
