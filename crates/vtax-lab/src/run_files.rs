//! Files that a run creates to measure them as disks. They are recorded in a journal, so that none is left behind.

use std::path::PathBuf;

use vtax_model::{topology::Name, units::ByteSize};

use crate::{
    error::LabError,
    holding::{Holding, MadeFiles},
    live_holding::LiveHolding,
    step::LabStep,
    world::{Lifetime, World},
};

/// Creates files of these sizes, which must not exist yet. They are removed when the result is dropped, or by the next
/// `clean` if this process is killed.
pub fn make(
    world: &World,
    name: &Name,
    run: &str,
    files: impl IntoIterator<Item = (PathBuf, ByteSize)>,
) -> Result<LiveHolding, LabError> {
    let steps = files.into_iter().map(|(path, size)| LabStep::MakeFile { path, size }).collect();
    LiveHolding::up(world, name, Holding::Files(MadeFiles { run: run.to_owned() }), steps, Lifetime::Ephemeral)
}
