//! Guests: virtual machines under QEMU, from a kernel to an agent that answers.
//!
//! QEMU is a process with a dedicated user, cgroup and directory. Nothing here depends on labs, plans or journals, and
//! nothing creates a tap: the input is a [`Launch`](launch::Launch), and the output a running guest with an agent's
//! socket. QEMU's arguments are a pure function of the launch ([`arguments()`](arguments::arguments)).

#![forbid(unsafe_code)]

pub mod accel;
pub mod arguments;
mod cpio;
mod cpu_features;
pub mod disk;
mod disk_lock;
pub mod disk_threads;
mod elf;
mod error;
mod files;
pub mod guest_threads;
pub mod home;
pub mod image;
pub mod kernel;
pub mod last_words;
pub mod launch;
mod limits;
mod link;
pub mod locate;
pub mod machine;
pub mod memory;
pub mod migration;
pub mod modules;
pub mod paths;
pub mod probe;
pub mod process;
pub mod qemu;
pub mod qmp;
pub mod seed;
mod storage;
pub mod threads;
pub mod userfaultfd;
pub mod vdisk;
mod vmlinux;

pub use error::{GuestError, MissingForGuests};
pub use link::LinkName;
