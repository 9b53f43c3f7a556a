//! iperf3: streams. <https://software.es.net/iperf/invoking.html>

use std::net::IpAddr;

use serde_json::Value;
use vtax_model::workload::Transport;

use crate::crosscheck::{
    contest::{Contest, Length},
    tool::{ServerLifetime, Tool, ToolCommand, call},
};

pub(crate) const TOOL: Tool = Tool {
    name: "iperf3",
    programs: &["iperf3"],
    version: "--version",
    has: |contest| !contest.is_rr(),
    whole_seconds: |_| None,
    server: |_, address| call(&["iperf3", "-s", "-B", &address.to_string()]),
    lifetime: ServerLifetime::Contest,
    client,
    read,
    difference: |contest| match (contest.transport, contest.streams) {
        (Transport::Udp, _) => {
            "reports the sent amount and the share lost; goodput at the receiver is computed from both. Its warm-up does not work for UDP (-O counts the omitted datagrams as lost), so its figure includes its first packets."
        }
        _ if contest.is_short() => {
            "same definition: payload at the receiver, from the first byte (-n); both figures include TCP's slow start."
        }
        (_, 1) => "same definition: payload at the receiver, without the first second (-O 1).",
        _ => {
            "same definition; before version 3.16 all its streams share one thread, vtax's have one each, pinned to the same CPU."
        }
    },
};

fn client(contest: &Contest, address: IpAddr, length: Length) -> ToolCommand {
    let mut words = call(&["iperf3", "-c", &address.to_string(), "-J", "-l", &contest.message().to_string()]);
    match length {
        Length::Seconds(seconds) => words.extend(call(&["-t", &seconds.to_string()])),
        Length::Count(bytes) => words.extend(call(&["-n", &bytes.to_string()])),
    }
    match (contest.transport, length) {
        (Transport::Udp, _) => words.extend(call(&["-u", "-b", "0"])),
        (_, Length::Seconds(_)) => words.extend(call(&["-O", &contest.warmup.0.as_secs().to_string()])),
        (_, Length::Count(_)) => {}
    }
    if contest.streams > 1 {
        words.extend(call(&["-P", &contest.streams.to_string()]));
    }
    words
}

fn read(contest: &Contest, text: &str) -> Result<f64, String> {
    let result: Value = serde_json::from_str(text).map_err(|error| format!("its JSON: {error}"))?;
    if let Some(error) = result["error"].as_str() {
        return Err(error.to_owned());
    }
    let rate = |sum: &Value| {
        let rate = sum["bits_per_second"].as_f64().filter(|rate| *rate > 0.0);
        rate.ok_or_else(|| "no bits_per_second in its JSON".to_owned())
    };
    let end = &result["end"];
    match contest.transport {
        Transport::Udp => {
            let lost = end["sum"]["lost_percent"].as_f64().ok_or("no lost_percent in its JSON")?;
            Ok(rate(&end["sum"])? / 1e6 * (1.0 - lost / 100.0))
        }
        _ => Ok(rate(&end["sum_received"])? / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::Span;

    fn contest(name: &str) -> Contest {
        let all = Contest::all(Span::from_millis(1000), 2);
        all.into_iter().find(|contest| contest.to_string() == name).expect("a contest")
    }

    #[test]
    fn tcp_is_what_was_received() {
        let json = r#"{"end":{"sum_sent":{"bits_per_second":9e9},"sum_received":{"bits_per_second":8e9}}}"#;
        assert_eq!(read(&contest("tcp-stream-16KiB"), json), Ok(8000.0));
    }

    #[test]
    fn udp_is_what_was_sent_less_what_was_lost() {
        let json = r#"{"end":{"sum":{"bits_per_second":1e9,"lost_percent":25}}}"#;
        assert_eq!(read(&contest("udp-stream-1472"), json), Ok(750.0));
    }

    #[test]
    fn its_own_error_is_reported() {
        let json = r#"{"end":{},"error":"unable to connect"}"#;
        assert_eq!(read(&contest("udp-stream-1472"), json), Err("unable to connect".to_owned()));
    }

    #[test]
    fn several_streams_are_asked_for() {
        let words = client(&contest("tcp-stream-128KiB-x2"), std::net::Ipv4Addr::LOCALHOST.into(), Length::Seconds(1));
        assert!(words.ends_with(&call(&["-t", "1", "-O", "1", "-P", "2"])), "{words:?}");
    }

    #[test]
    fn a_short_turn_is_so_many_bytes_without_warm_up() {
        let words =
            client(&contest("tcp-stream-128KiB"), std::net::Ipv4Addr::LOCALHOST.into(), Length::Count(1_000_000));
        assert!(words.ends_with(&call(&["-l", "131072", "-n", "1000000"])), "{words:?}");
    }
}
