//! Disks added to and removed from a bound domain, according to its journal.

use vtax_journal::{Batch, BatchId, BatchState, Snapshot};
use vtax_model::topology::Name;

use crate::{bindings::BoundDisk, step::DomainStep};

/// Virtual disk that was plugged into a running domain.
#[derive(Debug, Clone)]
pub(crate) struct PluggedDisk {
    pub(crate) name: Name,
    pub(crate) batch: BatchId,
}

/// Returns the disks that were plugged in and still exist.
pub(crate) fn plugged(snapshot: &Snapshot<DomainStep>) -> Vec<PluggedDisk> {
    let of_batch = |batch: Batch<'_, DomainStep>| {
        let there = batch.state() != BatchState::Undone;
        batch.records.iter().filter(|_| there).find_map(|record| match &record.step {
            DomainStep::PlugDisk(step) => Some(PluggedDisk { name: step.disk.disk.name.clone(), batch: batch.id }),
            _ => None,
        })
    };
    snapshot.batches().filter_map(of_batch).collect()
}

/// Applies the disk changes since a domain was bound, in this order. Returns true if there were any.
pub(crate) fn follow(disks: &mut Vec<BoundDisk>, snapshot: &Snapshot<DomainStep>) -> bool {
    let mut moved = false;
    let batches = snapshot.batches().filter(|batch| batch.state() != BatchState::Undone);
    for record in batches.flat_map(|batch| batch.records) {
        match &record.step {
            DomainStep::PlugDisk(step) => disks.push((*step.disk).clone()),
            DomainStep::PullDisk(step) => disks.retain(|own| own.disk.name != step.disk.disk.name),
            _ => continue,
        }
        moved = true;
    }
    moved
}
