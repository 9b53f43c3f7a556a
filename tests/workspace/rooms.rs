//! The table of crates in ARCHITECTURE.md must list the dependencies in the Cargo files.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::DependencyKind;

const PAGE: &str = include_str!("../../ARCHITECTURE.md");
/// The first line of the table.
const HEAD: &str = "| crate | contents | uses |";
/// Entry of a crate without dependencies in the workspace.
const NOTHING: &str = "none";
/// Prefix omitted in the last column.
const PREFIX: &str = "vtax-";

type Uses = BTreeMap<String, BTreeSet<String>>;

/// Returns the crates of the table, each with those that it uses.
fn told(page: &str) -> Uses {
    let rows = page.lines().skip_while(|line| *line != HEAD).skip(2).take_while(|line| line.starts_with('|'));
    rows.map(row).collect()
}

fn row(line: &str) -> (String, BTreeSet<String>) {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let (name, uses) = (cells[0].trim_matches('`'), cells[cells.len() - 1]);
    let full = |short: &str| format!("{PREFIX}{short}");
    (name.to_owned(), uses.split(", ").filter(|uses| *uses != NOTHING).map(full).collect())
}

/// Returns the crates of the workspace, each with its normal dependencies among them.
fn real() -> Uses {
    let metadata = super::metadata();
    let packages = metadata.workspace_packages();
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let uses = packages.iter().map(|package| {
        let normal = package.dependencies.iter().filter(|used| used.kind == DependencyKind::Normal);
        let ours = normal.map(|used| used.name.clone()).filter(|used| names.contains(used.as_str()));
        (package.name.to_string(), ours.collect())
    });
    uses.collect()
}

/// Returns the rows that are wrong, with what they should contain.
fn wrong(told: &Uses, real: &Uses) -> Vec<String> {
    let short = |uses: &BTreeSet<String>| match uses.is_empty() {
        true => NOTHING.to_owned(),
        false => uses.iter().map(|name| name.trim_start_matches(PREFIX)).collect::<Vec<_>>().join(", "),
    };
    let differ = real.iter().filter(|(name, uses)| told.get(*name) != Some(uses));
    let gone =
        told.keys().filter(|name| !real.contains_key(*name)).map(|name| format!("{name}: there is no such crate"));
    differ.map(|(name, uses)| format!("{name}: {}", short(uses))).chain(gone).collect()
}

#[test]
fn the_table_of_crates_has_the_real_dependencies() {
    let wrong = wrong(&told(PAGE), &real());
    assert!(wrong.is_empty(), "ARCHITECTURE.md has other uses than the Cargo files:\n{}", wrong.join("\n"));
}

#[test]
fn a_table_with_missing_or_extra_dependencies_is_found() {
    let table = |rows: &str| told(&format!("text\n\n{HEAD}\n|---|---|---|\n{rows}\n\n| `other` | table | of more |\n"));
    let real = table("| `vtax-a` | a \\| b | none |\n| `vtax-b` | `b/` | a |");
    assert_eq!((real["vtax-a"].len(), &real["vtax-b"]), (0, &BTreeSet::from(["vtax-a".to_owned()])));
    assert!(wrong(&real, &real).is_empty());
    let more = table("| `vtax-a` | a | b |\n| `vtax-b` | b | a |\n| `vtax-c` | c | a |");
    assert_eq!(wrong(&more, &real), ["vtax-a: none", "vtax-c: there is no such crate"]);
    assert_eq!(wrong(&table("| `vtax-a` | a | none |"), &real), ["vtax-b: a"]);
}
