//! Guests: virtual machines under QEMU, from a kernel to an agent that answers.
//!
//! Nothing here knows of plans, journals or taps: a [`Launch`](launch::Launch) comes in, and a
//! running guest with an agent's socket comes out. What QEMU is told is a pure function of the
//! launch ([`arguments()`](arguments::arguments)).
//!
//! | module | for |
//! |---|---|
//! | [`kernel`], [`modules`], [`image`] | what a guest boots: a kernel, its drivers, an initramfs with the agent |
//! | [`disk`], [`seed`] | or else: the user's disk image, and what brings the agent into its system |
//! | [`qemu`], [`accel`] | the program, and whether KVM really runs a guest here |
//! | [`launch`], [`arguments`] | a guest as data, and as QEMU's arguments |
//! | [`process`], [`qmp`], [`threads`], [`memory`], [`last_words`] | a QEMU that runs: its end, its monitor, its threads, what it takes and leaves |

pub mod accel;
pub mod arguments;
mod cpio;
pub mod disk;
mod elf;
mod error;
pub mod image;
pub mod kernel;
pub mod last_words;
pub mod launch;
pub mod memory;
mod missing;
pub mod modules;
pub mod process;
pub mod qemu;
pub mod qmp;
pub mod seed;
pub mod threads;
pub mod version;
mod vmlinux;

pub use error::GuestError;
pub use missing::MissingForGuests;
