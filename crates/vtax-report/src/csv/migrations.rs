//! Columns of a run of migrations.

use super::{Column, One, RUN, STATUS, TAX, TAX_DETAIL, name, text};

pub(super) const COLUMNS: [&[Column]; 6] = [
    &RUN,
    &[
        ("test", One(|l| name(&l.record.cell.kind()))),
        ("memory_bytes", One(|l| text(l.record.cell.migration()?.memory.0))),
        ("nominal_dirty_mb_per_s", One(|l| text(l.record.cell.migration()?.dirty_rate?))),
    ],
    &STATUS,
    &TAX,
    &TAX_DETAIL,
    &[
        ("variant", One(|l| text(l.record.cell.variant))),
        ("instrument", One(|l| text(l.record.cell.instrument))),
        ("caveat", One(|l| text(l.document.caveat.as_ref()?))),
    ],
];
