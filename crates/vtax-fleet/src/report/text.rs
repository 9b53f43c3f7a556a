//! The summary for a terminal.

use std::fmt::Write as _;

use vtax_model::foreign::ForeignText;

use super::{MeshReport, words::MeshWords};
use crate::comparison::MeshComparison;

/// Names that a line lists at most.
const NAMES_MOST: usize = 12;

impl MeshReport {
    /// Returns the summary: measurements, detection limit, findings.
    pub fn summary(&self) -> String {
        let mut text = self.heading();
        for finding in &self.findings {
            let _ = writeln!(text, "{}", self.words().finding(finding));
        }
        if self.findings.is_empty() && self.usual.is_some() {
            let so_far = if self.stopped().is_some() { " so far" } else { "" };
            let _ = writeln!(text, "no host, uplink or pair is slow{so_far}");
        }
        let is_lost = |end: &ForeignText| self.lost.iter().any(|lost| lost.end == *end);
        let is_there = |pair: &&[ForeignText; 2]| !pair.iter().any(is_lost);
        let joined = |[one, other]: &[ForeignText; 2]| format!("{one}–{other}").into();
        for (what, names) in [
            ("suspected, but as fast as the others when measured again", self.cleared.clone()),
            ("not measured", self.excluded.iter().map(ForeignText::from).collect()),
            ("pairs without a figure", self.missed.iter().filter(is_there).map(joined).collect()),
        ] {
            line(&mut text, what, &names);
        }
        let since = |end: &super::LostEnd| format!("{} (since wave {})", end.end, end.since_wave).into();
        line(&mut text, "no answer", &self.lost.iter().map(since).collect::<Vec<_>>());
        text
    }

    pub(super) fn words(&self) -> MeshWords {
        MeshWords(self.test)
    }

    fn heading(&self) -> String {
        let mut text = format!(
            "{} between {}, {} of {} rounds",
            self.test,
            counted(self.ends, self.noun),
            grouped(self.rounds as usize),
            grouped(self.all_rounds as usize)
        );
        match (self.usual, self.noise) {
            (Some(usual), Some(noise)) => {
                let _ = writeln!(text, "; {}, noise of a test {}", self.words().usual(usual), percent(noise));
                let _ = writeln!(text, "{}", self.words().detection(self.detects.into()));
            }
            _ => text.push_str("; no test succeeded\n"),
        }
        if let Some(planned) = self.stopped() {
            let _ = writeln!(text, "stopped after {} of {planned} waves: slow hosts may be missing", self.waves);
        }
        text
    }
}

impl MeshComparison {
    /// Returns the summary: the change of the fleet, and the hosts that have changed.
    pub fn summary(&self) -> String {
        MeshWords(self.test).comparison(self)
    }
}

pub(super) fn line(text: &mut String, what: &str, names: &[ForeignText]) {
    if names.is_empty() {
        return;
    }
    let shown: Vec<String> = names.iter().take(NAMES_MOST).map(ToString::to_string).collect();
    let more = match names.len() {
        count if count > NAMES_MOST => format!(", and {} more", count - NAMES_MOST),
        _ => String::new(),
    };
    let _ = writeln!(text, "{what}: {}{more}", shown.join(", "));
}

pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent.abs() < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Returns what the ends are: hosts, unless a host has several.
pub(super) fn noun<'a>(mut ends: impl Iterator<Item = &'a ForeignText>) -> &'static str {
    if ends.any(|end| end.raw().contains('/')) { "NIC" } else { "host" }
}

/// Formats a number with its noun: `1,000 hosts`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}
