//! Test options and measurement modes in words, and the options in which the cells of a document differ.

use serde::Serialize;
use serde_json::Value;
use vtax_model::{
    cell::{Cell, Instrument},
    disk::{AccessPattern, DiskTest, QueueDepth, ReadShare},
    options::{ArrivalProcess, Engine, Manners, Sending, SocketOptions, TestOptions},
    units::ByteSize,
    workload::TestKind,
};

use super::{
    blocks::{distinct, grouped},
    number::span,
};

/// Key to compare by, and the words.
type Chosen = (&'static str, String);

/// Name of a measurement mode in a sentence.
pub(crate) fn of_instrument(instrument: Instrument) -> &'static str {
    match instrument {
        Instrument::Path => "controlled conditions",
        Instrument::System => "host settings",
    }
}

/// Capitalizes the text, for the beginning of a title or sentence.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Joins the texts that are not empty.
pub(crate) fn joined(texts: impl IntoIterator<Item = String>, separator: &str) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(separator)
}

/// Returns `None` without texts.
pub(crate) fn list(texts: impl Iterator<Item = String>, separator: &str) -> Option<String> {
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(separator))
}

/// Returns a name and its value; empty without a value.
pub(crate) fn named(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{name} {value}") }
}

/// Operation that a thread performs on a disk, with its unusual options, e.g. `random I/Os of 8 KiB, 60 % reads, 4 in
/// flight`.
pub(crate) fn of_disk(test: &DiskTest) -> String {
    let usual = DiskTest::default();
    let order = if test.access == AccessPattern::Random { "random" } else { "sequential" };
    let (what, share) = match (test.verify, test.reads) {
        // Half of them are reads, whatever the test specifies.
        (true, _) => ("I/Os", "all blocks written, then read back and verified by checksum".to_owned()),
        (false, ReadShare::ALL) => ("reads", String::new()),
        (false, ReadShare::NONE) => ("writes", String::new()),
        (false, share) => ("I/Os", format!("{share} % reads")),
    };
    let parts = [
        format!("{order} {what} of {}", test.block),
        share,
        if test.depth > QueueDepth::ONE { format!("{} in flight", test.depth) } else { String::new() },
        test.rate.map_or_else(String::new, |rate| format!("at most {rate} IOPS")),
        if test.engine == usual.engine { String::new() } else { test.engine.to_string() },
        if test.direct { String::new() } else { "through the page cache".to_owned() },
    ];
    joined(parts, ", ")
}

/// Guest that migrates, e.g. `1 GiB of memory`.
pub(crate) fn of_migration(memory: ByteSize) -> String {
    format!("{memory} of memory")
}

/// All chosen options, in the order of the options.
fn chosen(options: &TestOptions) -> Vec<Chosen> {
    let TestOptions { engine, threads, burst, arrivals, gap, bitrate, sending, gso, gro, .. } = *options;
    let TestOptions { socket, interval, stages, responder, .. } = *options;
    let process = |process| if process == ArrivalProcess::Poisson { "Poisson arrivals" } else { "evenly spaced" };
    let mut all = listed([
        ("engine", (engine != Engine::default()).then(|| format!("engine {engine}"))),
        ("threads", threads.map(|threads| if threads == 1 { "1 thread".into() } else { format!("{threads} threads") })),
        ("burst", (burst.get() > 1).then(|| format!("{} in flight", burst.get()))),
        ("rate", arrivals.map(|due| format!("{} requests/s offered, {}", due.per_second, process(due.process)))),
        ("gap", gap.map(|gap| format!("{} idle before each request", span(gap)))),
        ("bitrate", bitrate.map(|rate| format!("{rate} per flow"))),
        ("sending", (sending != Sending::Copy).then(|| sending.to_string())),
        ("gso", gso.map(|segments| format!("GSO of {} datagrams", segments.get()))),
        ("gro", gro.then(|| "GRO".to_owned())),
    ]);
    all.extend(of_sockets(&socket));
    let Manners { delay, stall } = responder;
    all.extend(listed([
        ("interval", interval.map(|interval| format!("a series every {}", span(interval)))),
        ("stages", stages.then(|| "timestamps of each message (which cost time themselves)".to_owned())),
        ("delay", delay.map(|delay| format!("the responder waits {}", span(delay)))),
        ("stall", stall.map(|stall| format!("the responder stalls once for {}", span(stall)))),
    ]));
    all
}

fn of_sockets(socket: &SocketOptions) -> Vec<Chosen> {
    let SocketOptions { nodelay, send_buffer, receive_buffer, congestion, dscp, pacing, busy_poll } = *socket;
    listed([
        ("nodelay", nodelay.map(|on| format!("TCP_NODELAY {}", if on { "on" } else { "off" }))),
        ("send-buffer", send_buffer.map(|size| format!("send buffer {size}"))),
        ("receive-buffer", receive_buffer.map(|size| format!("receive buffer {size}"))),
        ("congestion", congestion.map(|name| format!("congestion control {name}"))),
        ("dscp", dscp.map(|dscp| format!("DSCP {dscp}"))),
        ("pacing", pacing.map(|rate| format!("paced at {rate}"))),
        ("busy-poll", busy_poll.map(|time| format!("SO_BUSY_POLL {}", span(time)))),
    ])
}

fn listed<const N: usize>(options: [(&'static str, Option<String>); N]) -> Vec<Chosen> {
    options.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
}

/// Options that differ between cells of the same test, whatever the rows are.
pub(crate) fn varying<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<&'static str> {
    let all: Vec<(TestKind, Vec<Chosen>)> = cells.map(|cell| (cell.kind(), of_tests(&cell.options()))).collect();
    let differs = |(test, options): &(TestKind, Vec<Chosen>), key: &str| {
        let text = |options: &[Chosen]| options.iter().find(|(known, _)| *known == key).map(|(_, text)| text.clone());
        all.iter().any(|(other, others)| other == test && text(others) != text(options))
    };
    let keys = all.iter().flat_map(|cell| cell.1.iter().map(|(key, _)| *key).filter(|key| differs(cell, key)));
    distinct(keys)
}

/// The rows of a comparison of engines already name the engine, and an injected delay has a warning.
fn of_tests(options: &TestOptions) -> Vec<Chosen> {
    chosen(options).into_iter().filter(|(key, _)| !["engine", "delay"].contains(key)).collect()
}

/// Words for these options, if they were chosen.
pub(crate) fn of_keys(options: &TestOptions, keys: &[&str]) -> Vec<String> {
    chosen(options).into_iter().filter(|(key, _)| keys.contains(key)).map(|(_, text)| text).collect()
}

/// Options chosen for all cells, or for all cells of some test, which is then named.
pub(crate) fn common<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Vec<String> {
    let varying = varying(cells.clone());
    let shared = |cell: &Cell| {
        let kind = cell.kind();
        let options = of_tests(&cell.options()).into_iter().filter(|(key, _)| !varying.contains(key));
        options.map(|(_, text)| (text, kind)).collect::<Vec<_>>()
    };
    let found = grouped(distinct(cells.clone().flat_map(shared)).into_iter());
    let tests = distinct(cells.map(|cell| cell.kind())).len();
    let told = |(text, of): (String, Vec<TestKind>)| {
        let names: Vec<String> = of.iter().map(TestKind::to_string).collect();
        if of.len() == tests { text } else { format!("{text} ({})", names.join(", ")) }
    };
    found.into_iter().map(told).collect()
}

/// All chosen options, e.g. `gap=1ms;socket.dscp=ef`, by the names of the result document.
pub(crate) fn key_values(options: &TestOptions) -> String {
    let pairs: Vec<String> = flattened(options).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(";")
}

/// Names and values of a record's fields, those of nested records as `socket.dscp`.
pub(crate) fn flattened(record: &impl Serialize) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let value = serde_json::to_value(record).expect("the model's records have names for keys, and numbers of JSON");
    flatten("", &value, &mut pairs);
    pairs
}

fn flatten(name: &str, value: &Value, pairs: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
            fields.iter().for_each(|(key, value)| flatten(&inner(key), value, pairs));
        }
        Value::String(text) => pairs.push((name.to_owned(), text.clone())),
        other => pairs.push((name.to_owned(), other.to_string())),
    }
}
