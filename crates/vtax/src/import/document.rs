//! The outputs of programs in a file.
//!
//! A file rarely consists of a single output: warnings precede the JSON, a loop with `>>` appends one run to the next,
//! PowerShell writes UTF-16. Text that is not of a known program is skipped.

use std::collections::BTreeSet;

use vtax_model::units::ByteSize;

use super::{fio, foreign::ForeignTest, iperf3, json::Json, netperf, sockperf};

/// The output of one test.
#[derive(Debug)]
pub(super) struct Document<'a> {
    /// Line in the file where it begins, from 1.
    pub(super) line: usize,
    pub(super) body: Body<'a>,
}

#[derive(Debug)]
pub(super) enum Body<'a> {
    Iperf3(Json),
    Fio {
        json: Json,
        text: &'a str,
    },
    Netperf(&'a str),
    Sockperf(&'a str),
    /// JSON of a known program that is cut off or garbled.
    Broken {
        program: &'static str,
        why: String,
    },
}

/// The reason why an output cannot be imported.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) program: &'static str,
    pub(super) why: String,
}

impl Document<'_> {
    /// Reads it. The message size is `size` if the program does not report it.
    pub(super) fn read(&self, size: Option<ByteSize>) -> Result<ForeignTest, Refusal> {
        let (program, test) = match &self.body {
            Body::Iperf3(json) => (iperf3::NAME, iperf3::read(json)),
            Body::Fio { json, text } => (fio::NAME, fio::read(json, text, size)),
            Body::Netperf(text) => (netperf::NAME, netperf::read(text, size)),
            Body::Sockperf(text) => (sockperf::NAME, sockperf::read(text, size)),
            Body::Broken { program, why } => (*program, Err(why.clone())),
        };
        let checked = test.and_then(|test| test.measured.check().map(|()| test));
        checked.map_err(|why| Refusal { program, why })
    }
}

/// Returns a file's text, whichever encoding it is in.
pub(super) fn decode(bytes: &[u8]) -> String {
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf_16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf_16(rest, u16::from_be_bytes),
        // Without a byte order mark: outputs of programs begin with ASCII.
        [first, 0, second, 0, ..] if *first > 0 && *second > 0 => utf_16(bytes, u16::from_le_bytes),
        [0, first, 0, second, ..] if *first > 0 && *second > 0 => utf_16(bytes, u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    };
    // Concatenated files have a mark each.
    text.replace('\u{feff}', "")
}

fn utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (units, _) = bytes.as_chunks::<2>();
    let units: Vec<u16> = units.iter().map(|bytes| unit(*bytes)).collect();
    String::from_utf16_lossy(&units)
}

/// Returns the outputs that a text has, in their order.
pub(super) fn documents(text: &str) -> Vec<Document<'_>> {
    let mut reader = Reader { text, counted: 0, line: 1, found: Vec::new() };
    // The start of the text that is not JSON, and the position from which JSON is searched for.
    let (mut plain, mut at) = (0, 0);
    while let Some(begin) = opening(text, at) {
        let rest = &text[begin..];
        match Json::first(rest) {
            Ok((json, length)) => {
                reader.tables(plain, begin);
                reader.json(begin, json, &rest[..length]);
                (plain, at) = (begin + length, begin + length);
            }
            Err(error) => {
                at = begin + rest.find("\n{").map_or(rest.len(), |end| end + 1);
                if let Some(program) = program(&text[begin..at]) {
                    reader.tables(plain, begin);
                    let line = reader.line(begin);
                    let why = broken(&error, line);
                    reader.found.push(Document { line, body: Body::Broken { program, why } });
                    plain = at;
                }
            }
        }
    }
    reader.tables(plain, text.len());
    reader.found
}

/// Returns the reason why a text contains no readable output, if it is known.
pub(super) fn other_form(text: &str) -> Option<(&'static str, String)> {
    let is_iperf3 = ["Connecting to host ", "Accepted connection from ", "Server listening on "];
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if text.contains("[ ID] Interval") && has(&is_iperf3) {
        let why = "these are its tables, but only its JSON is supported: run iperf3 with -J";
        return Some((iperf3::NAME, why.to_owned()));
    }
    let of_fio = has(&["(groupid="]) && text.lines().any(|line| line.starts_with("fio-"));
    of_fio.then(|| {
        let why = "these are its tables, but only its JSON is supported: run fio with --output-format=json+ \
                   --lat_percentiles=1";
        (fio::NAME, why.to_owned())
    })
}

/// Returns the start of the next line that opens a JSON document.
fn opening(text: &str, at: usize) -> Option<usize> {
    let mut begin = at;
    for line in text[at..].split_inclusive('\n') {
        let blank = line.len() - line.trim_start().len();
        if line[blank..].starts_with('{') {
            return Some(begin + blank);
        }
        begin += line.len();
    }
    None
}

/// Returns the program that printed unreadable JSON.
fn program(text: &str) -> Option<&'static str> {
    [("\"iperf 3", iperf3::NAME), ("\"fio version\"", fio::NAME)]
        .into_iter()
        .find(|(word, _)| text.contains(word))
        .map(|(_, program)| program)
}

/// Returns the error of JSON that begins at a line of the file, from which serde_json counts.
fn broken(error: &serde_json::Error, line: usize) -> String {
    let why = error.to_string();
    let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why);
    match error.is_eof() {
        true => format!("its JSON is truncated ({why})"),
        false => format!("its JSON cannot be read: {why} in line {}", line + error.line().saturating_sub(1)),
    }
}

struct Reader<'a> {
    text: &'a str,
    /// The position up to which lines are counted, and the line there.
    counted: usize,
    line: usize,
    found: Vec<Document<'a>>,
}

impl<'a> Reader<'a> {
    fn line(&mut self, at: usize) -> usize {
        self.line += self.text[self.counted..at].matches('\n').count();
        self.counted = at;
        self.line
    }

    fn json(&mut self, begin: usize, json: Json, text: &'a str) {
        let line = self.line(begin);
        if let Some(event) = json["event"].as_str() {
            return self.event(line, event, &json["data"]);
        }
        let body = if iperf3::is(&json) {
            self.drop_streamed(&json);
            Body::Iperf3(json)
        } else if fio::is(&json) {
            Body::Fio { json, text }
        } else {
            return;
        };
        self.found.push(Document { line, body });
    }

    /// Assembles the lines that `iperf3 --json-stream` prints.
    fn event(&mut self, line: usize, event: &str, data: &Json) {
        let entry = (event.to_owned(), data.clone());
        match (event, self.found.last_mut()) {
            ("start", _) => {
                let json = Json::Object(vec![entry]);
                if iperf3::is(&json) {
                    self.found.push(Document { line, body: Body::Iperf3(json) });
                }
            }
            ("interval" | "end" | "error", Some(Document { body: Body::Iperf3(Json::Object(entries)), .. })) => {
                entries.push(match event {
                    "interval" => return,
                    _ => entry,
                });
            }
            _ => {}
        }
    }

    /// Handles `--json-stream-full-output`, where the events of a test are followed by its JSON.
    fn drop_streamed(&mut self, whole: &Json) {
        let Some(cookie) = whole["start"]["cookie"].as_str() else { return };
        self.found.pop_if(|before| match &before.body {
            Body::Iperf3(json) => json["start"]["cookie"].as_str() == Some(cookie) && json.get("intervals").is_none(),
            _ => false,
        });
    }

    /// Finds the tables in a part of the text that is not JSON.
    fn tables(&mut self, begin: usize, end: usize) {
        let text = &self.text[begin..end];
        let mut starts = vec![0];
        let (mut at, mut names) = (0, BTreeSet::new());
        for line in text.split_inclusive('\n') {
            let again = netperf::selected_name(line).is_some_and(|name| names.contains(name));
            if at > 0 && (again || netperf::is_banner(line) || sockperf::is_first_line(line)) {
                starts.push(at);
                names.clear();
            }
            names.extend(netperf::selected_name(line));
            at += line.len();
        }
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        for (from, to) in starts.iter().zip(ends) {
            let table = &text[*from..to];
            let body = match (netperf::is(table), sockperf::is(table)) {
                (true, _) => Body::Netperf(table),
                (false, true) => Body::Sockperf(table),
                (false, false) => continue,
            };
            let line = self.line(begin + from);
            self.found.push(Document { line, body });
        }
    }
}
