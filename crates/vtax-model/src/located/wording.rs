//! serde's messages in the words of TOML's users.
//!
//! serde and toml provide only an error's text, no code. Its forms are those of the default methods
//! of `serde::de::Error`; other forms are left unchanged.

use crate::spelling::suggestion;

/// A problem in a file.
pub(super) struct Worded {
    /// The code by which `docs/errors` explains it.
    pub(super) code: &'static str,
    /// The problem and its remedy.
    pub(super) text: String,
}

impl Worded {
    pub(super) fn coded(code: &'static str, text: impl Into<String>) -> Worded {
        Worded { code, text: text.into() }
    }
}

/// Rewords serde's message. `key` is the key of the value that the error is about, if known.
pub(super) fn in_words(message: &str, key: Option<&str>) -> Worded {
    let of_key = |Worded { code, text }: Worded| match key {
        Some(key) => Worded { code, text: format!("`{key}`: {text}") },
        None => Worded { code, text },
    };
    let of_value = wrong_type(message).or_else(|| unknown_name(message)).map(of_key);
    let words = of_value.or_else(|| unknown_key(message)).or_else(|| missing(message));
    words.unwrap_or_else(|| Worded::coded("bad-file-value", message))
}

fn wrong_type(message: &str) -> Option<Worded> {
    let told = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    let (found, expected) = told.rsplit_once(", expected ")?;
    let text = format!("invalid value: {}; expected {}", found_in_words(found), expected_in_words(expected));
    Some(Worded::coded("wrong-type", text))
}

fn found_in_words(found: &str) -> String {
    let renamed = [
        ("string ", "the string "),
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", "the boolean "),
    ];
    let known = renamed.into_iter().find_map(|(serde, ours)| Some(format!("{ours}{}", found.strip_prefix(serde)?)));
    known.unwrap_or_else(|| match found {
        "sequence" => "a list, in [ ]".to_owned(),
        "map" => "a table".to_owned(),
        other => other.to_owned(),
    })
}

fn expected_in_words(expected: &str) -> String {
    match expected {
        "i64" | "u64" | "i32" | "u32" | "usize" | "u16" | "u8" => "a whole number, without quotes".to_owned(),
        "f64" | "f32" => "a number, without quotes".to_owned(),
        "a boolean" => "true or false, without quotes".to_owned(),
        "a string" => "a string, in quotes".to_owned(),
        "a sequence" => "a list, in [ ]".to_owned(),
        "a map" => "a table".to_owned(),
        table if table.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

fn unknown_name(message: &str) -> Option<Worded> {
    listed(message.strip_prefix("unknown variant ")?, "name").map(|text| Worded::coded("unknown-name", text))
}

fn unknown_key(message: &str) -> Option<Worded> {
    listed(message.strip_prefix("unknown field ")?, "key").map(|text| Worded::coded("unknown-key", text))
}

/// Parses `` `x`, expected one of `a`, `b` ``.
fn listed(told: &str, what: &str) -> Option<String> {
    let (written, expected) = told.split_once(", ")?;
    let expected = expected.strip_prefix("expected ").unwrap_or(expected);
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let written = written.trim_matches('`');
    let near = suggestion(written, names.iter().copied());
    let known = match names.as_slice() {
        [] => String::new(),
        names => format!(" (available: {})", names.join(", ")),
    };
    Some(format!("unknown {what} `{written}`{near}{known}"))
}

fn missing(message: &str) -> Option<Worded> {
    let key = message.strip_prefix("missing field ")?;
    Some(Worded::coded("missing-key", format!("missing key {key}; add it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_worded_for_users() {
        let of_mtu = |message: &str| in_words(message, Some("mtu")).text;
        assert_eq!(
            of_mtu("invalid type: string \"three\", expected a sequence"),
            "`mtu`: invalid value: the string \"three\"; expected a list, in [ ]"
        );
        assert_eq!(
            of_mtu("invalid type: string \"three\", expected i64"),
            "`mtu`: invalid value: the string \"three\"; expected a whole number, without quotes"
        );
        assert_eq!(
            of_mtu("unknown variant `brigde`, expected one of `bridge`, `veth`"),
            "`mtu`: unknown name `brigde`; did you mean `bridge`? (available: bridge, veth)"
        );
        assert_eq!(of_mtu("unknown field `x`, expected `y`"), "unknown key `x` (available: y)");
        assert_eq!(of_mtu("missing field `id`"), "missing key `id`; add it");
        assert_eq!(of_mtu("key with no value, expected `=`"), "key with no value, expected `=`");
    }
}
