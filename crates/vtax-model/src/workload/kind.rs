//! The kinds of test, each with what others ask of it.

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

use crate::metric::Metric;

/// The kinds of test, without their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TestKind {
    /// Request and response: the round-trip time.
    #[strum(to_string = "RR")]
    Rr,
    /// Connect, request, response, close: what a short-lived connection costs.
    #[strum(to_string = "CRR")]
    Crr,
    /// Connect and close.
    #[strum(to_string = "CC")]
    Cc,
    /// Bytes from the initiator, as fast as they go: the goodput at the receiver.
    Stream,
    /// The same from the responder (netperf's "stream" read backwards).
    Maerts,
    /// Both at once, on flows of their own.
    Bidirectional,
    /// A file from the sender's disk into a file at the receiver: real, user, sys.
    File,
}

/// What a test does again and again, and what its CPU time is told for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkUnit {
    /// Something that begins and ends.
    Transaction,
    /// 1,024 bytes of payload.
    Kilobyte,
}

/// The words for what a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestQuantity {
    /// At the head of a column.
    pub short: &'static str,
    /// In a title.
    pub full: &'static str,
}

struct KindEntry {
    kind: TestKind,
    quantity: TestQuantity,
    /// What it is compared by; the first is what it is judged by.
    metrics: &'static [Metric],
    work: WorkUnit,
}

/// One entry for each, in the order of the variants.
const KINDS: [KindEntry; TestKind::COUNT] = [
    KindEntry {
        kind: TestKind::Rr,
        quantity: TestQuantity { short: "RTT", full: "RTT" },
        metrics: &[Metric::Rtt, Metric::Cpu],
        work: WorkUnit::Transaction,
    },
    KindEntry {
        kind: TestKind::Crr,
        quantity: TestQuantity { short: "CRR", full: "CRR" },
        metrics: &[Metric::Rtt, Metric::Cpu],
        work: WorkUnit::Transaction,
    },
    KindEntry {
        kind: TestKind::Cc,
        quantity: TestQuantity { short: "CC", full: "CC" },
        metrics: &[Metric::Rtt, Metric::Cpu],
        work: WorkUnit::Transaction,
    },
    KindEntry {
        kind: TestKind::Stream,
        quantity: TestQuantity { short: "Bandwidth", full: "Bandwidth" },
        metrics: &[Metric::Goodput, Metric::Cpu],
        work: WorkUnit::Kilobyte,
    },
    KindEntry {
        kind: TestKind::Maerts,
        quantity: TestQuantity { short: "Reverse", full: "Reverse bandwidth" },
        metrics: &[Metric::Goodput, Metric::Cpu],
        work: WorkUnit::Kilobyte,
    },
    KindEntry {
        kind: TestKind::Bidirectional,
        quantity: TestQuantity { short: "Both ways", full: "Bandwidth both ways" },
        metrics: &[Metric::Goodput, Metric::Cpu],
        work: WorkUnit::Kilobyte,
    },
    KindEntry {
        kind: TestKind::File,
        quantity: TestQuantity { short: "Time", full: "Time (real)" },
        metrics: &[Metric::Real, Metric::Cpu],
        work: WorkUnit::Kilobyte,
    },
];

const _: () = {
    let mut index = 0;
    while index < TestKind::COUNT {
        assert!(KINDS[index].kind as usize == index, "each entry stands at its variant");
        index += 1;
    }
};

impl TestKind {
    const COUNT: usize = TestKind::VARIANTS.len();

    /// All of them, in the order of tables.
    pub const ALL: [TestKind; TestKind::COUNT] = *TestKind::VARIANTS.as_array().expect("as many");

    fn entry(self) -> &'static KindEntry {
        &KINDS[self as usize]
    }

    /// What it measures, in words.
    pub fn quantity(self) -> TestQuantity {
        self.entry().quantity
    }

    /// What it is compared by; the first is what it is judged by.
    pub fn metrics(self) -> &'static [Metric] {
        self.entry().metrics
    }

    /// What it does again and again.
    pub fn work_unit(self) -> WorkUnit {
        self.entry().work
    }

    /// Whether its figure is the time of a transaction.
    pub fn is_transactions(self) -> bool {
        self.work_unit() == WorkUnit::Transaction
    }

    /// Whether its figure is a goodput.
    pub fn is_stream(self) -> bool {
        matches!(self, TestKind::Stream | TestKind::Maerts | TestKind::Bidirectional)
    }
}
