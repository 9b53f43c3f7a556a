//! Replays a transcript of an article about logical domains, and compares the output with that in the article: the
//! texts, the columns, their positions and their widths.
//!
//! A file of `transcripts/` has the article's commands after `$ `, each followed by its output, if there is any. Lines
//! after `+ ` are not in the article: they are commands that this machine also needs. `[...]` stands for any lines. `#`
//! begins a comment.
//!
//! Names in the article stand for names of this machine. Numbers differ between machines: in the columns of [`FREE`]
//! and outside tables, only their format is compared. vtax prints `unknown` for a number that it cannot read.

use std::iter::Peekable;

/// Columns whose values depend on the machine.
const FREE: [&str; 7] = ["DOMAIN ID", "PA", "SIZE", "VCPU", "MEMORY", "UTIL", "UPTIME"];
const ANY: &str = "[...]";

/// The article's names, and their counterparts here. A longer name must precede its prefixes.
pub(crate) type Names<'a> = &'a [(&'a str, &'a str)];

struct Command<'a> {
    line: &'a str,
    is_own: bool,
    printed: Vec<&'a str>,
}

/// Runs the commands through `run`, with the names of this machine.
pub(crate) fn replay(transcript: &str, names: Names<'_>, mut run: impl FnMut(&str) -> String) {
    for command in commands(transcript) {
        let printed = run(&named(command.line, names));
        if !command.is_own {
            compare(&command, names, &printed);
        }
    }
}

fn commands(transcript: &str) -> Vec<Command<'_>> {
    let mut list: Vec<Command<'_>> = Vec::new();
    for line in transcript.lines().filter(|line| !line.starts_with('#')) {
        let own = line.strip_prefix("+ ");
        match own.or(line.strip_prefix("$ ")) {
            Some(command) => list.push(Command { line: command, is_own: own.is_some(), printed: Vec::new() }),
            None => list.last_mut().expect("a command is first").printed.push(line),
        }
    }
    list
}

/// Replaces names, in the order of the list so that a longer name is not mistaken for a shorter one.
fn named(text: &str, names: Names<'_>) -> String {
    let word = |word: &str| {
        let found = names.iter().find_map(|(name, here)| Some((here, word.strip_prefix(name)?)));
        found.map_or(word.to_owned(), |(here, rest)| format!("{here}{rest}"))
    };
    let words = |part: &str| part.split(' ').map(word).collect::<Vec<_>>().join(" ");
    // In `net-dev=nxge2`, the name follows the equals sign.
    text.split('=').map(words).collect::<Vec<_>>().join("=")
}

fn compare(command: &Command<'_>, names: Names<'_>, printed: &str) {
    let mut table = Table::default();
    let mut lines = printed.lines().peekable();
    let mut expected = command.printed.iter().peekable();
    let told = |what: &str| {
        format!("`{}`: {what}\nThe article shows:\n{}\nHere:\n{printed}", command.line, command.printed.join("\n"))
    };
    while let Some(line) = expected.next() {
        if *line == ANY {
            let next = expected.peek();
            skip(&mut lines, |found| next.is_some_and(|next| table.same(next, found, names).is_ok()), &table, &told);
            continue;
        }
        let found = lines.next().unwrap_or_else(|| panic!("{}", told(&format!("no line like {line:?}"))));
        // An empty line ends a table.
        if let Some(head) = Table::of(line).or(line.is_empty().then(Table::default)) {
            table = head;
        }
        if let Err(why) = table.same(line, found, names) {
            panic!("{}", told(&format!("{found:?} is not like {line:?}: {why}")));
        }
    }
    let rest: Vec<&str> = lines.collect();
    assert!(rest.is_empty(), "{}", told(&format!("more lines: {rest:?}")));
}

/// Skips omitted lines, which must have the same format as the others.
fn skip<'a>(
    lines: &mut Peekable<impl Iterator<Item = &'a str>>,
    is_next: impl Fn(&str) -> bool,
    table: &Table<'_>,
    told: &impl Fn(&str) -> String,
) {
    while let Some(found) = lines.next_if(|found| !is_next(found)) {
        if table.has(found)
            && let Err(why) = table.cells(found)
        {
            panic!("{}", told(&format!("{found:?}: {why}")));
        }
    }
}

/// The columns of a table, parsed from its head.
#[derive(Default)]
struct Table<'a> {
    columns: Vec<(usize, &'a str)>,
}

impl<'a> Table<'a> {
    /// Parses a head, which has several titles in capitals with more than one space between them.
    fn of(line: &'a str) -> Option<Table<'a>> {
        let is_head = line.trim().contains("  ") && line.chars().all(|c| c == ' ' || c.is_ascii_uppercase());
        let titles = || line.split("  ").filter(|title| !title.is_empty()).map(|title| title.trim_start());
        let columns = || titles().map(|title| (title.as_ptr() as usize - line.as_ptr() as usize, title.trim_end()));
        is_head.then(|| Table { columns: columns().filter(|(_, title)| !title.is_empty()).collect() })
    }

    /// Returns true if the line is a row: it begins where the first column does, and is not a path.
    fn has(&self, line: &str) -> bool {
        let first = self.columns.first().map(|(offset, _)| *offset);
        first.is_some() && first == line.find(|c| c != ' ') && !line.trim_start().starts_with('[')
    }

    /// Returns the contents of each column. A value must start where its column starts.
    fn cells<'l>(&self, line: &'l str) -> Result<Vec<&'l str>, String> {
        let mut cells = Vec::new();
        for (number, (offset, name)) in self.columns.iter().enumerate() {
            let end = self.columns.get(number + 1).map_or(line.len(), |(next, _)| *next).min(line.len());
            let cell = line.get((*offset).min(line.len())..end).ok_or("it isn't ASCII")?;
            if cell.starts_with(' ') && !cell.trim().is_empty()
                || number > 0 && !cell.is_empty() && !line[..*offset].ends_with(' ')
            {
                return Err(format!("what is in {name} doesn't begin at column {offset}"));
            }
            cells.push(cell.trim_end());
        }
        Ok(cells)
    }

    fn same(&self, line: &str, found: &str, names: Names<'_>) -> Result<(), String> {
        // If the article pads a line to its end, the line here has the same length.
        if line.ends_with(' ') && line.len() != found.len() {
            return Err(format!("it has {} characters, not {}", found.len(), line.len()));
        }
        if !self.has(line) {
            return same_text(line, &named(line, names), found);
        }
        let (expected, found) = (self.cells(line)?, self.cells(found)?);
        for ((expected, found), (_, name)) in expected.iter().zip(&found).zip(&self.columns) {
            let is_free = FREE.contains(name) && form(expected) == form(found) && name != expected;
            if !is_free && named(expected, names) != *found {
                return Err(format!("{name} is {found:?}"));
            }
        }
        Ok(())
    }
}

/// Compares words and separators. Numbers and addresses may differ.
fn same_text(line: &str, expected: &str, found: &str) -> Result<(), String> {
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        (found.trim_end().split(' ').collect(), expected.trim_end().split(' ').collect());
    let same = |(ours, theirs): (&&str, &&str)| {
        let form = form(theirs);
        ours == theirs || form != Form::Text && (self::form(ours) == form || form == Form::Number && *ours == "unknown")
    };
    match ours.len() == theirs.len() && ours.iter().zip(&theirs).all(same) {
        true => Ok(()),
        false => Err(format!("it should be as {line:?}")),
    }
}

/// Format of a value.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    Nothing,
    Number,
    /// `8G`, `7680M`.
    Size,
    /// `0.4%`, `100%`.
    Share,
    /// `55d 14h 10m`, `30m`.
    Time,
    /// `00:14:4f:f8:07:ad`.
    Mac,
    /// `[pci@500/pci@1/pci@0/pci@5/network@0,1]`.
    Path,
    Text,
}

fn form(value: &str) -> Form {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let share = |text: &str| {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        number(whole) && number(part) && part.len() == 1
    };
    let time = |text: &str| {
        // The units must be in the order days, hours, minutes, each at most once.
        let parts = text.split(' ').map(|part| "dhms".find(|unit| part.strip_suffix(unit).is_some_and(number)));
        let parts: Option<Vec<usize>> = parts.collect();
        parts.is_some_and(|parts| parts.is_sorted_by(|first, next| first < next))
    };
    match value {
        "" => Form::Nothing,
        _ if number(value) || value.strip_prefix("0x").is_some_and(hex) || value == "-" => Form::Number,
        _ if value.strip_suffix(['K', 'M', 'G', 'T']).is_some_and(number) => Form::Size,
        _ if value.strip_suffix('%').is_some_and(share) => Form::Share,
        _ if time(value) => Form::Time,
        _ if value.len() == 17 && value.split(':').all(|octet| octet.len() == 2 && hex(octet)) => Form::Mac,
        _ if value.starts_with('[') && value.ends_with(']') && value.len() > 2 => Form::Path,
        _ => Form::Text,
    }
}

/// Checks that invalid output is rejected.
#[allow(dead_code, reason = "one of the programs with this module does it")]
pub(crate) fn check_itself() {
    let article = "$ ldm list\nNAME             STATE      CONS    VCPU  UPTIME\nmars             active     5000    2     56d 40m\n[...]\npluto            inactive           4     ";
    let here = |text: &'static str| {
        std::panic::catch_unwind(|| replay(article, &[("mars", "m")], |_| text.to_owned())).is_ok()
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let head = "NAME             STATE      CONS    VCPU  UPTIME\n";
    let passes = [
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    16    1m\npluto            inactive           4     ",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    16    1m\nx                bound      5001    1     \npluto            inactive           4     ",
        ),
        // In turn: another port, a column that begins elsewhere, an invalid number, an unusual time, a short line, an
        // extra line.
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5001    16    1m\npluto            inactive           4     ",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000     16   1m\npluto            inactive           4     ",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    all   1m\npluto            inactive           4     ",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    16    1m 2h\npluto            inactive           4     ",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    16    1m\npluto            inactive           4",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    16    1m\nx                 bound     5001    1     \npluto            inactive           4     ",
        ),
        here(
            "NAME             STATE      CONS    VCPU  UPTIME\nm                active     5000    16    1m\npluto            inactive           4     \nx",
        ),
    ];
    std::panic::set_hook(hook);
    assert!(head.len() == 49 && passes == [true, true, false, false, false, false, false, false, false], "{passes:?}");
}
