//! The sizes and pauses that a study or `vtax measure` goes through.

use crate::{
    units::{ByteSize, Span},
    workload::TestKind,
};

/// A size and a pause that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepPoint {
    /// The size of requests, responses and messages; without it, the test has sizes of its own.
    pub size: Option<ByteSize>,
    /// Idle time of an rr flow before each request.
    pub gap: Option<Span>,
    is_first_size: bool,
    is_first_gap: bool,
}

impl SweepPoint {
    /// Each size with each pause.
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

    /// Returns true if a test is measured at this point: one without sizes or without pauses at the first of them only.
    pub fn concerns(self, kind: TestKind) -> bool {
        (self.is_first_size || kind.is_swept()) && (self.is_first_gap || kind.is_paced())
    }

    /// The pause, if the test has pauses.
    pub fn gap_of(self, kind: TestKind) -> Option<Span> {
        self.gap.filter(|_| kind.is_paced())
    }
}
