//! The sizes and pauses that a study or `vtax measure` goes through.

use crate::{
    units::{ByteSize, Span},
    workload::{Direction, TestKind, Workload},
};

/// A size and a pause that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepPoint {
    /// The size of requests, responses and messages; without it, the test has sizes of its own.
    pub size: Option<ByteSize>,
    /// How long an rr flow idles before each request.
    pub gap: Option<Span>,
    is_first_size: bool,
    is_first_gap: bool,
}

/// The sizes of a test, as far as it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestSizes {
    /// The bytes of a request.
    pub request: ByteSize,
    /// The bytes of a response.
    pub response: ByteSize,
    /// The bytes that a stream sends with each call.
    pub message: ByteSize,
    /// The bytes of a file.
    pub file: ByteSize,
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

    /// Whether a test is measured at this point: one without sizes or without pauses at the first of them only.
    pub fn concerns(self, kind: TestKind) -> bool {
        let is_sized = !matches!(kind, TestKind::Cc | TestKind::File);
        (self.is_first_size || is_sized) && (self.is_first_gap || kind == TestKind::Rr)
    }

    /// The pause, if the test has pauses.
    pub fn gap_of(self, kind: TestKind) -> Option<Span> {
        self.gap.filter(|_| kind == TestKind::Rr)
    }
}

impl TestSizes {
    /// What a test with these sizes sends.
    pub fn workload(self, kind: TestKind) -> Workload {
        let TestSizes { request, response, message, file } = self;
        match kind {
            TestKind::Rr => Workload::Rr { request, response },
            TestKind::Crr => Workload::Crr { request, response },
            TestKind::Cc => Workload::Cc,
            TestKind::Stream => Workload::Stream { message, direction: Direction::Forward },
            TestKind::Maerts => Workload::Stream { message, direction: Direction::Reverse },
            TestKind::Bidirectional => Workload::Stream { message, direction: Direction::Both },
            TestKind::File => Workload::File { size: file },
        }
    }
}
