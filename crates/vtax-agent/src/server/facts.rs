//! Facts about the agent's environment, from the kernel. `/proc/sys` shows the settings of the reader's namespaces, so
//! in a zone they are the zone's.

use std::{env, fs};
use vtax_model::foreign::ForeignText;

use vtax_host::{
    inspect::{self, SystemRoot},
    pin::Machine,
};
use vtax_sys::{Result as SysResult, clock, cpu::allowed_cpus, netlink::Rtnl, ssh};
use vtax_wire::protocol::{AgentFacts, Greeting, Hello, LinkAddress};

pub(super) fn hello() -> Hello {
    Hello {
        greeting: Greeting::ours(),
        pid: std::process::id(),
        hostname: kernel_says("hostname"),
        kernel: kernel_says("osrelease"),
        boot_id: clock::identity(),
    }
}

pub(super) fn facts() -> AgentFacts {
    let cpus_allowed: Vec<u32> = allowed_cpus().map(|cpus| cpus.iter().collect()).unwrap_or_default();
    AgentFacts {
        environment: inspect::environment(&SystemRoot::live()),
        kernel_build: kernel_says("version"),
        architecture: env::consts::ARCH.into(),
        boot_id: clock::identity(),
        machine: Machine::read(&SystemRoot::live()),
        limits: inspect::process_limits(&SystemRoot::live(), std::process::id()),
        cpus_allowed,
        addresses: addresses().unwrap_or_default(),
        ssh_address: env::var(ssh::CONNECTION).ok().and_then(|connection| ssh::server(&connection)),
    }
}

fn kernel_says(what: &str) -> ForeignText {
    line(&format!("/proc/sys/kernel/{what}")).unwrap_or_else(|| "unknown".to_owned()).into()
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the addresses of all links, link by link, in the kernel's order.
fn addresses() -> SysResult<Vec<LinkAddress>> {
    let mut kernel = Rtnl::open()?;
    let links = kernel.links()?;
    let addresses = kernel.addresses()?.into_iter();
    let named = addresses.filter_map(|address| {
        let link = links.iter().find(|link| link.index == address.link)?;
        let (name, address, prefix) = (link.name.to_string(), address.net.addr(), address.net.prefix_len());
        let mac = link.mac.map(|mac| mac.to_string().into());
        Some(LinkAddress { link: name.into(), mac, address, prefix, running: link.up && link.running })
    });
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let facts = facts();
        let (major, _) = facts.environment.kernel.raw().split_once('.').expect("a release has a dot");
        assert!(major.parse::<u32>().is_ok_and(|major| major >= 3), "{}", facts.environment.kernel);
        assert!(!facts.cpus_allowed.is_empty() && facts.environment.memory_bytes > 0);
        assert_eq!(facts.boot_id, hello().boot_id);
        assert!(facts.boot_id.len() >= 36, "{}", facts.boot_id);
    }

    #[test]
    fn loopback_is_among_the_addresses() {
        let addresses = addresses().expect("a netlink socket needs no privilege");
        let loopback = |found: &&LinkAddress| found.link == "lo" && found.address.is_loopback();
        assert!(
            addresses.iter().find(loopback).is_some_and(|found| found.prefix >= 8 && found.running),
            "{addresses:?}"
        );
    }
}
