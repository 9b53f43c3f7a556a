//! What the user sees while a run goes on: a bar on a terminal, plain lines elsewhere.
//!
//! Nothing is drawn while a sample is taken: drawing would take CPU time from the measurement.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{clock, runner::Watcher};
use crate::interrupt::Interrupt;

/// Plain lines come at least this far apart.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct RunProgress<'a> {
    bar: Option<ProgressBar>,
    interrupt: &'a Interrupt,
    begun: Instant,
    last_line: Option<Instant>,
    total: usize,
    done: usize,
    line: String,
}

impl<'a> RunProgress<'a> {
    pub(crate) fn new(total: usize, interrupt: &'a Interrupt) -> RunProgress<'a> {
        let bar = std::io::stderr().is_terminal().then(|| bar(total));
        RunProgress { bar, interrupt, begun: Instant::now(), last_line: None, total, done: 0, line: String::new() }
    }

    pub(crate) fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    /// Adds samples to those that are left.
    pub(crate) fn grow(&mut self, samples: usize) {
        self.total += samples;
        if let Some(bar) = &self.bar {
            bar.set_length(self.total as u64);
        }
    }

    pub(crate) fn left_over(&self) -> usize {
        self.total.saturating_sub(self.done)
    }

    /// A line that stays.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell!("{line}")),
            None => tell!("{line}"),
        }
    }

    /// The time that is left, by the pace so far. None before the first sample is done.
    fn left(&self) -> Option<Duration> {
        let each = self.begun.elapsed().checked_div(u32::try_from(self.done).ok()?)?;
        each.checked_mul(u32::try_from(self.total.saturating_sub(self.done)).ok()?)
    }

    fn tell(&mut self) {
        let left = self.left().map_or(String::new(), |left| format!(", {} left", minutes(left)));
        match &self.bar {
            Some(bar) => {
                bar.set_position(self.done as u64);
                bar.set_message(format!("{}{left}", self.line));
            }
            None if self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) => {
                self.last_line = Some(Instant::now());
                tell!("sample {} of {}: {}{left}", self.done + 1, self.total, self.line);
            }
            None => {}
        }
    }
}

fn bar(total: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}").expect("a constant template");
    let target = ProgressDrawTarget::stderr_with_hz(8);
    ProgressBar::with_draw_target(Some(total as u64), target).with_style(style)
}

/// `9 s`, `1 min 05 s`, `1 h 02 min`.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s"),
        minutes if minutes < 60 => format!("{minutes} min {:02} s", seconds % 60),
        minutes => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

impl Watcher for RunProgress<'_> {
    fn begin(&mut self, round: u32, cell: &str) {
        self.line = format!("round {round}, {cell}");
        self.tell();
    }

    fn end(&mut self, samples: usize) {
        self.done += samples;
    }

    fn failed(&mut self, cell: &str, error: &str) {
        self.say(&format!("warning: {cell}: {error}"));
    }

    fn stop_asked(&self) -> bool {
        self.interrupt.asked()
    }

    fn now(&self) -> String {
        clock::now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_told_in_the_unit_that_fits() {
        let told = |seconds| minutes(Duration::from_secs(seconds));
        assert_eq!(told(9), "9 s");
        assert_eq!(told(65), "1 min 05 s");
        assert_eq!(told(3720), "1 h 02 min");
    }
}
