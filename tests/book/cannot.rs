//! Commands that this test can't run. The unit tests of the command line parse them, so that mistyped options are
//! found.

use super::page::Mention;

/// Parts of commands, each with the reason. A command matches if its line contains the part.
const CANNOT: [(&str, &str); 54] = [
    ("--server emulated", "boots an emulated server, which takes minutes under TCG; tests/emulated does"),
    ("vtax server up", "the same"),
    ("vtax server exec", "the same"),
    ("vtax server reboot", "the same"),
    ("vtax server down", "there is no emulated server without `server up`"),
    ("vtax io list -l eno1", "needs a NIC of this name"),
    ("--path eno1", "the same"),
    ("vtax io list -d", "the same, with virtual functions"),
    ("vtax io create-vf", "needs a NIC that has virtual functions; tests/emulated has one"),
    ("vtax io destroy-vf", "the same"),
    ("--cable eno1,eno2", "needs two NICs that a cable joins"),
    ("--pin 0,1:2,3", "needs four CPUs"),
    ("--disk /dev/vdb", "needs an empty disk of this name; the kernel tests of vtax-disk have some"),
    ("--disk /dev/sdX", "the same"),
    ("--disk /dev/nvme0n1", "the same"),
    ("vtax lab exec rack vm1 -- telnet", "needs a console service in a lab; the tests of vtax-console have one"),
    ("libvirt:", "needs libvirt with a domain"),
    ("netns:blue", "needs a namespace of this name; tests/kernel/ends.rs makes some"),
    ("pid:4711", "the same"),
    ("container:web", "needs a container of this name; tests/kernel/containers.rs starts some"),
    ("docker:web", "the same"),
    ("podman:web", "the same"),
    ("podman:end", "the same"),
    ("pod:", "needs a cluster; tests/kernel/pods.rs has a script in place of kubectl, and scripts/pods.sh a real one"),
    ("ldm:", "needs a logical domain that runs; tests/kernel/domain_paths.rs has some"),
    ("vtax lab exec rack db-1", "boots a guest; tests/kernel/lab_guests.rs does"),
    ("vtax lab console rack", "the same"),
    ("vtax tune revert 2", "there is no second change"),
    ("vtax tune prove", "no setting is bad here; tests/kernel/proofs.rs makes some bad"),
    ("--file proved.toml", "the same"),
    ("vtax ldm bind-domain", "starts QEMU; tests/kernel/domains.rs does"),
    ("vtax ldm start-domain", "the same"),
    ("vtax ldm stop-domain", "the same"),
    ("vtax ldm unbind-domain", "the same"),
    ("vtax ldm panic-domain", "needs a domain that runs; tests/kernel/domain_verbs.rs has one"),
    ("vtax ldm release", "releases the resources of domains; tests/kernel/domains.rs runs it"),
    ("vtax ldm autostart", "makes switches of links that aren't there; tests/kernel/domains.rs has some"),
    ("vtax ldm migrate-domain", "needs a second host; tests/kernel/domain_migrations.rs has one"),
    ("vtax ldm exec", "needs a domain that runs; tests/kernel/domain_exec.rs has one"),
    ("vtax ldm vntsd", "serves for ever; the tests of vtax-console do"),
    ("vtax ldm create-vf", "needs a NIC that has virtual functions; tests/emulated has one"),
    ("vtax ldm destroy-vf", "the same"),
    ("vtax ldm add-io", "needs a PCI device of this name; tests/emulated has one"),
    ("vtax ldm rm-io", "the same"),
    ("vtax ldm remove-io", "the same"),
    ("vtax ldm set-io", "the same"),
    ("--measure --budget 20m", "measures for minutes"),
    ("vtax advise --p99 150us --measure", "the same"),
    ("vtax size", "needs stored runs with guests near the load; tests/cli and the unit tests have some"),
    ("vtax ldm serve", "reads orders of another vtax; the unit tests of vtax-run have some"),
    ("vtax fleet", "needs hosts; tests/cli/fleet.rs and tests/kernel/fleet.rs have some"),
    ("vtax job", "vtax starts it itself, in the emulated server"),
    ("--agent agent.sh", "tells how a benchmark was made, with a script that isn't here"),
    ("--kernel kernel", "needs a kernel for guests"),
];

/// Returns the reason why a command isn't run, if it is listed.
pub(crate) fn reason(line: &str) -> Option<&'static str> {
    CANNOT.iter().find(|(words, _)| has(line, words)).map(|(_, why)| *why)
}

/// Returns the entries that match no command of the book.
pub(crate) fn stale(mentions: &[Mention]) -> Vec<&'static str> {
    let stale = CANNOT.iter().filter(|(words, _)| !mentions.iter().any(|mention| has(&mention.line(), words)));
    stale.map(|(words, _)| *words).collect()
}

fn has(line: &str, words: &str) -> bool {
    line.contains(words)
}
