//! The glossary of the book defines every term of the legend.

use std::collections::BTreeSet;

use super::*;

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");

/// Longest term: a longer text before a colon is a sentence.
const LONGEST: usize = 24;

/// Returns the terms that a line of the legend defines, e.g. `slower` and `faster`.
fn terms(line: &str) -> Vec<String> {
    let lead = line.strip_prefix("- ").and_then(|text| text.split_once(": ")).map(|(lead, _)| lead);
    let lead = lead.filter(|lead| lead.len() <= LONGEST).unwrap_or_default();
    lead.split(", ").filter(|term| !term.is_empty()).map(str::to_lowercase).collect()
}

#[test]
fn the_glossary_has_every_term_of_the_legend() {
    let defined: BTreeSet<String> = GLOSSARY
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .map(str::to_lowercase)
        .collect();
    let mut used = BTreeSet::new();
    for document in DOCUMENTS.iter() {
        let text = render(document, &Options { explain: true, width: 10_000, ..TERMINAL });
        let legend =
            text.lines().skip_while(|line| *line != "Legend").skip(2).take_while(|line| line.starts_with("- "));
        used.extend(legend.flat_map(terms));
    }
    assert!(used.contains("tax") && used.contains("rtt"), "{used:?}");
    assert_eq!(used.difference(&defined).collect::<Vec<_>>(), [""; 0]);
}
