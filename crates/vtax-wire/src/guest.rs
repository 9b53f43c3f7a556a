//! Paths in a guest that vtax and the agent there agree on.

/// Where a guest has what it is lent.
pub const LENT: &str = "/vtax/lent";
/// Where a server's vtax keeps what outlasts a reboot of the server: the disk of state is mounted there.
pub const STATE: &str = "/run/vtax-state";
/// What a server runs each time when it boots again, before its agent answers.
pub const BOOT_SCRIPT: &str = "/run/vtax-state/boot/start";
/// This file is there once the machine has begun to boot again.
pub const LEAVING: &str = "/run/vtax-leaving";
