//! vtax and its agent, copied into the server's memory.
//!
//! Before each command the server forgets what it has read of this machine's files, because they may have changed.
//! If it had to read vtax again each time, a short command would take some three times as long.

use std::{env, fs, io, os::unix::fs::MetadataExt, path::Path};

use super::{EmulatedServerUp, command::text};
use crate::stop::Coded;

/// Where vtax is in the server; its agent is beside it.
pub(super) const PROGRAM: &str = "/run/vtax-programs/vtax";

/// Forgets the files, and copies the programs unless it has these versions of them already.
/// Arguments: the versions, the path of vtax, and the path of the agent or nothing.
const REFRESH: &str = r#"
set -e
echo 3 > /proc/sys/vm/drop_caches
mkdir -p /run/vtax-programs
cd /run/vtax-programs
[ "$(cat versions 2>/dev/null)" = "$1" ] && exit
rm -f versions vtax-agent
cp "$2" new
mv new vtax
if [ -n "$3" ]; then
    cp "$3" new
    mv new vtax-agent
fi
echo "$1" > versions
"#;

impl EmulatedServerUp {
    /// Lets the server see this machine's files as they are now.
    pub(super) fn refresh_files(&self, agent: Option<&Path>) -> miette::Result<()> {
        let program = env::current_exe().coded("file", || "finding this program")?;
        let mut versions = version(&program).coded("file", || format!("looking at {}", program.display()))?;
        if let Some(agent) = agent {
            let version = version(agent).coded("file", || format!("looking at {}", agent.display()))?;
            versions = format!("{versions} {version}");
        }
        let path = |path: &Path| text(path.as_os_str().to_owned());
        let agent = agent.map(path).transpose()?.unwrap_or_default();
        self.shell("copying vtax and its agent", REFRESH, &[&versions, &path(&program)?, &agent], &[])
    }
}

/// A text that differs for each file, and after each change of it.
fn version(file: &Path) -> io::Result<String> {
    let file = fs::metadata(file)?;
    Ok(format!("{}:{}:{}:{}.{:09}", file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
}
