//! Text from elsewhere: agents, guests, remote hosts, other programs, files.
//!
//! Its author may want to deceive the reader of a terminal: by control characters, by characters that change the
//! direction of writing or have no width, or by a line that looks like one of ours. So such text is stored as
//! [`ForeignText`], which can be printed only as one line of visible characters.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// Text that someone else wrote. It is stored unchanged, and printed in one line as [`visible`] text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ForeignText(String);

impl ForeignText {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the unchanged text: to be compared, parsed or stored, never to be printed.
    pub fn raw(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for ForeignText {
    fn from(text: T) -> ForeignText {
        ForeignText(text.into())
    }
}

impl FromStr for ForeignText {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<ForeignText, Self::Err> {
        Ok(text.into())
    }
}

impl PartialEq<str> for ForeignText {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for ForeignText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for ForeignText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visible = visible(&self.0);
        match visible.contains(['\n', '\t']) {
            true => f.pad(&visible.replace('\n', "\\n").replace('\t', "\\t")),
            false => f.pad(&visible),
        }
    }
}

/// Returns the text with each invisible character as `\u001b`. Line breaks and tabs stay. JSON text stays equivalent
/// JSON.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_hidden(character) {
            // As in JSON: characters beyond the first plane are two units.
            true => character
                .encode_utf16(&mut [0; 2])
                .iter()
                .try_for_each(|unit| write!(shown, "\\u{unit:04x}"))
                .expect("a string takes all"),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// Returns true if a character has no glyph: a control character, one that changes the direction of writing, has no
/// width, or is not assigned. The Unicode tables are those of the standard library, which quotes such characters.
fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\t' | ' '..='~' => false,
        // After another character, a combining accent is not quoted.
        _ => ["x", character.encode_utf8(&mut [0; 4])].concat().escape_debug().count() > 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(
            visible("a\u{1b}[2Jb\u{9b}1mc\rd\u{7f}\u{202e}e\n\tf\u{200b}\u{2028}\u{feff}\u{e0001}"),
            "a\\u001b[2Jb\\u009b1mc\\u000dd\\u007f\\u202ee\n\tf\\u200b\\u2028\\ufeff\\udb40\\udc01"
        );
        for plain in ["vxlan costs +4.5 µs [3, 5]; \"a\\b\" × 2 − 1 ≥ 0", "हिन्दी 中文 e\u{301} 🦀"]
        {
            assert!(matches!(visible(plain), Cow::Borrowed(_)), "{plain}");
        }
    }

    #[test]
    fn foreign_text_can_forge_no_line() {
        let text = ForeignText::from("timed out\nvtax: all is well\r\u{1b}[A");
        assert_eq!(text.to_string(), "timed out\\nvtax: all is well\\u000d\\u001b[A");
        assert_eq!(format!("{:>6}|{:<6}|", ForeignText::from("ab"), ForeignText::from("ab")), "    ab|ab    |");
        assert_eq!(serde_json::to_string(&text).expect("JSON"), r#""timed out\nvtax: all is well\r\u001b[A""#);
    }

    proptest! {
        #[test]
        fn json_stays_the_same_json(text in any::<String>()) {
            let json = serde_json::to_string_pretty(&[&text]).expect("text is JSON");
            let shown = visible(&json).into_owned();
            prop_assert!(!shown.contains(is_hidden));
            let [read]: [String; 1] = serde_json::from_str(&shown).expect("still JSON");
            prop_assert_eq!(read, text);
        }

        #[test]
        fn foreign_text_is_one_line(text in any::<String>()) {
            let shown = ForeignText::from(text).to_string();
            prop_assert!(!shown.contains(is_hidden) && !shown.contains(['\n', '\t']), "{}", shown);
        }
    }
}
