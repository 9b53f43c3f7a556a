//! The Linux mechanisms that vtax uses. This is the only crate of the workspace with `unsafe` code.
//! Everything is synchronous: a lab of a hundred zones is built by a few thousand small requests, one after
//! the other, and a measuring thread must not share its CPU with an async runtime.
//!
//! No function decides policy: the caller gives names, addresses, ownership marks and the programs to run.
//!
//! | module | for |
//! |---|---|
//! | [`netns`] | network namespaces: make, pin, enter, start processes in them |
//! | [`userns`] | getting by without root |
//! | [`netlink`] | links, addresses, routes, virtual functions of NICs, virtual switches and their rules |
//! | [`ethtool`] | what a link's driver can be told |
//! | [`pci`] | PCI devices, their drivers and virtual functions |
//! | [`clock`], [`cpu`], [`idle`], [`layout`] | time, pins, where CPU time went, keeping CPUs awake, addresses that don't differ |
//! | [`sock`] | socket options that `socket2` lacks, segments, stamps, zero copy |
//! | [`ring`] | io_uring |
//! | [`sysctl`], [`tree`], [`process`], [`inherit`] | `/proc/sys`, files of `/proc` and `/sys`, limits, processes that are ours, what they inherit |
//! | [`confine`] | programs without privilege, with limits |
//! | [`deadline`] | programs that must end in time |
//! | [`directory`], [`lock`] | directories of this user alone; waiting for a lock, and who holds it |
//! | [`record`] | files by which vtax knows what it has done |
//! | [`token`] | the secret of a test, from the kernel's random numbers |
//! | [`ssh`] | what sshd tells the programs of a session |
//! | [`mount`], [`module`], [`children`], [`power`] | what the first process of a machine does |

#[cfg(not(target_os = "linux"))]
compile_error!("vtax-sys speaks to the Linux kernel and to nothing else");

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
