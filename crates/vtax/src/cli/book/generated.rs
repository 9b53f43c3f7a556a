//! Parts of pages that are generated from tables, between two comments.

use std::{env, fs, path::Path};

/// If set, tests write the generated parts of pages instead of comparing them.
const WRITE: &str = "VTAX_WRITE_PAGES";
const END: &str = "<!-- end of the generated part -->\n";

/// Compares the part of a page that is generated from `tables` with what they say.
pub(super) fn check(page: &str, tables: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let begin = format!("<!-- generated from the {tables}: {WRITE}=1 make test -->\n");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(&begin).expect("a beginning");
    let (found, after) = rest.split_once(END).expect("an end");
    if env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{before}{begin}{wanted}{END}{after}")).expect("the page");
    } else {
        assert_eq!(found, wanted, "run this test with {WRITE}=1");
    }
}
