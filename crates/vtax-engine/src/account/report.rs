//! Creates an end's report from the ledgers of its threads.

use vtax_model::{
    foreign::ForeignText,
    measurement::{EndReport, FileReport, ThreadPriority, WarmupReport, WireCounts},
    workload::TestSpec,
};

use super::{
    ledger::{Count, Sender, ThreadCounts},
    meter::Meter,
    seconds, series, session,
    shared::Shared,
    stages,
};
use crate::error::{Result, compare_checksums};

/// Merges the threads of one end. Counts and CPU times are added; the time is [`common_time`].
pub(crate) fn merge(threads: Vec<(ThreadCounts, Meter<'_>)>, shared: &Shared) -> Result<EndReport> {
    let mut sum = EndReport::default();
    let (mut counts, mut bins, mut packets) = (vec![], vec![], vec![]);
    let begun = threads.iter().map(|(ledger, _)| ledger.begun).filter(|begun| *begun > 0).min().unwrap_or(0);
    sum.warmup = warmup(&threads, shared);
    for (mut ledger, meter) in threads {
        add_costs(&mut sum, &ledger, &meter);
        packets.push(wire(&ledger, &meter, &shared.session.spec));
        sum = add(sum, ledger.counted())?;
        counts.append(&mut ledger.counts);
        bins.extend(ledger.series.map(|series| series.bins));
    }
    sum.machine = sum.machine.at_least(sum.threads.iter().map(|thread| thread.user + thread.system).sum());
    sum.started_ns = begun;
    sum.wire = packets.into_iter().reduce(|sum, thread| Some(sum?.plus(thread?))).flatten();
    // For a file, it is the elapsed time that `time` would print.
    sum.seconds = match sum.file {
        Some(file) => file.real,
        None if shared.is_sliced() => sum.slices.iter().map(|slice| slice.seconds).sum(),
        None => end_time(&counts),
    };
    sum.idle_not_held = shared.idle_not_held.clone().map(ForeignText::from);
    let length = shared.session.spec.options.interval.map_or(0.0, |interval| interval.0.as_secs_f64());
    sum.series = series::join(length, bins);
    Ok(sum)
}

fn warmup(threads: &[(ThreadCounts, Meter<'_>)], shared: &Shared) -> WarmupReport {
    let longest = |(ledger, _): &(ThreadCounts, Meter<'_>)| match ledger.opened {
        Some(_) => seconds(ledger.begun, ledger.start),
        None => 0.0,
    };
    let slow: Vec<u32> = threads.iter().filter_map(|(ledger, _)| ledger.in_slow_start).collect();
    WarmupReport {
        seconds: threads.iter().map(longest).fold(0.0, f64::max),
        steady: shared.warming.outcome(),
        in_slow_start: (!slow.is_empty()).then(|| slow.iter().sum()),
    }
}

fn add_costs(sum: &mut EndReport, ledger: &ThreadCounts, meter: &Meter<'_>) {
    if !ledger.report.slices.is_empty() {
        sum.retransmits += ledger.cost.retransmits;
        sum.threads.push(ledger.cost.cpu);
    }
    let (Some(opened), Some(closed)) = (&ledger.opened, &ledger.closed) else { return };
    sum.retransmits += closed.tcp_since(opened).retransmits;
    sum.threads.push(meter.thread_cpu(opened, closed));
    if let Some(machine) = closed.machine_since(opened) {
        sum.machine = machine;
    }
}

/// The packets of a thread. None if unknown.
fn wire(ledger: &ThreadCounts, meter: &Meter<'_>, spec: &TestSpec) -> Option<WireCounts> {
    if let Some(headers) = meter.datagram_headers() {
        return ledger.udp_work().datagrams(spec.workload.sizes(), headers);
    }
    match (&ledger.opened, &ledger.closed) {
        (Some(opened), Some(closed)) => closed.tcp_since(opened).packets,
        _ => ledger.cost.packets,
    }
}

/// The time of the flows that receive bytes here; without any, of the flows that send bytes.
fn end_time(counts: &[Count]) -> f64 {
    let of = |way| common_time(counts.iter().filter(|count| count.way == way));
    of(Sender::Here).or_else(|| of(Sender::There)).unwrap_or(0.0)
}

/// The time in which all flows, at the sum of their rates, would have done their work. None if they did nothing.
fn common_time<'a>(counts: impl Iterator<Item = &'a Count>) -> Option<f64> {
    let (mut done, mut rate) = (0.0, 0.0);
    for count in counts {
        let time = seconds(count.start, count.last);
        if count.done > 0 && time > 0.0 {
            done += count.done as f64;
            rate += count.done as f64 / time;
        }
    }
    (rate > 0.0).then(|| done / rate)
}

fn add(mut sum: EndReport, thread: EndReport) -> Result<EndReport> {
    sum.transactions += thread.transactions;
    sum.bytes += thread.bytes;
    sum.sent_bytes += thread.sent_bytes;
    sum.rtt = stages::sum(sum.rtt, thread.rtt);
    sum.rtt_from_send = stages::sum(sum.rtt_from_send, thread.rtt_from_send);
    sum.lost = sum.lost.saturating_add(thread.lost);
    sum.reordered += thread.reordered;
    sum.whole_flow += thread.whole_flow;
    sum.socket_drops += thread.socket_drops;
    sum.strangers += thread.strangers;
    sum.zerocopy_sends += thread.zerocopy_sends;
    sum.zerocopy_copied += thread.zerocopy_copied;
    sum.silences.extend(thread.silences);
    sum.stages = stages::merge(sum.stages, thread.stages);
    sum.file = merge_file(sum.file, thread.file)?;
    sum.slices.extend(thread.slices);
    sum.session = session::joined(sum.session, thread.session);
    sum.overrun_ns = sum.overrun_ns.max(thread.overrun_ns);
    sum.waits = stages::sum(sum.waits, thread.waits);
    sum.priority = ThreadPriority::lower(sum.priority, thread.priority);
    Ok(sum)
}

/// Every flow carries the same file, so the checksums are the same too.
fn merge_file(sum: Option<FileReport>, flow: Option<FileReport>) -> Result<Option<FileReport>> {
    let (Some(sum), Some(flow)) = (sum, flow) else { return Ok(sum.or(flow)) };
    compare_checksums(sum.checksum, flow.checksum)?;
    Ok(Some(FileReport {
        real: sum.real.max(flow.real),
        user: sum.user + flow.user,
        sys: sum.sys + flow.sys,
        checksum: sum.checksum,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_stats::histogram::Histogram;

    fn count(done: u64, seconds: u64, way: Sender) -> Count {
        Count { start: 7, last: 7 + seconds * 1_000_000_000, done, way }
    }

    #[test]
    fn flows_are_merged_by_their_rates() {
        // 10/s for 1 s and 20/s for 3 s: 70 units at 30/s.
        let time = end_time(&[count(10, 1, Sender::Here), count(60, 3, Sender::Here)]);
        assert!((time - 70.0 / 30.0).abs() < 1e-12, "{time}");
        assert_eq!(end_time(&[count(10, 2, Sender::There), count(0, 0, Sender::There)]), 2.0);
        assert_eq!(end_time(&[count(10, 2, Sender::There), count(10, 4, Sender::Here)]), 4.0);
        assert_eq!(end_time(&[]), 0.0);
    }

    #[test]
    fn counts_and_histograms_add_up() {
        let report = |rtt: &[u64]| {
            let mut histogram = Histogram::new();
            rtt.iter().for_each(|ns| histogram.record(*ns));
            EndReport { transactions: rtt.len() as u64, lost: 1, rtt: Some(histogram), ..EndReport::default() }
        };
        let sum = add(report(&[10, 20]), report(&[30])).unwrap();
        assert_eq!((sum.transactions, sum.lost), (3, 2));
        assert_eq!(sum.rtt.map(|rtt| (rtt.count(), rtt.max())), Some((3, 30)));
    }

    #[test]
    fn flows_that_carried_different_files_are_an_error() {
        let with = |checksum| Some(FileReport { checksum, ..FileReport::default() });
        assert!(merge_file(with(1), with(1)).is_ok());
        let refused = merge_file(with(1), with(2));
        assert!(matches!(refused, Err(crate::EngineError::ChecksumMismatch { sent: 1, received: 2 })));
    }
}
