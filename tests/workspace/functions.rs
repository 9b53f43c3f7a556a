//! The length of functions, from the line with `fn` to the closing brace.
//!
//! rustfmt puts that brace on a separate line, indented like the function's first line, so no parser is needed.

use std::{fs, path::Path};

/// Maximum of the median number of lines, over all product functions.
const MEDIAN_MOST: usize = 10;
/// Maximum number of lines of a function.
const LONGEST: usize = 60;

/// Returns the number of lines of each function in a text, with its line number and its name.
fn lengths(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let of = |(nth, line): (usize, &&str)| {
        let name = name(line)?;
        let length = length(&lines[nth..])?;
        Some((length, format!("{}: {name}", nth + 1)))
    };
    lines.iter().enumerate().filter_map(of).collect()
}

/// Returns the name of the function that begins in a line.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_before =
        |word: &str| matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub");
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = after.find(|letter| !is_name(letter))?;
    let is_first = before.split_whitespace().all(|word| is_before(word) || word.ends_with(')'));
    (is_first && end > 0).then(|| &after[..end])
}

/// Returns the number of lines of the function that begins in the first line; `None` for a function without a body.
fn length(lines: &[&str]) -> Option<usize> {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let (margin, _) = lines[0].split_at(indent);
    let is_last = |rest: &str| rest == "}" || !rest.starts_with(' ') && rest.ends_with(';');
    let last = lines.iter().enumerate().position(|(nth, line)| match nth {
        0 => line.ends_with('}') || line.ends_with(';'),
        _ => line.strip_prefix(margin).is_some_and(is_last),
    })?;
    lines[last].ends_with('}').then_some(last + 1)
}

/// Returns the text of a file without its tests; empty for a file that consists of tests.
fn product(path: &Path) -> String {
    let is_tests = path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "benches");
    let text = if is_tests { String::new() } else { fs::read_to_string(path).expect("a source of ours") };
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

#[test]
fn functions_are_short() {
    let mut all: Vec<(usize, String)> = Vec::new();
    for path in super::metadata().workspace_packages().into_iter().flat_map(super::sources) {
        all.extend(lengths(&product(&path)).into_iter().map(|(lines, at)| (lines, format!("{}:{at}", path.display()))));
    }
    all.sort_by(|one, other| other.cmp(one));
    let (longest, median) = (&all[0], all[all.len() / 2].0);
    assert!(all.len() > 5000, "only {} functions were found", all.len());
    assert!(longest.0 <= LONGEST, "{longest:?}: more than {LONGEST} lines");
    assert!(median <= MEDIAN_MOST, "the median function has {median} lines");
}

#[test]
fn lines_of_functions_are_counted() {
    let text = "\
impl Pair {
    pub(crate) const fn one() -> u32 { 1 }

    fn four(
        &self,
        of: fn(u32),
    ) -> u32 {
        let fn_of = |n| { of(n); };
        fn_of(4);
    }

    fn none(&self) -> Result<(), Error>;
    // fn in words
}

unsafe extern \"C\" fn last() {
}
";
    let lengths: Vec<(usize, String)> = lengths(text);
    let lengths: Vec<(usize, &str)> = lengths.iter().map(|(lines, at)| (*lines, at.as_str())).collect();
    assert_eq!(lengths, [(1, "2: one"), (7, "4: four"), (2, "16: last")]);
}
