//! The forecast of a migration, as it is printed.

use serde::Serialize;
use vtax_model::{
    foreign::ForeignText,
    migration::{
        ForecastInterval, MemoryMeasurement, MigrationForecast, MigrationOutcome, MigrationRemedies, MigrationSettings,
    },
    topology::Name,
};

/// Forecast, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum MigrationEstimate {
    Forecast(MigrationForecast),
    None(NoForecast),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub(super) enum NoForecast {
    NotRunning,
    Unknown { why: ForeignText },
}

/// Units of a quantity, smallest first, each with its factor.
type Units = &'static [(f64, &'static str)];

const TIMES: Units = &[(1e-3, "ms"), (1.0, "s")];
const RATES: Units = &[(1e6, "MB/s"), (1e9, "GB/s")];

impl MigrationEstimate {
    pub(super) fn new(memory: MemoryMeasurement, settings: &MigrationSettings) -> MigrationEstimate {
        match memory {
            MemoryMeasurement::NotRunning => MigrationEstimate::None(NoForecast::NotRunning),
            MemoryMeasurement::Unknown { why } => MigrationEstimate::None(NoForecast::Unknown { why }),
            MemoryMeasurement::Measured(memory) => {
                MigrationEstimate::Forecast(MigrationForecast::new(&memory, settings))
            }
        }
    }

    pub(super) fn text(&self, domain: &Name) -> String {
        let forecast = match self {
            MigrationEstimate::Forecast(forecast) => forecast,
            MigrationEstimate::None(NoForecast::NotRunning) => {
                return format!("{domain} is not running, so no memory moves");
            }
            MigrationEstimate::None(NoForecast::Unknown { why }) => return format!("unknown: {why}"),
        };
        let rate = amount(forecast.dirty_bytes_per_second.0 as f64, RATES);
        let connection = interval(forecast.bandwidth_bytes_per_second, RATES);
        let premises = format!("at a dirty rate of {rate}, assuming a connection of {connection}");
        match &forecast.outcome {
            MigrationOutcome::Converges { total_seconds, suspended_seconds, .. } => {
                let (total, suspended) = (interval(*total_seconds, TIMES), interval(*suspended_seconds, TIMES));
                format!("{total} in total, suspended for {suspended}, {premises}")
            }
            MigrationOutcome::DoesNotConverge { might, remedies } => {
                let verdict = if *might { "it is unlikely to converge" } else { "it does not converge" };
                format!("{verdict} {premises}; {}", advice(remedies, domain))
            }
        }
    }
}

fn advice(remedies: &MigrationRemedies, domain: &Name) -> String {
    let MigrationRemedies { required_bytes_per_second, required_max_suspend_seconds } = remedies;
    let mut all = Vec::new();
    all.extend(required_bytes_per_second.map(|rate| format!("use a connection of {}", amount(rate, RATES))));
    all.extend(required_max_suspend_seconds.map(|time| {
        let option = amount(time, TIMES).replace(' ', "");
        format!("set --max-suspend {option}")
    }));
    all.push("use --auto-converge".to_owned());
    format!("{}, or reduce the load of {domain}", all.join(", "))
}

/// Formats the value with its unit, and the interval in the same unit: `11 s [9, 14]`.
fn interval(it: ForecastInterval, units: Units) -> String {
    let (factor, _) = unit(it.value, units);
    let digits = |value: f64| two_digits(value / factor);
    let bounds = (digits(it.low), it.high.map_or_else(|| "no limit".to_owned(), digits));
    match bounds {
        (low, high) if low == high => amount(it.value, units),
        (low, high) => format!("{} [{low}, {high}]", amount(it.value, units)),
    }
}

fn amount(value: f64, units: Units) -> String {
    let (factor, name) = unit(value, units);
    format!("{} {name}", two_digits(value / factor))
}

/// Returns the largest unit of which there is one.
fn unit(value: f64, units: Units) -> (f64, &'static str) {
    // 999.6 ms are printed as 1 s.
    units.iter().rev().copied().find(|(factor, _)| value >= factor * 0.995).unwrap_or(units[0])
}

/// Formats two significant digits: 0.71, 9.5, 11, 140.
fn two_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.1e}").parse().expect("what was just written as a number");
    let decimals = if rounded == 0.0 { 0.0 } else { (1.0 - rounded.abs().log10().floor()).clamp(0.0, 3.0) };
    let text = format!("{rounded:.0$}", decimals as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vtax_model::{
        guest::Accelerator,
        migration::{ChangedMemory, GuestMemory},
        units::{BitRate, ByteSize},
    };

    use super::*;

    const MB: u64 = 1_000_000;

    /// Returns the estimate of a guest that uses 2 GB and changes this many MB in one second, and in two.
    fn told(one: u64, two: u64, settings: &MigrationSettings) -> String {
        let changed = ChangedMemory { in_one_second: ByteSize(one * MB), in_two_seconds: ByteSize(two * MB) };
        let memory =
            GuestMemory { size: ByteSize(4_000 * MB), used: ByteSize(2_000 * MB), changed, accel: Accelerator::Kvm };
        MigrationEstimate::new(MemoryMeasurement::Measured(memory), settings).text(&"mars".parse().expect("a name"))
    }

    fn at(speed: &str) -> MigrationSettings {
        let bandwidth: BitRate = speed.parse().expect("a rate");
        MigrationSettings { bandwidth: Some(bandwidth), ..MigrationSettings::default() }
    }

    #[test]
    fn an_estimate_has_its_intervals_and_premises() {
        let usual = MigrationSettings::default();
        let settings = [usual, at("1G"), MigrationSettings { encrypted: false, ..usual }];
        let told = settings.map(|settings| told(20, 38, &settings)).join("\n");
        insta::assert_snapshot!(told);
    }

    #[test]
    fn an_estimate_that_does_not_converge_names_remedies() {
        let long = MigrationSettings { max_suspend: Duration::from_secs(100), ..at("100M") };
        insta::assert_snapshot!(
            [
                told(200, 400, &at("1G")),
                told(130, 260, &at("1G")),
                told(90, 180, &at("1G")),
                told(4_000, 4_000, &MigrationSettings { time: Duration::from_secs(100), ..long }),
            ]
            .join("\n")
        );
    }

    #[test]
    fn a_domain_without_figures_has_a_reason() {
        let mars = "mars".parse().expect("a name");
        let why = MemoryMeasurement::Unknown { why: "QEMU is\u{1b}[2J busy".into() };
        let estimate = MigrationEstimate::new(why, &MigrationSettings::default());
        assert_eq!(estimate.text(&mars), "unknown: QEMU is\\u001b[2J busy");
    }

    #[test]
    fn numbers_have_two_digits_and_the_unit_that_fits() {
        let texts = [0.0, 0.0004, 0.7123, 0.9961, 9.96, 137.0].map(|value| amount(value, TIMES));
        assert_eq!(texts, ["0 ms", "0.4 ms", "710 ms", "1 s", "10 s", "140 s"]);
        assert_eq!([2.5e5, 86e6, 1.26e9].map(|value| amount(value, RATES)), ["0.25 MB/s", "86 MB/s", "1.3 GB/s"]);
    }
}
