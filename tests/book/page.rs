//! Commands and options that the pages of the book mention.

use std::{fs, ops::Range, path::Path};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A command of a page or a help text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mention {
    /// Page and line, e.g. `docs/labs.md:31`.
    pub(crate) place: String,
    /// Words of the command, with values instead of placeholders.
    pub(crate) words: Vec<String>,
    /// True if it may be incomplete: within a sentence, or with `…`.
    pub(crate) is_partial: bool,
}

/// Directories and files with pages, relative to the project's root.
const PAGES: [&str; 4] = ["docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Returns each page's name and text.
pub(crate) fn pages() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    PAGES.iter().for_each(|name| collect(&top, name, &mut found));
    found.sort();
    found
}

fn collect(top: &Path, name: &str, found: &mut Vec<(String, String)>) {
    let path = top.join(name);
    if path.is_dir() {
        let entries = fs::read_dir(&path).expect("a directory of ours");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
        names.for_each(|below| collect(top, &format!("{name}/{below}"), found));
    } else if name.ends_with(".md") {
        found.push((name.to_owned(), fs::read_to_string(&path).expect("text")));
    }
}

/// A piece of code on a page: a line of a block, or a span within a sentence.
struct Code {
    line: usize,
    text: String,
    is_span: bool,
}

/// Returns the code of a page. Blocks with a language are skipped, because they contain files, not commands.
fn code(page: &str) -> Vec<Code> {
    let line = |at: Range<usize>| page[..at.start].matches('\n').count() + 1;
    let mut in_commands = false;
    let mut found = Vec::new();
    for (event, at) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => in_commands = language.is_empty(),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => in_commands = true,
            Event::End(TagEnd::CodeBlock) => in_commands = false,
            Event::Code(text) => found.push(Code { line: line(at), text: text.into_string(), is_span: true }),
            Event::Text(text) if in_commands => {
                let lines = text.lines().enumerate();
                found.extend(lines.map(|(nth, text)| Code {
                    line: line(at.clone()) + nth,
                    text: text.to_owned(),
                    is_span: false,
                }));
            }
            _ => {}
        }
    }
    found
}

/// Returns the vtax commands of a page.
pub(crate) fn commands(name: &str, page: &str) -> Vec<Mention> {
    let mention = |code: Code| Mention::of(format!("{name}:{}", code.line), &code.text, code.is_span);
    code(page).into_iter().filter_map(mention).collect()
}

/// Returns the options that appear without a command in the sentences and tables of a page, e.g. `--streams 4`.
pub(crate) fn options(name: &str, page: &str) -> Vec<Mention> {
    let spans = code(page).into_iter().filter(|code| code.is_span);
    let option = |code: Code| {
        let text = code.text.trim_start_matches("… ");
        let words = filled(&shlex::split(text)?);
        let place = format!("{name}:{}", code.line);
        text.starts_with('-').then_some(Mention { place, words, is_partial: true })
    };
    spans.filter_map(option).collect()
}

/// Returns the targets of a page's links within the project: the file relative to the page's directory, empty for the
/// page itself, and the heading, which may be empty.
pub(crate) fn links(page: &str) -> Vec<(String, String)> {
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.into_string()),
        _ => None,
    };
    let targets = Parser::new_ext(page, Options::ENABLE_TABLES).filter_map(target);
    let ours = targets.filter(|target| !target.contains("://"));
    ours.map(|target| {
        let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
        (file.to_owned(), heading.to_owned())
    })
    .collect()
}

/// Returns the anchors of a page's headings: in lower case, with a hyphen for each space, without punctuation.
pub(crate) fn headings(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => found.extend(heading.take()),
            Event::Text(text) | Event::Code(text) => {
                let name = text.to_lowercase().replace(' ', "-");
                let kept = name.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter));
                heading = heading.map(|heading| heading + &kept.collect::<String>());
            }
            _ => {}
        }
    }
    found
}

impl Mention {
    /// Returns the command in this text, if it runs vtax. Text after `#` is a comment.
    pub(crate) fn of(place: String, text: &str, is_span: bool) -> Option<Mention> {
        // A text with an unpaired quote, e.g. an apostrophe, isn't a command.
        let words = shlex::split(text).unwrap_or_default();
        let vtax = words.iter().position(|word| word == "vtax")?;
        if !words[..vtax].iter().all(|word| runs_the_next(word)) || words.len() == vtax + 1 {
            return None;
        }
        let is_partial = is_span || words.iter().any(|word| is_ellipsis(word));
        let words: Vec<String> = words[vtax..].iter().filter(|word| !is_ellipsis(word)).cloned().collect();
        Some(Mention { place, words: filled(&words), is_partial })
    }

    /// Returns the command as a user types it.
    pub(crate) fn line(&self) -> String {
        let quoted = |word: &String| if word.contains(' ') { format!("'{word}'") } else { word.clone() };
        self.words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

fn is_ellipsis(word: &str) -> bool {
    word == "…" || word == "..."
}

/// Returns true for words that may precede a command: `sudo`, an option of it, a variable assignment.
fn runs_the_next(word: &str) -> bool {
    ["sudo", "systemd-inhibit"].contains(&word) || word.starts_with('-') || word.contains('=')
}

/// Values of placeholders: the preceding word (empty for any), the placeholder, and the value.
const VALUES: [(&str, &str, &str); 30] = [
    ("up", "FILE", "rack.toml"),
    ("run", "FILE", "my-study.toml"),
    ("--html", "FILE", "result.html"),
    ("--agent", "SCRIPT", "agent.sh"),
    ("", "FILE", "kernel"),
    ("", "FOLDER", "kernel"),
    ("", "DIR", "elsewhere"),
    ("", "STUDY", "demo"),
    ("", "ROW", "veth"),
    ("--study", "ID", "demo"),
    ("--resume", "ID", "last"),
    ("", "ID", "demo-20260102"),
    ("", "FIRST", "first-id"),
    ("", "A", "first-id"),
    ("", "SECOND", "last"),
    ("", "B", "last"),
    ("", "LAB", "rack"),
    ("down", "NAME", "rack"),
    ("", "NAME", "web"),
    ("", "HOST", "vm1"),
    ("", "USER", "root"),
    ("", "NIC", "eno1"),
    ("", "ADDRESS", "02:00:5e:10:00:01"),
    ("", "CODE", "no-such-lab"),
    ("", "WORDS", "demo"),
    ("", "TIME", "5m"),
    ("", "MODE", "system"),
    ("", "N", "2"),
    ("", "RULE", "backlog"),
    ("", "SPEC", "emulated:nics=2"),
];

/// Returns the words with values instead of placeholders, which are words or parts of words in capitals.
fn filled(words: &[String]) -> Vec<String> {
    let before = |nth: usize| if nth == 0 { "" } else { words[nth - 1].as_str() };
    words.iter().enumerate().map(|(nth, word)| filled_word(before(nth), word)).collect()
}

fn filled_word(before: &str, word: &str) -> String {
    let part = |part: &str| {
        let known = VALUES.iter().find(|(at, name, _)| *name == part && (at.is_empty() || *at == before));
        known.map_or(part, |(_, _, value)| value).to_owned()
    };
    let ends = |letter: char| !letter.is_ascii_alphanumeric();
    word.split_inclusive(ends)
        .map(|piece| match piece.strip_suffix(ends) {
            Some(name) => part(name) + &piece[name.len()..],
            None => part(piece),
        })
        .collect()
}
