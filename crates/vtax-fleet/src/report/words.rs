//! Findings in words: of rates, or of round-trip times.

use std::fmt::Write as _;

use super::text::{counted, line, percent};
use crate::{
    aim::{Detection, FALSE_ALARMS},
    comparison::{ChangedEnd, MeshComparison, SpeedChange},
    pair_test::PairTestKind,
    verdict::{
        Again, MeshDirection, MeshFinding, SlowDirection, SlowHost, SlowPair, SlowUplink, Slowness, Unstable,
        UplinkCause,
    },
};

/// Slowness that isn't worth promising to detect.
const STANDSTILL: f64 = 0.9;

/// The words for a kind of test.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeshWords(pub(super) PairTestKind);

impl MeshWords {
    /// Returns the value of two usual ends: "usual rate 99.5 Gbit/s".
    pub(super) fn usual(self, value: f64) -> String {
        let what = match self.0 {
            PairTestKind::TcpStream => "rate",
            PairTestKind::TcpRr => "round trip over TCP",
            PairTestKind::UdpRr => "round trip over UDP",
        };
        format!("usual {what} {}", self.value(value))
    }

    pub(super) fn value(self, value: f64) -> String {
        if self.0.is_time() { time(value) } else { bit_rate(value) }
    }

    /// "46 % slower [45, 47]", or "2 % faster [1, 3]".
    pub(super) fn compared(self, Slowness { slower, low, high, .. }: Slowness) -> String {
        self.change(SpeedChange { slower, low, high })
    }

    /// Returns what is detected, and the promise about false alarms.
    pub(super) fn detection(self, Detection { slowness, probability }: Detection) -> String {
        let (slowness, probability, meshes) = (slowness.get(), probability * 100.0, (1.0 / FALSE_ALARMS).round());
        let detects = match (slowness < STANDSTILL, self.0.is_time()) {
            (false, _) => "too few hosts or rounds: only a host at a standstill would be detected".to_owned(),
            (true, false) => {
                format!("detects a host that is {} slow with {probability:.0} % probability", percent(slowness))
            }
            (true, true) => {
                let longer = self.slower(slowness);
                format!("detects a host whose round trips are {longer} with {probability:.0} % probability")
            }
        };
        format!("{detects}; names a fast host in at most 1 of {meshes} meshes")
    }

    pub(super) fn finding(self, finding: &MeshFinding) -> String {
        match finding {
            MeshFinding::Host(host) => self.host(host),
            MeshFinding::Uplink(uplink) => self.uplink(uplink),
            MeshFinding::Pair(pair) => self.pair(pair),
            MeshFinding::Unstable(Unstable { end, spread, of_fleet, tests }) => {
                let [spread, of_fleet] = [*spread, *of_fleet].map(percent);
                format!("{end}: unstable: its {tests} tests vary by {spread}, those of the fleet by {of_fleet}")
            }
        }
    }

    fn host(self, host: &SlowHost) -> String {
        let of = |direction: MeshDirection| host.slow.iter().find(|slow| slow.direction == direction);
        let slow: Vec<String> =
            MeshDirection::BOTH.into_iter().filter_map(of).map(|slow| self.direction(slow)).collect();
        let usual = MeshDirection::BOTH.into_iter().filter(|direction| of(*direction).is_none());
        let usual: Vec<String> = usual.map(|direction| format!("; {}", self.usual_direction(direction))).collect();
        format!("{}: {}{}", host.end, slow.join("; "), usual.concat())
    }

    fn direction(self, slow: &SlowDirection) -> String {
        let Slowness { slow_partners, partners, .. } = slow.figure;
        let again = match slow.again {
            Again::Slow(again) => {
                format!(" ({} when measured again with {} tests)", self.slower(again.slower), again.partners)
            }
            _ => " (not measured again)".to_owned(),
        };
        let verb = self.verb(slow.direction);
        let (shown, of) = (self.slowness(slow.figure), format!("{slow_partners} of {partners} partners"));
        match (self.0.is_time(), slow.direction) {
            (false, MeshDirection::Sends) => format!("{verb} {shown} to {of}{again}"),
            (false, MeshDirection::Receives) => format!("{verb} {shown} from {of}{again}"),
            (true, _) => format!("{verb} {shown} with {of}{again}"),
        }
    }

    fn usual_direction(self, direction: MeshDirection) -> String {
        match (self.0.is_time(), direction) {
            (false, MeshDirection::Sends) => "sends at the fleet's rate".to_owned(),
            (false, MeshDirection::Receives) => "receives at the fleet's rate".to_owned(),
            (true, direction) => format!("normal as {}", role(direction)),
        }
    }

    /// "the fleet: 2.3 % slower [1.9, 2.7]", "gpu44: sends 20 % slower [18, 22] compared with the fleet".
    pub(super) fn comparison(self, comparison: &MeshComparison) -> String {
        let MeshComparison { test, ends, fleet, changed, only_before, only_after, .. } = comparison;
        let mut text = format!("{test} between {} in both meshes\n", counted(*ends, "host"));
        if let Some(change) = fleet {
            let _ = writeln!(text, "the fleet: {}", self.change(*change));
        }
        for ChangedEnd { end, direction, change } in changed {
            let (what, change) = (self.verb(*direction), self.change(*change));
            let _ = writeln!(text, "{end}: {what} {change}, compared with the fleet");
        }
        if changed.is_empty() {
            text.push_str("no host has changed compared with the fleet\n");
        }
        line(&mut text, "only in the first mesh", only_before);
        line(&mut text, "only in the second mesh", only_after);
        text
    }

    pub(super) fn verb(self, direction: MeshDirection) -> &'static str {
        match (self.0.is_time(), direction) {
            (false, MeshDirection::Sends) => "sends",
            (false, MeshDirection::Receives) => "receives",
            (true, MeshDirection::Sends) => "round trips as initiator",
            (true, MeshDirection::Receives) => "round trips as responder",
        }
    }

    /// "20 % slower [18, 22]", or "25 % faster [22, 28]".
    fn change(self, SpeedChange { slower, low, high }: SpeedChange) -> String {
        let [slower, low, high] = [slower, low, high].map(|share| self.share(share));
        let (adverb, [share, low, high]) = match (slower >= 0.0, self.0.is_time()) {
            (true, _) => (self.adverb(), [slower, low, high]),
            (false, is_time) => (if is_time { "shorter" } else { "faster" }, [-slower, -high, -low]),
        };
        interval(share, low, high, adverb)
    }

    /// "46 % slower [45, 47]".
    fn slowness(self, Slowness { slower, low, high, .. }: Slowness) -> String {
        let [slower, low, high] = [slower, low, high].map(|share| self.share(share));
        interval(slower, low, high, self.adverb())
    }

    fn slower(self, slower: f64) -> String {
        let share = self.share(slower);
        match share >= 1.0 {
            true => format!("{:.1} times as long", 1.0 + share),
            false => format!("{} {}", percent(share), self.adverb()),
        }
    }

    fn adverb(self) -> &'static str {
        if self.0.is_time() { "longer" } else { "slower" }
    }

    /// Returns the share by which a value differs, where the speed is lower by this share.
    fn share(self, slower: f64) -> f64 {
        if self.0.is_time() { longer(slower) } else { slower }
    }

    fn uplink(self, SlowUplink { uplink, direction, slower, hosts, cause }: &SlowUplink) -> String {
        let slower = self.slower(*slower);
        let [it, which] = match (self.0.is_time(), direction) {
            (false, MeshDirection::Sends) => ["its HOSTS hosts send SLOWER", "its HOSTS hosts, which send SLOWER"],
            (false, MeshDirection::Receives) => {
                ["its HOSTS hosts receive SLOWER", "its HOSTS hosts, which receive SLOWER"]
            }
            (true, MeshDirection::Sends) => [
                "round trips that its HOSTS hosts initiate are SLOWER",
                "its HOSTS hosts: round trips that they initiate are SLOWER",
            ],
            (true, MeshDirection::Receives) => {
                ["round trips to its HOSTS hosts are SLOWER", "its HOSTS hosts: round trips to them are SLOWER"]
            }
        }
        .map(|text| text.replace("HOSTS", &hosts.to_string()).replace("SLOWER", &slower));
        match cause {
            UplinkCause::Uplink => format!("uplink {uplink}: {it}, but not among themselves"),
            UplinkCause::Undecided => {
                format!("undecided: uplink {uplink} or {which}; to decide: vtax fleet mesh --within {uplink}")
            }
        }
    }

    fn pair(self, SlowPair { from, to, slower, slow_ports, ports }: &SlowPair) -> String {
        let slower = self.slower(*slower);
        let of = if self.0.is_time() { "round trips " } else { "" };
        match 2 * slow_ports > *ports {
            true => format!("{from} to {to}: {of}{slower} than both are with others"),
            false => format!(
                "{from} to {to}: {of}{slower} on {slow_ports} of {ports} source ports: one of several paths is slow"
            ),
        }
    }
}

fn role(direction: MeshDirection) -> &'static str {
    match direction {
        MeshDirection::Sends => "initiator",
        MeshDirection::Receives => "responder",
    }
}

/// Only times can more than double: a rate can't fall by more than 100 %.
fn interval(share: f64, low: f64, high: f64, adverb: &str) -> String {
    if share >= 1.0 && adverb == "longer" {
        return format!("{:.1} times as long [{:.1}, {:.1}]", 1.0 + share, 1.0 + low, 1.0 + high);
    }
    let decimals = usize::from(high - low < 0.01);
    let [share, low, high] = [share, low, high].map(|share| format!("{:.decimals$}", share * 100.0));
    format!("{share} % {adverb} [{low}, {high}]")
}

/// Returns the share by which a time is longer, where the speed is lower by this share.
fn longer(slower: f64) -> f64 {
    1.0 / (1.0 - slower) - 1.0
}

fn bit_rate(bits: f64) -> String {
    three_digits(bits, [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
}

fn time(seconds: f64) -> String {
    three_digits(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")])
}

/// Formats a value in the largest unit that it reaches: `94.1 Mbit/s`.
fn three_digits<const N: usize>(value: f64, units: [(f64, &str); N]) -> String {
    let (factor, unit) = units.into_iter().find(|(factor, _)| value >= *factor).unwrap_or(units[N - 1]);
    let number = value / factor;
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$} {unit}")
}
