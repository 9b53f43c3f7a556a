//! The kernel: its release, clock and memory, its automatic settings, and our privilege.

use super::SystemRoot;

pub(super) fn hostname(tree: &SystemRoot) -> String {
    tree.text("proc/sys/kernel/hostname").unwrap_or_default()
}

/// The output of `uname -v`.
pub(super) fn build(tree: &SystemRoot) -> String {
    tree.text("proc/sys/kernel/version").unwrap_or_default()
}

/// Derived from a word in the build's version (`UTS_VERSION`, init/Makefile). It doesn't distinguish voluntary
/// preemption from none.
pub(super) fn preemption(tree: &SystemRoot) -> String {
    let build = build(tree);
    let word = build.split_whitespace().find(|word| word.starts_with("PREEMPT"));
    let unnamed = if build.is_empty() { "" } else { "none or voluntary" };
    word.unwrap_or(unnamed).to_owned()
}

pub(super) fn memory_bytes(tree: &SystemRoot) -> u64 {
    let meminfo = tree.text("proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// In the kernel's order, by rating.
pub(super) fn clocksources(tree: &SystemRoot) -> Vec<String> {
    let list = tree.text("sys/devices/system/clocksource/clocksource0/available_clocksource").unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

/// The current choice is the word in brackets: `always [madvise] never`.
pub(super) fn transparent_hugepages(tree: &SystemRoot) -> String {
    let choices = tree.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mut words = choices.split_whitespace();
    let chosen = words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.unwrap_or_default().to_owned()
}

/// Not finding irqbalance means that it isn't running only if this process sees all processes. It doesn't in a PID
/// namespace or with a `/proc` mounted with `hidepid`. It does if it sees the kernel's process 2.
pub(super) fn irqbalance(tree: &SystemRoot) -> Option<bool> {
    let is = |pid: &str, name: &str| tree.text(&format!("proc/{pid}/comm")).is_some_and(|comm| comm == name);
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    let running = tree.names("proc").iter().filter(|name| is_process(name)).any(|pid| is(pid, "irqbalance"));
    (running || is("2", "kthreadd")).then_some(running)
}

/// `root` if user 0 is the machine's own root, which the identity map of the initial namespace shows
/// (user_namespaces(7)); otherwise a user namespace.
pub(super) fn privilege(tree: &SystemRoot) -> String {
    let map = tree.text("proc/self/uid_map").unwrap_or_default();
    let identity = map.split_whitespace().eq(["0", "0", "4294967295"]);
    if identity { "root" } else { "user namespace" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_is_a_word_of_the_build() {
        for (build, told) in [
            ("#1 SMP PREEMPT_DYNAMIC Tue Jan 7 10:00:00 UTC 2025\n", "PREEMPT_DYNAMIC"),
            ("#1 SMP PREEMPT_RT Tue\n", "PREEMPT_RT"),
            ("#1 SMP PREEMPT Tue\n", "PREEMPT"),
            ("#1 SMP Tue\n", "none or voluntary"),
            ("", ""),
        ] {
            let tree = SystemRoot::invented([("proc/sys/kernel/version", build)]);
            assert_eq!(preemption(&tree), told, "{build}");
        }
    }

    #[test]
    fn the_choice_of_hugepages_is_in_brackets() {
        for (choices, told) in [
            ("always [madvise] never\n", "madvise"),
            ("[always] madvise never\n", "always"),
            ("always madvise never\n", ""),
            ("[", ""),
        ] {
            let tree = SystemRoot::invented([("sys/kernel/mm/transparent_hugepage/enabled", choices)]);
            assert_eq!(transparent_hugepages(&tree), told, "{choices}");
        }
    }

    #[test]
    fn irqbalance_is_absent_only_where_it_would_be_seen() {
        let (first, kernel) = (("proc/1/comm", "init\n"), ("proc/2/comm", "kthreadd\n"));
        let balance = ("proc/77/comm", "irqbalance\n");
        for (files, told) in [
            (vec![first, kernel, balance], Some(true)),
            (vec![first, kernel], Some(false)),
            (vec![first, balance], Some(true)),
            (vec![first, ("proc/2/comm", "sh\n")], None),
            (vec![kernel, ("proc/self/comm", "irqbalance\n")], Some(false)),
            (vec![], None),
        ] {
            let tree = SystemRoot::invented(files.clone());
            assert_eq!(irqbalance(&tree), told, "{files:?}");
        }
    }
}
