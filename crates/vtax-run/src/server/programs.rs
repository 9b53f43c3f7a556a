//! Copies of vtax and its agent in the server's memory.
//!
//! Before each command the server drops its cache of this machine's files, because they may have changed. If it had to
//! read vtax again each time, a short command would take about three times as long.

use std::{env, fs, io, os::unix::fs::MetadataExt, path::Path};

use vtax_wire::guest::{BOOT_SCRIPT, LEAVING};

use super::{EmulatedServerUp, boot, command::text};
use crate::stop::Coded;

/// Directory of the server's own programs.
pub(super) const PROGRAMS: &str = "/run/vtax-programs";
/// Path of vtax in the server; its agent is next to it.
pub(super) const PROGRAM: &str = "/run/vtax-programs/vtax";

/// The programs on this machine.
pub(super) struct ServerPrograms {
    /// Text that differs for each version of them.
    versions: String,
    vtax: String,
    agent: Option<String>,
}

impl ServerPrograms {
    pub(super) fn find(agent: Option<&Path>) -> miette::Result<ServerPrograms> {
        let vtax = env::current_exe().coded("file", || "finding this program")?;
        let files: Vec<&Path> = [&*vtax].into_iter().chain(agent).collect();
        let version = |file: &&Path| version(file).coded("file", || format!("accessing {}", file.display()));
        let versions = files.iter().map(version).collect::<miette::Result<Vec<_>>>()?.join(" ");
        let path = |path: &Path| text(path.as_os_str().to_owned());
        Ok(ServerPrograms { versions, vtax: path(&vtax)?, agent: agent.map(path).transpose()? })
    }

    /// Returns shell lines that copy them, unless the server already has these versions. The copies keep their
    /// timestamps, by which guest images made on this machine are found (`vtax_guest::image`).
    ///
    /// The server's init is the agent, which reboots the server on a signal.
    pub(super) fn script(&self) -> String {
        let [versions, vtax] = [&self.versions, &self.vtax].map(|text| boot::quoted(text));
        let agent = self.agent.as_ref().map(|agent| format!("cp -p {} new\nmv new vtax-agent\n", boot::quoted(agent)));
        format!(
            r#"mkdir -p {PROGRAMS}
cd {PROGRAMS}
if [ "$(cat versions 2>/dev/null)" != {versions} ]; then
rm -f versions vtax-agent
cp -p {vtax} new
mv new vtax
{agent}cat >new <<'END'
#!/bin/sh
kill -TERM 1
while [ ! -e {LEAVING} ]; do sleep 0.1; done
END
chmod 755 new
mv new reboot
echo {versions} >versions
fi
"#,
            agent = agent.unwrap_or_default()
        )
    }
}

/// Drops the cached files. If the programs have changed, saves the script from standard input, and lets it copy them.
const REFRESH: &str = r#"
set -e
echo 3 >/proc/sys/vm/drop_caches
[ "$(cat /run/vtax-programs/versions 2>/dev/null)" = "$1" ] && exit
"#;

impl EmulatedServerUp {
    /// Lets the server see this machine's files in their current state.
    pub(super) fn refresh_files(&self, programs: &ServerPrograms, script: &str) -> miette::Result<()> {
        let refresh = format!("{REFRESH}{}{BOOT_SCRIPT} programs\n", boot::KEEP);
        self.shell("copying vtax and its agent", &refresh, &[&programs.versions], script.as_bytes())
    }
}

/// Returns a text that differs for each file and after each change to it.
fn version(file: &Path) -> io::Result<String> {
    let file = fs::metadata(file)?;
    Ok(format!("{}:{}:{}:{}.{:09}", file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
}
