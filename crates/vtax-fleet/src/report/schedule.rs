//! A plan before it is executed (`--dry-run`).

use std::{fmt::Write as _, time::Duration};

use serde::Serialize;
use vtax_model::{foreign::ForeignText, units::minutes};

use super::{
    DetectionRecord,
    text::{counted, grouped, line, noun},
    words::MeshWords,
};
use crate::{aim::Detection, header::MeshHeader, hosts::HostExclusion, pair_test::PairTest, schedule::pack_waves};

/// Maximum number of ends for which the text lists the pairs.
const LISTED: usize = 32;

/// Plan of a mesh: `vtax.mesh-plan/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshSchedule {
    schema: &'static str,
    test: PairTest,
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

    /// Lays out the waves of a mesh.
    pub fn of(header: &MeshHeader, detects: Detection) -> MeshSchedule {
        let plan = header.plan();
        let waves: Vec<Vec<[ForeignText; 2]>> = { plan.rounds.iter() }
            .flat_map(|round| pack_waves(&round.pairs, &header.ends, &header.limits))
            .map(|pairs| pairs.into_iter().map(|pair| pair.map(|end| header.name(end).clone())).collect())
            .collect();
        MeshSchedule {
            schema: MeshSchedule::SCHEMA,
            test: header.test,
            ends: header.ends.iter().map(|end| end.name.clone()).collect(),
            rounds: header.rounds,
            all_rounds: header.all_rounds,
            seconds: header.test.wave_time().as_secs_f64() * waves.len() as f64,
            detects: detects.into(),
            excluded: header.excluded.clone(),
            waves,
        }
    }

    /// Returns the plan as text.
    pub fn summary(&self) -> String {
        let time = minutes(Duration::from_secs_f64(self.seconds.round()));
        let mut text = format!(
            "{} between {}, {} of {} rounds, {}, about {time}, plus retests of suspects\n{}\n",
            self.test.kind,
            counted(self.ends.len(), noun(self.ends.iter())),
            grouped(self.rounds as usize),
            grouped(self.all_rounds as usize),
            counted(self.waves.len(), "wave"),
            MeshWords(self.test.kind).detection(self.detects.into()),
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
