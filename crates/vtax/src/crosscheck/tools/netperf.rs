//! netperf: round trips and streams, with omni's selected outputs.
//! <https://hewlettpackard.github.io/netperf/doc/netperf.html>

use std::net::IpAddr;

use vtax_model::workload::Transport;

use crate::crosscheck::{
    contest::{Contest, Length},
    tool::{ServerLifetime, Tool, ToolCommand, call, number_after},
};

const PORT: &str = "12865";

pub(crate) const TOOL: Tool = Tool {
    name: "netperf",
    programs: &["netperf", "netserver"],
    version: "-V",
    has: |contest| contest.streams == 1,
    // nettest_omni.c: over a transport that may lose, a test can only be ended by time.
    whole_seconds: |contest| {
        (contest.transport == Transport::Udp).then_some("its tests over UDP are always timed, in whole seconds")
    },
    server: |_, address| call(&["netserver", "-D", "-L", &address.to_string(), "-p", PORT]),
    lifetime: ServerLifetime::Contest,
    client,
    read,
    difference: |contest| match (contest.is_rr(), contest.is_udp_stream()) {
        (true, _) => {
            "same definition: the inverse of the rate is the mean round trip; it has no warm-up. Its UDP_RR stops at the first lost datagram."
        }
        (_, true) => "the receiver's figure; it has no warm-up.",
        _ => "the receiver's figure; it has no warm-up, so it includes TCP's slow start.",
    },
};

fn client(contest: &Contest, address: IpAddr, length: Length) -> ToolCommand {
    let message = contest.message().to_string();
    let length = match length {
        Length::Seconds(seconds) => seconds.to_string(),
        // A negative time is a number of transactions, or of bytes.
        Length::Count(count) => format!("-{count}"),
    };
    let (test, output) = match (contest.transport, contest.is_rr()) {
        (Transport::Udp, true) => ("UDP_RR", "TRANSACTION_RATE"),
        (Transport::Udp, false) => ("UDP_STREAM", "REMOTE_RECV_THROUGHPUT"),
        (_, true) => ("TCP_RR", "TRANSACTION_RATE"),
        (_, false) => ("TCP_STREAM", "REMOTE_RECV_THROUGHPUT"),
    };
    let mut words =
        call(&["netperf", "-H", &address.to_string(), "-p", PORT, "-P", "0", "-t", test, "-l", &length, "--"]);
    match contest.is_rr() {
        true => words.extend(call(&["-r", &format!("{message},{message}"), "-D", "-k", output])),
        false => words.extend(call(&["-m", &message, "-k", output])),
    }
    words
}

fn read(contest: &Contest, text: &str) -> Result<f64, String> {
    match contest.is_rr() {
        true => Ok(1e6 / number_after(text, "TRANSACTION_RATE=")?),
        // In 10^6 bits/s unless -f changes the unit.
        false => number_after(text, "REMOTE_RECV_THROUGHPUT="),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::Span;

    #[test]
    fn a_short_turn_is_a_negative_time() {
        let contest = Contest::all(Span::from_millis(100), 2)[0];
        let words = client(&contest, std::net::Ipv4Addr::LOCALHOST.into(), Length::Count(5000));
        assert!(words.windows(2).any(|pair| pair == ["-l", "-5000"]), "{words:?}");
    }

    #[test]
    fn a_rate_becomes_a_round_trip() {
        let contest = Contest::all(Span::from_millis(1000), 2)[0];
        assert_eq!(read(&contest, "TRANSACTION_RATE=20000.00\n"), Ok(50.0));
    }
}
