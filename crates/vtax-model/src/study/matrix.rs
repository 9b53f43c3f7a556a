//! The matrix of network tests that a study or `vtax measure` iterates over.

use super::{Row, SweepPoint};
use crate::{
    units::Mtu,
    workload::{TestKind, Transport},
};

/// The lists that are multiplied, each varying more slowly than the one below it.
#[derive(Debug, Clone, Copy)]
pub struct NetMatrix<'a> {
    /// The kind of the test, and its medium.
    pub tests: &'a [(Transport, TestKind)],
    /// Numbers of concurrent flows.
    pub streams: &'a [u32],
    /// Sizes and gaps.
    pub sweep: &'a [SweepPoint],
    /// MTU of the wire.
    pub mtus: &'a [Mtu],
    /// The comparison.
    pub rows: &'a [Row],
}

/// One point of the matrix, at which a cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixPoint {
    pub transport: Transport,
    pub kind: TestKind,
    pub streams: u32,
    pub variant: u32,
    /// Size and gap of this variant.
    pub swept: SweepPoint,
    pub mtu: Mtu,
    pub row: Row,
}

impl<'a> NetMatrix<'a> {
    /// Returns every point, without those at which a test would repeat an earlier one.
    pub fn points(self) -> impl Iterator<Item = MatrixPoint> + 'a {
        let NetMatrix { tests, streams, sweep, mtus, rows } = self;
        let blocks = tests.iter().flat_map(move |test| {
            let variants = move || (0..).zip(sweep).filter(move |(_, swept)| swept.concerns(test.1));
            streams.iter().flat_map(move |streams| variants().map(move |variant| (*test, *streams, variant)))
        });
        let places = move || mtus.iter().flat_map(move |mtu| rows.iter().map(move |row| (*mtu, *row)));
        blocks.flat_map(move |((transport, kind), streams, (variant, swept))| {
            let swept = *swept;
            places().map(move |(mtu, row)| MatrixPoint { transport, kind, streams, variant, swept, mtu, row })
        })
    }
}
