//! Planned looks: a run that tries settings may end before its last round, once each of them is decided.
//!
//! Repeated looking finds differences where there are none: 18 % of comparisons of equal arms when looking after each
//! pair, instead of the intended 5 %. So the rounds of the looks are planned, and each p-value is multiplied by their
//! number (Bonferroni), whether the run ends early or not.

use vtax_stats::{Verdict, planning::least_rounds};

use super::{RunHeader, RunReadings, RunState};
use crate::{
    analysis::analyse_readings,
    result::{CellStatus, TaxRecord},
    study::{Row, Study},
};

/// Looks of a run, as shares of its rounds.
const SHARES: [f64; 3] = [11.0 / 25.0, 18.0 / 25.0, 1.0];

impl Study {
    /// Returns the maximum number of looks at a run's figures. One if it cannot end early.
    pub(super) fn most_looks(&self) -> usize {
        if self.baseline == Row::AsIs { SHARES.len() } else { 1 }
    }
}

impl RunHeader {
    /// Returns the rounds after which the run may end. The last is that of the plan. A look too early to show anything
    /// is omitted, because each look makes it harder for the others to show something.
    pub fn looks(&self) -> Vec<u32> {
        let family = self.family(self.study.answering());
        let last = |count: usize| -> Vec<u32> {
            let shares = SHARES[SHARES.len() - count..].iter();
            shares.map(|share| (f64::from(self.rounds()) * share).round() as u32).collect()
        };
        let tells = |looks: &Vec<u32>| looks[0] >= least_rounds((family * looks.len()).max(1));
        (1..=self.study.most_looks()).rev().map(last).find(tells).unwrap_or_else(|| last(1))
    }
}

impl RunReadings {
    /// Returns true if the run may end after this round: a look is planned then, and a difference is shown in each
    /// comparison. If steps are to be kept, it must also be clear whether each difference is more than the margin: 6 %
    /// [1.7, 11] is shown to be a gain, but not to be more than 2 %.
    pub fn is_decided(&self, round: u32) -> bool {
        let early = round < self.header.rounds() && self.header.unsettled.is_none();
        early && self.header.looks().contains(&round) && self.decides_all()
    }

    fn decides_all(&self) -> bool {
        let document = analyse_readings(&RunReadings { state: RunState::Running, ..self.clone() });
        let compared = document.cells.iter().filter(|record| {
            self.header.study.compared_with(record.cell.row) != record.cell.row && record.status == CellStatus::Measured
        });
        let is_decided = |tax: &TaxRecord| match (tax.verdict, self.header.margin) {
            (Verdict::Faster, Some(margin)) => !tax.straddles(margin),
            (verdict, _) => verdict.is_shown(),
        };
        compared.map(|record| record.tax.as_ref()).all(|tax| tax.is_some_and(is_decided))
    }
}
