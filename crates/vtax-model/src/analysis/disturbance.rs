//! CPU usage by others during samples.

use std::collections::BTreeMap;

use super::{RunByCell, ends};
use crate::{
    cell::Block,
    foreign::ForeignText,
    guest::Accelerator,
    measurement::{MachineCpu, SessionCpu},
    result::Disturbance,
    run::{CpuReading, EndCpuReading, EndRecord, SampleReading},
};

/// CPU seconds of machines of one kind.
struct Time {
    available: f64,
    stolen: f64,
}

/// Role of a machine in a sample.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Host,
    /// KVM reports to its guests how long they waited.
    Guest,
    /// TCG doesn't.
    Translated,
}

impl Time {
    fn share_stolen(&self) -> Option<f64> {
        (self.available > 0.0).then(|| self.stolen / self.available)
    }
}

struct Watched {
    machine: MachineCpu,
    /// User time of vtax's threads on it.
    own_user: f64,
    seconds: f64,
    kind: Kind,
}

pub(super) fn disturbance(run: &RunByCell) -> Disturbance {
    let [mut hosts, mut guests, mut translated] = [const { Time { available: 0.0, stolen: 0.0 } }; 3];
    // User space only: others' kernel time can't be distinguished from the kernel's work for our packets.
    let mut other = 0.0;
    let whole = run.samples.iter().flatten().filter(|sample| !sample.sliced);
    let watched = whole.clone().flat_map(|sample| machines(run, sample)).chain(blocks(run));
    for Watched { machine, own_user, seconds, kind } in watched {
        let time = match kind {
            Kind::Host => &mut hosts,
            Kind::Guest => &mut guests,
            Kind::Translated => &mut translated,
        };
        time.available += f64::from(machine.cpus) * seconds;
        time.stolen += machine.steal;
        other += machine.user - own_user;
    }
    other -= whole.map(|sample| qemu_among_programs(run, sample)).sum::<f64>();
    let available = hosts.available + guests.available + translated.available;
    // The difference of two sampled accounts may be negative over a short run.
    let in_user_space = (available > 0.0).then(|| (other / available).max(0.0));
    Disturbance {
        // Neither includes what is measured, and each misses some of the others' work, so the larger one is more
        // accurate.
        other_programs: seen(run).into_iter().chain(in_user_space).reduce(f64::max),
        stolen: hosts.share_stolen(),
        guests_waited: guests.share_stolen(),
    }
}

/// Returns the share of all machines' CPUs that other programs used between samples. None if not observed.
fn seen(run: &RunByCell) -> Option<f64> {
    let looks = || run.samples.iter().flatten().flat_map(|sample| &sample.others);
    let available: f64 = looks().map(|look| f64::from(look.cpus) * look.seconds).sum();
    (available > 0.0).then(|| looks().map(|look| look.cpu).sum::<f64>() / available)
}

/// Returns the machines during alternating rows, for each round of each block. All rows of a block run from its
/// beginning to its end, so that each of their endpoints has observed the whole machine, and together they are vtax's
/// share of it.
///
/// A block in which a row has guests is omitted: QEMU's work for them wasn't observed.
fn blocks(run: &RunByCell) -> Vec<Watched> {
    let cells = &run.header.study.cells;
    let in_guests = |sample: &SampleReading| run.header.study.attach(cells[sample.cell].row).is_some();
    let mut blocks: BTreeMap<(u32, Block), Vec<&SampleReading>> = BTreeMap::new();
    for sample in run.samples.iter().flatten().filter(|sample| sample.sliced) {
        blocks.entry((sample.round, cells[sample.cell].block())).or_default().push(sample);
    }
    blocks.retain(|_, samples| !samples.iter().any(|sample| in_guests(sample)));
    blocks.values().flat_map(|samples| sessions(run, samples)).collect()
}

fn sessions(run: &RunByCell, samples: &[&SampleReading]) -> impl Iterator<Item = Watched> {
    let mut machines: BTreeMap<ForeignText, SessionCpu> = BTreeMap::new();
    for sample in samples {
        let ends = ends(run, &run.header.study.cells[sample.cell]);
        let pair = ends.and_then(|ends| ends.pairs.into_iter().next());
        let CpuReading { initiator, responder, .. } = &sample.cpu;
        let records = [pair.as_ref().map(|pair| &pair.initiator), pair.as_ref().map(|pair| &pair.responder)];
        for (cpu, record) in [initiator, responder].into_iter().zip(records) {
            let Some(session) = cpu.session.as_deref().copied() else { continue };
            let elsewhere = record.and_then(|record| record.environment.as_ref());
            let name = elsewhere.map(|environment| environment.hostname.clone()).unwrap_or_default();
            let seen = machines.entry(name).or_insert(SessionCpu { user: 0.0, ..session });
            let longest = if session.seconds > seen.seconds { session } else { *seen };
            *seen = SessionCpu { user: seen.user + session.user, ..longest };
        }
    }
    machines.into_values().map(|SessionCpu { seconds, machine, user }| Watched {
        machine,
        own_user: user,
        seconds,
        kind: Kind::Host,
    })
}

/// Returns QEMU's CPU time for the measuring guests, if an endpoint was on their host. It includes the kernel's part:
/// an overestimate rather than an underestimate.
fn qemu_among_programs(run: &RunByCell, sample: &SampleReading) -> f64 {
    let Some(host) = &sample.host_cpu else { return 0.0 };
    let ends = ends(run, &run.header.study.cells[sample.cell]);
    if !ends.is_some_and(|ends| ends.pairs.iter().any(|pair| at_host(&pair.initiator) || at_host(&pair.responder))) {
        return 0.0;
    }
    // Under KVM the kernel accounts the guests' own time separately from programs.
    let translated = host.guests.iter().filter(|guest| guest.accel == Accelerator::Tcg).map(|guest| guest.guest);
    let worked = host.qemu() + translated.sum::<f64>();
    worked / host.seconds * sample.cpu.initiator.seconds
}

fn at_host(end: &EndRecord) -> bool {
    end.environment.is_none()
}

/// Waiting for exact moments is vtax's own work.
fn own(end: &EndCpuReading) -> f64 {
    end.user + end.waiting
}

/// Returns each machine once.
fn machines(run: &RunByCell, sample: &SampleReading) -> Vec<Watched> {
    let CpuReading { one_machine, initiator, responder, .. } = &sample.cpu;
    let [at_initiator, at_responder] = kinds(run, sample);
    let watched =
        |end: &EndCpuReading, own_user, kind| Watched { machine: end.machine, own_user, seconds: end.seconds, kind };
    match one_machine {
        true => vec![watched(initiator, own(initiator) + own(responder), at_initiator)],
        false => {
            vec![watched(initiator, own(initiator), at_initiator), watched(responder, own(responder), at_responder)]
        }
    }
}

/// Returns the kinds of the two endpoints' machines, which are the same in all pairs. A machine whose host wasn't
/// observed counts as a host.
fn kinds(run: &RunByCell, sample: &SampleReading) -> [Kind; 2] {
    let Some(host) = &sample.host_cpu else { return [Kind::Host; 2] };
    let ends = ends(run, &run.header.study.cells[sample.cell]);
    let Some(pair) = ends.and_then(|ends| ends.pairs.into_iter().next()) else { return [Kind::Host; 2] };
    let told = host.guests.iter().all(|guest| guest.accel == Accelerator::Kvm);
    let guest = if told { Kind::Guest } else { Kind::Translated };
    [&pair.initiator, &pair.responder].map(|end| if at_host(end) { Kind::Host } else { guest })
}
