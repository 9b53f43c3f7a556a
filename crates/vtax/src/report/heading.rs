//! The head of a report: what was run, where and how, and what to mind about it.

use vtax_model::{
    result::{Disturbance, PlanRecord, ResultDocument},
    run::{Environment, Placement, RunState},
    study::Row,
    workload::TestKind,
};

use super::number::{counted, memory, waiting};

/// Name and text of all that the reader needs to place the figures.
pub(super) fn facts(document: &ResultDocument) -> Vec<(&'static str, String)> {
    let facts = [
        ("run", format!("{}, {}", document.id, state(document.state))),
        ("date", format!("{}, took {}", date(&document.started), waiting(document.wall_seconds))),
        ("plan", plan(document)),
        ("ends", ends(document)),
        ("machine", machine(&document.environment)),
        ("kernel", kernel(&document.environment)),
        ("placement", placement(&document.placement)),
        ("load", load(&document.disturbance)),
        ("vtax", program(&document.environment)),
    ];
    facts.into_iter().filter(|(_, text)| !text.is_empty()).collect()
}

/// What keeps the figures from meaning what they seem to.
pub(super) fn warnings(document: &ResultDocument) -> Vec<String> {
    let Placement { initiator, responder } = &document.placement;
    let unpinned = initiator.is_empty() || responder.is_empty();
    let asked = document.plan.sampling.samples;
    let texts = [
        (document.state != RunState::Complete).then(|| {
            let done = document.plan.rounds;
            format!(
                "Incomplete: {done} of {} are complete. Go on with: vtax run --resume {}",
                counted(asked, "round"),
                document.id
            )
        }),
        unpinned.then(|| {
            "NOT PINNED: the ends moved between CPUs, which alone can change a round-trip time fourfold.".into()
        }),
        document.disturbance.is_much().then(|| {
            format!(
                "DISTURBED: {}. Such a machine is noisy, and the CPU figures contain others' work.",
                load(&document.disturbance)
            )
        }),
        document.plan.quick.then(|| "Quick plan: short samples and few rounds, so wide intervals.".into()),
    ];
    texts.into_iter().flatten().collect()
}

/// `complete`, or what may be the matter.
pub(super) fn state(state: RunState) -> &'static str {
    match state {
        RunState::Complete => "complete",
        RunState::Stopped => "stopped early",
        RunState::Running => "under way, or killed",
    }
}

/// `2026-01-02 03:04:05 UTC`; as written if it is no time.
pub(super) fn date(rfc3339: &str) -> String {
    match rfc3339.parse::<jiff::Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => rfc3339.to_owned(),
    }
}

pub(super) fn plan(document: &ResultDocument) -> String {
    let PlanRecord { sampling, seed, .. } = &document.plan;
    let rounds = counted(sampling.samples, "round");
    // A transfer lasts as long as its file takes.
    if document.cells.iter().all(|record| record.cell.workload.kind() == TestKind::File) {
        return format!("{rounds}, a file in each, seed {seed}");
    }
    let mut text = format!("{rounds} of {}", sampling.duration);
    if let Some(rule) = &document.plan.stopping {
        let (confidence, width) = (rule.confidence().percent(), rule.width());
        text = format!(
            "{} to {} rounds of {}, until every {confidence} % interval is {width} wide at most (a precision, no verdict)",
            rule.min(),
            rule.max(),
            sampling.duration
        );
    }
    if !sampling.warmup.0.is_zero() {
        text += &format!(" after {} of warm-up", sampling.warmup);
    }
    format!("{text}, seed {seed}")
}

fn ends(document: &ResultDocument) -> String {
    let zones = matches!(document.baseline, Row::Zones { .. });
    match (zones, document.both) {
        (true, _) => "two zones of one host: sender-to-receiver".into(),
        (false, true) => "each method at both ends of the wire".into(),
        (false, false) => "each method at one end of the wire, against a native peer".into(),
    }
}

fn machine(environment: &Environment) -> String {
    let Environment { hostname, cpu_model, cpus, numa_nodes, memory_bytes, hypervisor, smt, .. } = environment;
    listed([
        hostname.clone(),
        if *cpus > 0 { format!("{cpus} × {}", or(cpu_model, "CPU of unknown model")) } else { cpu_model.clone() },
        if *numa_nodes > 1 { format!("{numa_nodes} NUMA nodes") } else { String::new() },
        if *memory_bytes > 0 { memory(*memory_bytes) } else { String::new() },
        named("SMT", smt),
        named("hypervisor", hypervisor),
    ])
}

fn kernel(environment: &Environment) -> String {
    let Environment { kernel, clocksource, governor, congestion_control, deepest_idle_us, .. } = environment;
    listed([
        kernel.clone(),
        named("clock", clocksource),
        named("governor", governor),
        deepest_idle_us.map_or(String::new(), |us| format!("idle states up to {us} µs")),
        named("TCP", congestion_control),
    ])
}

fn placement(placement: &Placement) -> String {
    let Placement { initiator, responder } = placement;
    format!("initiator on {}, responder on {}", cpus(initiator), cpus(responder))
}

/// Shares of the machine's CPU time while samples were taken.
fn load(disturbance: &Disturbance) -> String {
    let Disturbance { other_programs, stolen } = disturbance;
    format!("other programs took {:.1} % of the CPUs, the hypervisor {:.1} %", other_programs * 1e2, stolen * 1e2)
}

fn cpus(cpus: &[u32]) -> String {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    match cpus.len() {
        0 => "any CPU".into(),
        1 => format!("CPU {}", list[0]),
        _ => format!("CPUs {}", list.join(", ")),
    }
}

fn program(environment: &Environment) -> String {
    listed([environment.vtax.clone(), named("as", &environment.privilege)])
}

fn listed<const N: usize>(texts: [String; N]) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
}

fn named(name: &str, value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("{name} {value}") }
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}
