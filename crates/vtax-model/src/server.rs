//! The emulated server: a whole machine emulated by QEMU, with SR-IOV NICs cabled back to back, NVMe controllers, and
//! virtio disks.
//!
//! It shows function, not speed. This module parses `--server`, and defines which NICs are cabled together.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::{
    guest::Mac,
    units::{ByteSize, UnitError},
};

/// An emulated server, e.g. `emulated[:nics=8,vfs=0,nvmes=2,disks=0,nodes=2,sockets=1,cpus=1,memory=4GiB]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct ServerSpec {
    /// Number of NICs, an even number from 2 to 16: every two are the ends of a cable.
    pub nics: u32,
    /// Number of virtual functions that each NIC has from the start, 0 to 7.
    pub vfs: u32,
    /// Number of NVMe controllers, 0 to 4, each in a separate IOMMU group and with one empty disk of
    /// [`ServerSpec::DISK_SIZE`]. The disks are lost with the server.
    pub nvmes: u32,
    /// Number of virtio disks, 0 to 4, empty and lost like those of NVMe controllers.
    pub disks: u32,
    /// Number of NUMA nodes, 1 to 4, each with its share of CPUs and memory; with few CPUs the last ones have none. The
    /// second NIC of each cable is on node 1, if there is one.
    pub nodes: u32,
    /// CPU sockets, each with its share of the CPUs.
    pub sockets: u32,
    /// Number of CPUs, 1 to 64. Where QEMU has to translate them, guests in a server with several CPUs occasionally
    /// make a kernel panic, that of the guest or of the server: QEMU translates virtualization in virtualization, and
    /// doesn't get that right yet.
    pub cpus: u32,
    /// RAM, whole MiB, at least 1 GiB.
    pub memory: ByteSize,
}

/// An empty disk of the server, with its number among those of its kind. It prints as its name on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerDisk {
    /// Behind a separate NVMe controller.
    Nvme(u32),
    /// A virtio-blk device.
    Virtio(u32),
}

impl fmt::Display for ServerDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerDisk::Nvme(number) => write!(f, "nvme{number}"),
            ServerDisk::Virtio(number) => write!(f, "virtio{number}"),
        }
    }
}

/// Reason why the requested `--server` is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum BadServer {
    #[error(
        "invalid server `{0}`; use emulated, or emulated:nics=8,vfs=0,nvmes=2,disks=0,nodes=2,sockets=1,cpus=1,memory=4GiB"
    )]
    #[diagnostic(code("bad-server"))]
    Kind(String),
    #[error("unknown setting `{0}` of an emulated server; use {keys}, e.g. nics=8", keys = KEYS.join(", "))]
    #[diagnostic(code("bad-server"))]
    Key(String),
    #[error("`{0}` is set twice")]
    #[diagnostic(code("bad-server"))]
    Twice(&'static str),
    #[error("invalid {key} = {value} of an emulated server: {range}")]
    #[diagnostic(code("bad-server"))]
    Value { key: &'static str, value: String, range: &'static str },
    #[error("memory of an emulated server: {0}")]
    #[diagnostic(code("bad-server"))]
    Memory(#[from] UnitError),
}

const KEYS: [&str; 8] = ["nics", "vfs", "nvmes", "disks", "nodes", "sockets", "cpus", "memory"];
const KIND: &str = "emulated";

impl Default for ServerSpec {
    fn default() -> Self {
        ServerSpec { nics: 8, vfs: 0, nvmes: 2, disks: 0, nodes: 2, sockets: 1, cpus: 1, memory: ByteSize(4 << 30) }
    }
}

impl ServerSpec {
    /// Size of each empty disk: that of the range in the built-in disk study.
    pub const DISK_SIZE: ByteSize = ByteSize(1 << 30);

    /// Returns true if it is just `emulated`, so that any running server matches.
    pub fn is_any(&self) -> bool {
        *self == ServerSpec::default()
    }

    /// Returns the cables: the hardware addresses of the two NICs, on root complex 0 and on root
    /// complex 1.
    pub fn cables(&self) -> impl Iterator<Item = [Mac; 2]> + use<> {
        (0..self.nics / 2).map(ServerSpec::macs)
    }

    /// Returns the addresses of one cable's NICs: `02:76:74:00:CABLE:01` and `:02`.
    pub fn macs(cable: u32) -> [Mac; 2] {
        [1, 2].map(|end| format!("02:76:74:00:{cable:02x}:{end:02x}").parse().expect("there are fewer than 256 cables"))
    }

    /// Returns the disks that are empty when it first boots.
    pub fn empty_disks(&self) -> impl Iterator<Item = ServerDisk> + use<> {
        (0..self.nvmes).map(ServerDisk::Nvme).chain((0..self.disks).map(ServerDisk::Virtio))
    }

    fn checked(self) -> Result<ServerSpec, BadServer> {
        let ServerSpec { nics, vfs, nvmes, disks, nodes, sockets, cpus, memory } = self;
        let possible_nics = (2..=16).contains(&nics) && nics.is_multiple_of(2);
        let possible_sockets = sockets > 0 && cpus.is_multiple_of(sockets);
        let possible_memory = memory >= ByteSize(1 << 30) && memory.0.is_multiple_of(1 << 20);
        let settings = [
            ("nics", nics.to_string(), possible_nics, "2, 4, 6, … 16, two per cable"),
            ("vfs", vfs.to_string(), vfs <= 7, "0 to 7 on each NIC"),
            ("nvmes", nvmes.to_string(), nvmes <= 4, "0 to 4"),
            ("disks", disks.to_string(), disks <= 4, "0 to 4"),
            ("cpus", cpus.to_string(), (1..=64).contains(&cpus), "1 to 64"),
            ("nodes", nodes.to_string(), (1..=4).contains(&nodes), "1 to 4"),
            ("sockets", sockets.to_string(), possible_sockets, "at least 1, and cpus a multiple of it"),
            ("memory", memory.to_string(), possible_memory, "at least 1 GiB, whole MiB"),
        ];
        match settings.into_iter().find(|(_, _, possible, _)| !possible) {
            Some((key, value, _, range)) => Err(BadServer::Value { key, value, range }),
            None => Ok(self),
        }
    }

    fn set(&mut self, key: &'static str, value: &str) -> Result<(), BadServer> {
        let number = |range| value.parse().map_err(|_| BadServer::Value { key, value: value.to_owned(), range });
        match key {
            "nics" => self.nics = number("a number")?,
            "vfs" => self.vfs = number("a number")?,
            "nvmes" => self.nvmes = number("a number")?,
            "disks" => self.disks = number("a number")?,
            "nodes" => self.nodes = number("a number")?,
            "sockets" => self.sockets = number("a number")?,
            "cpus" => self.cpus = number("a number")?,
            _ => self.memory = value.parse()?,
        }
        Ok(())
    }
}

impl FromStr for ServerSpec {
    type Err = BadServer;

    fn from_str(text: &str) -> Result<Self, BadServer> {
        let (kind, settings) = text.split_once(':').unwrap_or((text, ""));
        if kind != KIND {
            return Err(BadServer::Kind(text.to_owned()));
        }
        let mut spec = ServerSpec::default();
        let mut seen = Vec::new();
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let unknown = || BadServer::Key(setting.to_owned());
            let (key, value) = setting.split_once('=').ok_or_else(unknown)?;
            let key = KEYS.into_iter().find(|known| *known == key.trim()).ok_or_else(unknown)?;
            if seen.contains(&key) {
                return Err(BadServer::Twice(key));
            }
            spec.set(key, value.trim())?;
            seen.push(key);
        }
        spec.checked()
    }
}

/// Only values other than the defaults are written.
impl fmt::Display for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = ServerSpec::default();
        let numbers =
            |spec: &ServerSpec| [spec.nics, spec.vfs, spec.nvmes, spec.disks, spec.nodes, spec.sockets, spec.cpus];
        let mut written = Vec::new();
        for ((key, number), usual) in KEYS.into_iter().zip(numbers(self)).zip(numbers(&usual)) {
            if number != usual {
                written.push(format!("{key}={number}"));
            }
        }
        if self.memory != usual.memory {
            written.push(format!("memory={}", self.memory.to_string().replace(' ', "")));
        }
        let colon = if written.is_empty() { "" } else { ":" };
        write!(f, "{KIND}{colon}{}", written.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(text: &str) -> Result<ServerSpec, String> {
        text.parse::<ServerSpec>().map_err(|error| error.to_string())
    }

    #[test]
    fn omitted_parameters_have_defaults() {
        assert_eq!(spec("emulated"), Ok(ServerSpec::default()));
        assert_eq!(spec("emulated:"), Ok(ServerSpec::default()));
        let small = spec("emulated:nics=2,memory=1536MiB, vfs=3").expect("possible");
        let wanted = ServerSpec { nics: 2, vfs: 3, memory: ByteSize(1536 << 20), ..ServerSpec::default() };
        assert_eq!(small, wanted);
        assert_eq!(small.to_string(), "emulated:nics=2,vfs=3,memory=1536MiB");
        assert_eq!(ServerSpec::default().to_string(), "emulated");
    }

    #[test]
    fn unavailable_things_are_named() {
        for (text, named) in [
            ("real", "invalid server `real`"),
            ("emulated:nic=2", "unknown setting `nic=2` of an emulated server; use nics, vfs, nvmes, disks,"),
            ("emulated:nics", "unknown setting `nics`"),
            ("emulated:nics=2,nics=2", "`nics` is set twice"),
            ("emulated:nics=3", "invalid nics = 3 of an emulated server: 2, 4, 6,"),
            ("emulated:nics=18", "nics = 18"),
            ("emulated:nics=two", "invalid nics = two of an emulated server: a number"),
            ("emulated:vfs=8", "invalid vfs = 8 of an emulated server: 0 to 7"),
            ("emulated:nvmes=5", "invalid nvmes = 5 of an emulated server: 0 to 4"),
            ("emulated:disks=5", "invalid disks = 5 of an emulated server: 0 to 4"),
            ("emulated:nodes=5", "invalid nodes = 5 of an emulated server: 1 to 4"),
            ("emulated:sockets=0", "sockets = 0"),
            ("emulated:cpus=3,sockets=2", "invalid sockets = 2 of an emulated server: at least 1, and cpus"),
            ("emulated:cpus=0", "cpus = 0"),
            ("emulated:memory=512MiB", "invalid memory = 512 MiB of an emulated server: at least 1 GiB"),
            ("emulated:memory=much", "memory of an emulated server: invalid size `much`"),
        ] {
            let error = spec(text).expect_err("impossible");
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn each_cable_joins_two_separate_nics() {
        let text: Vec<String> =
            spec("emulated:nics=4").expect("possible").cables().flatten().map(|mac| mac.to_string()).collect();
        assert_eq!(text, ["02:76:74:00:00:01", "02:76:74:00:00:02", "02:76:74:00:01:01", "02:76:74:00:01:02"]);
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(cables in 1u32..=8, vfs in 0u32..=7, nvmes in 0u32..=4, disks in 0u32..=4, nodes in 1u32..=4, cores in 4u32..=16, sockets in 1u32..=4, mib in 1024u64..=65536) {
            let spec = ServerSpec { nics: 2 * cables, vfs, nvmes, disks, nodes, sockets, cpus: cores * sockets, memory: ByteSize(mib << 20) };
            prop_assert_eq!(spec.to_string().parse(), Ok(spec));
            let json = serde_json::to_string(&spec).expect("it can be written");
            prop_assert_eq!(serde_json::from_str::<ServerSpec>(&json).expect("it can be read"), spec);
        }

        #[test]
        fn no_text_is_too_odd(text in "(emulated:?)?[a-z=,:0-9 ]{0,24}") {
            let _ = text.parse::<ServerSpec>();
        }
    }
}
