//! A domain reboots because something in it requests it.

use std::time::Duration;

use vtax_model::units::Span;
use vtax_wire::link::AgentLink;

use super::{Bench, bench::wait_until, domains::Host};

/// As in the articles: changes made while the domain ran take effect after a reboot from inside.
#[test]
fn a_reboot_inside_a_domain_applies_what_is_pending() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-reboot");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    host.ldm("start mars");
    host.wait_for_boot("mars");
    host.ldm("set-memory 160m mars");
    let agent = host.folder().join("mars/qemu/agent.sock");
    let agent = AgentLink::connect_unix("mars", &agent, Duration::from_secs(60)).expect("an agent");
    let boot = agent.hello().boot_id.clone();
    let command = ["/bin/busybox", "reboot"].map(str::to_owned);
    let ran = agent.run(&command, &[], Span(Duration::from_secs(60))).expect("it runs");
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    drop(agent);
    wait_until("it has more memory", || host.domain("mars")["memory"] == 160 << 20);
    host.wait_for_boot("mars");
    let agent = host.folder().join("mars/qemu/agent.sock");
    let agent = AgentLink::connect_unix("mars", &agent, Duration::from_secs(60)).expect("an agent");
    assert_ne!(agent.hello().boot_id, boot);
}
