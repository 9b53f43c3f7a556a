//! Maximum TCP buffer sizes.

use std::time::Duration;

use crate::{
    case::{TuningCase, TuningGoal},
    finding::{ExpectedGain, RuleOutcome, TuningFinding},
    needs::{LINKS, SPEEDS},
    rule::{ChangeRisk, TuningRule},
    setting::HostSetting,
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "tcp-buffers",
    title: "maximum TCP buffers",
    reads: "net.ipv4.tcp_rmem and tcp_wmem, third number, and tcp_window_scaling; the speed of the NIC; the measured round trip",
    needs: &[
        &["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_window_scaling"],
        SPEEDS,
        LINKS,
    ],
    good: "Window scaling is on. Twice the bandwidth-delay product: bandwidth × round trip. 10 Gb/s × 50 ms is 62.5 MB; 100 Gb/s × 0.1 ms is \
           1.25 MB, which every kernel's defaults cover. The source computes 134,217,728 bytes for 10 Gb/s × 100 ms.",
    why: "A sender may have no more data in flight than fits in both buffers. Below the bandwidth-delay product, the link \
          idles in each round trip. Without window scaling, at most 64 KiB are in flight, whatever the buffers.",
    risk: ChangeRisk::Medium,
    risks: "Memory: each busy connection may use this much at both endpoints. Larger queues in the network.",
    goal: TuningGoal::Throughput,
    persists: "A file in /etc/sysctl.d; `--persist` writes one.",
    source: "Oracle VM 3: 10GbE Network Performance Tuning (2015), \"TCP Parameter Settings\"; tcp(7)",
    check,
};

/// The settings, and the kernel's own limit on a machine with enough memory (`tcp_init`, net/ipv4/tcp.c; 6 MB to
/// receive and 4 MB to send, since Linux 3.4).
const BUFFERS: [(&str, u64); 2] = [("net.ipv4.tcp_rmem", 6_291_456), ("net.ipv4.tcp_wmem", 4_194_304)];
const SCALING: &str = "net.ipv4.tcp_window_scaling";
/// Divisor of the kernel's own limit: below the quotient, someone has deliberately set a small limit.
const SMALL: u64 = 8;

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    BUFFERS.iter().map(|(name, own)| of_setting(case, name, *own)).chain(unscaled(case)).collect()
}

/// Windows are scaled only if both endpoints offer it (RFC 7323).
fn unscaled(case: &TuningCase<'_>) -> Option<RuleOutcome> {
    case.host.sysctl(SCALING).filter(|value| *value == "0")?;
    let finding = TuningFinding::new(SCALING, "0, so a window has at most 64 KiB", RULE.why).gain(ExpectedGain::Large);
    Some(finding.owner(case.owner_of(SCALING)).change([HostSetting::sysctl(SCALING, 1).instead_of("0")]))
}

fn of_setting(case: &TuningCase<'_>, name: &str, own: u64) -> RuleOutcome {
    let Some(text) = case.host.sysctl(name) else {
        return RuleOutcome::NotHere(format!("this namespace has no {name}"));
    };
    let Some([least, first, most]) = three(text) else {
        let finding = TuningFinding::new(name, format!("{text}, not three positive numbers"), RULE.why);
        return finding.gain(ExpectedGain::Large).advice(format!("set it to three numbers, such as 4096 131072 {own}"));
    };
    let (wanted, because) = match wanted(case) {
        Some((product, path)) => (2 * product, format!("The path, {path}, has {product} bytes in flight.")),
        None => (own / SMALL, "The kernel default is several times that. ".to_owned() + RULE.why),
    };
    let wanted = wanted.max(own / SMALL);
    if most >= wanted {
        return RuleOutcome::Good(format!("{name} is {most} at most, {}", covers(case, most)));
    }
    let gain = if most < wanted / 8 { ExpectedGain::Large } else { ExpectedGain::Medium };
    let seen = format!("at most {most} bytes, {}", covers(case, most));
    // The first two numbers aren't checked, but they must not be larger than the third.
    let value = format!("{least} {} {}", first.max(least), wanted.max(own));
    let finding = TuningFinding::new(name, seen, because).gain(gain).owner(case.owner_of(name));
    finding.change([HostSetting::sysctl(name, value).instead_of(text)])
}

fn three(text: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

/// Returns the bandwidth-delay product in bytes, and a description of its path.
fn wanted(case: &TuningCase<'_>) -> Option<(u64, String)> {
    let (rtt, mbps) = (case.rtt?, speed(case)?);
    let bytes = f64::from(mbps) * 1e6 / 8.0 * rtt.time.as_secs_f64();
    Some((bytes as u64, format!("{} × {rtt}", gigabits(mbps))))
}

/// Returns the speed of the fastest NIC that reports it.
fn speed(case: &TuningCase<'_>) -> Option<u32> {
    case.ports().filter_map(|link| link.speed_mbps).max()
}

fn gigabits(mbps: u32) -> String {
    format!("{} Gb/s", f64::from(mbps) / 1e3)
}

/// Describes the longest round trip at which this many bytes, half of them used by the kernel, fill the fastest NIC.
fn covers(case: &TuningCase<'_>, bytes: u64) -> String {
    match speed(case) {
        Some(mbps) => {
            let seconds = bytes as f64 / 2.0 * 8.0 / (f64::from(mbps) * 1e6);
            let rounded = Duration::from_micros((seconds * 1e6) as u64);
            format!("enough for {} up to a round trip of {rounded:?}", gigabits(mbps))
        }
        None => "no NIC reports its speed".to_owned(),
    }
}
