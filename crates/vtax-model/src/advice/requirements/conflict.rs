//! Requirements that contradict each other or cannot be met by anything.

use super::{RequiredDevice, Requirement, RequirementOptions};
use crate::units::Span;

/// Requirement that is meaningless, alone or in combination with another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum RequirementsError {
    #[error("invalid {key} {value}: {remedy}")]
    #[diagnostic(code("out-of-range"))]
    Impossible { key: Requirement, value: String, remedy: &'static str },
    #[error("{first} conflicts with {second}: {why}")]
    #[diagnostic(code("options-clash"))]
    Conflict { key: Requirement, first: String, second: String, why: &'static str },
}

impl RequirementsError {
    /// Requirement to change.
    pub fn key(&self) -> Requirement {
        match self {
            RequirementsError::Impossible { key, .. } | RequirementsError::Conflict { key, .. } => *key,
        }
    }
}

/// Returns the first error.
pub(super) fn find(options: &RequirementOptions) -> Option<RequirementsError> {
    impossible(options).or_else(|| percentiles(options)).or_else(|| rates(options)).or_else(|| devices(options))
}

fn impossible(options: &RequirementOptions) -> Option<RequirementsError> {
    let wrong = |key, value: String, remedy| Some(RequirementsError::Impossible { key, value, remedy });
    if options.guests == Some(0) {
        return wrong(Requirement::Guests, "0".to_owned(), "use at least 1");
    }
    let is_zero = |(_, span): &(Requirement, Span)| span.0.is_zero();
    if let Some((key, span)) = times(options).into_iter().find(is_zero) {
        return wrong(key, span.to_string(), "a time must be above 0; use e.g. 150us");
    }
    match options.host_cpu_at_most {
        Some(cores) if !(cores.is_finite() && cores > 0.0) => {
            wrong(Requirement::HostCpuAtMost, cores.to_string(), "use a number of cores above 0, e.g. 2.5")
        }
        _ => None,
    }
}

/// Percentiles in ascending order.
fn times(options: &RequirementOptions) -> Vec<(Requirement, Span)> {
    let all = [(Requirement::P50, options.p50), (Requirement::P99, options.p99), (Requirement::P999, options.p999)];
    all.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
}

/// A lower percentile is never longer than a higher one, so its target has no effect if it is.
fn percentiles(options: &RequirementOptions) -> Option<RequirementsError> {
    let times = times(options);
    let pair = times.windows(2).find(|pair| pair[0].1 > pair[1].1)?;
    let [(key, lower), (above, higher)] = [pair[0], pair[1]];
    Some(RequirementsError::Conflict {
        key,
        first: format!("{key} {lower}"),
        second: format!("{above} {higher}"),
        why: "a lower percentile is never longer than a higher one; omit the first, or raise the second",
    })
}

fn rates(options: &RequirementOptions) -> Option<RequirementsError> {
    let (limit, bandwidth) = options.rate_limit.zip(options.bandwidth)?;
    (limit < bandwidth).then(|| RequirementsError::Conflict {
        key: Requirement::RateLimit,
        first: format!("{} {limit}", Requirement::RateLimit),
        second: format!("{} {bandwidth}", Requirement::Bandwidth),
        why: "a guest cannot have more bandwidth than its limit; raise the limit, or require less",
    })
}

/// A figure or a setting of a device requires the device.
fn devices(options: &RequirementOptions) -> Option<RequirementsError> {
    const NET: &[RequiredDevice] = &[RequiredDevice::Net];
    const DISK: &[RequiredDevice] = &[RequiredDevice::Disk];
    const EITHER: &[RequiredDevice] = &[RequiredDevice::Net, RequiredDevice::Disk];
    let needs = [
        (Requirement::P50, options.p50.is_some(), EITHER, "a time is measured at a NIC or a disk; add net or disk"),
        (Requirement::P99, options.p99.is_some(), EITHER, "a time is measured at a NIC or a disk; add net or disk"),
        (Requirement::P999, options.p999.is_some(), EITHER, "a time is measured at a NIC or a disk; add net or disk"),
        (
            Requirement::Bandwidth,
            options.bandwidth.is_some(),
            EITHER,
            "bandwidth is measured at a NIC or a disk; add net or disk",
        ),
        (Requirement::Iops, options.iops.is_some(), DISK, "IOPS are measured at disks; add disk"),
        (Requirement::Vlan, options.vlan, NET, "only NICs have VLANs; add net"),
        (Requirement::RateLimit, options.rate_limit.is_some(), NET, "the limit is that of a NIC; add net"),
    ];
    let has_any = |of: &[RequiredDevice]| options.device.iter().any(|device| of.contains(device));
    let lacks = |(_, is_required, of, _): &(Requirement, bool, &[RequiredDevice], &str)| *is_required && !has_any(of);
    let is_given = !options.device.is_empty();
    let (key, .., why) = needs.into_iter().filter(|_| is_given).find(lacks)?;
    let names: Vec<String> = options.device.iter().map(ToString::to_string).collect();
    let second = format!("{} {}", Requirement::Device, names.join(","));
    Some(RequirementsError::Conflict { key, first: key.to_string(), second, why })
}
