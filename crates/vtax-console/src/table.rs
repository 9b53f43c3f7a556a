//! Which consoles there are.

use std::path::PathBuf;

/// All groups of consoles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConsoleTable {
    /// Each has a port of its own.
    pub groups: Vec<ConsoleGroup>,
}

/// Consoles that share a port and a menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleGroup {
    /// Its name, which is in its prompt.
    pub name: String,
    /// Its port on the loopback.
    pub port: u16,
    /// Its consoles, in the order of the menu.
    pub consoles: Vec<Console>,
}

/// The console of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    /// The domain's number.
    pub id: u32,
    /// Its name.
    pub domain: String,
    /// The Unix socket behind its serial port.
    pub socket: PathBuf,
    /// Where what it prints is kept.
    pub log: PathBuf,
}
