//! Columns of a run of disks, without those that apply only to networks.

use vtax_model::{
    metric::{FigureUnit, SampleFigure},
    result::UnitEstimate,
};

use super::{Column, Estimated, Interval, Line, One, RUN, STATUS, TAX, TAX_DETAIL, estimate, name, percentile, text};
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

pub(super) const COLUMNS: [&[Column]; 7] = [
    &RUN,
    &[
        ("test", One(|l| name(&l.record.cell.kind()))),
        ("threads", One(|l| text(l.record.cell.disk()?.jobs))),
        ("luns", One(|l| text(l.record.cell.disk()?.targets))),
        ("block_bytes", One(|l| text(l.record.cell.disk()?.block.get().0))),
        ("read_share", One(|l| text(f64::from(l.record.cell.disk()?.reads.get()) / 100.0))),
        ("depth", One(|l| text(l.record.cell.disk()?.depth))),
        ("range_bytes", One(|l| text(l.record.cell.disk()?.range.0))),
        ("disk", One(|l| text(l.record.cell.disk()?))),
        ("caches", One(|l| cached(l.document, l.record.cell.row))),
    ],
    &STATUS,
    &[
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
    ],
    &TAX,
    &TAX_DETAIL,
    &[
        ("variant", One(|l| text(l.record.cell.variant))),
        ("instrument", One(|l| text(l.record.cell.instrument))),
        ("caveat", One(|l| text(l.document.caveat.as_ref()?))),
    ],
];
