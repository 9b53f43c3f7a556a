//! Events as lines: the format in which the vtax in an emulated server reports events to the vtax outside. Each line is
//! a JSON array of the version and an event.

use std::io::{self, Write};

use serde::de::IgnoredAny;

use crate::{
    events::{EventSink, EveryFewSeconds, RunEvent},
    stop::Coded,
};

/// Version of these lines. A vtax reads only lines of its own version.
const VERSION: u32 = 2;
/// Maximum length of a line in bytes. A sample with its histograms takes kilobytes.
const LONGEST: usize = 64 << 20;

#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the emulated server runs another vtax: it writes event version {0}, and this vtax reads {VERSION}")]
    #[diagnostic(code("server-version"))]
    Version(u32),
    #[error("invalid event from the emulated server: {line:?}")]
    #[diagnostic(code("defect"))]
    Broken { line: String, source: serde_json::Error },
    #[error("output of the emulated server ends in the middle of a line: {0:?}")]
    #[diagnostic(code("server-lost"))]
    Half(String),
    #[error("the emulated server sent a line that is too long")]
    #[diagnostic(code("defect"))]
    Long,
}

/// Assembles lines from the bytes received.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    rest: Vec<u8>,
}

impl LineReader {
    /// Returns the events whose lines these bytes complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<RunEvent<'static>>, LineError> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return if self.rest.len() > LONGEST { Err(LineError::Long) } else { Ok(Vec::new()) };
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(parse).collect()
    }

    /// Checks that no incomplete line is left.
    pub(crate) fn end(self) -> Result<(), LineError> {
        if self.rest.is_empty() { Ok(()) } else { Err(LineError::Half(shown(&self.rest))) }
    }
}

fn parse(line: &[u8]) -> Result<RunEvent<'static>, LineError> {
    match serde_json::from_slice(line) {
        Ok((VERSION, event)) => Ok(event),
        Ok((version, _)) => Err(LineError::Version(version)),
        // An event of another version may have a form that this vtax doesn't know.
        Err(source) => Err(match serde_json::from_slice(line) {
            Ok((version, IgnoredAny)) if version != VERSION => LineError::Version(version),
            _ => LineError::Broken { line: shown(line), source },
        }),
    }
}

fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned()
}

pub(crate) fn text(event: &RunEvent<'_>) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(&(VERSION, event))?;
    text.push(b'\n');
    Ok(text)
}

/// Sink that writes each event except the progress of samples to standard output immediately.
#[derive(Debug, Default)]
pub struct EventLines {
    progress: EveryFewSeconds,
}

impl EventSink for EventLines {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        if matches!(event, RunEvent::Progress(_)) && !self.progress.is_due() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        let sent = text(event).and_then(|text| out.write_all(&text)).and_then(|()| out.flush());
        sent.coded("file", || "writing to standard output")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::borrow::Cow;
    use vtax_model::{
        cell::Arm,
        run::{Failure, RunState},
    };

    use super::*;
    use crate::events::SessionEnd;

    fn failure(round: u32) -> Failure {
        Failure { cell: 3, arm: Arm::A, round, error: "a line\nin two".into(), partial: None }
    }

    fn stream() -> Vec<u8> {
        let (first, second) = (failure(1), failure(2));
        let end = SessionEnd { state: RunState::Complete, wall_seconds: 1.0, shortfalls: Vec::new() };
        let lines = [first, second].map(|failure| RunEvent::Failure(Cow::Owned(failure)));
        let lines = lines.into_iter().chain([RunEvent::End(end)]);
        lines.flat_map(|event| text(&event).expect("memory")).collect()
    }

    fn told(events: &[RunEvent<'_>]) -> Vec<u32> {
        let round = |event: &RunEvent<'_>| match event {
            RunEvent::Failure(failure) => failure.round,
            RunEvent::End(SessionEnd { state: RunState::Complete, .. }) => 99,
            other => panic!("{other:?}"),
        };
        events.iter().map(round).collect()
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
        for line in ["[2,{\"samples\":7}]\n", "kernel panic\n", "[2]\n"] {
            let error = LineReader::default().push(line.as_bytes()).expect_err("broken").to_string();
            assert!(error.contains("invalid event") && error.contains(&line[..2]), "{error}");
        }
    }

    #[test]
    fn a_half_line_is_reported() {
        let mut reader = LineReader::default();
        let stream = stream();
        let lines = reader.push(&stream[..stream.len() - 3]).expect("two good lines");
        assert_eq!(told(&lines), [1, 2]);
        let error = reader.end().expect_err("it breaks off").to_string();
        assert!(error.contains("in the middle of a line") && error.contains("end"), "{error}");
    }

    #[test]
    fn another_version_is_reported_even_if_its_events_differ() {
        let error = LineReader::default().push(b"[7,{\"idea\":1}]\n").expect_err("other").to_string();
        assert!(error.contains("version 7, and this vtax reads 2"), "{error}");
    }

    /// However the bytes are split into reads, they yield the same lines or the same error.
    #[test]
    fn fuzz_run_lines() {
        let header = vtax_synthetic::header("demo-1", "2026-01-01T00:00:00Z");
        let plan = text(&RunEvent::plan(&header)).expect("memory");
        let sample = vtax_synthetic::sample(0, Arm::A, 1);
        let lines = [stream(), text(&RunEvent::Samples(vec![sample].into())).expect("memory")].concat();
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
