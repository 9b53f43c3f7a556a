//! Values of settings as text, as the kernel shows them.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

/// A value as the kernel shows it. Two texts are equal if they mean the same: the kernel separates the numbers of a
/// list by tabs, and it writes a mask of CPUs with leading zeros and a comma after each eight digits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KernelText(String);

impl KernelText {
    /// Creates a value from a text, without leading and trailing white space.
    pub fn new(text: &str) -> KernelText {
        KernelText(text.trim().to_owned())
    }

    /// Returns the text as the kernel shows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn words(&self) -> impl Iterator<Item = String> {
        self.0.split_whitespace().map(plain)
    }
}

impl PartialEq for KernelText {
    fn eq(&self, other: &KernelText) -> bool {
        self.words().eq(other.words())
    }
}

impl Eq for KernelText {}

impl fmt::Display for KernelText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("(nothing)"),
            // Any user who may write the setting may have chosen its characters.
            false => ForeignText::from(self.0.split_whitespace().collect::<Vec<_>>().join(" ")).fmt(f),
        }
    }
}

/// Returns a number or a mask in a normal form, and any other word unchanged.
fn plain(word: &str) -> String {
    if !is_mask(word) {
        return word.to_owned();
    }
    let digits: String = word.chars().filter(|c| *c != ',').collect();
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => digits.to_ascii_lowercase(),
    }
}

/// Returns true for groups of eight hexadecimal digits, of which the first may be shorter. A list of CPUs, such as
/// `0,2`, is not a mask.
fn is_mask(word: &str) -> bool {
    let hexadecimal = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut groups = word.split(',');
    let first = groups.next().is_some_and(|group| (1..=8).contains(&group.len()) && hexadecimal(group));
    first && groups.all(|group| group.len() == 8 && hexadecimal(group))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(text: &str) -> KernelText {
        KernelText::new(text)
    }

    #[test]
    fn texts_that_mean_the_same_are_equal() {
        for (one, other) in [
            ("4096\t131072\t6291456", "4096 131072 6291456"),
            ("00000000,00000003", "3"),
            ("ff", "000000FF"),
            ("0", "00000000"),
            ("performance\n", "performance"),
            ("1,00000000", "00000001,00000000"),
        ] {
            assert_eq!(text(one), text(other));
        }
    }

    #[test]
    fn texts_with_different_meanings_are_not_equal() {
        for (one, other) in [
            ("0,2", "2"),
            ("0,2", "02"),
            ("4096 131072", "4096 131072 6291456"),
            ("1 2", "12"),
            ("10", "1"),
            ("1,00000000", "1"),
            ("", "0"),
            ("on", "off"),
            ("-1", "1"),
        ] {
            assert_ne!(text(one), text(other), "{one} and {other}");
        }
    }

    #[test]
    fn a_list_is_printed_in_one_line() {
        assert_eq!(text("4096\t131072\t6291456\n").to_string(), "4096 131072 6291456");
        assert_eq!(text("").to_string(), "(nothing)");
        assert_eq!(text("host\u{1b}[2J").to_string(), "host\\u001b[2J");
    }

    proptest! {
        #[test]
        fn a_mask_of_any_length_equals_itself_without_zeros(mask in 1_u128.., zeros in 0_usize..40) {
            let digits = format!("{}{mask:x}", "0".repeat(zeros));
            let groups: Vec<&str> = digits.as_bytes().rchunks(8).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
            let shown = groups.join(",");
            prop_assert_eq!(text(&shown).words().next().unwrap(), format!("{mask:x}"));
            prop_assert_ne!(text(&shown), text(&format!("{:x}", mask >> 1)));
        }

        #[test]
        fn hostile_texts_never_panic(one in "[0-9a-f, \t]{0,30}|\\PC{0,20}", other in "[0-9a-f, \t]{0,30}|\\PC{0,20}") {
            let (one, other) = (text(&one), text(&other));
            prop_assert_eq!(one == other, other == one);
            let _ = one.to_string();
        }
    }
}
