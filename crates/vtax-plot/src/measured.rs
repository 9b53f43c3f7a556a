//! What charts are made of: figures with their intervals, quantities with their units, headings.

use crate::inert::{inert, prose};

/// What a chart is called, and what it shows for somebody who can't see it.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    /// A few words.
    pub title: String,
    /// Some sentences: what is compared, and what the chart says.
    pub summary: String,
}

impl Heading {
    /// A heading of these words.
    pub fn new(title: impl Into<String>, summary: impl Into<String>) -> Heading {
        Heading { title: title.into(), summary: summary.into() }
    }

    pub(crate) fn title(&self) -> String {
        inert(&self.title)
    }

    pub(crate) fn summary(&self) -> String {
        prose(&self.summary)
    }
}

/// What is measured, and in what.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    /// Such as "Round trip".
    pub name: String,
    /// Such as "µs"; empty for a pure number.
    pub unit: String,
}

impl Quantity {
    /// Joins a name, e.g. `round trip`, with its unit, e.g. `µs`.
    pub fn new(name: impl Into<String>, unit: impl Into<String>) -> Quantity {
        Quantity { name: name.into(), unit: unit.into() }
    }

    /// The title of an axis.
    pub(crate) fn title(&self) -> String {
        match self.unit.is_empty() {
            true => inert(&self.name),
            false => format!("{} ({})", inert(&self.name), inert(&self.unit)),
        }
    }

    /// A figure in words, for a tip.
    pub(crate) fn words(&self, measured: &Measured) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", inert(&self.unit)) };
        match measured.interval.and_then(Reach::drawable) {
            Some(reach) => format!("{}{unit} [{}, {}]", number(measured.value), number(reach.low), number(reach.high)),
            None => format!("{}{unit}", number(measured.value)),
        }
    }
}

/// From where to where an interval or a band goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Reach {
    /// The same with ends that can be drawn, the lower one first.
    pub(crate) fn drawable(self) -> Option<Reach> {
        let (low, high) = (drawable(self.low)?, drawable(self.high)?);
        Some(Reach { low: low.min(high), high: low.max(high) })
    }
}

/// A figure, with its 95 % interval if there is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The figure itself.
    pub value: f64,
    /// Confidence interval, in the unit of the figure.
    pub interval: Option<Reach>,
    /// How far the interval is drawn, if that isn't all of it: few rounds may have one of a thousand times the figure, and the
    /// axis would show nothing else.
    pub cut: Option<Reach>,
}

impl Measured {
    /// A figure without an interval.
    pub fn plain(value: f64) -> Measured {
        Measured { value, interval: None, cut: None }
    }

    /// A figure and the ends of its interval.
    pub fn between(value: f64, low: f64, high: f64) -> Measured {
        Measured { value, interval: Some(Reach { low, high }), cut: None }
    }

    /// The same, drawn no farther than this.
    #[must_use]
    pub fn drawn_within(self, limit: Reach) -> Measured {
        let cut = self.interval.map(|whole| Reach { low: whole.low.max(limit.low), high: whole.high.min(limit.high) });
        Measured { cut: cut.filter(|cut| self.interval != Some(*cut)), ..self }
    }

    pub(crate) fn value(&self) -> Option<f64> {
        drawable(self.value)
    }

    /// The interval as far as it is drawn.
    pub(crate) fn reach(&self) -> Option<Reach> {
        self.cut.or(self.interval).and_then(Reach::drawable)
    }

    /// The value and the ends of the interval that can be drawn.
    pub(crate) fn ends(&self) -> impl Iterator<Item = f64> {
        let reach = self.reach();
        self.value().into_iter().chain(reach.map(|reach| reach.low)).chain(reach.map(|reach| reach.high))
    }
}

/// Beyond this no scale has readable numbers, in any unit.
const LARGEST: f64 = 1e15;

/// What is smaller is drawn as zero.
const SMALLEST: f64 = 1e-12;

/// The figure with as many digits as a picture can show; none if it can't be drawn.
pub(crate) fn drawable(value: f64) -> Option<f64> {
    let tidy = || format!("{value:.5e}").parse().ok();
    match value.abs() {
        size if size < SMALLEST => Some(0.0),
        // Which not a number isn't.
        size if size <= LARGEST => tidy(),
        _ => None,
    }
}

/// The figure with four digits.
pub(crate) fn number(value: f64) -> String {
    let Some(value) = drawable(value) else { return "not known".to_owned() };
    let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    match magnitude {
        -4..=9 => grouped(&format!("{:.*}", usize::try_from(3 - magnitude).unwrap_or(0), value)),
        _ => format!("{value:.3e}"),
    }
}

/// The same without zeros at the end, with a comma at each thousand, and with a minus that is as wide as a plus.
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
        assert_eq!(shown, ["0", "12.35", "−0.01235", "1,235,000", "100", "1.000e-7", "not known"]);
    }

    #[test]
    fn a_quantity_says_its_unit() {
        let time = Quantity::new("Round trip", "µs");
        assert_eq!(time.title(), "Round trip (µs)");
        assert_eq!(time.words(&Measured::between(12.0, 11.5, 12.5)), "12 µs [11.5, 12.5]");
        assert_eq!(Quantity::new("Ratio", "").words(&Measured::plain(1.5)), "1.5");
    }

    /// The tip still says the whole interval.
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
