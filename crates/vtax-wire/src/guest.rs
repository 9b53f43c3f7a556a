//! Paths in a guest, shared by vtax and the agent.

/// Mount point of the directory shared with a guest.
pub const LENT: &str = "/vtax/lent";
/// Directory for what must survive a reboot of an emulated server: its state disk is mounted there.
pub const STATE: &str = "/run/vtax-state";
/// Script that an emulated server runs at each boot, before its agent answers.
pub const BOOT_SCRIPT: &str = "/run/vtax-state/boot/start";
/// Created once the machine has begun to reboot.
pub const LEAVING: &str = "/run/vtax-leaving";
