//! neper: round trips, one program per test. <https://github.com/google/neper>

use vtax_model::workload::Transport;

use crate::crosscheck::{
    contest::{Contest, Length},
    tool::{ServerLifetime, Tool, ToolCommand, call, number_after},
};

pub(crate) const TOOL: Tool = Tool {
    name: "neper",
    programs: &["tcp_rr", "udp_rr"],
    version: "--version",
    has: Contest::is_rr,
    whole_seconds: |_| None,
    server: |contest, address| with_sizes(contest, call(&[program(contest), "-H", &address.to_string()])),
    lifetime: ServerLifetime::Client,
    client: |contest, address, length| {
        let length = match length {
            Length::Seconds(seconds) => seconds.to_string(),
            // A negative time is a number of transactions.
            Length::Count(count) => format!("-{count}"),
        };
        with_sizes(contest, call(&[program(contest), "-c", "-H", &address.to_string(), "-l", &length]))
    },
    read,
    difference: |_| "same definition: the inverse of the rate is the mean round trip; it has no warm-up.",
};

fn program(contest: &Contest) -> &'static str {
    match contest.transport {
        Transport::Udp => "udp_rr",
        _ => "tcp_rr",
    }
}

/// Adds the sizes, flows and threads, which both ends need.
fn with_sizes(contest: &Contest, mut words: ToolCommand) -> ToolCommand {
    let (message, streams) = (contest.message().to_string(), contest.streams.to_string());
    words.extend(call(&["-Q", &message, "-R", &message, "-F", &streams, "-T", &streams]));
    words
}

fn read(contest: &Contest, text: &str) -> Result<f64, String> {
    Ok(f64::from(contest.streams) * 1e6 / number_after(text, "throughput=")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::Span;

    #[test]
    fn a_rate_becomes_a_round_trip() {
        let contest = Contest::all(Span::from_millis(1000), 2)[0];
        assert_eq!(read(&contest, "num_transactions=40000\nthroughput=20000.00\n"), Ok(50.0));
    }
}
