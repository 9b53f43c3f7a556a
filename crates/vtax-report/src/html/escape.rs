//! Escaping of text in HTML.

use vtax_model::foreign::visible;

use super::super::written::unbroken;

/// Non-breaking space.
const NO_BREAK: char = '\u{a0}';

/// Escapes text for use between tags or as the value of an attribute in double quotes. Invisible characters and those
/// that change the writing direction are written as e.g. `\u202e`.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in unbroken(&visible(text), NO_BREAK).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_text_ends_its_element() {
        assert_eq!(escaped("</script><b a=\"1\">&'"), "&lt;/script&gt;&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        assert_eq!(escaped("+4 % [3, 5]"), "+4\u{a0}% [3,\u{a0}5]");
        assert_eq!(escaped("\x1b[2J a\u{202e}b"), "\\u001b[2J a\\u202eb");
    }

    proptest! {
        #[test]
        fn nothing_is_left_that_means_something(text: String) {
            let safe = escaped(&text);
            prop_assert!(!safe.contains(['<', '>', '"', '\'']));
            prop_assert!(safe.match_indices('&').all(|(at, _)| safe[at..].contains(';')));
        }
    }
}
