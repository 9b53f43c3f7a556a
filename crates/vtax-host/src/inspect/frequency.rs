//! CPU frequencies and the settings that control them.

use std::fmt::Write;

use vtax_model::cpus::CpuSet;

use super::{
    SystemRoot,
    cpu::{FOLDER, numbers},
};

pub(super) fn governor(tree: &SystemRoot) -> String {
    by_cpu(tree, |cpu| setting(tree, cpu, "scaling_governor")).unwrap_or_else(|| "none".to_owned())
}

pub(super) fn driver(tree: &SystemRoot) -> String {
    by_cpu(tree, |cpu| setting(tree, cpu, "scaling_driver")).unwrap_or_default()
}

pub(super) fn range_mhz(tree: &SystemRoot) -> String {
    by_cpu(tree, |cpu| range(tree, cpu)).unwrap_or_default()
}

/// `intel_pstate` has its own setting, with the opposite meaning. It also reports "off" if the firmware has disabled
/// turbo.
pub(super) fn turbo(tree: &SystemRoot) -> String {
    let read = |file: &str| tree.number(&format!("{FOLDER}/{file}"));
    let on = read("intel_pstate/no_turbo").map(|no| no == 0).or_else(|| Some(read("cpufreq/boost")? != 0));
    on.map_or("unknown", |on| if on { "on" } else { "off" }).to_owned()
}

fn range(tree: &SystemRoot, cpu: u32) -> Option<String> {
    let mhz = |file: String| Some(setting(tree, cpu, &file)?.parse::<u64>().ok()? / 1000);
    let range = |of: &str| Some((mhz(format!("{of}_min_freq"))?, mhz(format!("{of}_max_freq"))?));
    let (low, high) = range("scaling")?;
    match range("cpuinfo").filter(|able| *able != (low, high)) {
        Some((lowest, highest)) => Some(format!("{low}-{high} of {lowest}-{highest}")),
        None => Some(format!("{low}-{high}")),
    }
}

fn setting(tree: &SystemRoot, cpu: u32, file: &str) -> Option<String> {
    tree.text(&format!("{FOLDER}/cpu{cpu}/cpufreq/{file}"))
}

/// One value if all CPUs that report one agree. Otherwise each value with its CPUs, ordered by the lowest CPU.
fn by_cpu(tree: &SystemRoot, value: impl Fn(u32) -> Option<String>) -> Option<String> {
    let mut groups: Vec<(String, Vec<u32>)> = Vec::new();
    for (cpu, value) in numbers(tree).into_iter().filter_map(|cpu| Some((cpu, value(cpu)?))) {
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, cpus)) => cpus.push(cpu),
            None => groups.push((value, vec![cpu])),
        }
    }
    match groups.as_slice() {
        [] => None,
        [(value, _)] => Some(value.clone()),
        _ => Some(listed(groups)),
    }
}

fn listed(groups: Vec<(String, Vec<u32>)>) -> String {
    let mut text = String::new();
    for (value, cpus) in groups {
        let separator = if text.is_empty() { "" } else { ", " };
        let cpus: CpuSet = cpus.into_iter().collect();
        write!(text, "{separator}{value} {cpus}").expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The governor, then frequencies in kHz: current minimum and maximum, possible minimum and maximum.
    fn machine(cpus: &[(&str, [u32; 4])]) -> SystemRoot {
        let mut files = Vec::new();
        for (cpu, (governor, khz)) in cpus.iter().enumerate() {
            let mut put = |file: &str, text: String| files.push((format!("{FOLDER}/cpu{cpu}/cpufreq/{file}"), text));
            put("scaling_governor", format!("{governor}\n"));
            put("scaling_driver", "intel_pstate\n".to_owned());
            for (file, khz) in
                ["scaling_min_freq", "scaling_max_freq", "cpuinfo_min_freq", "cpuinfo_max_freq"].into_iter().zip(khz)
            {
                put(file, format!("{khz}\n"));
            }
        }
        SystemRoot::invented(files)
    }

    #[test]
    fn differing_cpus_are_listed_separately() {
        const FREE: [u32; 4] = [800_000, 3_500_000, 800_000, 3_500_000];
        const CAPPED: [u32; 4] = [800_000, 2_000_000, 800_000, 3_500_000];
        let (fast, slow) = (("performance", FREE), ("powersave", CAPPED));
        for (cpus, governor, mhz) in [
            (vec![fast], "performance", "800-3500"),
            (vec![fast; 12], "performance", "800-3500"),
            (vec![slow; 2], "powersave", "800-2000 of 800-3500"),
            (vec![fast, fast, slow, fast], "performance 0-1,3, powersave 2", "800-3500 0-1,3, 800-2000 of 800-3500 2"),
            (vec![], "none", ""),
        ] {
            let tree = machine(&cpus);
            assert_eq!((super::governor(&tree).as_str(), range_mhz(&tree).as_str()), (governor, mhz));
            assert_eq!(driver(&tree), if cpus.is_empty() { "" } else { "intel_pstate" });
        }
    }

    #[test]
    fn turbo_is_reported_by_either_switch() {
        for (file, text, told) in [
            ("intel_pstate/no_turbo", "0", "on"),
            ("intel_pstate/no_turbo", "1", "off"),
            ("cpufreq/boost", "1", "on"),
            ("cpufreq/boost", "0", "off"),
            ("cpufreq/boost", "", "unknown"),
            ("cpufreq/other", "1", "unknown"),
        ] {
            let tree = SystemRoot::invented([(format!("{FOLDER}/{file}"), text)]);
            assert_eq!(turbo(&tree), told, "{file} {text}");
        }
    }
}
