//! Questions that charts answer, by which a page groups them.

use strum::EnumIter;
use vtax_model::workload::{TestFamily, TestKind};
use vtax_plot::Chart;

/// Question that charts answer. A page groups its charts by it, in this order.
#[derive(Clone, Copy, PartialEq, Eq, EnumIter)]
pub(crate) enum ChartTopic {
    Latency,
    Bandwidth,
    Transfers,
    Migrations,
    Distribution,
    CpuTime,
    OverTime,
}

/// Charts of a page that answer the same question.
pub(crate) struct ChartGroup {
    /// Empty if the page has only these.
    pub(crate) title: &'static str,
    pub(crate) charts: Vec<Chart>,
}

impl ChartTopic {
    pub(crate) fn of(test: TestKind) -> ChartTopic {
        match test.family() {
            TestFamily::Transactions => ChartTopic::Latency,
            TestFamily::Streams => ChartTopic::Bandwidth,
            TestFamily::Files => ChartTopic::Transfers,
            TestFamily::Migrations => ChartTopic::Migrations,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            ChartTopic::Latency => "Latency",
            ChartTopic::Bandwidth => "Bandwidth",
            ChartTopic::Transfers => "File transfers",
            ChartTopic::Migrations => "Migrations",
            ChartTopic::Distribution => "Distribution",
            ChartTopic::CpuTime => "CPU time",
            ChartTopic::OverTime => "Over time",
        }
    }
}
