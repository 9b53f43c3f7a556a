//! Memory of an I/O domain: the backends' own, the page cache and a reserve.

use serde::{Deserialize, Serialize};

use super::{GuestTotals, SizeError, SizeTarget};
use crate::units::ByteSize;

/// Memory found on the machine. Whatever is unset was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryFacts {
    /// Sum of the backends' proportional set sizes (PSS), without the guests' memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss: Option<ByteSize>,
    /// Page cache in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<ByteSize>,
}

/// Proposed memory, and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryNeed {
    /// Whole GiB.
    pub total: ByteSize,
    pub backends: ByteSize,
    /// Set if `backends` was computed from the guests' sizes instead of measured.
    #[serde(skip_serializing_if = "crate::is_default", default)]
    pub estimated: bool,
    /// The larger of the required and the measured one.
    pub page_cache: ByteSize,
    pub reserve: ByteSize,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// One part in this many: Ceph's hardware recommendations have 20 % spare for peaks and for pages that the kernel is late
/// to reclaim.
const RESERVE_PART: u64 = 5;
/// Minimum reserve: a smaller one doesn't survive the start of a single process.
const LEAST_RESERVE: u64 = 512 * MIB;
/// Larger figures are not memory sizes, and their sums must not overflow.
const MOST: ByteSize = ByteSize(1 << 50);

impl MemoryNeed {
    /// Returns `None` if neither the backends were measured nor the guests are known.
    pub(super) fn of(target: &SizeTarget, facts: MemoryFacts) -> Result<Option<MemoryNeed>, SizeError> {
        let guests = target.guests.map(|guests| guests.memory);
        let sizes = [guests, target.file_cache, facts.pss, facts.page_cache];
        if let Some(size) = sizes.into_iter().flatten().find(|size| *size > MOST) {
            return Err(SizeError::TooMuchMemory(size));
        }
        let Some(backends) = facts.pss.or_else(|| target.guests.map(overhead)) else { return Ok(None) };
        let page_cache = target.file_cache.max(facts.page_cache).unwrap_or(ByteSize(0));
        let used = backends.0 + page_cache.0;
        let reserve = (used / RESERVE_PART).max(LEAST_RESERVE);
        let total = ByteSize((used + reserve).next_multiple_of(GIB));
        let need =
            MemoryNeed { total, backends, estimated: facts.pss.is_none(), page_cache, reserve: ByteSize(reserve) };
        Ok(Some(need))
    }
}

/// Memory of the processes of guests: 218 MiB each, 8 MiB per virtual CPU, and 0.2 % of their memory for its page tables
/// (OpenShift Virtualization, "Physical resource overhead requirements").
fn overhead(GuestTotals { guests, vcpus, memory }: GuestTotals) -> ByteSize {
    ByteSize(u64::from(guests) * 218 * MIB + u64::from(vcpus) * 8 * MIB + memory.0 / 500)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guests(guests: u32) -> SizeTarget {
        let totals = GuestTotals { guests, vcpus: 2 * guests, memory: ByteSize(u64::from(guests) * 4 * GIB) };
        SizeTarget { guests: Some(totals), ..SizeTarget::default() }
    }

    fn need(target: SizeTarget, facts: MemoryFacts) -> Option<MemoryNeed> {
        MemoryNeed::of(&target, facts).expect("possible sizes")
    }

    #[test]
    fn memory_is_in_whole_gib() {
        let twelve = need(guests(12), MemoryFacts::default()).expect("guests are known");
        // 12 · (218 + 16 + 8.192) MiB, and the least reserve.
        assert_eq!((twelve.backends.0 / MIB, twelve.estimated, twelve.reserve.0 / MIB), (2906, true, 581));
        assert_eq!(twelve.total, ByteSize(4 * GIB));
        let measured = MemoryFacts { pss: Some(ByteSize(700 * MIB)), page_cache: Some(ByteSize(3 * GIB)) };
        let measured = need(SizeTarget { file_cache: Some(ByteSize(4 * GIB)), ..guests(12) }, measured);
        let measured = measured.expect("it was measured");
        assert_eq!(
            (measured.page_cache, measured.estimated, measured.total),
            (ByteSize(4 * GIB), false, ByteSize(6 * GIB))
        );
    }

    #[test]
    fn unknown_memory_is_not_a_figure() {
        assert_eq!(need(SizeTarget::default(), MemoryFacts::default()), None);
        let absurd = MemoryFacts { pss: Some(ByteSize(u64::MAX)), page_cache: None };
        assert!(matches!(MemoryNeed::of(&guests(1), absurd), Err(SizeError::TooMuchMemory(_))));
    }
}
