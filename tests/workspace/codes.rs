//! Error codes: each is explained, and each explanation belongs to a code.

use std::{collections::BTreeMap, fs, path::Path};

use syn::{Attribute, Item};

const FOLDER: &str = "../../docs/errors";

/// Returns the codes named in the sources, each with a file that names it.
fn used() -> BTreeMap<String, String> {
    const MARKS: [&str; 5] = ["code(\"", "code = \"", "coded(\"", "USAGE_CODE: &str = \"", "Box::new(\""];
    let mut used = BTreeMap::new();
    for path in super::metadata().workspace_packages().into_iter().flat_map(super::sources) {
        let text = fs::read_to_string(&path).expect("a source of ours");
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for mark in MARKS {
            let codes = product.split(mark).skip(1).filter_map(|after| after.split('"').next());
            used.extend(codes.map(|code| (code.to_owned(), path.display().to_string())));
        }
    }
    used
}

/// Returns the codes that are explained, by file, in the order of the file.
fn explained() -> BTreeMap<String, Vec<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let files = fs::read_dir(folder).expect("the explanations").map(|entry| entry.expect("an entry").path());
    let codes = |text: &str| text.lines().filter_map(|line| line.strip_prefix("## ").map(str::to_owned)).collect();
    files.map(|path| (path.display().to_string(), codes(&fs::read_to_string(&path).expect("a text")))).collect()
}

#[test]
fn each_code_is_explained_once_and_each_explanation_is_used() {
    let used = used();
    let explained: Vec<String> = explained().into_values().flatten().collect();
    let count = |code: &String| explained.iter().filter(|other| *other == code).count();
    let wrong: Vec<_> = used.iter().filter(|(code, _)| count(code) != 1).collect();
    assert!(wrong.is_empty(), "codes that aren't explained exactly once: {wrong:#?}");
    let unused: Vec<_> = explained.iter().filter(|code| !used.contains_key(*code)).collect();
    assert!(unused.is_empty(), "explained, but no error has the code: {unused:#?}");
}

#[test]
fn explanations_are_in_alphabetical_order() {
    for (file, codes) in explained() {
        assert!(codes.is_sorted(), "{file}: {codes:#?}");
    }
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

#[test]
fn each_variant_of_an_error_has_a_code() {
    let mut without = Vec::new();
    for path in super::metadata().workspace_packages().into_iter().flat_map(super::sources) {
        for item in super::shape::items(&path) {
            let Item::Enum(item) = item else { continue };
            let coded = item.variants.iter().filter(|variant| has(&variant.attrs, "diagnostic")).count();
            if coded > 0 && coded < item.variants.len() {
                without.push(format!("{}: {}", path.display(), item.ident));
            }
        }
    }
    assert!(without.is_empty(), "some variants have a code and others have none: {without:#?}");
}
