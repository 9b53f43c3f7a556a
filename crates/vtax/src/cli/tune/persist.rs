//! `vtax tune apply --persist`: report of what is not persisted.

use vtax_tune::NotKept;

/// Lists the changes that are not persisted, with the reason and the alternative.
pub(super) fn told(not_kept: &[NotKept]) -> String {
    let line = |left: &NotKept| format!("  {}\n    {}; {}\n", left.change, left.because, left.instead);
    match not_kept {
        [] => String::new(),
        left => "Not persisted:\n".to_owned() + &left.iter().map(line).collect::<String>(),
    }
}
