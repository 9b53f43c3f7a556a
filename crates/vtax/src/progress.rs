//! Progress for the user: on a terminal a live view of the run, plain lines elsewhere.
//!
//! Events arrive between samples, so nothing is drawn during a sample: drawing would take CPU time from it.

use std::{
    io::IsTerminal,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vtax_model::units::minutes;
use vtax_report::{Options, Style, StyledText, under_way};
use vtax_run::{EventSink, EveryFewSeconds, LiveRun, RunEvent, RunEvents, SampleProgress};

use crate::terminal::{Size, Voice, painted, size, voice};

/// Returns the receiver of events that writes to standard error.
pub(crate) fn terminal() -> RunEvents {
    match (voice(), std::io::stderr().is_terminal()) {
        (Voice::Quiet, _) => RunEvents::default(),
        (Voice::Verbose, _) => RunEvents::to(PlainLines(None)),
        (Voice::Usual, true) => RunEvents::to(TerminalPicture::default()),
        (Voice::Usual, false) => RunEvents::to(PlainLines(Some(EveryFewSeconds::default()))),
    }
}

/// Occasional lines, or one for each sample.
struct PlainLines(Option<EveryFewSeconds>);

impl PlainLines {
    fn is_due(&self) -> bool {
        self.0.as_ref().is_none_or(EveryFewSeconds::is_due)
    }
}

impl EventSink for PlainLines {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        match event {
            RunEvent::Progress(SampleProgress { round, what, done, total, left }) if self.is_due() => {
                let left = left.map_or(String::new(), |left| format!(", {} left", minutes(left.0)));
                tell!("sample {} of {total}: round {round}, {what}{left}", done + 1);
            }
            RunEvent::Told(line) => tell!("{line}"),
            _ => {}
        }
        Ok(())
    }
}

/// The run so far, drawn over the previous drawing.
#[derive(Default)]
struct TerminalPicture(Mutex<Picture>);

#[derive(Default)]
struct Picture {
    live: LiveRun,
    /// Present from the first sample.
    drawn: Option<Drawn>,
}

struct Drawn {
    bar: ProgressBar,
    at: Instant,
    /// The time it took to compute and draw.
    took: Duration,
}

impl Drawn {
    /// The maximum share of the time for drawing.
    const SHARE: u32 = 50;
    const APART: Duration = Duration::from_millis(200);

    fn is_due(&self) -> bool {
        self.at.elapsed() >= (self.took * Drawn::SHARE).max(Drawn::APART)
    }
}

impl EventSink for TerminalPicture {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        let mut picture = self.picture();
        picture.live.take(event);
        match event {
            RunEvent::Progress(_) => picture.draw(),
            RunEvent::Told(line) => match &picture.drawn {
                Some(Drawn { bar, .. }) => bar.suspend(|| tell!("{line}")),
                None => tell!("{line}"),
            },
            RunEvent::End(_) => drop(picture.drawn.take().inspect(|drawn| drawn.bar.finish_and_clear())),
            RunEvent::Plan(_) | RunEvent::Samples(_) | RunEvent::Failure(_) => {}
        }
        Ok(())
    }
}

impl TerminalPicture {
    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Picture {
    fn draw(&mut self) {
        let Some(run) = self.live.run().filter(|_| self.drawn.as_ref().is_none_or(Drawn::is_due)) else { return };
        let begun = Instant::now();
        let Size { columns, lines } = size(std::io::stderr());
        let text = under_way(run, &self.live.progress()).draw(&Options { width: columns, ..Options::default() });
        let bar = self.drawn.take().map_or_else(new_bar, |drawn| drawn.bar);
        bar.set_message(painted(&fitting(text, columns, lines.saturating_sub(1)), true));
        self.drawn = Some(Drawn { bar, at: Instant::now(), took: begun.elapsed() });
    }
}

/// Returns as many of the first lines as there is room for, each cut at the terminal's width.
fn fitting(text: StyledText, columns: usize, lines: usize) -> StyledText {
    let all = text.lines();
    let left_out = all.len().saturating_sub(lines);
    let kept = if left_out > 0 { lines.saturating_sub(1) } else { lines };
    let more = (left_out > 0).then(|| StyledText::line(format!("… {} more lines", left_out + 1), Style::Faint));
    let kept = all.into_iter().take(kept).map(|line| line.cut(columns));
    StyledText::joined(kept.chain(more))
}

fn new_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").expect("a constant template");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(columns: usize, lines: usize) -> String {
        let text =
            StyledText::joined(["one and more", "two", "three"].map(|text| StyledText::line(text, Style::Title)));
        fitting(text, columns, lines).plain()
    }

    #[test]
    fn no_picture_is_larger_than_the_terminal() {
        assert_eq!(drawn(80, 24), "one and more\ntwo\nthree");
        assert_eq!(drawn(7, 3), "one and\ntwo\nthree");
        assert_eq!(drawn(12, 2), "one and more\n… 2 more lines");
        assert_eq!(drawn(12, 1), "… 3 more lines");
    }
}
