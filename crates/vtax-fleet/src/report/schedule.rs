//! A plan before it is executed (`--dry-run`).

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;
use vtax_model::{foreign::ForeignText, units::Span};

use super::{
    DetectionRecord, HostExclusion,
    text::{counted, grouped, line, noun},
};
use crate::{
    aim::Detection,
    hosts::MeshEnd,
    schedule::{MeshPlan, UplinkLimits, pack_waves},
};

/// Maximum number of ends for which the text lists the pairs.
const LISTED: usize = 32;

/// Plan of a mesh: `vtax.mesh-plan/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshSchedule {
    schema: &'static str,
    ends: Vec<ForeignText>,
    rounds: u32,
    all_rounds: u32,
    /// Estimated time of the rounds.
    seconds: f64,
    detects: DetectionRecord,
    excluded: Vec<HostExclusion>,
    /// Pairs of each wave. Both directions of a pair are measured, one after another.
    waves: Vec<Vec<[ForeignText; 2]>>,
}

impl MeshSchedule {
    /// Schema of the JSON.
    const SCHEMA: &'static str = "vtax.mesh-plan/v1";

    /// Lays out the waves of a plan. `wave` is the time of each.
    pub fn of(
        plan: &MeshPlan,
        ends: &[MeshEnd],
        limits: &UplinkLimits,
        wave: Duration,
        detects: Detection,
        excluded: Vec<HostExclusion>,
    ) -> MeshSchedule {
        let name = |position: usize| ForeignText::from(ends[position].name.as_str());
        let waves: Vec<Vec<[ForeignText; 2]>> = { plan.rounds.iter() }
            .flat_map(|round| pack_waves(&round.pairs, ends, limits))
            .map(|pairs| pairs.into_iter().map(|pair| pair.map(|end| name(end.0))).collect())
            .collect();
        MeshSchedule {
            schema: MeshSchedule::SCHEMA,
            ends: (0..ends.len()).map(name).collect(),
            rounds: plan.per_rail,
            all_rounds: plan.all_rounds,
            seconds: wave.as_secs_f64() * waves.len() as f64,
            detects: detects.into(),
            excluded,
            waves,
        }
    }

    /// Returns the plan as text.
    pub fn summary(&self) -> String {
        let time = Span(Duration::from_secs(self.seconds.round() as u64));
        let mut text = format!(
            "{}, {} of {} rounds, {}, about {time}, plus retests of suspects\n{}\n",
            counted(self.ends.len(), noun(&self.ends)),
            grouped(self.rounds as usize),
            grouped(self.all_rounds as usize),
            counted(self.waves.len(), "wave"),
            Detection::from(self.detects),
        );
        let excluded: Vec<ForeignText> = self.excluded.iter().map(ForeignText::from).collect();
        line(&mut text, "not measured", &excluded);
        match self.ends.len() {
            ends if ends <= LISTED => {
                for (number, pairs) in (1..).zip(&self.waves) {
                    let pairs: Vec<String> = pairs.iter().map(|[one, other]| format!("{one}–{other}")).collect();
                    let _ = writeln!(text, "wave {number}: {}", pairs.join(", "));
                }
            }
            _ => text.push_str("--json lists the pairs of each wave\n"),
        }
        text
    }
}
