//! `vtax tune apply --persist`: what is kept over a restart of the machine.

use vtax_tune::NotKept;

/// What is not kept, with the reason and what would keep it.
pub(super) fn told(not_kept: &[NotKept]) -> String {
    let line = |left: &NotKept| format!("  {}\n    {}; {}\n", left.change, left.because, left.instead);
    match not_kept {
        [] => String::new(),
        left => "Not kept over a restart:\n".to_owned() + &left.iter().map(line).collect::<String>(),
    }
}
