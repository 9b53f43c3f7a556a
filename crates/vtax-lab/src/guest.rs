//! Guests: virtual machines under QEMU, from a kernel to an agent that answers.
//!
//! Nothing here knows of plans, journals or taps: a [`Launch`](launch::Launch) comes in, and a
//! running guest with an agent's socket comes out. What QEMU is told is a pure function of the
//! launch ([`arguments()`](arguments::arguments)).

pub mod accel;
pub mod arguments;
mod cpio;
pub mod disk;
mod elf;
mod error;
mod files;
pub mod home;
pub mod image;
pub mod kernel;
pub mod last_words;
pub mod launch;
mod limits;
pub mod memory;
pub mod modules;
pub mod process;
pub mod qemu;
pub mod qmp;
pub mod seed;
pub mod threads;
mod vmlinux;

pub use error::{GuestError, MissingForGuests};
