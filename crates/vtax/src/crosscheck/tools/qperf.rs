//! qperf: round trips and streams. qperf(1).

use std::net::IpAddr;

use vtax_model::workload::Transport;

use crate::crosscheck::{
    contest::Contest,
    tool::{ServerLifetime, Tool, ToolCommand, call, number_after},
};

const PORT: &str = "19765";

pub(crate) const TOOL: Tool = Tool {
    name: "qperf",
    programs: &["qperf"],
    version: "--version",
    has: |contest| contest.streams == 1,
    whole_seconds: |_| Some("it measures whole seconds only; its number of messages (-n) is for RDMA"),
    server: |_, _| call(&["qperf", "-lp", PORT]),
    lifetime: ServerLifetime::Contest,
    client: |contest, address, _| client(contest, address),
    read,
    difference: |contest| match (contest.is_rr(), contest.is_udp_stream()) {
        (true, _) => "prints half a round trip, doubled here; it has no warm-up.",
        (_, true) => "same definition for the receiver's figure; it has no warm-up.",
        _ => "same definition for the receiver's figure; it has no warm-up, so it includes TCP's slow start.",
    },
};

fn client(contest: &Contest, address: IpAddr) -> ToolCommand {
    let (seconds, message) = (contest.seconds().to_string(), contest.message().to_string());
    let test = match (contest.transport, contest.is_rr()) {
        (Transport::Udp, true) => "udp_lat",
        (Transport::Udp, false) => "udp_bw",
        (_, true) => "tcp_lat",
        (_, false) => "tcp_bw",
    };
    // -uu: always in its smallest units, ns and bytes/sec.
    call(&["qperf", &address.to_string(), "-lp", PORT, "-t", &seconds, "-m", &message, "-uu", test])
}

fn read(contest: &Contest, text: &str) -> Result<f64, String> {
    match (contest.is_rr(), contest.transport) {
        (true, _) => Ok(2.0 * number_after(text, "latency  =")? / 1e3),
        (false, Transport::Udp) => Ok(number_after(text, "recv_bw  =")? * 8.0 / 1e6),
        (false, _) => Ok(number_after(text, "bw  =")? * 8.0 / 1e6),
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
    fn its_units_become_ours() {
        assert_eq!(read(&contest("tcp-rr-14"), "tcp_lat:\n    latency  =  24830 ns\n"), Ok(49.66));
        assert_eq!(read(&contest("tcp-stream-16KiB"), "tcp_bw:\n    bw  =  1000000000 bytes/sec\n"), Ok(8000.0));
        let udp = "udp_bw:\n    send_bw  =  876394400 bytes/sec\n    recv_bw  =  500000000 bytes/sec\n";
        assert_eq!(read(&contest("udp-stream-1472"), udp), Ok(4000.0));
    }
}
