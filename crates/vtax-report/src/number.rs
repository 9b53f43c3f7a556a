//! Formatting of figures with as many digits as are meaningful.

use vtax_model::{result::SummaryRecord, units::Span};

use crate::view::Value;

/// Formats three significant digits: 9.87, 31.2, 24100.
pub(crate) fn three_digits(value: f64) -> String {
    if !value.is_finite() {
        return "—".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    // Rounded first: 99.96 must become 100, not 100.0.
    let rounded: f64 = format!("{value:.2e}").parse().expect("what was just written as a number");
    let decimals = (2.0 - rounded.abs().log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{rounded:.decimals$}")
}

pub(crate) fn or_dash(value: Option<f64>) -> String {
    value.map_or("—".into(), three_digits)
}

/// Formats seconds as `time` does, with one more digit below 10 s.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        value if !value.is_finite() => "—".into(),
        value if value < 9.995 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

/// Formats a ratio as a change: 1.123 is `+12.3 %`.
pub(crate) fn change(ratio: f64) -> String {
    format!("{} %", signed(ratio))
}

/// Formats a ratio of figures with two or three digits as a change: 1.569 is `+57 %`.
pub(crate) fn whole_change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent {
        size if !size.is_finite() => "— %".into(),
        size if size.abs() < 0.5 => "0 %".into(),
        size => format!("{size:+.0} %"),
    }
}

/// Formats a change with a decimal only below ten percent: `+21 %`, `+2.1 %`.
pub(crate) fn brief_change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent.abs() {
        size if !size.is_finite() => "— %".into(),
        size if size < 0.05 => "0.0 %".into(),
        size if size < 9.95 => format!("{percent:+.1} %"),
        _ => format!("{percent:+.0} %"),
    }
}

/// Formats a bound in percent, rounded up, so that it remains a bound: 0.0143 is `1.5 %`.
pub(crate) fn bound(fraction: f64) -> String {
    // Less the error of binary fractions.
    let up = |value: f64| (value - 1e-9).max(0.0).ceil();
    match fraction * 100.0 {
        percent if !percent.is_finite() => "— %".into(),
        percent if percent <= 9.9 => format!("{:.1} %", up(percent * 10.0) / 10.0),
        percent => format!("{:.0} %", up(percent)),
    }
}

/// Formats a cost and its interval, with as many decimals as the interval makes meaningful: `+2.6` and `[2.4, 2.8]`.
pub(crate) fn cost(cost: f64, low: f64, high: f64) -> [String; 2] {
    let decimals = decimals_of((high - low) / 2.0);
    let interval = format!("[{}, {}]", without_sign_of_zero(low, decimals), without_sign_of_zero(high, decimals));
    [signed_cost(cost, decimals), interval]
}

/// Number of decimals at which the first digit of half the width is the last meaningful one.
fn decimals_of(half: f64) -> usize {
    if half > 0.0 && half.is_finite() { (-half.log10().floor()).clamp(0.0, 4.0) as usize } else { 2 }
}

fn signed_cost(cost: f64, decimals: usize) -> String {
    let text = without_sign_of_zero(cost, decimals);
    let sign = if text.parse::<f64>().is_ok_and(|value| value > 0.0) { "+" } else { "" };
    format!("{sign}{text}")
}

fn without_sign_of_zero(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.parse() == Ok(0.0) { text.trim_start_matches('-').to_owned() } else { text }
}

/// Formats the interval of a ratio, in percent of change: `[+10.1, +14.9]`.
pub(crate) fn interval(low: f64, high: f64) -> String {
    format!("[{}, {}]", signed(low), signed(high))
}

/// Formats the interval of a ratio with the decimals of [`brief_change`] at its wider bound: `[+25, +29]`.
pub(crate) fn brief_interval(low: f64, high: f64) -> String {
    let decimals = usize::from([low, high].iter().all(|end| (end - 1.0).abs() < 0.0995));
    let end = |ratio: f64| match (ratio - 1.0) * 100.0 {
        percent if !percent.is_finite() => "—".to_owned(),
        percent if percent.abs() < 0.5 / 10f64.powi(decimals as i32) => format!("{:.decimals$}", 0.0),
        percent => format!("{percent:+.decimals$}"),
    };
    format!("[{}, {}]", end(low), end(high))
}

fn signed(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent.abs() {
        size if !size.is_finite() => "—".into(),
        size if size < 0.05 => "0.0".into(),
        size if size < 99.95 => format!("{percent:+.1}"),
        _ => format!("{percent:+.0}"),
    }
}

/// Formats a share or a relative difference without a sign, to two digits: 0.0432 is `4.3 %`.
pub(crate) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    match percent {
        p if !p.is_finite() => "—".into(),
        p if p >= 9.95 => format!("{p:.0} %"),
        p if p >= 0.095 || p == 0.0 => format!("{p:.1} %"),
        p if p >= 0.001 => format!("{p:.3} %"),
        _ => "< 0.001 %".into(),
    }
}

/// Formats a mean with the bounds of its interval over samples, which a single sample doesn't have.
pub(crate) fn with_interval(mean: f64, ends: Option<[f64; 2]>) -> String {
    match ends {
        Some([low, high]) => format!("{} [{}, {}]", three_digits(mean), three_digits(low), three_digits(high)),
        None => three_digits(mean),
    }
}

/// Formats a duration in seconds, e.g. `1 min 38 s`.
pub fn waiting(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// Formats a configured duration with spaces, e.g. `4 ms` or `1 min 30 s`.
pub(crate) fn span(span: Span) -> String {
    let spaced = |part: &str| {
        let (count, unit) = part.split_at(part.find(char::is_alphabetic).unwrap_or(part.len()));
        let unit = match unit {
            "m" => "min",
            "us" => "µs",
            other => other,
        };
        format!("{count} {unit}")
    };
    span.to_string().split_whitespace().map(spaced).collect::<Vec<_>>().join(" ")
}

/// Formats a memory size in bytes, e.g. `15.6 GiB`.
pub(crate) fn memory(bytes: u64) -> String {
    let gib = bytes as f64 / (1u64 << 30) as f64;
    if gib < 1.0 { format!("{:.0} MiB", gib * 1024.0) } else { format!("{gib:.1} GiB") }
}

/// Returns e.g. `1 round` or `2 rounds`.
pub(crate) fn counted(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Formats a count with thousands separators: `4,210`.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the messages lost, with their share, if known.
pub(crate) fn lost(summary: &SummaryRecord) -> Value {
    match (summary.lost, summary.lost_share) {
        (None, _) => Value::Absent,
        (Some(lost), Some(share)) if lost > 0 => format!("{lost} ({})", percent(share)).into(),
        (Some(lost), _) => Value::count(lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept() {
        let texts = [0.0, 0.01234, 0.5, 9.874, 9.999, 31.24, 99.96, 100.4, 999.6, 24_137.0, -31.24];
        let expected = ["0", "0.0123", "0.500", "9.87", "10.0", "31.2", "100", "100", "1000", "24100", "-31.2"];
        assert_eq!(texts.map(three_digits), expected);
        assert_eq!(three_digits(f64::NAN), "—");
        assert_eq!(three_digits(1e-9), "0.000000");
    }

    #[test]
    fn changes_have_a_sign_and_one_decimal_below_a_hundred() {
        let ratios = [1.123, 0.9, 1.0001, 2.5, 1.9996, 0.02];
        assert_eq!(ratios.map(change), ["+12.3 %", "-10.0 %", "0.0 %", "+150 %", "+100 %", "-98.0 %"]);
        assert_eq!(interval(0.99, 1.021), "[-1.0, +2.1]");
    }

    #[test]
    fn a_bound_is_rounded_up() {
        assert_eq!(
            [0.0, 0.00035, 0.004, 0.0143, 0.0995, 0.12, 0.1201].map(bound),
            ["0.0 %", "0.1 %", "0.4 %", "1.5 %", "10 %", "12 %", "13 %"]
        );
    }

    #[test]
    fn a_cost_has_the_decimals_of_its_interval() {
        assert_eq!(cost(2.634, 2.41, 2.83), ["+2.6", "[2.4, 2.8]"]);
        assert_eq!(cost(0.0523, -0.021, 0.113), ["+0.05", "[-0.02, 0.11]"]);
        assert_eq!(cost(204.8, 188.0, 221.0), ["+205", "[188, 221]"]);
        assert_eq!(cost(-0.003, -0.06, 0.05), ["0.00", "[-0.06, 0.05]"]);
        assert_eq!(cost(-1.25, -1.25, -1.25), ["-1.25", "[-1.25, -1.25]"]);
        assert_eq!(
            [1.2134, 1.0213, 0.9, 1.0, 2.064].map(brief_change),
            ["+21 %", "+2.1 %", "-10 %", "0.0 %", "+106 %"]
        );
    }

    #[test]
    fn an_interval_has_decimals_where_it_is_near_no_change() {
        assert_eq!(brief_interval(1.253, 1.287), "[+25, +29]");
        assert_eq!(brief_interval(0.9962, 1.0043), "[-0.4, +0.4]");
        assert_eq!(brief_interval(0.9962, 1.3), "[0, +30]");
        assert_eq!([1.569, 1.0, 0.998, 0.879].map(whole_change), ["+57 %", "0 %", "0 %", "-12 %"]);
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 12, 999, 4_210, 1_000_000].map(grouped), ["0", "12", "999", "4,210", "1,000,000"]);
    }

    #[test]
    fn shares_and_times() {
        assert_eq!([0.0, 1e-6, 0.00012, 0.0432, 0.5].map(percent), ["0.0 %", "< 0.001 %", "0.012 %", "4.3 %", "50 %"]);
        assert_eq!([0.1, 6.6, 9.997, 17.0].map(seconds), ["0.10", "6.60", "10.0", "17.0"]);
        assert_eq!([0.4, 98.0, 7_260.0].map(waiting), ["0 s", "1 min 38 s", "2 h 1 min"]);
    }
}
