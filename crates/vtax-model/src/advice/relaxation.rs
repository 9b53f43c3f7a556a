//! Requirements that admit a method if they are relaxed.

use std::fmt;

use serde::Serialize;

use super::{
    figure::{FigureRole, FigureTarget},
    requirements::{RequiredDevice, Requirement, RequirementOptions, Requirements, RequirementsError},
};
use crate::{
    method::Isolation,
    options::RequestRate,
    units::{BitRate, Span},
};

/// Change of one requirement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change", content = "to")]
pub enum RelaxedTo {
    /// The requirement is dropped.
    Dropped(Requirement),
    /// At most this many guests.
    Guests(u32),
    /// This part of the system or hardware need not be exclusive, only the other one.
    Isolation(Isolation),
    /// The device is attached by another method.
    WithoutDevice(RequiredDevice),
    /// Another target.
    Target(FigureTarget),
}

impl RelaxedTo {
    /// Requirement that is changed.
    pub fn requirement(self) -> Requirement {
        match self {
            RelaxedTo::Dropped(requirement) => requirement,
            RelaxedTo::Guests(_) => Requirement::Guests,
            RelaxedTo::Isolation(_) => Requirement::Isolation,
            RelaxedTo::WithoutDevice(_) => Requirement::Device,
            RelaxedTo::Target(target) => target.role.requirement(),
        }
    }

    /// Returns a target that a figure with this worse bound meets, rounded to two digits in its favour; `None` if no
    /// requirement can state it.
    pub(super) fn target(role: FigureRole, worst: f64) -> Option<RelaxedTo> {
        let is_upper = FigureTarget { role, at: worst }.is_met_by(worst * 0.5);
        let exponent = (worst.log10().floor() - 1.0).max(if role == FigureRole::Iops { 0.0 } else { f64::MIN });
        let digits = worst / 10f64.powf(exponent);
        let digits = if is_upper { digits.ceil() } else { digits.floor() };
        let rounded: f64 = format!("{digits}e{exponent}").parse().ok()?;
        let can_be_stated = match role {
            FigureRole::P50 | FigureRole::P99 | FigureRole::P999 => (1e-3..1e12).contains(&rounded),
            FigureRole::Bandwidth => (1e-6..1e9).contains(&rounded),
            FigureRole::Iops => (1.0..f64::from(u32::MAX)).contains(&rounded),
            FigureRole::HostCpu => rounded.is_finite() && rounded > 0.0,
        };
        can_be_stated.then_some(RelaxedTo::Target(FigureTarget { role, at: rounded }))
    }
}

impl Requirements {
    /// Returns the requirements with this change.
    pub fn relaxed(&self, to: RelaxedTo) -> Result<Requirements, RequirementsError> {
        let mut options = self.options().clone();
        match to {
            RelaxedTo::Dropped(requirement) => drop_one(&mut options, requirement),
            RelaxedTo::Guests(guests) => options.guests = Some(guests),
            RelaxedTo::Isolation(isolation) => options.isolation = Some(isolation),
            RelaxedTo::WithoutDevice(device) => {
                options.device = self.devices().into_iter().filter(|other| *other != device).collect();
            }
            RelaxedTo::Target(target) => set(&mut options, target),
        }
        Requirements::new(options)
    }
}

fn drop_one(options: &mut RequirementOptions, requirement: Requirement) {
    match requirement {
        Requirement::Guests => options.guests = None,
        Requirement::P50 => options.p50 = None,
        Requirement::P99 => options.p99 = None,
        Requirement::P999 => options.p999 = None,
        Requirement::Bandwidth => options.bandwidth = None,
        Requirement::Iops => options.iops = None,
        Requirement::HostCpuAtMost => options.host_cpu_at_most = None,
        Requirement::Migrate => options.migrate = None,
        Requirement::Isolation => options.isolation = None,
        Requirement::Device => options.device.clear(),
        Requirement::Availability => options.availability = None,
        Requirement::Hotplug => options.hotplug = false,
        Requirement::Vlan => options.vlan = false,
        Requirement::RateLimit => options.rate_limit = None,
    }
}

fn set(options: &mut RequirementOptions, FigureTarget { role, at }: FigureTarget) {
    match role {
        FigureRole::P50 => options.p50 = Some(micros(at)),
        FigureRole::P99 => options.p99 = Some(micros(at)),
        FigureRole::P999 => options.p999 = Some(micros(at)),
        FigureRole::Bandwidth => options.bandwidth = BitRate::new((at * 1e6).round() as u64),
        FigureRole::Iops => options.iops = RequestRate::new(at as u32),
        FigureRole::HostCpu => options.host_cpu_at_most = Some(at),
    }
}

fn micros(at: f64) -> Span {
    Span(std::time::Duration::from_nanos((at * 1e3).round() as u64))
}

impl fmt::Display for RelaxedTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelaxedTo::Dropped(Requirement::Migrate) => f.write_str("--migrate no"),
            RelaxedTo::Dropped(Requirement::Availability) => f.write_str("--availability no"),
            RelaxedTo::Dropped(requirement) => write!(f, "without --{requirement}"),
            RelaxedTo::Guests(guests) => write!(f, "--guests {guests}"),
            RelaxedTo::Isolation(isolation) => write!(f, "--isolation {isolation}"),
            RelaxedTo::WithoutDevice(device) => write!(f, "without --device {device}, attached by another method"),
            RelaxedTo::Target(FigureTarget { role, at }) => {
                let value = match role {
                    FigureRole::P50 | FigureRole::P99 | FigureRole::P999 => micros(*at).to_string(),
                    FigureRole::Bandwidth if *at >= 1e3 => format!("{}G", at / 1e3),
                    FigureRole::Bandwidth => format!("{at}M"),
                    FigureRole::Iops | FigureRole::HostCpu => at.to_string(),
                };
                write!(f, "--{} {}", role.requirement(), value.replace(' ', ""))
            }
        }
    }
}

/// Single requirement that admits a method if it is relaxed, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Relaxation {
    /// Change.
    #[serde(flatten)]
    pub to: RelaxedTo,
    /// Set if the method then meets all requirements; otherwise it remains to be measured.
    pub meets: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::VariantArray;

    use super::*;

    proptest! {
        #[test]
        fn a_relaxed_target_is_met_and_close(role in prop::sample::select(FigureRole::VARIANTS), log in -1.0..8.0f64) {
            let worst = 10f64.powf(log);
            if let Some(RelaxedTo::Target(target)) = RelaxedTo::target(role, worst) {
                prop_assert!(target.is_met_by(worst), "{target:?} {worst}");
                let step = if role == FigureRole::Iops { 1.0 } else { 0.0 };
                prop_assert!((target.at - worst).abs() <= f64::max(0.11 * worst, step), "{target:?} {worst}");
            }
        }

        #[test]
        fn a_relaxed_requirement_is_one_that_can_be_written(
            role in prop::sample::select(FigureRole::VARIANTS), log in 0.0..6.0f64
        ) {
            let to = RelaxedTo::target(role, 10f64.powf(log)).expect("an ordinary figure");
            let relaxed = Requirements::new(RequirementOptions::default()).and_then(|all| all.relaxed(to));
            let target = relaxed.expect("a good requirement").targets()[0];
            let RelaxedTo::Target(asked) = to else { panic!("{to:?}") };
            prop_assert!((target.at / asked.at - 1.0).abs() < 1e-6, "{target:?} {to}");
            prop_assert!(to.to_string().split(' ').count() == 2, "{to}");
        }
    }
}
