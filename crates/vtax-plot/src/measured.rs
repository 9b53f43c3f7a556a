//! Elements of charts: figures with their intervals, quantities with their units, headings.

use crate::inert::{self, inert, prose};

/// Title of a chart, and a summary for readers who cannot see it.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// Title: a name or a sentence.
    pub title: String,
    /// Summary of a few sentences: what is compared, and the result.
    pub summary: String,
}

impl Heading {
    /// Creates a heading.
    pub fn new(title: impl Into<String>, summary: impl Into<String>) -> Heading {
        Heading { title: title.into(), summary: summary.into() }
    }

    pub(crate) fn title(&self) -> String {
        inert::title(&self.title)
    }

    pub(crate) fn summary(&self) -> String {
        prose(&self.summary)
    }
}

/// Measured quantity and its unit.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    /// Name, e.g. "Round trip".
    pub name: String,
    /// Unit, e.g. "µs"; empty for a pure number.
    pub unit: String,
}

impl Quantity {
    /// Joins a name, e.g. `round trip`, with its unit, e.g. `µs`.
    pub fn new(name: impl Into<String>, unit: impl Into<String>) -> Quantity {
        Quantity { name: name.into(), unit: unit.into() }
    }

    /// Returns the title of an axis.
    pub(crate) fn title(&self) -> String {
        match self.unit.is_empty() {
            true => inert(&self.name),
            false => format!("{} ({})", inert(&self.name), inert(&self.unit)),
        }
    }

    /// Returns a figure in words, for a tooltip.
    pub(crate) fn words(&self, measured: &Measured) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", inert(&self.unit)) };
        match measured.interval.and_then(Reach::drawable) {
            Some(reach) => format!("{}{unit} [{}, {}]", number(measured.value), number(reach.low), number(reach.high)),
            None => format!("{}{unit}", number(measured.value)),
        }
    }
}

/// Bounds of an interval or a band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Reach {
    /// Returns drawable bounds, the lower one first.
    pub(crate) fn drawable(self) -> Option<Reach> {
        let (low, high) = (drawable(self.low)?, drawable(self.high)?);
        Some(Reach { low: low.min(high), high: low.max(high) })
    }
}

/// Figure, with its 95 % interval if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Value of the figure.
    pub value: f64,
    /// Confidence interval, in the unit of the figure.
    pub interval: Option<Reach>,
    /// Drawn part of the interval, if it is cut: with few rounds it may be a thousand times the figure, and would fill
    /// the whole axis.
    pub cut: Option<Reach>,
}

impl Measured {
    /// Creates a figure without an interval.
    pub fn plain(value: f64) -> Measured {
        Measured { value, interval: None, cut: None }
    }

    /// Creates a figure with the bounds of its interval.
    pub fn between(value: f64, low: f64, high: f64) -> Measured {
        Measured { value, interval: Some(Reach { low, high }), cut: None }
    }

    /// Limits the drawn interval to this range.
    #[must_use]
    pub fn drawn_within(self, limit: Reach) -> Measured {
        let cut = self.interval.map(|whole| Reach { low: whole.low.max(limit.low), high: whole.high.min(limit.high) });
        Measured { cut: cut.filter(|cut| self.interval != Some(*cut)), ..self }
    }

    /// Returns the figure in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Measured {
        let reach = |reach: Reach| Reach { low: reach.low * factor, high: reach.high * factor };
        Measured { value: self.value * factor, interval: self.interval.map(reach), cut: self.cut.map(reach) }
    }

    pub(crate) fn value(&self) -> Option<f64> {
        drawable(self.value)
    }

    /// Returns the drawn part of the interval.
    pub(crate) fn reach(&self) -> Option<Reach> {
        self.cut.or(self.interval).and_then(Reach::drawable)
    }

    /// Returns the value and the drawable bounds of the interval.
    pub(crate) fn ends(&self) -> impl Iterator<Item = f64> {
        let reach = self.reach();
        self.value().into_iter().chain(reach.map(|reach| reach.low)).chain(reach.map(|reach| reach.high))
    }
}

/// Limit beyond which no scale has readable numbers, in any unit.
const LARGEST: f64 = 1e15;

/// Values below this are drawn as zero.
const SMALLEST: f64 = 1e-12;

/// Returns the figure with the digits that a picture can show; `None` if it cannot be drawn.
pub(crate) fn drawable(value: f64) -> Option<f64> {
    let tidy = || format!("{value:.5e}").parse().ok();
    match value.abs() {
        size if size < SMALLEST => Some(0.0),
        // NaN fails this comparison.
        size if size <= LARGEST => tidy(),
        _ => None,
    }
}

/// Formats the figure with four digits.
pub(crate) fn number(value: f64) -> String {
    let Some(value) = drawable(value) else { return "unknown".to_owned() };
    let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    match magnitude {
        -4..=9 => grouped(&format!("{:.*}", usize::try_from(3 - magnitude).unwrap_or(0), value)),
        _ => format!("{value:.3e}"),
    }
}

/// Removes trailing zeros, adds thousands separators, and uses a minus sign that is as wide as a plus sign.
fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("−", whole));
    let mut shown = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { shown } else { format!("{shown}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let shown = [0.0, 12.3456, -0.012345, 1_234_567.0, 100.0, 1e-7, f64::NAN].map(number);
        assert_eq!(shown, ["0", "12.35", "−0.01235", "1,235,000", "100", "1.000e-7", "unknown"]);
    }

    #[test]
    fn a_quantity_has_a_unit() {
        let time = Quantity::new("Round trip", "µs");
        assert_eq!(time.title(), "Round trip (µs)");
        assert_eq!(time.words(&Measured::between(12.0, 11.5, 12.5)), "12 µs [11.5, 12.5]");
        assert_eq!(Quantity::new("Ratio", "").words(&Measured::plain(1.5)), "1.5");
    }

    /// The tooltip still shows the whole interval.
    #[test]
    fn an_interval_may_be_drawn_in_part() {
        let wide = Measured::between(10.0, -900.0, 4e6).drawn_within(Reach { low: 2.5, high: 40.0 });
        assert_eq!(wide.ends().collect::<Vec<_>>(), [10.0, 2.5, 40.0]);
        assert_eq!(Quantity::new("Time", "µs").words(&wide), "10 µs [−900, 4,000,000]");
        let narrow = Measured::between(10.0, 9.0, 11.0);
        assert_eq!(narrow.drawn_within(Reach { low: 2.5, high: 40.0 }), narrow);
    }

    #[test]
    fn only_finite_figures_are_drawn() {
        assert_eq!([f64::NAN, f64::INFINITY, 1e300].map(drawable), [None; 3]);
        assert_eq!([5e-324, -0.0].map(drawable), [Some(0.0); 2]);
        assert_eq!(Reach { low: 2.0, high: 1.0 }.drawable(), Some(Reach { low: 1.0, high: 2.0 }));
    }
}
