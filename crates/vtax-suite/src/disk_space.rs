//! True if a build fits on the disk. A linker that runs out of space ends by a bus error, after minutes.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::{error::SuiteError, settings};

const GIB: u64 = 1 << 30;
/// Size of `target` after the lints, the agent and all tests were built, plus what the tests' images take.
const FRESH: u64 = 8 * GIB;
/// If most of it is there already.
const BUILT: u64 = 3 * GIB;

/// Refuses to start what would fill the disk.
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
