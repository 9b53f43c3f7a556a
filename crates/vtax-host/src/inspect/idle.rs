//! The CPUs' idle states. Waking a CPU from a deep one takes long, and a round trip waits for that at each end.

use vtax_model::cpus::CpuSet;
use vtax_model::run::{IdleFacts, IdleState};

use super::{
    SystemRoot,
    cpu::{FOLDER, numbers},
};

/// The idle states of each CPU that has some, by CPU number.
pub(super) struct IdleStates {
    driver: Option<String>,
    governor: Option<String>,
    cpus: Vec<(u32, Vec<IdleState>)>,
}

impl IdleStates {
    pub(super) fn read(tree: &SystemRoot) -> IdleStates {
        let text = |file: &str| tree.text(&format!("{FOLDER}/cpuidle/{file}"));
        let cpus = numbers(tree).into_iter().map(|cpu| (cpu, states(tree, cpu)));
        IdleStates {
            driver: text("current_driver"),
            // Since Linux 5.9 the file is writable and its name has no `_ro`.
            governor: text("current_governor").or_else(|| text("current_governor_ro")),
            cpus: cpus.filter(|(_, states)| !states.is_empty()).collect(),
        }
    }

    pub(super) fn deepest_us(&self) -> Option<u32> {
        let states = self.cpus.iter().flat_map(|(_, states)| states);
        states.filter(|state| !state.disabled).map(|state| state.exit_latency_us).max()
    }

    /// None if the kernel reports neither a driver nor idle states.
    pub(super) fn facts(self) -> Option<IdleFacts> {
        if self.driver.is_none() && self.cpus.is_empty() {
            return None;
        }
        let states = self.cpus.first().map(|(_, states)| states.clone()).unwrap_or_default();
        let differing = self.cpus.iter().filter(|(_, others)| *others != states);
        Some(IdleFacts {
            driver: self.driver.unwrap_or_else(|| "none".to_owned()).into(),
            governor: self.governor.unwrap_or_default().into(),
            differing_cpus: differing.map(|(cpu, _)| *cpu).collect::<CpuSet>().to_string().into(),
            states,
        })
    }
}

fn states(tree: &SystemRoot, cpu: u32) -> Vec<IdleState> {
    let folder = format!("{FOLDER}/cpu{cpu}/cpuidle");
    let names = tree.names(&folder);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix("state")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(|number| state(tree, &format!("{folder}/state{number}"))).collect()
}

fn state(tree: &SystemRoot, folder: &str) -> Option<IdleState> {
    Some(IdleState {
        name: tree.text(&format!("{folder}/name")).unwrap_or_default().into(),
        exit_latency_us: tree.number(&format!("{folder}/latency"))?,
        disabled: tree.number(&format!("{folder}/disable")).is_some_and(|disabled| disabled != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of each CPU: name, exit latency, disabled.
    fn machine(cpus: &[&[(&str, u32, u32)]]) -> IdleStates {
        let mut files = vec![(format!("{FOLDER}/cpuidle/current_driver"), "intel_idle\n".to_owned())];
        files.push((format!("{FOLDER}/cpuidle/current_governor_ro"), "menu\n".to_owned()));
        for (cpu, states) in cpus.iter().enumerate() {
            for (number, (name, latency, disabled)) in states.iter().enumerate() {
                let mut put = |file: &str, text: String| {
                    files.push((format!("{FOLDER}/cpu{cpu}/cpuidle/state{number}/{file}"), text));
                };
                put("name", format!("{name}\n"));
                put("latency", format!("{latency}\n"));
                put("disable", format!("{disabled}\n"));
            }
        }
        let tree = SystemRoot::invented(files);
        IdleStates::read(&tree)
    }

    #[test]
    fn a_disabled_state_is_not_the_deepest() {
        const OPEN: &[(&str, u32, u32)] = &[("POLL", 0, 0), ("C1", 2, 0), ("C6", 133, 0)];
        const SHUT: &[(&str, u32, u32)] = &[("POLL", 0, 0), ("C1", 2, 0), ("C6", 133, 1)];
        const ASLEEP: &[(&str, u32, u32)] = &[("C1", 2, 1)];
        for (cpus, deepest, differing) in [
            (vec![OPEN, OPEN], Some(133), ""),
            (vec![SHUT, SHUT], Some(2), ""),
            (vec![SHUT, OPEN, SHUT, OPEN], Some(133), "1,3"),
            (vec![OPEN, &OPEN[..2], SHUT], Some(133), "1-2"),
            (vec![&[], OPEN], Some(133), ""),
            (vec![ASLEEP], None, ""),
            (vec![], None, ""),
        ] {
            let idle = machine(&cpus);
            assert_eq!(idle.deepest_us(), deepest, "{cpus:?}");
            assert_eq!(idle.facts().expect("there is a driver").differing_cpus, differing, "{cpus:?}");
        }
    }

    #[test]
    fn states_keep_the_order_of_the_kernel() {
        let latencies: Vec<(&str, u32, u32)> = (0..12).map(|latency| ("C", latency, latency % 2)).collect();
        let facts = machine(&[&latencies]).facts().expect("there is a driver");
        assert_eq!((facts.driver.raw(), facts.governor.raw()), ("intel_idle", "menu"));
        let read: Vec<_> = facts.states.iter().map(|state| (state.exit_latency_us, state.disabled)).collect();
        assert_eq!(read, (0..12).map(|latency| (latency, latency % 2 == 1)).collect::<Vec<_>>());
        assert_eq!(facts.states[0].name, "C");
    }

    #[test]
    fn a_kernel_without_idle_states_is_omitted() {
        let tree = SystemRoot::invented::<&str, &str>([]);
        assert_eq!(IdleStates::read(&tree).facts(), None);
    }
}
