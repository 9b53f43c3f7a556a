//! The glossary of the book defines every term of the legend, and of the titles, columns and warnings of reports.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use vtax_model::metric::{CpuRole, Metric};

use super::*;
use crate::{
    study::view,
    view::{Section, SectionPart, Table, View},
};

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");

/// Longest term: a longer text before a colon is a sentence.
const LONGEST: usize = 24;

/// Terms that the glossary defines, in lower case and without their units.
fn defined() -> BTreeSet<String> {
    let rows = GLOSSARY.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    rows.map(|term| term.split(" (").next().unwrap_or(term).to_lowercase()).collect()
}

/// Returns `true` if the glossary defines the term or its singular.
fn is_defined(term: &str, defined: &BTreeSet<String>) -> bool {
    defined.contains(term) || term.strip_suffix('s').is_some_and(|singular| defined.contains(singular))
}

/// Returns the terms that a line of the legend defines, e.g. `slower` and `faster`.
fn terms(line: &str) -> Vec<String> {
    let lead = line.strip_prefix("- ").and_then(|text| text.split_once(": ")).map(|(lead, _)| lead);
    let lead = lead.filter(|lead| lead.len() <= LONGEST).unwrap_or_default();
    lead.split(", ").filter(|term| !term.is_empty()).map(str::to_lowercase).collect()
}

#[test]
fn the_glossary_has_every_term_of_the_legend() {
    let mut used = BTreeSet::new();
    for document in DOCUMENTS.iter() {
        let text = render(document, &Options { explain: true, width: 10_000, ..TERMINAL });
        let legend =
            text.lines().skip_while(|line| *line != "Legend").skip(2).take_while(|line| line.starts_with("- "));
        used.extend(legend.flat_map(terms));
    }
    assert!(used.contains("tax") && used.contains("rtt"), "{used:?}");
    assert_eq!(missing(used), [""; 0]);
}

/// Terms that the glossary lacks.
fn missing(used: BTreeSet<String>) -> Vec<String> {
    let defined = defined();
    used.into_iter().filter(|term| !is_defined(term, &defined)).collect()
}

/// Parts of names of this document that a title may contain: rows, columns, blocks, tests, systems, congestion control.
fn names(document: &ResultDocument) -> BTreeSet<String> {
    let mut names = vec!["TCP cubic".to_owned(), format!("TCP {}", document.environment.congestion_control)];
    names.extend(blocks::Reported::of(document).blocks.iter().map(blocks::BlockCells::title));
    for record in &document.cells {
        let cell = &record.cell;
        names.extend([cell.row.to_string(), cell.column().label(), cell.column().to_string()]);
        names.extend([
            cell.medium().to_string(),
            format!("{} {}", cell.medium(), cell.kind()),
            cell.kind().to_string(),
            labels::test(cell),
            blocks::sizes(cell),
        ]);
        names.extend(record.published_on.iter().filter_map(|figure| Some(figure.system.as_ref()?.to_string())));
    }
    names.iter().flat_map(|name| name.split(", ")).map(str::to_lowercase).collect()
}

/// Returns `true` for a unit, with or without what it counts.
fn is_unit(part: &str) -> bool {
    let plain = part.split(" per ").next().unwrap_or(part);
    part.starts_with("per ") || ["ns", "µs", "ms", "s", "kb/s", "mb/s", "gb/s", "kb", "gb"].contains(&plain)
}

/// Terms of a title: without its unit and interval, in its parts, without names and numbers.
fn parts(title: &str, names: &BTreeSet<String>, baseline: &str) -> Vec<String> {
    let plain = title.split(['(', '[']).next().unwrap_or_default().to_lowercase();
    let parts = plain.split([',', ':', ';']).map(|part| part.trim().to_owned());
    let terms = parts.filter(|part| !part.is_empty() && !names.contains(part) && !is_unit(part));
    let counted = |part: &String| part.starts_with(|letter: char| letter.is_ascii_digit());
    let general = |part: String| {
        let part = part.strip_suffix(" off").unwrap_or(&part).replace(&format!(" {baseline}"), " baseline");
        part.to_owned()
    };
    terms.filter(|part| !counted(part)).map(general).collect()
}

/// Titles and heads of a table. Its caption is a description, not a term.
fn titles(table: &Table) -> impl Iterator<Item = &str> {
    let heads = table.columns().map(|(_, column)| column.head.as_str());
    table.labels.iter().map(String::as_str).chain(table.groups.iter().map(|group| group.title.as_str())).chain(heads)
}

fn tables(section: &Section) -> impl Iterator<Item = &Table> {
    section.parts.iter().filter_map(|part| match part {
        SectionPart::Table(table) => Some(table),
        SectionPart::Paragraph(_) | SectionPart::List(_) | SectionPart::Path(_) => None,
    })
}

fn used(View { sections, .. }: &View, names: &BTreeSet<String>, baseline: &str) -> BTreeSet<String> {
    let titles = sections.iter().flat_map(|section| {
        std::iter::once(section.title.as_str()).chain(tables(section).flat_map(titles)).collect::<Vec<_>>()
    });
    titles.flat_map(|title| parts(title, names, baseline)).collect()
}

#[test]
fn the_glossary_has_every_term_of_titles_and_columns() {
    let mut all = BTreeSet::new();
    for document in DOCUMENTS.iter() {
        let (names, baseline) = (names(document), document.baseline.to_string());
        for options in [TERMINAL, Options { detail: true, explain: true, published: Some(true), ..TERMINAL }] {
            all.extend(used(&view(&blocks::Reported::of(document), &options), &names, &baseline));
        }
        all.extend(used(&compare(document, document, None).view(), &names, &baseline));
        let results = vec![TrendInput::of(document.clone(), None); 20];
        let trend = trend(&results, &TrendOptions::default());
        all.extend(trend.into_iter().flat_map(|trend| used(&trend.view(), &names, &baseline)));
    }
    assert!(all.contains("tax") && all.contains("noise floor"), "{all:?}");
    assert_eq!(missing(all), [""; 0]);
}

#[test]
fn the_glossary_has_every_part_of_the_host_cpu_time() {
    let nouns = CpuRole::ALL.map(|role| Metric::Part(role).noun().to_lowercase());
    assert_eq!(missing(nouns.into()), [""; 0]);
}

/// Returns words at the beginning of a string on a line of source text that a report writes in capitals, e.g. `busy
/// host`.
fn warning(line: &str) -> Option<String> {
    let (word, _) = line.split_once('"')?.1.split_once(": ")?;
    let is_word = word.len() > 3 && word.chars().all(|letter| letter.is_uppercase() || " /-".contains(letter));
    is_word.then(|| word.to_lowercase())
}

/// All source files of a directory except tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let is_of_tests = |path: &PathBuf| path.file_stem().is_some_and(|name| name == "tests");
    let nested = directories.iter().filter(|path| !is_of_tests(path)).flat_map(|path| sources(path));
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    files.iter().filter(|path| is_source(path) && !is_of_tests(path)).cloned().chain(nested).collect()
}

/// No study gives every warning, so the words come from the source text.
#[test]
fn the_glossary_has_every_warning() {
    let texts = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let texts = texts.iter().map(|path| fs::read_to_string(path).expect("a source file"));
    let all: BTreeSet<String> = texts.flat_map(|text| text.lines().filter_map(warning).collect::<Vec<_>>()).collect();
    assert!(all.contains("busy host") && all.contains("autocorrelated"), "{all:?}");
    assert_eq!(missing(all), [""; 0]);
}
