//! The lines by which a vtax in an emulated server sends a run to the vtax outside. Each line is JSON: first the
//! plan, then each sample and failure as it is taken, last the end.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use vtax_model::run::{Failure, RunHeader, RunState, Sample};

use crate::exit::Coded;

/// The version of these lines. A vtax reads only the lines of its own version.
const VERSION: u32 = 1;
/// The most bytes of a line. A sample with its histograms takes kilobytes.
const LONGEST: usize = 64 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RelayedLine {
    Run { version: u32, header: Box<RunHeader> },
    Sample(Box<Sample>),
    Failure(Box<Failure>),
    End(RunState),
}

#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the emulated server writes runs in version {0}, and this vtax reads {VERSION}: it has another vtax")]
    #[diagnostic(code("server-version"))]
    Version(u64),
    #[error("the emulated server sent what is no line of a run: {line:?}")]
    #[diagnostic(code("defect"))]
    Broken { line: String, source: serde_json::Error },
    #[error("the run from the emulated server breaks off in the middle of a line: {0:?}")]
    #[diagnostic(code("server-lost"))]
    Half(String),
    #[error("the emulated server sent a line that has no end")]
    #[diagnostic(code("defect"))]
    Long,
}

/// Puts lines together from the bytes that arrive.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    rest: Vec<u8>,
}

impl LineReader {
    /// The lines that are complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<RelayedLine>, LineError> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return if self.rest.len() > LONGEST { Err(LineError::Long) } else { Ok(Vec::new()) };
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(parse).collect()
    }

    /// Checks that no half line is left.
    pub(crate) fn end(self) -> Result<(), LineError> {
        if self.rest.is_empty() { Ok(()) } else { Err(LineError::Half(shown(&self.rest))) }
    }
}

fn parse(line: &[u8]) -> Result<RelayedLine, LineError> {
    match serde_json::from_slice(line) {
        Ok(RelayedLine::Run { version, .. }) if version != VERSION => Err(LineError::Version(version.into())),
        Ok(line) => Ok(line),
        Err(source) => Err(match version(line) {
            Some(version) if version != u64::from(VERSION) => LineError::Version(version),
            _ => LineError::Broken { line: shown(line), source },
        }),
    }
}

/// The version of a plan, which may have a form that this vtax doesn't know.
fn version(line: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("run")?.get("version")?.as_u64()
}

fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned()
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SentLine<'a> {
    Run { version: u32, header: &'a RunHeader },
    Sample(&'a Sample),
    Failure(&'a Failure),
    End(RunState),
}

impl SentLine<'_> {
    pub(crate) fn plan(header: &RunHeader) -> SentLine<'_> {
        SentLine::Run { version: VERSION, header }
    }

    /// Writes the line to standard output at once.
    pub(crate) fn send(&self) -> miette::Result<()> {
        let mut out = io::stdout().lock();
        let sent = text(self).and_then(|text| out.write_all(&text)).and_then(|()| out.flush());
        sent.coded("file", || "writing to standard output")
    }
}

pub(super) fn text(line: &SentLine<'_>) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vtax_model::cell::Arm;

    use super::*;

    fn failure(round: u32) -> Failure {
        Failure { cell: 3, arm: Arm::A, round, error: "a line\nin two".into(), partial: None }
    }

    fn stream() -> Vec<u8> {
        let (first, second) = (failure(1), failure(2));
        let lines = [SentLine::Failure(&first), SentLine::Failure(&second), SentLine::End(RunState::Complete)];
        lines.iter().flat_map(|line| text(line).expect("memory")).collect()
    }

    fn told(lines: &[RelayedLine]) -> Vec<u32> {
        let round = |line: &RelayedLine| match line {
            RelayedLine::Failure(failure) => failure.round,
            RelayedLine::End(RunState::Complete) => 99,
            other => panic!("{other:?}"),
        };
        lines.iter().map(round).collect()
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_cut(cuts in proptest::collection::vec(1usize..40, 0..12)) {
            let (stream, mut reader, mut lines, mut at) = (stream(), LineReader::default(), Vec::new(), 0);
            for cut in cuts {
                let next = stream.len().min(at + cut);
                lines.extend(reader.push(&stream[at..next]).expect("good lines"));
                at = next;
            }
            lines.extend(reader.push(&stream[at..]).expect("good lines"));
            reader.end().expect("whole");
            prop_assert_eq!(told(&lines), [1, 2, 99]);
        }
    }

    #[test]
    fn a_broken_line_is_shown() {
        for line in ["{\"sample\":{}}\n", "kernel panic\n", "{\"run\":{\"version\":1}}\n"] {
            let error = LineReader::default().push(line.as_bytes()).expect_err("broken").to_string();
            assert!(error.contains("no line of a run") && error.contains(&line[2..5]), "{error}");
        }
    }

    #[test]
    fn a_half_line_is_told() {
        let mut reader = LineReader::default();
        let stream = stream();
        let lines = reader.push(&stream[..stream.len() - 3]).expect("two good lines");
        assert_eq!(told(&lines), [1, 2]);
        let error = reader.end().expect_err("it breaks off").to_string();
        assert!(error.contains("breaks off") && error.contains("end"), "{error}");
    }

    #[test]
    fn another_version_is_told_even_if_its_plan_has_another_form() {
        let error =
            LineReader::default().push(b"{\"run\":{\"version\":7,\"plan\":1}}\n").expect_err("other").to_string();
        assert!(error.contains("version 7, and this vtax reads 1"), "{error}");
    }

    /// However the bytes are cut into reads, the same lines come out of them, or the same error.
    #[test]
    fn fuzz_run_lines() {
        let header = vtax_synthetic::header("demo-1", "2026-01-01T00:00:00Z");
        let plan = text(&SentLine::plan(&header)).expect("memory");
        let sample = vtax_synthetic::sample(0, Arm::A, 1);
        let lines = [stream(), text(&SentLine::Sample(&sample)).expect("memory")].concat();
        let seeds = [lines].into_iter().chain((plan.len() <= vtax_fuzz::LENGTH_MOST).then_some(plan));
        vtax_fuzz::fuzz("run-lines", &seeds.collect::<Vec<_>>(), |bytes| {
            let mut whole = LineReader::default();
            let lines = whole.push(bytes).map(|lines| format!("{lines:?}"));
            let mut cut = LineReader::default();
            let pieces = bytes.chunks(7).map(|piece| cut.push(piece)).collect::<Result<Vec<_>, _>>();
            let pieces = pieces.map(|lines| format!("{:?}", lines.into_iter().flatten().collect::<Vec<_>>()));
            assert_eq!(lines.as_ref().ok(), pieces.as_ref().ok());
            assert_eq!(lines.is_err(), pieces.is_err());
            lines.is_ok_and(|lines| lines.len() > 2).then_some(())
        });
    }
}
