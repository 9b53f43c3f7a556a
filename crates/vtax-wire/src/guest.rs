//! Paths in a guest that vtax and the agent there agree on.

/// Mount point of the directory shared with a guest.
pub const LENT: &str = "/vtax/lent";
/// Directory where a server's vtax keeps what outlasts a reboot of the server: the disk of state is mounted there.
pub const STATE: &str = "/run/vtax-state";
/// Script that a server runs at each reboot, before its agent answers.
pub const BOOT_SCRIPT: &str = "/run/vtax-state/boot/start";
/// This file is there once the machine has begun to boot again.
pub const LEAVING: &str = "/run/vtax-leaving";
