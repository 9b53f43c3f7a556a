//! Host cost of guests, and drift of their clocks.

use std::collections::BTreeMap;

use super::{RunByCell, Taken, estimate};
use crate::{
    foreign::ForeignText,
    result::{Estimate, GuestClock, HostCpuSummary},
    run::{ClockReading, HostCpu, SampleReading},
};

/// `None` if the host wasn't observed.
pub(super) fn summary(taken: &[Taken<'_>], transactions: bool) -> Option<HostCpuSummary> {
    let observed: Vec<(u32, &SampleReading, &HostCpu)> =
        taken.iter().filter_map(|reading| Some((reading.round, *reading, reading.host_cpu.as_deref()?))).collect();
    let accel = observed.iter().find_map(|(.., host)| host.guests.first()).map(|guest| guest.accel);
    let each = |amount: &dyn Fn(&HostCpu) -> Option<f64>| -> Option<Estimate> {
        let of = |(round, reading, host): &(u32, &SampleReading, &HostCpu)| {
            Some((*round, amount(host)? * per_unit(reading, host, transactions)))
        };
        estimate(observed.iter().filter_map(of))
    };
    let us = |seconds: fn(&HostCpu) -> f64| each(&|host| Some(seconds(host) * 1e6));
    let if_any = |seconds: fn(&HostCpu) -> f64| us(seconds).filter(|estimate| estimate.mean > 0.0);
    Some(HostCpuSummary {
        accel,
        guest: us(HostCpu::guest)?,
        service: each(&|host| Some(host.service()? * 1e6)),
        vhost: us(HostCpu::vhost)?,
        iothread: if_any(HostCpu::iothread),
        daemon: if_any(HostCpu::daemon),
        qemu: us(HostCpu::qemu)?,
        relay: if_any(HostCpu::relay),
        kernel: each(&|host| Some(host.kernel()? * 1e6)).filter(|_| accel.is_some()),
        host_stack: us(HostCpu::host_stack)?,
        vm_exits: each(&|host| host.exits().map(|exits| exits as f64)).filter(|_| accel.is_some()),
        interrupts: each(&|host| Some(host.interrupts as f64))?,
        whole_samples: observed.iter().any(|(.., host)| host.whole_sample),
    })
}

/// Returns the factor from the observed time to the share of a transaction or KB: the two times
/// differ.
fn per_unit(reading: &SampleReading, host: &HostCpu, transactions: bool) -> f64 {
    let units = if transactions { reading.transactions as f64 } else { reading.bytes as f64 / 1024.0 };
    reading.seconds / host.seconds / units
}

/// Returns each boot of each guest whose clock was read twice.
pub(super) fn clocks(run: &RunByCell) -> Vec<GuestClock> {
    let mut readings: BTreeMap<(&ForeignText, u32), Vec<ClockReading>> = BTreeMap::new();
    let hosts = run.samples.iter().flatten().filter_map(|reading| reading.host_cpu.as_ref());
    let guests = hosts.flat_map(|host| &host.guests);
    for guest in guests {
        readings.entry((&guest.name, guest.pid)).or_default().extend(guest.clock);
    }
    readings.into_iter().filter_map(|((guest, _), readings)| clock(guest, &readings)).collect()
}

fn clock(guest: &ForeignText, readings: &[ClockReading]) -> Option<GuestClock> {
    let first = readings.iter().min_by_key(|reading| reading.at_ns)?;
    let last = readings.iter().max_by_key(|reading| reading.at_ns)?;
    let ns = (last.at_ns - first.at_ns) as f64;
    let ppm = |part: f64| part / ns * 1e6;
    (ns > 0.0).then(|| GuestClock {
        guest: guest.clone(),
        seconds: ns / 1e9,
        drift_ppm: ppm(last.ahead_ns as f64 - first.ahead_ns as f64),
        uncertainty_ppm: ppm(last.uncertainty_ns as f64 + first.uncertainty_ns as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        guest::Accelerator,
        measurement::EndReport,
        options::TestOptions,
        run::{Figures, GuestCpu, tests::reading},
        units::{ByteSize, Span},
        workload::{TestSpec, Transport, Warmup, Workload},
    };

    fn guest(name: &str, guest: f64, exits: Option<u64>) -> GuestCpu {
        let name = name.into();
        GuestCpu {
            name,
            pid: 7,
            serves: false,
            accel: Accelerator::Kvm,
            guest,
            vhost: 0.1,
            iothread: 0.0,
            daemon: 0.025,
            qemu: 0.05,
            kernel: Some(0.02),
            exits,
            clock: None,
        }
    }

    /// 1,000 transactions of 2 KB in all, in 1 s, of which half a second was observed.
    fn figures(guests: Vec<GuestCpu>) -> Figures {
        let spec = TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
            streams: 1,
            warmup: Warmup::NONE,
            duration: Span::from_millis(1000),
            slices: None,
            options: TestOptions::default(),
        };
        let end = EndReport { seconds: 1.0, transactions: 1000, bytes: 2048, ..EndReport::default() };
        let (seconds, whole_sample) = (0.5, false);
        let host = HostCpu {
            seconds,
            whole_sample,
            softirq: 0.04,
            irq: 0.01,
            all_guests: 0.3,
            interrupts: 600,
            guests,
            relays: vec![],
        };
        Figures { host_cpu: Some(host), ..Figures::join(&spec, true, &end, &end) }
    }

    fn near(estimate: Estimate, value: f64) {
        assert!((estimate.mean - value).abs() < 1e-6 * value, "{estimate:?} is not {value}");
    }

    #[test]
    fn all_guests_are_charged_at_the_rate_at_which_they_were_observed() {
        let figures = figures(vec![guest("a", 0.2, Some(300)), guest("b", 0.1, Some(100))]);
        let found = summary(&[&reading(1, &figures)], true).expect("observed");
        near(found.guest, 600.0);
        near(found.vhost, 400.0);
        near(found.qemu, 200.0);
        near(found.daemon.expect("there is one"), 100.0);
        near(found.kernel.expect("known"), 80.0);
        assert_eq!(found.iothread, None);
        near(found.host_stack, 100.0);
        near(found.vm_exits.expect("counted"), 0.8);
        near(found.interrupts, 1.2);
        near(summary(&[&reading(1, &figures)], false).expect("observed").guest, 300_000.0);
    }

    #[test]
    fn exits_that_one_guest_cannot_tell_are_not_known() {
        let figures = figures(vec![guest("a", 0.2, Some(300)), guest("b", 0.1, None)]);
        assert_eq!(summary(&[&reading(1, &figures)], true).expect("observed").vm_exits, None);
        assert_eq!(summary(&[&reading(1, &Figures { host_cpu: None, ..figures })], true), None);
    }

    #[test]
    fn a_clock_drifts_from_its_first_reading_to_its_last() {
        let reading =
            |seconds: u64, ahead_ns| ClockReading { at_ns: seconds * 1_000_000_000, ahead_ns, uncertainty_ns: 100_000 };
        let name = "web".into();
        let found = clock(&name, &[reading(3, 500), reading(1, 1_000_000), reading(11, -1_000_000)]).expect("two");
        assert_eq!((found.seconds, found.drift_ppm, found.uncertainty_ppm), (10.0, -200.0, 20.0));
        assert!(found.is_much());
        let slow = clock(&name, &[reading(1, 0), reading(11, 1_100_000)]).expect("two");
        assert!(!slow.is_much(), "110 ppm known to 20: {slow:?}");
        assert_eq!(clock(&name, &[reading(1, 0)]), None);
    }
}
