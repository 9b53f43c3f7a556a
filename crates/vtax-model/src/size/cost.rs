//! Cost of a service in cores: fitted from measurements, predicted for the target.

use serde::{Deserialize, Serialize};
use vtax_stats::{Confidence, LinearFit, LinearPrediction, RegressionError, RegressionRow};

use super::{ServiceLoad, SizeError, SizedService, service::Predictor};

/// CPU time that a load took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostPoint {
    #[serde(flatten)]
    pub load: ServiceLoad,
    /// Method that was measured, e.g. the name of its row.
    pub method: String,
    /// CPU seconds per second of everything outside the guests.
    pub cores: f64,
    /// Run with the sample.
    pub run: String,
}

/// Predicted number of cores, with the bounds of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreRange {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

/// Terms of a cost. A term that the service doesn't have, or that its measurements don't separate, is absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostTerms {
    pub fixed_cores: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_packet: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_io: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_byte: Option<f64>,
}

/// Cores that a service needs for its part of the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceNeed {
    /// Part of the target that this service carries.
    pub target: ServiceLoad,
    pub method: String,
    pub cores: CoreRange,
    pub terms: CostTerms,
    /// Target as a multiple of the highest measured rate, if above 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extrapolated: Option<f64>,
    /// Set if all measurements have the target's message size, so that the terms are valid for no other.
    #[serde(skip_serializing_if = "crate::is_default", default)]
    pub one_message_size: bool,
    /// Number of measurements near the target.
    pub points: usize,
    /// Number of different rates among them.
    pub rates: usize,
    /// Runs with these measurements.
    pub runs: Vec<String>,
}

/// Minimum number of rates: a line through two fits any cost.
const FEWEST_RATES: usize = 3;
/// Rates within this factor count as one: an open loop doesn't keep its rate exactly.
const SAME_RATE: f64 = 1.05;
/// Shares of the target between which a measurement is near it. The cost of a message falls as its rate rises and
/// batches grow: a request cost 143 µs of CPU time at 300 per second, and 77 µs at 3,839.
const NEAR: std::ops::RangeInclusive<f64> = 0.25..=4.0;
/// Multiple of the highest measured rate up to which a line is extrapolated.
const FARTHEST: f64 = 1.5;
/// Tolerance up to which a rate counts as measured.
const AT_MOST_MEASURED: f64 = 1.01;
/// Relative difference of sizes up to which they are one: headers and acknowledgements vary with the rate.
const SAME_SIZE: f64 = 0.05;

impl ServiceNeed {
    /// Predicts the cost of a load from the measurements of its service near it.
    pub fn of(target: &ServiceLoad, points: &[CostPoint]) -> Result<ServiceNeed, SizeError> {
        let service = target.service;
        let of_service: Vec<&CostPoint> = points.iter().filter(|point| point.load.service == service).collect();
        check(service, &of_service)?;
        let is_near = |point: &&&CostPoint| NEAR.contains(&point.load.share_of(target));
        let near: Vec<&CostPoint> = of_service.iter().filter(is_near).copied().collect();
        let times = beyond(target, if near.is_empty() { &of_service } else { &near });
        if times > FARTHEST {
            return Err(SizeError::BeyondMeasured { service, times, most: FARTHEST });
        }
        let rates = rates(target, &near);
        if rates < FEWEST_RATES {
            return Err(SizeError::TooFewRates { service, given: rates, needed: FEWEST_RATES });
        }
        let (fit, predictors) = fit(target, &near)?;
        if fit.grows_faster() && times > AT_MOST_MEASURED {
            return Err(SizeError::GrowsFaster { service, times });
        }
        let loads: Vec<f64> = predictors.iter().map(|predictor| target.get(*predictor)).collect();
        Ok(ServiceNeed {
            target: *target,
            method: near[0].method.clone(),
            cores: CoreRange::of(fit.predict(&loads, Confidence::P95)),
            terms: CostTerms::of(&fit, predictors),
            extrapolated: (times > AT_MOST_MEASURED).then_some(times),
            one_message_size: predictors.len() < service.predictors().len(),
            points: near.len(),
            rates,
            runs: distinct(near.iter().map(|point| point.run.as_str())),
        })
    }
}

impl CoreRange {
    /// No service uses a negative CPU time.
    fn of(LinearPrediction { estimate, low, high }: LinearPrediction) -> CoreRange {
        CoreRange { estimate: estimate.max(0.0), low: low.max(0.0), high: high.max(0.0) }
    }

    /// Sum of costs that were measured one by one. Their errors may have a common cause, so their bounds are added,
    /// too.
    pub(super) fn sum(ranges: impl Iterator<Item = CoreRange>) -> CoreRange {
        ranges.fold(CoreRange { estimate: 0.0, low: 0.0, high: 0.0 }, |sum, range| CoreRange {
            estimate: sum.estimate + range.estimate,
            low: sum.low + range.low,
            high: sum.high + range.high,
        })
    }
}

impl CostTerms {
    fn of(fit: &LinearFit, predictors: &[Predictor]) -> CostTerms {
        let slope = |wanted: Predictor| {
            let index = predictors.iter().position(|predictor| *predictor == wanted)?;
            Some(fit.slopes()[index] * 1e9)
        };
        CostTerms {
            fixed_cores: fit.fixed(),
            ns_per_packet: slope(Predictor::Packets),
            ns_per_io: slope(Predictor::Ios),
            ns_per_byte: slope(Predictor::Bytes),
        }
    }
}

fn check(service: SizedService, points: &[&CostPoint]) -> Result<(), SizeError> {
    if points.is_empty() {
        return Err(SizeError::NotMeasured(service));
    }
    let valid = |figure: f64| figure >= 0.0 && figure.is_finite();
    let is_invalid = |point: &&CostPoint| {
        let loads = service.predictors().iter().map(|predictor| point.load.get(*predictor));
        let is_without_messages = point.load.messages_per_s() == 0.0 && point.load.bytes_per_s > 0.0;
        is_without_messages || !loads.chain([point.cores]).all(valid)
    };
    if let Some(index) = points.iter().position(is_invalid) {
        return Err(SizeError::InvalidPoint { service, number: index + 1 });
    }
    let methods = distinct(points.iter().map(|point| point.method.as_str()));
    if methods.len() > 1 { Err(SizeError::SeveralMethods { service, methods }) } else { Ok(()) }
}

/// Target as a multiple of the highest measured rate, of the quantity for which it is largest.
fn beyond(target: &ServiceLoad, points: &[&CostPoint]) -> f64 {
    let times = |predictor: &Predictor| {
        let highest = points.iter().map(|point| point.load.get(*predictor)).fold(0.0, f64::max);
        target.get(*predictor) / highest
    };
    target.service.predictors().iter().map(times).fold(0.0, f64::max)
}

/// Number of different shares of the target.
fn rates(target: &ServiceLoad, points: &[&CostPoint]) -> usize {
    let mut shares: Vec<f64> = points.iter().map(|point| point.load.share_of(target)).collect();
    shares.sort_by(f64::total_cmp);
    let mut first = 0.0;
    shares.retain(|share| {
        let differs = *share > first * SAME_RATE;
        first = if differs { *share } else { first };
        differs
    });
    shares.len()
}

/// Fits all predictors of the service, or one if all messages have the target's size.
fn fit(target: &ServiceLoad, points: &[&CostPoint]) -> Result<(LinearFit, &'static [Predictor]), SizeError> {
    let service = target.service;
    let all = service.predictors();
    let (fitted, predictors) = match fit_with(points, all) {
        Err(RegressionError::Collinear { .. }) if is_one_size(target, points) => {
            (fit_with(points, &all[..1]), &all[..1])
        }
        fitted => (fitted, all),
    };
    let error = |error| match error {
        RegressionError::TooFew { given, needed, .. } => SizeError::TooFewPoints { service, given, needed },
        RegressionError::Constant { predictor, .. } => {
            SizeError::NotVaried { service, predictor: predictors[predictor].plural() }
        }
        RegressionError::Collinear { .. } => one_size_only(target, points),
        RegressionError::NotFinite { number, .. } | RegressionError::Predictors { number, .. } => {
            SizeError::InvalidPoint { service, number }
        }
        RegressionError::Falling { predictor, .. } => {
            SizeError::Falling { service, predictor: predictors[predictor].plural() }
        }
    };
    fitted.map(|fit| (fit, predictors)).map_err(error)
}

fn fit_with(points: &[&CostPoint], predictors: &[Predictor]) -> Result<LinearFit, RegressionError> {
    let row = |point: &&CostPoint| RegressionRow {
        predictors: predictors.iter().map(|predictor| point.load.get(*predictor)).collect(),
        response: point.cores,
    };
    LinearFit::of(&points.iter().map(row).collect::<Vec<_>>())
}

/// Returns true if a line through these measurements is right for the target, whatever a message and a byte cost.
fn is_one_size(target: &ServiceLoad, points: &[&CostPoint]) -> bool {
    let size = target.message_size();
    points.iter().all(|point| (point.load.message_size() / size - 1.0).abs() <= SAME_SIZE)
}

fn one_size_only(target: &ServiceLoad, points: &[&CostPoint]) -> SizeError {
    let sizes = points.iter().map(|point| point.load.message_size());
    let measured = sizes.sum::<f64>() / points.len() as f64;
    let service = target.service;
    let other = super::plan::other_size(service, measured);
    SizeError::OneMessageSize { service, message: service.message(), measured, target: target.message_size(), other }
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for text in texts {
        if !found.iter().any(|known| known == text) {
            found.push(text.to_owned());
        }
    }
    found
}
