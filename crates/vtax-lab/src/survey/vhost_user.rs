//! Programs that could serve the rings of virtio-net, and the reason why a lab can't use them. A backend replaces tap
//! and switch, so the backend itself must be connected to the wire.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// A program, and how vtax detects the option that a lab would require.
struct Backend {
    program: &'static str,
    /// This text is in the program's file if it was built with the option.
    trait_text: &'static str,
    /// Shortcoming of a program without the option.
    without: &'static str,
    /// Shortcoming of a program with the option.
    with: &'static str,
}

const BACKENDS: [Backend; 2] = [
    Backend {
        program: "passt",
        trait_text: "vhost-user",
        without: "has no option --vhost-user (added in version 2024_11_27), and would connect a guest to its host's sockets, not to the wire",
        with: "connects a guest to its host's sockets, not to the wire",
    },
    Backend {
        program: "ovs-vswitchd",
        trait_text: "dpdkvhostuserclient",
        without: "is built without DPDK (Debian: openvswitch-switch-dpdk), and this version of vtax does not start Open vSwitch in a host",
        with: "needs a database and a polling CPU for each host, and this version of vtax does not start Open vSwitch there",
    },
];

/// The installed programs, each with its missing features.
pub(super) fn backends() -> Vec<String> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let found = |backend: &Backend| {
        let path = folders.iter().map(|folder| folder.join(backend.program)).find(|path| path.is_file())?;
        Some(backend.clause(&path))
    };
    BACKENDS.iter().filter_map(found).collect()
}

impl Backend {
    /// Searches the file: one program prints its help as an error, the other has its options in a database.
    fn clause(&self, path: &Path) -> String {
        let program = fs::read(path).unwrap_or_default();
        let has = program.windows(self.trait_text.len()).any(|window| window == self.trait_text.as_bytes());
        format!("{} {}", self.program, if has { self.with } else { self.without })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_recognized_by_its_build_options() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("passt");
        let said = |contents: &[u8]| {
            fs::write(&program, contents).expect("ours");
            BACKENDS[0].clause(&program)
        };
        assert!(said(b"\x7fELF\0socket\0").starts_with("passt has no option --vhost-user"));
        assert_eq!(said(b"\x7fELF\0vhost-user\0"), "passt connects a guest to its host's sockets, not to the wire");
    }
}
