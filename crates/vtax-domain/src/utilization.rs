//! Current CPU utilization of domains and the host.

use std::{collections::BTreeMap, thread, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_guest::guest_threads::{GuestThreadRole, guest_threads};
use vtax_model::{domain::DomainState, topology::Name};
use vtax_sys::cpu::{MachineMeter, MachineReading, process_time, task_times};

use crate::BoundDomain;

/// Long enough that the time lost to the kernel's tick resolution is only a few percent.
const WATCHED: Duration = Duration::from_millis(200);

/// Percentage of the time of all its CPUs, by domain; only for running domains.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilization {
    /// Utilization of the host's CPUs, without the share of domains.
    pub host: Option<f64>,
    domains: BTreeMap<Name, f64>,
    services: BTreeMap<Name, ServiceUtilization>,
}

/// CPU time that the host spends on behalf of a domain, in percent of one CPU: everything but its virtual CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceUtilization {
    /// Workers of vhost.
    pub vhost: f64,
    /// Threads of QEMU that serve one disk alone.
    pub iothread: f64,
    /// Storage daemons of its disks.
    pub daemon: f64,
    /// The rest of QEMU.
    pub qemu: f64,
}

/// CPU time used up to a moment.
struct UsedSoFar {
    machine: Option<MachineReading>,
    domains: BTreeMap<Name, Duration>,
    services: BTreeMap<Name, ThreadTimes>,
}

/// Time that all CPUs of the machine were busy within a span.
#[derive(Debug, Clone, Copy)]
struct MachineUse {
    busy: Duration,
    wall: Duration,
    cpus: u32,
}

/// CPU time of threads by their numbers in `/proc`.
type ThreadTimes = BTreeMap<u32, (GuestThreadRole, Duration)>;

impl Utilization {
    /// Watches the host and these domains for 0.2 s.
    pub fn watch(bound: &[BoundDomain]) -> Utilization {
        let meter = MachineMeter::open().ok();
        let read = || UsedSoFar {
            machine: meter.as_ref().and_then(|meter| meter.read().ok()),
            domains: bound.iter().filter_map(|bound| Some((bound.name().clone(), used(bound)?))).collect(),
            services: bound.iter().filter_map(|bound| Some((bound.name().clone(), thread_times(bound)?))).collect(),
        };
        let before = read();
        thread::sleep(WATCHED);
        Utilization::between(bound, &before, &read())
    }

    fn between(bound: &[BoundDomain], before: &UsedSoFar, after: &UsedSoFar) -> Utilization {
        let span = before.machine.zip(after.machine).map(|(before, after)| after.since(&before));
        let vcpus = bound.iter().map(|bound| (bound.name(), bound.bindings.vcpus));
        span.map_or_else(Utilization::default, |span| {
            let machine = MachineUse { busy: span.busy(), wall: span.wall, cpus: span.cpus };
            Utilization::of_span(vcpus, machine, before, after)
        })
    }

    /// A domain that was started or stopped in between has none.
    fn of_span<'a>(
        vcpus: impl Iterator<Item = (&'a Name, u32)>,
        machine: MachineUse,
        before: &UsedSoFar,
        after: &UsedSoFar,
    ) -> Utilization {
        let MachineUse { busy, wall, cpus } = machine;
        let grown = |name: &Name| {
            let (before, after) = (before.domains.get(name)?, after.domains.get(name)?);
            Some(after.saturating_sub(*before))
        };
        let of_domain = |(name, vcpus): (&Name, u32)| Some((name.clone(), percent(grown(name)?, wall, vcpus)?));
        let of_domains: Duration = before.domains.keys().filter_map(grown).sum();
        Utilization {
            host: percent(busy.saturating_sub(of_domains), wall, cpus),
            domains: vcpus.filter_map(of_domain).collect(),
            services: after
                .services
                .iter()
                .filter_map(|(name, after)| {
                    Some((name.clone(), ServiceUtilization::between(before.services.get(name)?, after, wall)))
                })
                .collect(),
        }
    }

    /// Returns the host's CPU time on behalf of a domain; None if it doesn't run.
    pub fn service_of(&self, domain: &Name) -> Option<ServiceUtilization> {
        self.services.get(domain).copied()
    }

    /// Returns the host's CPU time on behalf of all domains that were watched.
    pub fn all_services(&self) -> ServiceUtilization {
        self.services.values().fold(ServiceUtilization::default(), |sum, of_domain| sum.plus(*of_domain))
    }

    /// Returns the time of a domain's vCPUs, including QEMU's work for it; None if it doesn't run.
    pub fn of(&self, domain: &Name) -> Option<f64> {
        self.domains.get(domain).copied()
    }
}

impl ServiceUtilization {
    /// A thread that was started in between used all of its time in it.
    fn between(before: &ThreadTimes, after: &ThreadTimes, wall: Duration) -> ServiceUtilization {
        let mut sum = ServiceUtilization::default();
        for (thread, (role, time)) in after {
            let earlier = before.get(thread).map_or(Duration::ZERO, |(_, earlier)| *earlier);
            let share = 100.0 * time.saturating_sub(earlier).as_secs_f64() / wall.as_secs_f64();
            match role {
                GuestThreadRole::Vcpu => {}
                GuestThreadRole::Vhost => sum.vhost += share,
                GuestThreadRole::Iothread => sum.iothread += share,
                GuestThreadRole::Daemon => sum.daemon += share,
                GuestThreadRole::Qemu => sum.qemu += share,
            }
        }
        sum
    }

    fn plus(self, other: ServiceUtilization) -> ServiceUtilization {
        ServiceUtilization {
            vhost: self.vhost + other.vhost,
            iothread: self.iothread + other.iothread,
            daemon: self.daemon + other.daemon,
            qemu: self.qemu + other.qemu,
        }
    }

    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.vhost + self.iothread + self.daemon + self.qemu
    }
}

/// None if the domain doesn't run.
fn thread_times(bound: &BoundDomain) -> Option<ThreadTimes> {
    if bound.state() != DomainState::Active {
        return None;
    }
    let qemu = bound.qemu()?;
    let threads = guest_threads(qemu.process(), Some(qemu.launch())).ok()?.into_iter();
    Some(threads.filter_map(|(thread, role)| Some((thread, (role, task_times(thread).ok()?.busy())))).collect())
}

/// A bound domain has a QEMU, too, whose CPUs are stopped.
fn used(bound: &BoundDomain) -> Option<Duration> {
    if bound.state() != DomainState::Active {
        return None;
    }
    process_time(bound.qemu()?.process().pid.0).ok()
}

/// QEMU has other threads in addition to its vCPUs, so a domain may use more time than its CPUs have.
fn percent(used: Duration, wall: Duration, cpus: u32) -> Option<f64> {
    let all = wall.as_secs_f64() * f64::from(cpus);
    (all > 0.0).then(|| (100.0 * used.as_secs_f64() / all).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_domains::name;

    #[test]
    fn utilization_is_a_share_of_the_cpus() {
        let ms = Duration::from_millis;
        assert_eq!(percent(ms(100), ms(200), 1), Some(50.0));
        assert_eq!(percent(ms(100), ms(200), 4), Some(12.5));
        assert_eq!(percent(ms(500), ms(200), 2), Some(100.0));
        assert_eq!((percent(ms(1), ms(0), 2), percent(ms(1), ms(200), 0)), (None, None));
    }

    #[test]
    fn work_for_a_domain_is_counted_without_its_cpus() {
        let ms = |ms| Duration::from_millis(ms);
        let before = [(1, (GuestThreadRole::Qemu, ms(500))), (2, (GuestThreadRole::Vcpu, ms(900)))].into();
        let after = [
            (1, (GuestThreadRole::Qemu, ms(510))),
            (2, (GuestThreadRole::Vcpu, ms(1_100))),
            (3, (GuestThreadRole::Vhost, ms(50))),
        ];
        let found = ServiceUtilization::between(&before, &after.into(), ms(200));
        let expected = ServiceUtilization { vhost: 25.0, qemu: 5.0, ..ServiceUtilization::default() };
        assert_eq!(found, expected);
        assert_eq!((found.total(), found.plus(found).total()), (30.0, 60.0));
    }

    #[test]
    fn the_time_of_domains_is_not_the_hosts_and_a_domain_needs_two_readings() {
        let ms = Duration::from_millis;
        let used = |domains: &[(&str, u64)]| UsedSoFar {
            machine: None,
            domains: domains.iter().map(|(domain, time)| (name(domain), ms(*time))).collect(),
            services: domains.iter().map(|(domain, _)| (name(domain), ThreadTimes::new())).collect(),
        };
        let before = used(&[("mars", 1_000), ("stopped", 500)]);
        let after = used(&[("mars", 1_100), ("started", 90)]);
        let names = ["mars", "stopped", "started"].map(name);
        let machine = MachineUse { busy: ms(300), wall: ms(200), cpus: 4 };
        let found = Utilization::of_span(names.iter().map(|name| (name, 2)), machine, &before, &after);
        // 300 ms less the 100 ms of mars, of 4 times 200 ms.
        assert_eq!((found.host, found.of(&names[0])), (Some(25.0), Some(25.0)));
        assert_eq!([found.of(&names[1]), found.of(&names[2])], [None, None]);
        let services = names.each_ref().map(|name| found.service_of(name).is_some());
        assert_eq!(services, [true, false, false]);
        assert_eq!(Utilization::between(&[], &before, &after), Utilization::default(), "the machine was not read");
    }

    /// Not averaged since boot: a busy loop shows immediately.
    #[test]
    fn the_host_shows_its_current_load() {
        let spinning = thread::spawn(|| {
            let begun = std::time::Instant::now();
            while begun.elapsed() < 2 * WATCHED {}
        });
        let host = Utilization::watch(&[]).host.expect("a machine with CPUs");
        let one_cpu = 100.0 / std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        assert!((0.5 * one_cpu..=100.0).contains(&host), "{host}");
        spinning.join().expect("no panic");
    }
}
