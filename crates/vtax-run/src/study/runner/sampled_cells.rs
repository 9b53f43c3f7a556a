//! The cells of a run with their sampler: all are network, disk or migration cells.

use miette::miette;
use vtax_model::{
    cell::{Cell, CellTest, DiskCell, MigrationCell, NetCell, Turn},
    study::Study,
    units::Mtu,
};

use super::{DiskSampler, MigrationSampler, NetSampler, SampleError, Settings};

/// Sampler of a run, by the kind of its path.
pub(crate) enum Sampler<'a> {
    Net(&'a mut dyn NetSampler),
    Disks(&'a mut dyn DiskSampler),
    Migrations(&'a mut dyn MigrationSampler),
}

pub(super) enum SampledCells<'a> {
    Net(NetCells<'a>),
    Disks {
        /// By index in the study.
        cells: Vec<DiskCell>,
        sampler: &'a mut dyn DiskSampler,
    },
    Migrations {
        /// By index in the study.
        cells: Vec<MigrationCell>,
        sampler: &'a mut dyn MigrationSampler,
    },
}

pub(super) struct NetCells<'a> {
    /// By index in the study.
    pub(super) cells: Vec<NetCell>,
    pub(super) sampler: &'a mut dyn NetSampler,
    /// MTU in force, once one was set.
    mtu: Option<Mtu>,
}

impl<'a> SampledCells<'a> {
    /// Refuses a plan that mixes kinds of tests: no study can be written so, but a damaged record can be.
    pub(super) fn of(study: &Study, sampler: Sampler<'a>) -> miette::Result<SampledCells<'a>> {
        let net = |cell: &Cell| if let CellTest::Net(net) = cell.test { Some(net) } else { None };
        let disk = |cell: &Cell| if let CellTest::Disk(disk) = cell.test { Some(disk) } else { None };
        let cells = &study.cells;
        let sampled = match sampler {
            Sampler::Net(sampler) => cells
                .iter()
                .map(net)
                .collect::<Option<_>>()
                .map(|cells| SampledCells::Net(NetCells { cells, sampler, mtu: None })),
            Sampler::Disks(sampler) => {
                cells.iter().map(disk).collect::<Option<_>>().map(|cells| SampledCells::Disks { cells, sampler })
            }
            Sampler::Migrations(sampler) => cells
                .iter()
                .map(|cell| cell.migration().copied())
                .collect::<Option<_>>()
                .map(|cells| SampledCells::Migrations { cells, sampler }),
        };
        sampled.ok_or_else(|| {
            let id = &study.id;
            miette!(
                code = "results-damaged",
                "the plan of this run of `{id}` mixes tests of networks, disks and migrations; start a new run"
            )
        })
    }

    /// Returns the endpoints of a network, which have their own processes and machines.
    pub(super) fn network(&self) -> Option<&dyn NetSampler> {
        match self {
            SampledCells::Net(net) => Some(&*net.sampler),
            SampledCells::Disks { .. } | SampledCells::Migrations { .. } => None,
        }
    }
}

impl NetCells<'_> {
    /// Brings into force what a sample needs.
    pub(super) fn prepare(&mut self, turn: &Turn, settings: Option<Settings>) -> Result<(), SampleError> {
        if let Some(settings) = settings {
            self.sampler.use_settings(settings)?;
        }
        let mtu = self.cells[turn.cell].mtu;
        if self.mtu != Some(mtu) {
            self.sampler.set_mtu(mtu)?;
            self.mtu = Some(mtu);
        }
        Ok(())
    }
}
