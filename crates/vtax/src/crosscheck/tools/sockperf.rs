//! sockperf: round trips. <https://github.com/Mellanox/sockperf/blob/sockperf_v2/man/sockperf.1>

use std::net::IpAddr;

use vtax_model::workload::Transport;

use crate::crosscheck::{
    contest::Contest,
    tool::{ServerLifetime, Tool, ToolCommand, call, number_after},
};

const PORT: &str = "11111";

pub(crate) const TOOL: Tool = Tool {
    name: "sockperf",
    programs: &["sockperf"],
    version: "--version",
    has: Contest::is_rr,
    whole_seconds: |_| {
        Some("it sleeps for two seconds before each test, omits the first 400 ms and measures whole seconds only")
    },
    server: |contest, address| {
        with_transport(contest, call(&["sockperf", "server", "-i", &address.to_string(), "-p", PORT]))
    },
    lifetime: ServerLifetime::Contest,
    client: |contest, address, _| client(contest, address),
    // Half a round trip, as it prints by default.
    read: |_, text| Ok(2.0 * number_after(text, "avg-latency=")?),
    difference: |_| "prints half a round trip, doubled here; its confidence interval covers the packets of one run and does not predict the next run.",
};

fn client(contest: &Contest, address: IpAddr) -> ToolCommand {
    let (seconds, message) = (contest.seconds().to_string(), contest.message().to_string());
    let address = address.to_string();
    with_transport(
        contest,
        call(&["sockperf", "ping-pong", "-i", &address, "-p", PORT, "-t", &seconds, "-m", &message]),
    )
}

fn with_transport(contest: &Contest, mut words: ToolCommand) -> ToolCommand {
    if contest.transport == Transport::Tcp {
        words.push("--tcp".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::Span;

    #[test]
    fn half_a_round_trip_is_doubled() {
        let text = "sockperf: ====> avg-latency=23.145 (std-dev=1.2, mean-ad=0.9)";
        let contest = Contest::all(Span::from_millis(1000), 2)[0];
        assert_eq!((TOOL.read)(&contest, text), Ok(46.29));
    }
}
