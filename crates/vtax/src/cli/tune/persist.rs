//! `vtax tune apply --persist`: what is kept over a restart of the machine.

use vtax_change::{Change, ChangeJournal, HostAccess};
use vtax_journal::BatchState;
use vtax_tune::{KeptPlan, NotKept, Proposal, plan, plan_kept};

use super::asked::LookedAt;
use crate::exit::{Blamed, Stop};

/// The changes that are made and not taken back.
pub(super) fn standing(journal: &ChangeJournal) -> Vec<Change> {
    let made = journal.batches().filter(|batch| batch.state() == BatchState::Done);
    made.flat_map(|batch| batch.records).map(|record| record.step.clone()).collect()
}

/// The changes, and with `persist` the lines that keep them. It has the changes that are made already.
pub(super) fn planned(
    host: &mut HostAccess,
    looked: &LookedAt,
    proposals: &[Proposal],
    persist: Option<&[Change]>,
) -> Result<KeptPlan, Stop> {
    let namespace = looked.namespace.as_ref();
    if let Some(standing) = persist {
        return plan_kept(host, &looked.facts, namespace, proposals, standing).or_infrastructure();
    }
    let changes = plan(host, namespace, proposals).or_infrastructure()?;
    Ok(KeptPlan { changes, ..KeptPlan::default() })
}

/// What is not kept, with the reason and what would keep it.
pub(super) fn told(not_kept: &[NotKept]) -> String {
    let line = |left: &NotKept| format!("  {}\n    {}; {}\n", left.change, left.because, left.instead);
    match not_kept {
        [] => String::new(),
        left => "Not kept over a restart:\n".to_owned() + &left.iter().map(line).collect::<String>(),
    }
}
