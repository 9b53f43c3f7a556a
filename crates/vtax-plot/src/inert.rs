//! Conversion of untrusted text to one line of visible characters.
//!
//! Vega escapes XML markup. It doesn't escape characters that a reader cannot see: control characters, which are
//! invalid in XML, and those that change the writing direction.

use std::borrow::Cow;

/// Returns a name as it is drawn. Longer names would leave no room for the figures.
pub(crate) fn inert(text: &str) -> String {
    shortened(text, 80)
}

/// Returns a sentence as it is drawn above a chart, where it may take several lines.
pub(crate) fn title(text: &str) -> String {
    shortened(text, 200)
}

fn shortened(text: &str, longest: usize) -> String {
    let shown: String = text.chars().take(longest + 1).map(visible).collect();
    match shown.chars().count() > longest {
        true => shown.chars().take(longest - 1).chain(['…']).collect(),
        false => shown,
    }
}

/// Returns a text of several sentences, which is only shortened for its length.
pub(crate) fn prose(text: &str) -> String {
    const LONGEST_PROSE: usize = 4_000;
    text.chars().take(LONGEST_PROSE).map(visible).collect()
}

fn visible(character: char) -> Cow<'static, str> {
    match is_hidden(character) {
        true => character.escape_unicode().to_string().into(),
        false => character.to_string().into(),
    }
}

/// Returns `true` if a character has no glyph, by the tables of the standard library, which escapes such characters.
fn is_hidden(character: char) -> bool {
    match character {
        ' '..='~' => false,
        // After another character, a combining accent is not escaped.
        _ => {
            let noncharacter = matches!(u32::from(character) & 0xfffe, 0xfffe);
            noncharacter || ["x", character.encode_utf8(&mut [0; 4])].concat().escape_debug().count() > 2
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invisible_characters_are_shown() {
        assert_eq!(inert("a\u{202e}b\0\n"), "a\\u{202e}b\\u{0}\\u{a}");
        assert_eq!(inert("µs × 2 हिन्दी 中文"), "µs × 2 हिन्दी 中文");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!([inert(&"x".repeat(500)), title(&"x".repeat(500))].map(|text| text.chars().count()), [80, 200]);
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text in any::<String>()) {
            prop_assert!(!prose(&text).chars().any(is_hidden));
        }
    }
}
