//! Checks that a build fits on the disk. When a linker runs out of space, it ends with a bus error, after minutes.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{error::SuiteError, settings};

const GIB: u64 = 1 << 30;
/// Size of `target` after building the lints, the agent and all tests, plus the space for the tests' images.
const FRESH: u64 = 8 * GIB;
/// Space required if most of it has already been built.
const BUILT: u64 = 3 * GIB;

/// Returns an error if a build could fill the disk.
pub(crate) fn check() -> Result<(), SuiteError> {
    let state = settings::state();
    let needed = if state.exists() { BUILT } else { FRESH };
    let at = state.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let stat = statvfs(at).map_err(|error| SuiteError::file("read the free space of", at)(error.into()))?;
    let free = stat.blocks_available() * stat.fragment_size();
    match free < needed {
        true => Err(SuiteError::DiskSpace { path: at.to_owned(), free, needed }),
        false => Ok(()),
    }
}
