//! The run-time directory of the labs that tests build.

use std::{env, path::PathBuf};

/// Returns the path of an object in the run directory of root's labs. The suite uses a separate one (`VTAX_RUN`).
pub(crate) fn in_run_directory(path: &str) -> PathBuf {
    env::var_os("VTAX_RUN").map_or_else(|| PathBuf::from("/run/vtax"), PathBuf::from).join(path)
}
