//! Machines of a run in full: facts that the heading omits, and the machines of the other endpoints.

use vtax_model::{
    foreign::ForeignText,
    metric::FigureUnit,
    result::ResultDocument,
    run::{EndRecord, Environment, IdleFacts, IdleState},
};

use super::{
    blocks::distinct,
    column_unit::exact,
    heading,
    record::is_of_network,
    view::Section,
    words::{self, named},
};

/// Returns this machine's settings, then each other machine.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let mut list = settings(&document.environment, is_of_network(document));
    let rows = document.cells.iter().filter_map(|record| record.ends.as_ref());
    let ends = rows.flat_map(|ends| &ends.pairs).flat_map(|pair| [&pair.initiator, &pair.responder]);
    for (name, environment) in distinct(ends.filter_map(elsewhere)) {
        let all = std::iter::once(heading::machine_and_kernel(environment)).chain(settings(environment, true));
        list.extend(all.map(|text| format!("{name}: {text}")));
    }
    Section::bullets("Machines", list)
}

fn elsewhere(end: &EndRecord) -> Option<(&ForeignText, &Environment)> {
    Some((&end.name, end.environment.as_ref()?))
}

/// Settings, without those of networks, which don't concern disks, unless requested.
fn settings(environment: &Environment, networks: bool) -> Vec<String> {
    let Environment { kernel_build, preemption, command_line, numa_balancing, transparent_hugepages, .. } = environment;
    let Environment { frequency_driver, frequency_mhz, turbo, idle, irqbalance, mitigations, .. } = environment;
    let sysctls =
        environment.network_sysctls.iter().filter(|_| networks).map(|(name, value)| format!("{name} = {value}"));
    let lines = [
        (
            "kernel",
            vec![
                named("built", &kernel_build.to_string()),
                named("preemption", &preemption.to_string()),
                named(
                    "command line",
                    &words::list(command_line.iter().map(ToString::to_string), " ").unwrap_or_default(),
                ),
            ],
        ),
        (
            "CPUs",
            vec![
                named("frequency driver", &frequency_driver.to_string()),
                named("MHz", &frequency_mhz.to_string()),
                named("turbo", &turbo.to_string()),
                idle.as_ref().map_or(String::new(), idling),
                irqbalance.map_or(String::new(), |runs| format!("irqbalance {}", if runs { "runs" } else { "absent" })),
            ],
        ),
        ("mitigations", mitigations.iter().map(|(name, state)| format!("{name}: {state}")).collect()),
        (
            "memory",
            vec![
                named("transparent huge pages", &transparent_hugepages.to_string()),
                numa_balancing.map_or(String::new(), |mode| format!("NUMA balancing {mode}")),
            ],
        ),
        ("network", sysctls.collect()),
    ];
    let told = lines.into_iter().map(|(what, texts)| (what, words::joined(texts, ", ")));
    told.filter(|(_, text)| !text.is_empty()).map(|(what, text)| format!("{what}: {text}")).collect()
}

/// Returns e.g. `idle states of intel_idle by menu: POLL 0 µs, C1 2 µs, C6 133 µs (disabled)`.
fn idling(idle: &IdleFacts) -> String {
    let IdleFacts { driver, governor, states, differing_cpus } = idle;
    let state = |state: &IdleState| {
        let disabled = if state.disabled { " (disabled)" } else { "" };
        format!("{} {}{disabled}", state.name, exact(state.exit_latency_us.into(), FigureUnit::Microseconds))
    };
    let by = if governor.is_empty() { String::new() } else { format!(" by {governor}") };
    let states: Vec<String> = states.iter().map(state).collect();
    let list = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    let others =
        if differing_cpus.is_empty() { String::new() } else { format!("; otherwise on CPUs {differing_cpus}") };
    format!("idle states of {driver}{by}{list}{others}")
}
