//! Rows of `vtax measure`: engines, NICs of the responder, loads, or settings.

use vtax_model::{options::Engine, study::Row};

use super::MeasureRequest;

impl MeasureRequest {
    pub(crate) fn rows(&self) -> Vec<Row> {
        if let named @ [_, ..] = &self.nics()[..] {
            return named.to_vec();
        }
        if !self.under.is_empty() {
            return std::iter::once(None).chain(self.under.iter().copied().map(Some)).map(Row::Load).collect();
        }
        if self.steps.is_empty() {
            return self.engines.iter().copied().map(Row::Engine).collect();
        }
        let tuned = self.steps.iter().map(|step| Row::Tuned { path: None, step: step.name });
        std::iter::once(Row::AsIs).chain(tuned).collect()
    }

    /// Returns the NICs to compare, each a row with its own endpoints.
    pub(super) fn nics(&self) -> Vec<Row> {
        let mut nics: Vec<Row> = Vec::new();
        for row in self.endpoints.iter().filter_map(|endpoint| endpoint.method) {
            if !nics.contains(&row) {
                nics.push(row);
            }
        }
        nics
    }

    pub(super) fn baseline(&self) -> Row {
        match self.rows()[..] {
            [first @ (Row::AsIs | Row::Nic(_) | Row::Load(_)), ..] => first,
            _ if self.engines.contains(&Engine::Blocking) => Row::Engine(Engine::Blocking),
            _ => Row::Engine(self.engines[0]),
        }
    }
}
