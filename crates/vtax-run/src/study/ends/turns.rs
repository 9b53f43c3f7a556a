//! Measures alternating rows, whose samples are divided into slices. All rows connect before the first slice. From then
//! on, nothing is sent on the control streams: each initiator follows a schedule by its own clock.

use std::{mem, time::Duration};

use vtax_model::{run::Figures, study::Row, units::Span, workload::TestSpec};
use vtax_wire::measure::{AgentPair, ParallelReports, measure_all};

use super::{ConnectedEnds, blame, end::ConnectedRow, failure::with_links, figures};
use crate::study::{
    runner::{BrokenTurns, SampleError},
    timetable::Timetable,
};

impl ConnectedEnds {
    /// Takes a sample of each row; see [`NetSampler::take_turns`](crate::study::runner::NetSampler::take_turns).
    pub(super) fn turns(
        &mut self,
        rows: &[(Row, TestSpec)],
        orders: &[Vec<usize>],
    ) -> Result<Vec<Figures>, BrokenTurns> {
        let Some((_, spec)) = rows.first() else { return Ok(Vec::new()) };
        let (mut gaps, mut guarded) = (mem::take(&mut self.gaps), Vec::new());
        let taken = gaps.measure(spec, orders, |timetable| {
            let mut taken = self.measure_turns(rows, timetable)?;
            guarded = taken.reports.split_off(rows.len());
            Ok(taken)
        });
        self.gaps = gaps;
        let mut figures = self.figures_of_turns(rows, taken?)?;
        let guarded = self.guarded_rtt(&guarded).map_err(|error| BrokenTurns { index: 0, error })?;
        figures.iter_mut().for_each(|figures| figures.guarded.clone_from(&guarded));
        Ok(figures)
    }

    fn measure_turns(&self, rows: &[(Row, TestSpec)], timetable: &Timetable) -> Result<ParallelReports, BrokenTurns> {
        let connected = self.connected_rows(rows)?;
        let mut pairs: Vec<AgentPair<'_>> = Vec::new();
        for (index, (connected, (_, spec))) in connected.iter().zip(rows).enumerate() {
            let mut pair = self.pair(&connected.pairs[0], &timetable.spec(spec));
            pair.order.turns = Some(timetable.turns(index));
            pairs.push(pair);
        }
        let warmup = rows.first().map_or(Span(Duration::ZERO), |(_, spec)| spec.warmup.most());
        pairs.extend(self.guarded_pairs(warmup, timetable));
        measure_all(&pairs).map_err(|error| match error.pair.checked_sub(rows.len()) {
            None => {
                let index = error.pair;
                BrokenTurns { index, error: self.explain(blame(error), connected[index]) }
            }
            Some(nth) => BrokenTurns { index: 0, error: self.of_guarded(nth, blame(error)) },
        })
    }

    /// Returns the endpoints of the rows. The error names the first row that has none or several pairs, or whose guest
    /// can't have the MTU.
    fn connected_rows(&self, rows: &[(Row, TestSpec)]) -> Result<Vec<&ConnectedRow>, BrokenTurns> {
        let find = |(index, (row, _)): (usize, &(Row, TestSpec))| {
            let broken = |error| BrokenTurns { index, error };
            let connected = self.connected(*row, self.mtu).map_err(|error| broken(SampleError::run(error)))?;
            let several = || {
                "rows with several pairs of endpoints cannot be interleaved: measure them with \
                --mode host"
            };
            match (self.unfit(connected.ends()), &connected.pairs[..]) {
                (Some(why), _) => Err(broken(SampleError::cell(why))),
                (None, [_]) => Ok(connected),
                (None, _) => Err(broken(SampleError::cell(several()))),
            }
        };
        rows.iter().enumerate().map(find).collect()
    }

    fn figures_of_turns(&self, rows: &[(Row, TestSpec)], taken: ParallelReports) -> Result<Vec<Figures>, BrokenTurns> {
        let connected = self.connected_rows(rows)?;
        let skew = taken.skew;
        let joined = |(index, reports): (usize, _)| {
            let (connected, (_, spec)) = (connected[index], &rows[index]);
            let one = ParallelReports { reports: vec![reports], skew };
            let figures = figures(connected, spec, &one);
            match figures.is_empty(spec.workload.kind()) {
                true => {
                    let nothing = SampleError::cell(format!("nothing was received in slices of {}", spec.duration));
                    Err(BrokenTurns { index, error: with_links(nothing, connected) })
                }
                false => Ok(figures),
            }
        };
        taken.reports.into_iter().enumerate().map(joined).collect()
    }
}
