//! What the user sees of what happens: a bar on a terminal, plain lines elsewhere.
//!
//! Events come between samples, so nothing is drawn while a sample is taken: drawing would take CPU time from it.

use std::{
    io::IsTerminal,
    sync::{Mutex, PoisonError},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vtax_run::{EventSink, EveryFewSeconds, RunEvent, RunEvents, SampleProgress, study::minutes};

/// All that is told goes to standard error.
pub(crate) fn terminal() -> RunEvents {
    RunEvents::to(TerminalProgress::default())
}

#[derive(Default)]
struct TerminalProgress {
    /// From the first sample on.
    bar: Mutex<Option<ProgressBar>>,
    lines: EveryFewSeconds,
}

impl EventSink for TerminalProgress {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        match event {
            RunEvent::Progress(progress) => self.show(progress),
            RunEvent::Told(line) => match self.bar() {
                Some(bar) => bar.suspend(|| tell!("{line}")),
                None => tell!("{line}"),
            },
            RunEvent::End(_) => drop(self.bar().inspect(ProgressBar::finish_and_clear)),
            RunEvent::Plan(_) | RunEvent::Samples(_) | RunEvent::Failure(_) => {}
        }
        Ok(())
    }
}

impl TerminalProgress {
    fn bar(&self) -> Option<ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, SampleProgress { round, what, done, total, left }: &SampleProgress) {
        let left = left.map_or(String::new(), |left| format!(", {} left", minutes(left.0)));
        if std::io::stderr().is_terminal() {
            let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
            let bar = bar.get_or_insert_with(new_bar);
            bar.set_length(*total as u64);
            bar.set_position(*done as u64);
            bar.set_message(format!("round {round}, {what}{left}"));
        } else if self.lines.is_due() {
            tell!("sample {} of {total}: round {round}, {what}{left}", done + 1);
        }
    }
}

fn new_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}").expect("a constant template");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8)).with_style(style)
}
