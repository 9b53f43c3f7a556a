//! Cost of a thread and its flows, read at the beginning and the end of the window.

use vtax_model::{
    measurement::{MachineCpu, ThreadCpu},
    workload::Transport,
};
use vtax_sys::{
    clock::{boottime_ns, now_ns},
    cpu::{CpuTimes, CycleCounter, CycleReading, MachineMeter, MachineReading, MachineSpan, thread_times},
    sock::{TcpInfo, bbr_starts_up, tcp_info},
};

use super::{ledger::TcpCost, packets::TcpReading};
use crate::{drive::exact::waited, error::Result, flow::Flow};

/// Reads the costs of a thread: its CPU time, the machine's CPU time (first thread only, or it would be counted once
/// per thread), and TCP's counters of its flows.
pub(crate) struct Meter<'a> {
    pub(crate) flows: Vec<&'a Flow>,
    /// The flows that this end sends on.
    pub(crate) senders: Vec<&'a Flow>,
    pub(crate) machine: Option<MachineMeter>,
    pub(crate) cpu: Option<u32>,
    /// None unless the test counts them.
    pub(crate) cycles: Option<CycleCounter>,
}

/// The counters at the beginning or the end of the window.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    thread: CpuTimes,
    cycles: Option<CycleReading>,
    waited: u64,
    machine: Option<MachineReading>,
    retransmits: u64,
    /// None without a TCP flow, and on kernels that are too old.
    tcp: Option<TcpReading>,
    ahead: Ahead,
}

impl<'a> Meter<'a> {
    /// Takes some microseconds, and half a microsecond for each TCP flow. So call it on the thread itself, but not
    /// while a transaction is being timed.
    pub(crate) fn read(&self) -> Result<Reading> {
        let machine = self.machine.as_ref().map(MachineMeter::read).transpose()?;
        let (retransmits, tcp) = self.tcp()?;
        let cycles = self.cycles.as_ref().and_then(CycleCounter::read);
        Ok(Reading {
            thread: thread_times(),
            cycles,
            waited: waited(),
            machine,
            retransmits,
            tcp,
            ahead: Ahead::read(),
        })
    }

    /// Segments retransmitted by TCP since the flows began, and its packets.
    fn tcp(&self) -> Result<(u64, Option<TcpReading>)> {
        let (mut retransmits, mut packets) = (0, vec![]);
        for flow in over_tcp(&self.flows) {
            let info = tcp_info(&*flow.socket)?;
            retransmits += u64::from(info.retransmits);
            packets.push(TcpReading::of(flow, &info));
        }
        let sum = packets.into_iter().reduce(|sum, flow| Some(sum?.plus(flow?)));
        Ok((retransmits, sum.flatten()))
    }

    /// Segments retransmitted by TCP since the flows began.
    pub(super) fn retransmits(&self) -> Result<u64> {
        Ok(self.tcp()?.0)
    }

    /// Bytes of the IP and UDP headers of a datagram. None without a UDP flow.
    pub(super) fn datagram_headers(&self) -> Option<u64> {
        self.flows.iter().find(|flow| flow.transport() == Transport::Udp).map(|flow| flow.headers())
    }

    /// The sum of the congestion windows of the TCP senders in segments, and the number of these senders.
    pub(super) fn windows(&self) -> Result<(u64, u32)> {
        over_tcp(&self.senders).try_fold((0, 0), |(sum, flows), flow| {
            Ok((sum + u64::from(tcp_info(&*flow.socket)?.congestion_window), flows + 1))
        })
    }

    /// Number of TCP senders with a congestion window that still grows with each acknowledgement. Transactions may stay
    /// in that state forever, because they never fill the window.
    pub(super) fn in_slow_start(&self) -> Result<Option<u32>> {
        let mut slow = None;
        let streams = |flow: &&Flow| flow.session.spec.workload.kind().is_stream();
        for flow in over_tcp(&self.senders).filter(streams) {
            let is_slow = match bbr_starts_up(&*flow.socket)? {
                Some(starts_up) => starts_up,
                None => is_in_slow_start(&tcp_info(&*flow.socket)?),
            };
            *slow.get_or_insert(0) += u32::from(is_slow);
        }
        Ok(slow)
    }

    /// The whole time is from the scheduler's clock. getrusage(2) lags behind that by up to a tick, so it
    /// only gives the shares of user and system time.
    pub(crate) fn thread_cpu(&self, opened: &Reading, closed: &Reading) -> ThreadCpu {
        let thread = closed.thread.since(opened.thread);
        let (total, split) = (closed.cpu_since(opened), (thread.user + thread.system).as_secs_f64());
        let user = if split > 0.0 { total * thread.user.as_secs_f64() / split } else { 0.0 };
        let (waiting, cycles) = (closed.waited_since(opened), closed.cycles_since(opened));
        // Rounding may make the share larger than the whole.
        ThreadCpu { user, system: (total - user).max(0.0), waiting, cpu: self.cpu, cycles }
    }
}

fn over_tcp<'a>(flows: &'a [&Flow]) -> impl Iterator<Item = &'a Flow> {
    flows.iter().copied().filter(|flow| flow.transport() == Transport::Tcp)
}

/// RFC 5681, 3.1.
fn is_in_slow_start(info: &TcpInfo) -> bool {
    info.congestion_window < info.slow_start_threshold
}

impl Reading {
    /// CPU seconds of the thread, without the time spent waiting for exact moments.
    pub(crate) fn cpu_since(&self, opened: &Reading) -> f64 {
        (self.thread.since(opened.thread).total.as_secs_f64() - self.waited_since(opened)).max(0.0)
    }

    fn waited_since(&self, opened: &Reading) -> f64 {
        (self.waited - opened.waited) as f64 / 1e9
    }

    /// Cycles of the thread. They include waiting, which isn't a cost of the path: with waiting there are none.
    fn cycles_since(&self, opened: &Reading) -> Option<u64> {
        let cycles = self.cycles?.since(opened.cycles?)?;
        (self.waited == opened.waited).then_some(cycles)
    }

    pub(super) fn tcp_since(&self, opened: &Reading) -> TcpCost {
        let packets = self.tcp.zip(opened.tcp).map(|(closed, opened)| closed.since(opened));
        TcpCost { retransmits: self.retransmits.wrapping_sub(opened.retransmits), packets }
    }

    /// CPU seconds of the machine; none on threads other than the first.
    pub(crate) fn machine_since(&self, opened: &Reading) -> Option<MachineCpu> {
        Some(in_seconds(&self.machine?.since(&opened.machine?)))
    }
}

pub(super) fn in_seconds(span: &MachineSpan) -> MachineCpu {
    let times = span.times;
    MachineCpu {
        cpus: span.cpus,
        user: (times.user + times.nice).as_secs_f64(),
        system: times.system.as_secs_f64(),
        irq: times.irq.as_secs_f64(),
        softirq: times.softirq.as_secs_f64(),
        steal: times.steal.as_secs_f64(),
        guest: (times.guest + times.guest_nice).as_secs_f64(),
        idle: span.idle().as_secs_f64(),
        busy: Some(span.busy().as_secs_f64()),
        raised: false,
    }
}

/// Offset in nanoseconds of CLOCK_BOOTTIME from CLOCK_MONOTONIC, which stops while the machine is suspended,
/// clock_gettime(2). A program can't read two clocks at the same time, so this is a lower and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ahead {
    least: i64,
    most: i64,
}

impl Ahead {
    fn read() -> Ahead {
        let before = now_ns() as i64;
        let boot = boottime_ns() as i64;
        let later = now_ns() as i64;
        Ahead { least: boot.wrapping_sub(later), most: boot.wrapping_sub(before) }
    }

    /// Seconds of suspension between the two readings, if there certainly was one.
    fn grown_since(self, earlier: Ahead) -> Option<f64> {
        /// A smaller difference may come from a clock that is being adjusted between two readings.
        const LEAST: i64 = 1_000_000;
        let grown = self.least.wrapping_sub(earlier.most);
        (grown > LEAST).then_some(grown as f64 / 1e9)
    }
}

/// Seconds for which the machine was suspended between two readings; none if it wasn't.
pub(crate) fn suspended_for(opened: &Reading, closed: &Reading) -> Option<f64> {
    closed.ahead.grown_since(opened.ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspension_shows_in_the_difference_of_two_clocks() {
        let awake = Ahead { least: 5_000, most: 9_000_000 };
        // The thread was preempted while it read the clocks, in both readings.
        assert_eq!(Ahead { least: 4_000, most: 80_000_000 }.grown_since(awake), None);
        let slept = Ahead { least: 2_509_000_000, most: 2_510_000_000 };
        assert_eq!(slept.grown_since(awake), Some(2.5));
        assert_eq!(awake.grown_since(slept), None);
    }

    #[test]
    fn nothing_is_suspended_while_this_runs() {
        let opened = Ahead::read();
        assert!(opened.least <= opened.most);
        assert_eq!(Ahead::read().grown_since(opened), None);
    }
}
