//! The Linux interfaces that vtax uses. This is the only crate of the workspace with `unsafe` code. Everything is
//! synchronous: a lab of a hundred zones is built by a few thousand small requests, one after another, and a measuring
//! thread must not share its CPU with an async runtime.
//!
//! No function decides policy: the caller provides names, addresses, ownership marks and the programs to run.
//!
//! | module | for |
//! |---|---|
//! | [`netns`] | network namespaces: create, pin, enter, start processes in them |
//! | [`userns`] | working without root |
//! | [`netlink`] | links, addresses, routes, virtual functions of NICs, virtual switches, their rules and forwarding tables |
//! | [`rarp`] | frames that announce where an address is |
//! | [`ethtool`] | driver settings of a link |
//! | [`pci`] | PCI devices, their drivers and virtual functions |
//! | [`clock`], [`cpu`], [`idle`], [`layout`] | clocks, CPU affinity, CPU time, CPU idle states, address layout |
//! | [`sock`] | socket options that `socket2` lacks, segments, timestamps, zero copy |
//! | [`ring`] | io_uring |
//! | [`sysctl`], [`tree`], [`process`], [`inherit`] | `/proc/sys`, files of `/proc` and `/sys`, processes, limits |
//! | [`confine`], [`access_list`] | programs without privilege, with limits, and files that they may use nevertheless |
//! | [`deadline`] | programs with a time limit |
//! | [`directory`], [`lock`] | directories private to this user; waiting for a lock, and its holder |
//! | [`record`] | files in which vtax keeps its state |
//! | [`token`] | the secret of a test, from the kernel's random numbers |
//! | [`ssh`] | session information that sshd gives to programs |
//! | [`mount`], [`module`], [`children`], [`power`] | tasks of the first process of a machine |

#[cfg(not(target_os = "linux"))]
compile_error!("vtax-sys supports only the Linux kernel");

pub mod access_list;
pub mod background;
pub mod block;
pub mod children;
pub mod clock;
pub mod confine;
pub mod cpu;
pub mod deadline;
pub mod directory;
mod error;
pub mod ethtool;
pub mod foreign_file;
#[cfg(test)]
mod fuzz;
pub mod idle;
pub mod inherit;
pub mod layout;
pub mod lock;
pub mod module;
pub mod mount;
pub mod netlink;
pub mod netns;
pub mod nic;
pub mod pci;
pub mod power;
pub mod process;
pub mod rarp;
pub mod record;
pub mod ring;
pub mod sock;
pub mod ssh;
pub mod state;
pub mod sysctl;
pub mod token;
pub mod tree;
pub mod userns;

pub use error::{Feature, Result, SysError};
