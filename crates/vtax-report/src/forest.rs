//! The taxes of a run as lines of characters, for a terminal: the same data as in a page's charts of differences.
//!
//! ```text
//! method          -5 %   0                                      +28 %
//! ─────────   ───────────────────────────────────────────────────────
//! macvlan              ░░│░├●┤
//! vxlan                ░░│░                                    ├──●─┤
//! ```

use vtax_plot::{Differences, Effect, Judgement, Reach};

use super::{
    blocks::{Reported, distinct, rows_head},
    charts,
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value},
};

/// Minimum and maximum number of characters of a line.
const WIDTHS: [usize; 2] = [16, 72];
/// Number of characters between the columns of a table.
const GAP: usize = 3;
/// Values beyond this many percent are drawn at the edge of the line.
const MOST: f64 = 1e6;

/// Draws the charts for a terminal with this many columns.
pub(crate) fn section(report: &Reported<'_>, columns: usize) -> Option<Section> {
    let label = rows_head(&distinct(report.document.cells.iter().map(|record| record.cell.row)));
    let drawn = charts::differences(report).into_iter();
    let mut parts: Vec<SectionPart> =
        drawn.map(|differences| SectionPart::Table(table(&differences, label, columns))).collect();
    if !parts.is_empty() {
        parts.push(SectionPart::Paragraph(
            "●: tax; ○: not significant, or no difference shown; ├ ┤: 95 % interval; ░: noise floor.".into(),
        ));
    }
    Section::new("Cost overview", parts)
}

fn table(differences: &Differences, label: &str, columns: usize) -> Table {
    let names = differences.rows.iter().map(|effect| effect.name.chars().count());
    let taken = names.fold(label.len(), usize::max) + GAP;
    let scale = Scale::of(differences, columns.saturating_sub(taken).clamp(WIDTHS[0], WIDTHS[1]));
    let row = |effect: &Effect| TableRow::new(vec![effect.name.clone()], [scale.line(effect, differences.noise)]);
    Table {
        caption: differences.heading.title.clone(),
        labels: vec![label.into()],
        groups: vec![Group::untitled([Column::left(scale.head())])],
        rows: differences.rows.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Percentages at the first and the last character.
struct Scale {
    low: f64,
    high: f64,
    width: usize,
}

impl Scale {
    /// Returns the scale from the lowest to the highest bound of all intervals and of the noise floor, including zero.
    fn of(differences: &Differences, width: usize) -> Scale {
        let of_row = |effect: &Effect| effect.measured.interval.unwrap_or(at(effect.measured.value));
        let all = differences.rows.iter().map(of_row).chain(differences.noise);
        let finite = all.flat_map(|reach| [reach.low, reach.high]).filter(|end| end.abs() < MOST);
        let (low, high) = finite.fold((0.0_f64, 0.0_f64), |(low, high), end| (low.min(end), high.max(end)));
        let (low, high) = if high > low { (low, high) } else { (-1.0, 1.0) };
        Scale { low, high, width }
    }

    fn place(&self, percent: f64) -> usize {
        let share = (percent - self.low) / (self.high - self.low);
        (share.clamp(0.0, 1.0) * (self.width - 1) as f64).round() as usize
    }

    fn places(&self, Reach { low, high }: Reach) -> (usize, usize) {
        let (low, high) = (self.place(low), self.place(high));
        (low.min(high), low.max(high))
    }

    /// Returns the ends of the scale, and the position of zero.
    fn head(&self) -> String {
        let mut head = vec![' '; self.width];
        let [low, high] = [self.low, self.high].map(|end| format!("{end:+.0} %"));
        let last = self.width - high.chars().count();
        put(&mut head, last, if self.high > 0.0 { &high } else { "" });
        put(&mut head, 0, if self.low < 0.0 { &low } else { "" });
        let (zero, reach) = (self.place(0.0), if self.low < 0.0 { low.chars().count() } else { 0 });
        if (reach == 0 || zero > reach) && zero + 1 < last {
            head[zero] = '0';
        }
        String::from_iter(head)
    }

    fn line(&self, effect: &Effect, noise: Option<Reach>) -> Value {
        let mut line = vec![' '; self.width];
        if let Some((low, high)) = noise.map(|noise| self.places(noise)) {
            line[low..=high].fill('░');
        }
        line[self.place(0.0)] = '│';
        if let Some((low, high)) = effect.measured.interval.map(|interval| self.places(interval)) {
            line[low..=high].fill('─');
            (line[low], line[high]) = ('├', '┤');
        }
        line[self.place(effect.measured.value)] = match effect.judgement {
            Judgement::Worse | Judgement::Better => '●',
            Judgement::NotConfirmed | Judgement::AtMost | Judgement::TooNoisy => '○',
        };
        Value::Text(String::from_iter(line).trim_end().to_owned())
    }
}

fn at(value: f64) -> Reach {
    Reach { low: value, high: value }
}

fn put(line: &mut [char], from: usize, text: &str) {
    line[from..].iter_mut().zip(text.chars()).for_each(|(place, letter)| *place = letter);
}

#[cfg(test)]
mod tests {
    use vtax_plot::Measured;

    use super::*;

    fn line(low: f64, value: f64, high: f64) -> String {
        let measured = Measured::between(value, low, high);
        let effect = Effect { name: "veth".into(), measured, judgement: Judgement::Worse };
        match (Scale { low: -10.0, high: 45.0, width: 56 }).line(&effect, Some(Reach { low: -2.0, high: 2.0 })) {
            Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_character_is_a_per_cent_of_a_scale_of_55() {
        assert_eq!(line(20.0, 22.0, 25.0), "        ░░│░░                 ├─●──┤");
        assert_eq!(line(-10.0, 1.0, 45.0), format!("├{}●{}┤", "─".repeat(10), "─".repeat(43)));
        assert_eq!(line(22.0, 22.0, 22.0), "        ░░│░░                   ●");
    }

    /// A corrupt run may contain any figure.
    #[test]
    fn no_figure_leaves_the_line() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 0.0] {
            for reach in [[value, value], [-value, value], [f64::NAN, 3.0]] {
                let measured = Measured::between(value, reach[0], reach[1]);
                let effect = Effect { name: "veth".into(), measured, judgement: Judgement::TooNoisy };
                let noise = Some(Reach { low: -value, high: value });
                let differences = Differences { rows: vec![effect], noise, ..Differences::default() };
                let drawn = table(&differences, "method", 40);
                assert_eq!(drawn.groups[0].columns[0].head.chars().count(), 31);
            }
        }
    }
}
