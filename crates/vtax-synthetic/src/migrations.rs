//! Synthetic study of live migration: guests of two sizes that change their memory at three rates.

use vtax_model::{
    cell::MigrationCell,
    run::{Figures, MigrationFigures, Placement, Run},
    study::{MigrationWay, Row},
};

use super::{study, where_missing};

/// Returns a complete run with some of the built-in study's rows and cells.
pub fn migrations() -> Run {
    let mut study = study("migration");
    let is_kept = |row: &Row| match row {
        Row::Migration(way) => way.cores.is_none_or(|cores| cores.get() == 1),
        _ => false,
    };
    study.rows.retain(is_kept);
    study.cells.retain(|cell| {
        let is_small = cell
            .migration()
            .is_some_and(|test| test.memory.0 <= 1 << 30 && test.dirty_rate.is_some_and(|rate| rate <= 100));
        is_kept(&cell.row) && is_small
    });
    let mut run = where_missing(study, Vec::new());
    run.header.placement = Placement::default();
    run
}

/// Returns the figures of one migration.
pub(crate) fn figures(test: &MigrationCell, row: Row, jitter: f64) -> Figures {
    let way = match row {
        Row::Migration(way) => way,
        _ => MigrationWay { tls: false, channels: None, post_copy: false, cores: None },
    };
    let mb_per_s = match way {
        MigrationWay { tls: false, .. } => 900.0,
        MigrationWay { channels: Some(_), .. } => 700.0,
        MigrationWay { cores: Some(_), .. } => 180.0,
        _ => 320.0,
    };
    let (used, rate) = (test.used().0 as f64 / 1e6, test.dirty_rate.unwrap_or_default());
    let dirty = f64::from(rate);
    let total = used / mb_per_s * (1.0 + dirty / mb_per_s) * jitter;
    let suspended = if way.post_copy { 9.0 } else { 20.0 + 180.0 * dirty / mb_per_s } * jitter;
    Figures::of_migration(MigrationFigures {
        suspend_ms: Some(suspended),
        suspend_by_qemu_ms: Some(suspended.floor()),
        total_s: total,
        sent_mb: used + dirty * total,
        passes: 2 + u64::from(rate > 0),
        dirty_mb_per_s: dirty * 0.97,
        ..MigrationFigures::default()
    })
}
