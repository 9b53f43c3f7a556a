//! Sizes and gaps that a study or `vtax measure` iterates over.

use crate::{
    units::{ByteSize, Span},
    workload::TestKind,
};

/// A size and a gap that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepPoint {
    /// Size of requests, responses and messages; without it, the test has its own sizes.
    pub size: Option<ByteSize>,
    /// Idle time of an rr flow before each request.
    pub gap: Option<Span>,
    is_first_size: bool,
    is_first_gap: bool,
}

impl SweepPoint {
    /// Returns each size with each gap.
    pub fn all(sizes: &[Option<ByteSize>], gaps: &[Option<Span>]) -> Vec<SweepPoint> {
        let mut points = Vec::new();
        for (nth_size, size) in sizes.iter().enumerate() {
            let of_size = gaps.iter().enumerate().map(|(nth_gap, gap)| SweepPoint {
                size: *size,
                gap: *gap,
                is_first_size: nth_size == 0,
                is_first_gap: nth_gap == 0,
            });
            points.extend(of_size);
        }
        points
    }

    /// Returns true if a test is measured at this point: one without sizes or without gaps only at the first of them.
    pub fn concerns(self, kind: TestKind) -> bool {
        (self.is_first_size || kind.is_swept()) && (self.is_first_gap || kind.is_paced())
    }

    /// Returns the gap, if the test has gaps.
    pub fn gap_of(self, kind: TestKind) -> Option<Span> {
        self.gap.filter(|_| kind.is_paced())
    }
}
