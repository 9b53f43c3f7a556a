//! The kernel's command line. Only words that are known to affect speed are kept: the others are private and
//! may be secrets.

use super::SystemRoot;

/// The names of these words. The kernel treats `-` and `_` as equal (`parameq`, kernel/params.c).
const BEARING: &[&str] = &[
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "cpufreq.default_governor",
    "cpuidle.off",
    "cpuidle_haltpoll.force",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "iommu.passthrough",
    "iommu.strict",
    "irqaffinity",
    "isolcpus",
    "maxcpus",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "nr_cpus",
    "pcie_aspm",
    "preempt",
    "processor.max_cstate",
    "rcu_nocb_poll",
    "rcu_nocbs",
    "swiotlb",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
];

pub(super) fn command_line(tree: &SystemRoot) -> Vec<String> {
    let line = tree.text("proc/cmdline").unwrap_or_default();
    // The words after `--` are for the first process.
    words(&line).take_while(|word| *word != "--").filter(|word| bears_on_speed(word)).map(str::to_owned).collect()
}

fn bears_on_speed(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default().replace('-', "_");
    BEARING.contains(&name.as_str())
}

/// White space between quotes is part of a word (`next_arg`, lib/cmdline.c).
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let ends = move |letter: char| {
        quoted ^= letter == '"';
        letter.is_whitespace() && !quoted
    };
    line.split(ends).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_affect_speed_are_kept() {
        for (line, kept) in [
            ("BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n", vec![]),
            ("isolcpus=2-3 luks.key=secret nosmt ro mitigations=off", vec!["isolcpus=2-3", "nosmt", "mitigations=off"]),
            ("processor.max-cstate=1 rcu-nocbs=1", vec!["processor.max-cstate=1", "rcu-nocbs=1"]),
            ("foo=\"a idle=poll b\" idle=halt", vec!["idle=halt"]),
            ("tsc=reliable -- tsc=unstable", vec!["tsc=reliable"]),
            ("hugepagesz=1G hugepages=4 hugepagesz=2M", vec!["hugepagesz=1G", "hugepages=4", "hugepagesz=2M"]),
            ("my_tsc=1 tsc.x=1 TSC=1 =tsc \"", vec![]),
            ("", vec![]),
        ] {
            let tree = SystemRoot::invented([("proc/cmdline", line)]);
            assert_eq!(command_line(&tree), kept, "{line}");
        }
    }

    #[test]
    fn names_are_sorted_and_written_with_underscores() {
        assert!(BEARING.is_sorted());
        assert!(BEARING.iter().all(|name| bears_on_speed(name)));
    }
}
