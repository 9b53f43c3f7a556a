//! Command-line options whose value is one of a few words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A word, its help and its value.
pub(crate) type Choice<T> = (&'static str, &'static str, T);

pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).map(|text| {
        let chosen = choices.iter().find(|(word, ..)| *word == text);
        chosen.expect("clap refuses other words").2
    })
}

/// As [`one_of`]; earlier names of the words, each with its word, are accepted and not shown.
pub(crate) fn one_of_or_old<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
    old: &'static [(&'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let word = |(word, help, _): &Choice<T>| {
        let names = old.iter().filter(|(_, now)| now == word).map(|(name, _)| *name);
        PossibleValue::new(*word).help(*help).aliases(names.collect::<Vec<_>>())
    };
    PossibleValuesParser::new(choices.iter().map(word)).map(|text| {
        let now = old.iter().find(|(name, _)| *name == text).map_or(text.as_str(), |(_, now)| now);
        choices.iter().find(|(word, ..)| *word == now).expect("clap refuses other words").2
    })
}

pub(crate) fn on_or_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|text| text == "on")
}
