//! Samples that are read from where they are stored.

use std::convert::Infallible;

use super::{Figures, RttFigures, Sample};
use vtax_stats::histogram::SparseHistogram;

/// Storage of a run's samples, which for a long run don't fit into memory.
pub trait SampleSource {
    /// Reason why samples can't be read.
    type Error;

    /// Passes every sample to `take`, in the order in which they were stored.
    fn samples(&self, take: &mut dyn FnMut(&Sample)) -> Result<(), Self::Error>;

    /// Passes the cell, the round and the histograms of every sample to `take`.
    fn times(&self, take: &mut dyn FnMut(usize, u32, &SampleTimes)) -> Result<(), Self::Error>;
}

/// Histograms of a sample's round-trip times: from when they were due, and from when they were sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampleTimes {
    /// Histogram of [`Figures::rtt_ns`].
    pub rtt: Option<SparseHistogram>,
    /// Histogram of [`Figures::rtt_from_send_ns`].
    pub from_send: Option<SparseHistogram>,
}

impl Figures {
    /// Removes the histograms from the figures and returns them.
    pub fn take_times(&mut self) -> SampleTimes {
        let take = |rtt: &mut Option<RttFigures>| rtt.as_mut().map(|rtt| std::mem::take(&mut rtt.hdr));
        SampleTimes { rtt: take(&mut self.rtt_ns), from_send: take(&mut self.rtt_from_send_ns) }
    }

    /// Restores histograms that [`take_times`](Self::take_times) removed.
    pub fn put_times(&mut self, times: SampleTimes) {
        let put = |rtt: &mut Option<RttFigures>, hdr: Option<SparseHistogram>| {
            if let (Some(rtt), Some(hdr)) = (rtt.as_mut(), hdr) {
                rtt.hdr = hdr;
            }
        };
        put(&mut self.rtt_ns, times.rtt);
        put(&mut self.rtt_from_send_ns, times.from_send);
    }
}

impl SampleSource for Vec<Sample> {
    type Error = Infallible;

    fn samples(&self, take: &mut dyn FnMut(&Sample)) -> Result<(), Infallible> {
        self.iter().for_each(take);
        Ok(())
    }

    fn times(&self, take: &mut dyn FnMut(usize, u32, &SampleTimes)) -> Result<(), Infallible> {
        for sample in self {
            let hdr = |rtt: &Option<RttFigures>| rtt.as_ref().map(|rtt| rtt.hdr.clone());
            let Figures { rtt_ns, rtt_from_send_ns, .. } = &sample.figures;
            take(sample.cell, sample.round, &SampleTimes { rtt: hdr(rtt_ns), from_send: hdr(rtt_from_send_ns) });
        }
        Ok(())
    }
}
