//! Values as text, for terminal and Markdown.

use super::{
    number::{brief_change, brief_interval, percent, seconds, three_digits, with_interval},
    view::{JudgedChange, Value},
};

/// Parts of a value, each of which is aligned with those above and below: most values have one.
pub(crate) fn parts(value: &Value) -> [String; 3] {
    match value {
        Value::Judged(finding) => of_finding(finding),
        other => [one(other), String::new(), String::new()],
    }
}

fn one(value: &Value) -> String {
    match value {
        Value::Absent => "—".into(),
        Value::Text(text) => text.clone(),
        Value::Figure(figure) => three_digits(*figure),
        Value::Seconds(time) => seconds(*time),
        Value::Estimate { mean, ends } => with_interval(*mean, *ends),
        Value::Share(share) => percent(*share),
        Value::Change(ratio) => brief_change(*ratio),
        Value::Judged(finding) => of_finding(finding).join(" "),
        Value::Bar(share) => bar(*share, USUAL_BAR),
        Value::Trace(figures) => sparkline(figures),
    }
}

fn of_finding(JudgedChange { ratio, ends, words, .. }: &JudgedChange) -> [String; 3] {
    let interval = ends.map_or("[—]".into(), |[low, high]| brief_interval(low, high));
    [brief_change(*ratio), interval, words.clone()]
}

/// Width of the longest bar where the width of the page is unknown.
pub(crate) const USUAL_BAR: usize = 20;

/// Share of the longest bar, to an eighth of a column. Only zero has no bar at all.
pub(crate) fn bar(share: f64, longest: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = ((share * longest as f64 * 8.0).round() as usize).clamp(1, longest * 8);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Sparkline from zero at the foot of a character to the highest figure at its top.
fn sparkline(figures: &[f64]) -> String {
    const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = figures.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let spark = |figure: &f64| SPARKS[((figure / highest * 8.0).ceil() as usize).clamp(1, 8) - 1];
    figures.iter().map(spark).collect()
}

/// Replaces the blanks before `%` and within `[1, 2]` by `hold`.
pub(crate) fn unbroken(text: &str, hold: char) -> String {
    let mut inside = false;
    let mut held = String::new();
    for piece in text.split_inclusive(['[', ']', ' ']) {
        inside |= piece.ends_with('[');
        inside &= !piece.ends_with(']');
        match piece.strip_suffix(' ').filter(|word| inside && word.ends_with(',')) {
            Some(word) => held.extend(word.chars().chain([hold])),
            None => held.push_str(piece),
        }
    }
    held.replace(" %", &format!("{hold}%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let bars = [1.0, 0.5, 0.53125, 0.0, 7.0, f64::NAN].map(|share| bar(share, 4));
        assert_eq!(bars, ["████", "██", "██▏", "▏", "████", "▏"]);
    }

    #[test]
    fn a_trace_begins_at_zero() {
        assert_eq!(sparkline(&[8.0, 4.0, 0.0, 1.0]), "█▄▁▁");
        assert_eq!(sparkline(&[0.0, f64::NAN]), "▁▁");
    }
}
