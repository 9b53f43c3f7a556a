//! Schemas of JSON documents: the page on file formats lists each.

use std::{collections::BTreeSet, fs};

/// Returns the schemas named in the product's sources.
fn used() -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let sources = super::metadata().workspace_packages().into_iter().flat_map(super::sources).collect::<Vec<_>>();
    for path in sources.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "tests")) {
        let text = fs::read_to_string(path).expect("a source of ours");
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let quoted = product.split('"').filter(|text| text.starts_with("vtax.") && text.contains("/v"));
        used.extend(quoted.filter(|text| !text.contains(' ')).map(str::to_owned));
    }
    used
}

#[test]
fn the_page_of_formats_names_each_schema() {
    let page = include_str!("../../docs/formats.md");
    let used = used();
    let missing: Vec<_> = used.iter().filter(|schema| !page.contains(&format!("| `{schema}` |"))).collect();
    assert!(missing.is_empty() && used.len() > 5, "{missing:?} of {used:?}");
}
