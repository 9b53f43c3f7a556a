//! Domains on hosts of labs: `vtax lab down` releases them, and leaves nothing behind.

use std::fs;

use super::{
    Bench, assert_nothing_left,
    bench::{processes_marked, wait_until},
    domains::Host,
    labs,
};

/// Returns the processes that vtax has started for a host's domains: supervisors and the console server.
fn programs(host: &Host<'_>) -> Vec<u32> {
    let within = format!("--in\0{}/sut\0", host.lab);
    let is_its = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(within.len()).any(|window| window == within.as_bytes())
    };
    processes_marked(host.bench.path().as_os_str().as_encoded_bytes()).into_iter().filter(is_its).collect()
}

/// Creates a switch on the host's wire, a console service and these domains.
fn set_up(host: &Host<'_>, domains: &[&str]) {
    host.ldm("add-vcc port-range=5000-5010 console primary");
    host.ldm("add-vsw net-dev=wire0 vsw0 primary");
    domains.iter().for_each(|domain| host.add(domain));
}

fn take_down(host: &Host<'_>) {
    host.bench.printed(&["lab", "down", host.lab]);
    wait_until("no program of its domains is left", || host.qemus().is_empty() && programs(host).is_empty());
    assert!(!labs(host.bench).contains(&host.lab.to_owned()));
}

#[test]
fn a_lab_that_goes_down_releases_the_running_domains_of_its_hosts_only() {
    let bench = Bench::new();
    let (host, other) = (Host::new(&bench, "t-ldm-down"), Host::new(&bench, "t-ldm-stays"));
    set_up(&host, &["mars", "venus", "pluto"]);
    set_up(&other, &["mars"]);
    host.ldm("bind mars venus");
    other.ldm("bind mars");
    host.ldm("start mars");
    host.wait_for_boot("mars");
    assert_eq!((host.qemus().len(), other.qemus().len()), (2, 1));
    assert!(!programs(&host).is_empty());

    take_down(&host);
    assert!(!host.folder().exists(), "no file of the domains is left");
    assert_eq!(host.try_ldm("list").status.code(), Some(2), "the host no longer exists");
    assert_eq!((other.state("mars").as_str(), other.qemus().len()), ("bound", 1));

    // The constraints remain: when the lab is built again, the domains exist and can be used.
    let again = Host::new(&bench, "t-ldm-down");
    for domain in ["mars", "venus", "pluto"] {
        assert_eq!(again.state(domain), "inactive", "{domain}");
    }
    again.ldm("bind mars");
    assert_eq!(again.ldm("start mars"), "LDom mars started\n");
    take_down(&again);
    take_down(&other);
    assert_nothing_left(&bench);
}

/// The domain's record names none of its resources, but they have marks.
#[test]
fn a_lab_goes_down_although_the_record_of_a_domain_is_damaged() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-torn");
    set_up(&host, &["mars"]);
    host.ldm("bind mars");
    fs::write(host.folder().join("journals/mars.journal"), "damaged").expect("a file of the test");
    take_down(&host);
    let left: Vec<_> = fs::read_dir(host.folder().join("journals")).expect("a directory").flatten().collect();
    let is_saved = |name: &str| [".lock", "mars.damaged"].contains(&name);
    assert!(left.iter().all(|entry| is_saved(&entry.file_name().to_string_lossy())), "{left:?}");
    assert_nothing_left(&bench);
}
