//! Columns of a run of disks, without those that apply only to networks.

use vtax_model::{
    metric::{FigureUnit, SampleFigure},
    result::UnitEstimate,
};

use super::{Column, Estimated, Interval, Line, One, delta, estimate, name, percentile, status, text};
use crate::{
    disks::cached,
    host_cpu::{self, Part},
};

/// Time of fio's threads per I/O, or per KB.
const THREADS: [SampleFigure; 2] = [SampleFigure::ThreadsPerTransaction, SampleFigure::ThreadsPerKb];

fn of_host(line: &Line<'_>, part: &Part) -> Option<[Option<f64>; 3]> {
    in_us(line, host_cpu::value(part, line.record)?)
}

/// Columns per KB are in µs as well.
fn in_us(line: &Line<'_>, cost: UnitEstimate) -> Option<[Option<f64>; 3]> {
    estimate(cost.converted_to(FigureUnit::cpu_microseconds(line.record.cell.kind()))?)
}

pub(super) const COLUMNS: [Column; 48] = [
    ("study", One(|l| text(&l.document.study))),
    ("run", One(|l| text(&l.document.id))),
    ("method", One(|l| text(l.record.cell.row))),
    ("test", One(|l| name(&l.record.cell.kind()))),
    ("threads", One(|l| text(l.record.cell.disk()?.jobs))),
    ("luns", One(|l| text(l.record.cell.disk()?.targets))),
    ("block_bytes", One(|l| text(l.record.cell.disk()?.block.get().0))),
    ("read_share", One(|l| text(f64::from(l.record.cell.disk()?.reads.get()) / 100.0))),
    ("depth", One(|l| text(l.record.cell.disk()?.depth))),
    ("range_bytes", One(|l| text(l.record.cell.disk()?.range.0))),
    ("disk", One(|l| text(l.record.cell.disk()?))),
    ("caches", One(|l| cached(l.document, l.record.cell.row))),
    ("status", One(|l| text(status(l).0))),
    ("why", One(|l| status(l).1.and_then(text))),
    ("remedy", One(|l| status(l).2.and_then(text))),
    ("samples", One(|l| text(l.record.samples.len()))),
    ("iops", Estimated(SampleFigure::Iops)),
    ("response_us", Estimated(SampleFigure::Rtt)),
    ("response_p50_us", Interval(|l| percentile(l.times()?.p50))),
    ("response_p99_us", Interval(|l| percentile(l.times()?.p99))),
    ("response_p999_us", Interval(|l| percentile(l.times()?.p999))),
    ("response_max_us", One(|l| text(l.times()?.max))),
    ("throughput_mb_per_s", Estimated(SampleFigure::Throughput)),
    ("cpu_of", One(|l| text(if l.record.cell.kind().is_transactions() { "I/O" } else { "KB" }))),
    ("fio_cpu_us", Interval(|l| in_us(l, l.summary?.estimate_of(THREADS)?))),
    ("host_cpu_guest_us", Interval(|l| of_host(l, &host_cpu::GUEST))),
    ("host_cpu_iothread_us", Interval(|l| of_host(l, &host_cpu::IOTHREAD))),
    ("host_cpu_daemon_us", Interval(|l| of_host(l, &host_cpu::DAEMON))),
    ("host_cpu_qemu_us", Interval(|l| of_host(l, &host_cpu::QEMU))),
    ("host_cpu_kernel_us", Interval(|l| of_host(l, &host_cpu::KERNEL))),
    ("host_cpu_stack_us", Interval(|l| of_host(l, &host_cpu::STACK))),
    ("tax_of", One(|l| text(l.tax?.of.name()))),
    ("tax_ratio", One(|l| text(l.tax?.ratio))),
    ("tax_low", One(|l| text(l.tax?.low))),
    ("tax_high", One(|l| text(l.tax?.high))),
    ("tax_p", One(|l| text(l.tax?.p))),
    ("tax_p_adjusted", One(|l| text(l.tax?.p_adjusted))),
    ("tax_verdict", One(|l| name(&l.tax?.verdict))),
    ("tax_could_show", One(|l| text(l.tax?.could_show?))),
    ("tax_pairs", One(|l| text(l.tax?.pairs))),
    ("tax_at_most", One(|l| text(l.tax?.at_most?))),
    ("tax_delta", Interval(|l| delta(l.tax?.delta?))),
    ("tax_unit", One(|l| name(&l.tax?.delta?.unit))),
    ("tax_floor", One(|l| text(l.tax?.floor?))),
    ("tax_within_floor", One(|l| text(l.tax?.within_floor))),
    ("variant", One(|l| text(l.record.cell.variant))),
    ("instrument", One(|l| text(l.record.cell.instrument))),
    ("caveat", One(|l| text(l.document.caveat.as_ref()?))),
];
