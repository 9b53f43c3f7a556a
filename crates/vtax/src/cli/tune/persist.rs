//! `vtax tune apply --persist`: changes that survive a reboot.

use vtax_tune::NotKept;

/// Returns the changes that are not persistent, each with the reason and an alternative.
pub(super) fn told(not_kept: &[NotKept]) -> String {
    let line = |left: &NotKept| format!("  {}\n    {}; {}\n", left.change, left.because, left.instead);
    match not_kept {
        [] => String::new(),
        left => "Not persistent across reboots:\n".to_owned() + &left.iter().map(line).collect::<String>(),
    }
}
