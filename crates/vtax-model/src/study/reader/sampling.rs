//! Tables of a study file that define the number and duration of samples.

use serde::Deserialize;
use toml::Spanned;

use super::Reader;
use crate::{
    cell::{Cell, Instrument, NetCell},
    located::{FileError, Source},
    study::{SamplingPlan, SamplingPlanError, Slices},
    units::{ByteSize, Mtu, Span},
    workload::{TestKind, Warmup},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanTable {
    pub(super) samples: Spanned<u32>,
    pub(super) duration: Spanned<Span>,
    #[serde(default = "no_warmup")]
    pub(super) warmup: Warmup,
    /// The part of the matrix measured with host settings; controlled conditions cover all of it.
    pub(super) tests: Option<Spanned<Vec<TestKind>>>,
    pub(super) mtu: Option<Spanned<Vec<Mtu>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickTable {
    pub(super) samples: Spanned<u32>,
    pub(super) duration: Spanned<Span>,
    #[serde(default = "no_warmup")]
    pub(super) warmup: Warmup,
    /// File size, instead of that of the matrix.
    pub(super) file: Option<Spanned<ByteSize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathTable {
    pub(super) samples: Spanned<u32>,
    pub(super) passes: Spanned<u32>,
    /// The measured time of a slice.
    pub(super) duration: Spanned<Span>,
    /// The measured time of a slice of a stream.
    pub(super) stream_duration: Spanned<Span>,
    pub(super) warmup: Spanned<Span>,
}

fn no_warmup() -> Warmup {
    Warmup::NONE
}

pub(super) fn sampling_plan(
    source: Source<'_>,
    samples: &Spanned<u32>,
    duration: &Spanned<Span>,
    warmup: Warmup,
) -> Result<SamplingPlan, FileError> {
    let plan =
        SamplingPlan { samples: *samples.get_ref(), duration: *duration.get_ref(), warmup, slices: None, limit: None };
    plan.check().map_err(|error| {
        let span = match error {
            SamplingPlanError::NoSamples | SamplingPlanError::TooManySamples(_) => samples.span(),
            _ => duration.span(),
        };
        source.refuse(&span, error)
    })?;
    Ok(plan)
}

/// All plans of a study.
pub(super) struct Plans {
    pub(super) plan: SamplingPlan,
    pub(super) quick: SamplingPlan,
    pub(super) path: Option<SamplingPlan>,
    pub(super) quick_path: Option<SamplingPlan>,
}

impl Reader<'_> {
    pub(super) fn plans(&self) -> Result<Plans, FileError> {
        let PlanTable { samples, duration, warmup, .. } = &self.file.plan;
        let plan = sampling_plan(self.source, samples, duration, *warmup)?;
        let quick = match &self.file.quick {
            Some(QuickTable { samples, duration, warmup, .. }) => {
                sampling_plan(self.source, samples, duration, *warmup)?
            }
            None => plan,
        };
        if let (None, Some(quick)) = (&self.file.path, &self.file.quick_path) {
            let message = "[quick_path] requires [path]; add [path], or remove [quick_path]";
            return Err(self.source.coded("path-not-measured", &quick.samples.span(), message));
        }
        let [path, quick_path] = [self.path(&self.file.path)?, self.path(&self.file.quick_path)?];
        Ok(Plans { plan, quick, path, quick_path })
    }

    /// Controlled conditions can't answer if they aren't measured.
    pub(super) fn answer(&self) -> Result<Option<Instrument>, FileError> {
        let Some(written) = &self.file.answer else { return Ok(None) };
        match (*written.get_ref(), &self.file.path) {
            (Instrument::Path, None) => {
                let message = "`answer` is \"path\", but nothing is measured under controlled conditions; add a [path] table, or \
                               set it to \"system\"";
                Err(self.source.coded("path-not-measured", &written.span(), message))
            }
            (instrument, _) => Ok(Some(instrument)),
        }
    }

    pub(super) fn quick_file(&self, cells: &[Cell]) -> Result<Option<ByteSize>, FileError> {
        let Some(file) = self.file.quick.as_ref().and_then(|quick| quick.file.as_ref()) else { return Ok(None) };
        let size = *file.get_ref();
        let sent = |net: &NetCell| Some((net.workload.with_file(size)?, net.transport, net.mtu));
        let Some((workload, transport, mtu)) = cells.iter().filter_map(Cell::net).find_map(sent) else {
            let message = "`file` is the size of files, but no test of the study sends one";
            return Err(self.source.coded("option-not-for-this", &file.span(), message));
        };
        let checked = workload.check(transport, mtu);
        checked.map(|()| Some(size)).map_err(|error| self.source.refuse(&file.span(), error))
    }

    fn path(&self, table: &Option<PathTable>) -> Result<Option<SamplingPlan>, FileError> {
        let Some(table) = table else { return Ok(None) };
        let slices = Slices { passes: *table.passes.get_ref(), stream: *table.stream_duration.get_ref() };
        let plan = SamplingPlan {
            samples: *table.samples.get_ref(),
            duration: *table.duration.get_ref(),
            warmup: Warmup::For(*table.warmup.get_ref()),
            slices: Some(slices),
            limit: None,
        };
        plan.check().map_err(|error| {
            let span = match error {
                SamplingPlanError::NoSamples | SamplingPlanError::TooManySamples(_) => table.samples.span(),
                SamplingPlanError::Passes(_) => table.passes.span(),
                SamplingPlanError::ShortSlice(span) if span == slices.stream => table.stream_duration.span(),
                SamplingPlanError::TooShort(_) | SamplingPlanError::ShortSlice(_) => table.duration.span(),
            };
            self.source.refuse(&span, error)
        })?;
        Ok(Some(plan))
    }
}
