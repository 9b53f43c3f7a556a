//! `vtax fleet list`.

use std::path::Path;

use serde::Serialize;
use vtax_fleet::{MeshHeader, MeshSample, MeshStage, PairTestKind};
use vtax_model::foreign::ForeignText;
use vtax_report::Column;

use super::file;
use crate::{cli::lists, exit::Stop};

/// A stored mesh, or a file that cannot be read as one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ListedMesh {
    Mesh {
        mesh: String,
        test: PairTestKind,
        ends: usize,
        rounds: u32,
        all_rounds: u32,
        /// Waves of the rounds that were measured, and that were planned.
        waves: u32,
        planned_waves: Option<u32>,
        /// Tests that succeeded, and that failed.
        tests: usize,
        failed: usize,
    },
    Damaged {
        mesh: String,
        error: ForeignText,
    },
}

/// Returns the meshes of the results directory, the latest first.
pub(super) fn meshes(state: &Path) -> Result<Vec<ListedMesh>, Stop> {
    let meshes = file::all(state)?.into_iter().rev().map(|path| match file::read(&path) {
        Ok((header, samples)) => ListedMesh::of(file::name(&path), &header, &samples),
        Err(error) => ListedMesh::Damaged { mesh: file::name(&path), error: error.to_string().into() },
    });
    Ok(meshes.collect())
}

impl ListedMesh {
    fn of(mesh: String, header: &MeshHeader, samples: &[MeshSample]) -> ListedMesh {
        let of_rounds = samples.iter().filter(|sample| sample.stage == MeshStage::Rounds);
        let failed = samples.iter().filter(|sample| sample.failure.is_some()).count();
        ListedMesh::Mesh {
            mesh,
            test: header.test.kind,
            ends: header.ends.len(),
            rounds: header.rounds,
            all_rounds: header.all_rounds,
            waves: of_rounds.map(|sample| sample.wave + 1).max().unwrap_or(0),
            planned_waves: header.waves,
            tests: samples.len() - failed,
            failed,
        }
    }
}

pub(super) fn table(meshes: &[ListedMesh]) -> String {
    let row = |mesh: &ListedMesh| match mesh {
        ListedMesh::Mesh { mesh, test, ends, rounds, all_rounds, waves, planned_waves, tests, failed } => [
            mesh.clone(),
            test.to_string(),
            ends.to_string(),
            format!("{rounds} of {all_rounds}"),
            planned_waves.map_or(waves.to_string(), |planned| format!("{waves} of {planned}")),
            tests.to_string(),
            failed.to_string(),
        ],
        // `vtax fleet show` and the JSON show what is wrong.
        ListedMesh::Damaged { mesh, .. } => {
            let mut row = [const { String::new() }; 7];
            row[0] = format!("{mesh} (damaged)");
            row
        }
    };
    let columns = [
        Column::left("MESH"),
        Column::left("TEST"),
        Column::right("HOSTS"),
        Column::right("ROUNDS"),
        Column::right("WAVES"),
        Column::right("TESTS"),
        Column::right("FAILED"),
    ];
    lists::list(columns, meshes.iter().map(row))
}
