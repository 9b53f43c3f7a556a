//! Where the agent runs, as the kernel says. `/proc/sys` answers for the namespaces of the
//! reader, so in a zone these are the zone's.

use std::fs;

use crate::protocol::Facts;

/// The part of the facts that an agent introduces itself with.
pub(super) struct Name {
    pub(super) hostname: String,
    pub(super) kernel: String,
}

pub(super) fn name() -> Name {
    Name { hostname: kernel_says("hostname"), kernel: kernel_says("osrelease") }
}

pub(super) fn facts() -> Facts {
    let Name { hostname, kernel } = name();
    Facts {
        hostname,
        kernel,
        kernel_build: kernel_says("version"),
        architecture: std::env::consts::ARCH.to_owned(),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        cpus_allowed: cpus_allowed(),
        cpus_online: line("/sys/devices/system/cpu/online"),
        congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
    }
}

fn kernel_says(what: &str) -> String {
    line(&format!("/proc/sys/kernel/{what}")).unwrap_or_else(|| "unknown".to_owned())
}

/// From `/proc/thread-self`, proc(5), where `Cpus_allowed_list:` stands before the likes of `0-1`.
fn cpus_allowed() -> Option<String> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_named() {
        let facts = facts();
        let (major, _) = facts.kernel.split_once('.').expect("a release has a dot");
        assert!(major.parse::<u32>().is_ok_and(|major| major >= 3), "{}", facts.kernel);
        assert!(facts.cpus_allowed.is_some_and(|list| list.starts_with(|c: char| c.is_ascii_digit())));
    }
}
