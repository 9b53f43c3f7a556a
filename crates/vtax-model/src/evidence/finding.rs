//! Findings: one per cell and metric of a complete run.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::EvidenceSetting;
use crate::{
    cell::{Cell, Medium},
    guest::{Attach, Backend, Flavour, VirtioNic, Vnet},
    method::{DomainKind, IoMethod, MethodVariant},
    metric::{Metric, SampleFigure},
    result::{CellRecord, ResultDocument, SummaryRecord},
    run::RunState,
    study::{Queueing, Row},
};
use vtax_stats::Verdict;

/// Version of the analysis that computes findings. Increase it if a change of the analysis changes any of them: stored
/// findings of older versions are then computed again.
pub const ANALYSIS_VERSION: u32 = 3;

/// Estimate of one metric of one cell, with the conditions under which it was measured.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvidenceFinding {
    /// ID of the run.
    pub run: String,
    /// Start of the run (RFC 3339, UTC).
    pub started: String,
    /// [`ANALYSIS_VERSION`] of the analysis that computed it.
    pub analysis: u32,
    /// Method, test, transport, sizes, streams or depth, MTU, and measurement mode.
    #[serde(flatten)]
    pub cell: Cell,
    /// Conditions that decide its validity.
    pub setting: EvidenceSetting,
    /// Metric of the value.
    pub metric: Metric,
    /// Unit of the value, e.g. `µs`.
    pub unit: String,
    /// Mean over rounds.
    pub value: f64,
    /// Lower bound of the 95 % interval; absent with fewer than two rounds.
    pub low: Option<f64>,
    /// Upper bound of the interval.
    pub high: Option<f64>,
    /// Number of rounds.
    pub rounds: usize,
    /// Transactions or I/Os per second of all endpoints together; only next to their mean time.
    pub rate: Option<EvidenceRate>,
    /// Comparison with the baseline; absent for the baseline itself.
    pub tax: Option<EvidenceTax>,
}

/// Rate at which a cell's transactions were measured.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvidenceRate {
    /// Mean over rounds, per second.
    pub value: f64,
    /// Lower bound of the 95 % interval; absent with fewer than two rounds.
    pub low: Option<f64>,
    /// Upper bound of the interval.
    pub high: Option<f64>,
}

/// Comparison of a finding with the baseline of its run.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvidenceTax {
    /// Row that it is compared with.
    pub baseline: Row,
    /// Cell over baseline.
    pub ratio: f64,
    /// Lower bound of the ratio's 95 % interval.
    pub low: f64,
    /// Upper bound of the ratio's 95 % interval.
    pub high: f64,
    /// p after Holm's correction.
    pub p_adjusted: f64,
    /// Result of the test after Holm's correction.
    pub verdict: Verdict,
    /// If no difference is shown: the upper limit of how much worse the cell is, as a share of the
    /// baseline's figure.
    pub at_most: Option<f64>,
    /// Set if a difference is shown that is within the baseline's noise floor.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub within_floor: bool,
}

/// Returns the findings of a complete run; none of any other run.
pub fn findings(run: &ResultDocument) -> Vec<EvidenceFinding> {
    if run.state != RunState::Complete {
        return Vec::new();
    }
    run.cells.iter().flat_map(|record| of_cell(run, record)).collect()
}

fn of_cell(run: &ResultDocument, record: &CellRecord) -> Vec<EvidenceFinding> {
    let (cell, test) = (record.cell, record.cell.kind());
    let Some(summary) = &record.summary else { return Vec::new() };
    let setting = EvidenceSetting::of(run, record);
    let finding = |metric: &Metric| {
        // JSON has no other numbers.
        let estimate = summary.estimate(metric.figure(test)).filter(|estimate| estimate.mean.is_finite())?;
        let interval = estimate.low.zip(estimate.high).filter(|(low, high)| low.is_finite() && high.is_finite());
        let (low, high) = interval.unzip();
        Some(EvidenceFinding {
            run: run.id.clone(),
            started: run.started.clone(),
            analysis: ANALYSIS_VERSION,
            cell,
            setting: setting.clone(),
            metric: *metric,
            unit: metric.unit(test).to_owned(),
            value: estimate.mean,
            low,
            high,
            rounds: estimate.n,
            rate: rate(summary, *metric),
            tax: tax(run, record, *metric),
        })
    };
    test.metrics().iter().filter_map(finding).collect()
}

/// Returns the rate of transactions where the metric is their mean time.
fn rate(summary: &SummaryRecord, metric: Metric) -> Option<EvidenceRate> {
    let figure = match metric {
        Metric::Rtt => SampleFigure::Rate,
        Metric::Response => SampleFigure::Iops,
        _ => return None,
    };
    let estimate = summary.estimate(figure).filter(|estimate| estimate.mean.is_finite())?;
    let interval = estimate.low.zip(estimate.high).filter(|(low, high)| low.is_finite() && high.is_finite());
    let (low, high) = interval.unzip();
    Some(EvidenceRate { value: estimate.mean, low, high })
}

fn tax(run: &ResultDocument, record: &CellRecord, metric: Metric) -> Option<EvidenceTax> {
    let tax = record.tax_of(metric)?;
    let numbers = [tax.ratio, tax.low, tax.high, tax.p_adjusted];
    numbers.iter().all(|number| number.is_finite()).then(|| EvidenceTax {
        baseline: record.cell.row.reference(run.baseline),
        ratio: tax.ratio,
        low: tax.low,
        high: tax.high,
        p_adjusted: tax.p_adjusted,
        verdict: tax.verdict,
        at_most: tax.at_most.filter(|share| share.is_finite()),
        within_floor: tax.within_floor,
    })
}

impl EvidenceFinding {
    /// Returns the I/O method of a row, or else the row.
    pub fn method_of(row: Row) -> String {
        row.method().map_or_else(|| row.to_string(), |method| method.to_string())
    }

    /// Returns the row of the table of capabilities that describes how the domain is attached.
    pub fn variant(&self) -> Option<MethodVariant> {
        let method = self.cell.row.method()?;
        Some(match (self.setting.domain?, method) {
            (DomainKind::Zone, method) => MethodVariant::of_zone(method),
            (_, IoMethod::Paravirtual) => {
                let backend = self.setting.device.and_then(backend);
                MethodVariant::of_guest(&Attach::Paravirtual(VirtioNic {
                    backend,
                    vnet: vnet(self.cell.row),
                    ..VirtioNic::default()
                }))
            }
            (domain, method) => MethodVariant { method, domain, virtio: None },
        })
    }

    /// Returns the name of the test, e.g. `TCP RR` or `random`.
    pub fn test(&self) -> String {
        match self.cell.medium() {
            Medium::Disk | Medium::Memory => self.cell.kind().to_string(),
            medium @ Medium::Net(_) => format!("{medium} {}", self.cell.kind()),
        }
    }
}

fn backend(flavour: Flavour) -> Option<Backend> {
    match flavour {
        Flavour::Backend(backend) => Some(backend),
        Flavour::Model(_) => None,
    }
}

fn vnet(row: Row) -> Vnet {
    if row == Row::Queue(Queueing::PerGuest) { Vnet::Macvtap } else { Vnet::Bridge }
}
