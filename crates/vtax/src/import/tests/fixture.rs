//! Outputs of programs, some as they were printed, some written for a case.

pub(super) const FIXTURES: [(&str, &str); 36] = [
    ("fio-bssplit", include_str!("../fixtures/fio-bssplit.json")),
    ("fio-disk-bins", include_str!("../fixtures/fio-disk-bins.json")),
    ("fio-disk", include_str!("../fixtures/fio-disk.json")),
    ("fio-filename-twice", include_str!("../fixtures/fio-filename-twice.json")),
    ("fio-json-and-normal", include_str!("../fixtures/fio-json-and-normal.json")),
    ("fio-kb-base", include_str!("../fixtures/fio-kb-base.json")),
    ("fio-net-receive", include_str!("../fixtures/fio-net-receive.json")),
    ("fio-net-send", include_str!("../fixtures/fio-net-send.json")),
    ("fio-rate", include_str!("../fixtures/fio-rate.json")),
    ("fio-two-jobs-grouped", include_str!("../fixtures/fio-two-jobs-grouped.json")),
    ("fio-unified", include_str!("../fixtures/fio-unified.json")),
    ("iperf3-bom", include_str!("../fixtures/iperf3-bom.json")),
    ("iperf3-both", include_str!("../fixtures/iperf3-both.json")),
    ("iperf3-old-bidir-tcp", include_str!("../fixtures/iperf3-old-bidir-tcp.json")),
    ("iperf3-reverse", include_str!("../fixtures/iperf3-reverse.json")),
    ("iperf3-server-bidir-tcp", include_str!("../fixtures/iperf3-server-bidir-tcp.json")),
    ("iperf3-server-tcp-reverse", include_str!("../fixtures/iperf3-server-tcp-reverse.json")),
    ("iperf3-server-then-stopped", include_str!("../fixtures/iperf3-server-then-stopped.json")),
    ("iperf3-server-udp-no-bytes", include_str!("../fixtures/iperf3-server-udp-no-bytes.json")),
    ("iperf3-server-udp-reverse", include_str!("../fixtures/iperf3-server-udp-reverse.json")),
    ("iperf3-tcp", include_str!("../fixtures/iperf3-tcp.json")),
    ("iperf3-udp-omit", include_str!("../fixtures/iperf3-udp-omit.json")),
    ("iperf3-udp", include_str!("../fixtures/iperf3-udp.json")),
    ("iperf3-warning-first", include_str!("../fixtures/iperf3-warning-first.json")),
    ("netperf-burst-table", include_str!("../fixtures/netperf-burst-table.txt")),
    ("netperf-classic-k", include_str!("../fixtures/netperf-classic-k.txt")),
    ("netperf-omni", include_str!("../fixtures/netperf-omni.txt")),
    ("netperf-sweep-in-one-file", include_str!("../fixtures/netperf-sweep-in-one-file.txt")),
    ("netperf-tcp-rr", include_str!("../fixtures/netperf-tcp-rr.txt")),
    ("netperf-tcp-stream", include_str!("../fixtures/netperf-tcp-stream.txt")),
    ("netperf-udp-keyval-losses", include_str!("../fixtures/netperf-udp-keyval-losses.txt")),
    ("netperf-udp-stream-2.7", include_str!("../fixtures/netperf-udp-stream-2.7.txt")),
    ("netperf-udp-stream", include_str!("../fixtures/netperf-udp-stream.txt")),
    ("sockperf-load", include_str!("../fixtures/sockperf-load.txt")),
    ("sockperf-mps-low", include_str!("../fixtures/sockperf-mps-low.txt")),
    ("sockperf-udp", include_str!("../fixtures/sockperf-udp.txt")),
];

pub(super) fn fixture(name: &str) -> &'static str {
    FIXTURES.iter().find(|(own, _)| *own == name).unwrap_or_else(|| panic!("no fixture {name}")).1
}
