//! The summary for a terminal.

use std::fmt::Write as _;

use vtax_model::foreign::ForeignText;

use super::MeshReport;
use crate::{
    aim::{Detection, FALSE_ALARMS},
    verdict::{
        Again, MeshDirection, MeshFinding, SlowDirection, SlowHost, SlowPair, SlowUplink, Slowness, Unstable,
        UplinkCause,
    },
};

/// Slowness from which a detection limit isn't worth stating.
const STANDSTILL: f64 = 0.9;
/// Maximum number of names in a line.
const NAMES_MOST: usize = 12;

impl MeshReport {
    /// Returns the summary: measurements, detection limit, findings.
    pub fn summary(&self) -> String {
        let mut text = self.heading();
        for finding in &self.findings {
            let _ = writeln!(text, "{finding}");
        }
        if self.findings.is_empty() && self.rate.is_some() {
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

    fn heading(&self) -> String {
        let mut text = format!(
            "{}, {} of {} rounds",
            counted(self.ends, self.noun),
            grouped(self.rounds as usize),
            grouped(self.all_rounds as usize)
        );
        match (self.rate, self.noise) {
            (Some(rate), Some(noise)) => {
                let _ = writeln!(text, "; usual rate {}, noise of a test {}", bit_rate(rate), percent(noise));
                let _ = writeln!(text, "{}", Detection::from(self.detects));
            }
            _ => text.push_str("; no test succeeded\n"),
        }
        if let Some(planned) = self.stopped() {
            let _ = writeln!(text, "stopped after {} of {planned} waves: slow hosts may be missing", self.waves);
        }
        text
    }
}

/// Prints "detects a host that is 10 % slow with 99 % probability" and the rate of false alarms.
impl std::fmt::Display for Detection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (probability, meshes) = (self.probability * 100.0, (1.0 / FALSE_ALARMS).round());
        match self.slowness.get() < STANDSTILL {
            true => write!(f, "detects a host that is {} slow with {probability:.0} % probability", self.slowness),
            false => f.write_str("too few hosts or rounds: only a host at a standstill would be detected"),
        }?;
        write!(f, "; names a fast host in at most 1 of {meshes} meshes")
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

impl std::fmt::Display for MeshFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MeshFinding::Host(host) => f.write_str(&host_line(host)),
            MeshFinding::Uplink(uplink) => f.write_str(&uplink_line(uplink)),
            MeshFinding::Pair(pair) => f.write_str(&pair_line(pair)),
            MeshFinding::Unstable(Unstable { end, spread, of_fleet, tests }) => {
                let [spread, of_fleet] = [*spread, *of_fleet].map(percent);
                write!(f, "{end}: unstable: its {tests} tests vary by {spread}, those of the fleet by {of_fleet}")
            }
        }
    }
}

fn host_line(host: &SlowHost) -> String {
    let of = |direction: MeshDirection| host.slow.iter().find(|slow| slow.direction == direction);
    let slow: Vec<String> = MeshDirection::BOTH.into_iter().filter_map(of).map(direction_text).collect();
    let usual: Vec<String> = MeshDirection::BOTH
        .into_iter()
        .filter(|direction| of(*direction).is_none())
        .map(|direction| format!("; {} at the fleet's rate", verb(direction)))
        .collect();
    format!("{}: {}{}", host.end, slow.join("; "), usual.concat())
}

fn direction_text(slow: &SlowDirection) -> String {
    let Slowness { slow_partners, partners, .. } = slow.figure;
    let preposition = if slow.direction == MeshDirection::Sends { "to" } else { "from" };
    let again = match slow.again {
        Again::Slow(again) => {
            format!(" ({} slower when measured again with {} tests)", percent(again.slower), again.partners)
        }
        _ => " (not measured again)".to_owned(),
    };
    let shown = slowness(slow.figure);
    format!("{} {shown} {preposition} {slow_partners} of {partners} partners{again}", verb(slow.direction))
}

fn slowness(Slowness { slower, low, high, .. }: Slowness) -> String {
    let decimals = usize::from(high - low < 0.01);
    let [low, high] = [low, high].map(|share| format!("{:.decimals$}", share * 100.0));
    format!("{:.decimals$} % slower [{low}, {high}]", slower * 100.0)
}

fn uplink_line(SlowUplink { uplink, direction, slower, hosts, cause }: &SlowUplink) -> String {
    let (slower, verb) = (percent(*slower), plural_verb(*direction));
    match cause {
        UplinkCause::Uplink => {
            format!("uplink {uplink}: its {hosts} hosts {verb} {slower} slower, but not among themselves")
        }
        UplinkCause::Undecided => format!(
            "undecided: uplink {uplink} or its {hosts} hosts, which {verb} {slower} slower; to decide: vtax fleet mesh --within {uplink}"
        ),
    }
}

fn pair_line(SlowPair { from, to, slower, slow_ports, ports }: &SlowPair) -> String {
    let slower = percent(*slower);
    match 2 * slow_ports > *ports {
        true => format!("{from} to {to}: {slower} slower than both are with others"),
        false => format!(
            "{from} to {to}: {slow_ports} of {ports} source ports are {slower} slower: one of several paths is slow"
        ),
    }
}

fn verb(direction: MeshDirection) -> &'static str {
    match direction {
        MeshDirection::Sends => "sends",
        MeshDirection::Receives => "receives",
    }
}

fn plural_verb(direction: MeshDirection) -> &'static str {
    match direction {
        MeshDirection::Sends => "send",
        MeshDirection::Receives => "receive",
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent.abs() < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Formats bits per second with three digits: `94.1 Mbit/s`.
fn bit_rate(bits: f64) -> String {
    let units = [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let (factor, unit) = units.into_iter().find(|(factor, _)| bits >= *factor).unwrap_or((1.0, "bit/s"));
    let number = bits / factor;
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$} {unit}")
}

/// Returns the noun for the ends: hosts, unless a host has several.
pub(super) fn noun(ends: &[ForeignText]) -> &'static str {
    if ends.iter().any(|end| end.raw().contains('/')) { "NIC" } else { "host" }
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
