//! Examples at the end of each verb's help.

use clap::Command;

/// The words of a verb, and commands with what each does.
pub(super) const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "",
        &[
            ("vtax demo", "what each way to attach a zone costs here"),
            ("vtax measure --to ssh:vm1", "the TCP round trip to another host"),
            ("vtax report --html result.html", "the last run as a page"),
        ],
    ),
    (
        "lab",
        &[
            ("vtax lab up rack.toml", "build the lab of a file"),
            ("vtax lab exec rack web -- ip address", "run a command in its domain web"),
            ("vtax lab down rack", "remove it"),
        ],
    ),
    (
        "results",
        &[
            ("vtax results list", "every run"),
            ("vtax results show", "the last run"),
            ("vtax results compare demo-20260102 last", "what has changed since an earlier run"),
        ],
    ),
    ("io", &[("vtax io list", "every PCI device")]),
    (
        "ldm",
        &[
            ("vtax ldm add-vsw net-dev=eno3 test-vsw primary", "a switch with the outside at eno3"),
            ("vtax ldm create pluto", "a domain"),
            ("vtax ldm add-vnet admin-net admin-vsw venus", "a virtual NIC of venus at the switch admin-vsw"),
            ("vtax ldm list", "all domains"),
        ],
    ),
    (
        "ldm add-domain",
        &[
            ("vtax ldm add-domain jupiter pluto", "two domains without CPUs and memory"),
            ("vtax ldm add-domain -i jupiter.xml", "the domains of a file"),
        ],
    ),
    ("ldm remove-domain", &[("vtax ldm remove-domain mars", "the domain and its constraints go")]),
    (
        "ldm set-domain",
        &[("vtax ldm set-domain failure-policy=reset primary", "what a failure of primary does to others")],
    ),
    (
        "ldm set-core",
        &[
            ("vtax ldm set-core 8 mars", "eight cores for mars alone"),
            ("vtax ldm set-core cid=1 mars", "the core with this number in list-devices"),
        ],
    ),
    ("ldm add-core", &[("vtax ldm add-core 2 mars", "two more cores")]),
    ("ldm remove-core", &[("vtax ldm remove-core 1 mars", "one core less")]),
    ("ldm add-vcpu", &[("vtax ldm add-vcpu 2 pluto", "two more virtual CPUs")]),
    ("ldm remove-vcpu", &[("vtax ldm remove-vcpu 1 pluto", "one virtual CPU less")]),
    ("ldm add-memory", &[("vtax ldm add-memory 1g mars", "1 GiB more")]),
    ("ldm remove-memory", &[("vtax ldm remove-memory 512m mars", "512 MiB less")]),
    ("ldm cancel-operation", &[("vtax ldm cancel-operation reconf primary", "forget the changes that wait")]),
    ("ldm set-vcpu", &[("vtax ldm set-vcpu 2 mars", "two virtual CPUs")]),
    (
        "ldm set-memory",
        &[
            ("vtax ldm set-memory 8g mars", "8 GiB of memory"),
            ("vtax ldm set-memory --auto-adj 1000m mars", "1 GiB: the next multiple of 256 MiB"),
        ],
    ),
    ("ldm set-variable", &[("vtax ldm set-variable image=debian.qcow2 mars", "boot the system of a disk image")]),
    ("ldm remove-variable", &[("vtax ldm remove-variable kernel mars", "boot the host's kernel again")]),
    ("ldm add-vsw", &[("vtax ldm add-vsw net-dev=eno3 test-vsw primary", "a switch with the outside at eno3")]),
    ("ldm set-vsw", &[("vtax ldm set-vsw mtu=9000 admin-vsw", "jumbo frames for the switch and its vnets")]),
    ("ldm remove-vsw", &[("vtax ldm remove-vsw spare-vsw", "the switch goes")]),
    (
        "ldm add-vnet",
        &[("vtax ldm add-vnet pvid=33 vid=44 admin-net admin-vsw venus", "VLAN 33 without tags, 44 with tags")],
    ),
    ("ldm set-vnet", &[("vtax ldm set-vnet mac-addr=0:14:4f:f9:c4:13 admin-net mars", "another MAC address")]),
    ("ldm add-vds", &[("vtax ldm add-vds primary-vds0 primary", "a service that exports disks")]),
    ("ldm remove-vds", &[("vtax ldm remove-vds -f spare-vds", "the service goes, with all that it exports")]),
    (
        "ldm add-vdsdev",
        &[
            ("vtax ldm add-vdsdev -q /var/lib/vtax/mars.qcow2 mars-root@primary-vds0", "a file as a volume"),
            ("vtax ldm add-vdsdev -q options=ro /dev/sr0 tools@primary-vds0", "a device that several domains can read"),
            ("vtax ldm add-vdsdev -q slice=1G+512M /dev/sdb part@primary-vds0", "a part of a disk"),
        ],
    ),
    ("ldm set-vdsdev", &[("vtax ldm set-vdsdev options=excl venus-root@primary-vds0", "no other program may use it")]),
    ("ldm remove-vdsdev", &[("vtax ldm remove-vdsdev spare@primary-vds0", "export it no longer")]),
    (
        "ldm add-vdisk",
        &[("vtax ldm add-vdisk data data@primary-vds0 mars", "the volume data as a disk of mars, of the same name")],
    ),
    ("ldm set-vdisk", &[("vtax ldm set-vdisk timeout=60 root venus", "requests fail after a minute without a path")]),
    ("ldm remove-vdisk", &[("vtax ldm remove-vdisk root venus", "the disk goes; what is on it stays")]),
    ("ldm remove-vnet", &[("vtax ldm remove-vnet admin-net mars", "the virtual NIC goes")]),
    ("ldm add-io", &[("vtax ldm add-io pci_1/slot2/PF1.VF0 mars", "a virtual function for mars")]),
    ("ldm remove-io", &[("vtax ldm remove-io pci_1/slot2/PF1.VF0 mars", "the host has it again")]),
    ("ldm set-io", &[("vtax ldm set-io pvid=7 pci_1/slot2/PF1.VF0", "all frames of the function are in VLAN 7")]),
    ("ldm start-reconf", &[("vtax ldm start-reconf primary", "changes of primary wait for the host's next boot")]),
    ("ldm cancel-reconf", &[("vtax ldm cancel-reconf primary", "forget the changes that wait")]),
    ("ldm apply-reconf", &[("vtax ldm apply-reconf", "apply the changes that need no boot")]),
    (
        "ldm add-vcc",
        &[("vtax ldm add-vcc port-range=6000-6100 other-console primary", "consoles at the ports from 6000 on")],
    ),
    ("ldm set-vcc", &[("vtax ldm set-vcc port-range=7000-7100 console", "other ports")]),
    ("ldm remove-vcc", &[("vtax ldm remove-vcc console", "the service goes")]),
    (
        "ldm set-vcons",
        &[("vtax ldm set-vcons group=planets service=console mars", "a port that mars shares with its group")],
    ),
    ("ldm bind-domain", &[("vtax ldm bind-domain mars", "CPUs, memory, NICs and a console port for mars")]),
    ("ldm unbind-domain", &[("vtax ldm unbind-domain mars", "all of it goes back to the host")]),
    ("ldm start-domain", &[("vtax ldm start-domain mars", "its CPUs run")]),
    ("ldm autostart", &[("vtax ldm autostart", "all that is to run when the host has booted")]),
    ("ldm stop-domain", &[("vtax ldm stop-domain -f mars", "its CPUs stop at once")]),
    ("ldm panic-domain", &[("vtax ldm panic-domain mars", "its kernel panics, and kdump in it saves a dump")]),
    ("ldm release", &[("vtax ldm release mars", "take back all that mars has, even if its record is damaged")]),
    ("ldm exec", &[("vtax ldm exec mars -- ip address", "run a command in mars")]),
    ("ldm vntsd", &[("vtax ldm vntsd --idle 10m", "end sessions that type nothing for ten minutes")]),
    ("ldm create-vf", &[("vtax ldm create-vf pvid=7 pci_0/net0.pf0", "one virtual function, in VLAN 7")]),
    ("ldm destroy-vf", &[("vtax ldm destroy-vf pci_0/net0.pf0", "all of them go")]),
    ("ldm list-io", &[("vtax ldm list-io", "every PCI device")]),
    ("ldm list-devices", &[("vtax ldm list-devices -a memory", "who has the memory")]),
    ("ldm list-domain", &[("vtax ldm list -o network mars", "its virtual NICs")]),
    ("ldm list-bindings", &[("vtax ldm list-bindings mars", "which CPUs, links and port mars has")]),
    (
        "ldm list-constraints",
        &[
            ("vtax ldm list-constraints --json", "as init-system reads them"),
            ("vtax ldm list-constraints -x", "as XML"),
        ],
    ),
    ("ldm list-services", &[("vtax ldm list-services", "switches and console services")]),
    ("ldm list-dependencies", &[("vtax ldm list-dependencies -l", "who depends on whom, and by what")]),
    ("ldm list-variable", &[("vtax ldm list-variable mars", "what it boots")]),
    ("ldm list-spconfig", &[("vtax ldm list-spconfig", "the saved configurations")]),
    ("ldm add-spconfig", &[("vtax ldm add-spconfig before-change", "all domains as they are configured now")]),
    ("ldm set-spconfig", &[("vtax ldm set-spconfig initial", "all as it was saved")]),
    ("ldm remove-spconfig", &[("vtax ldm remove-spconfig initial", "the saved configuration goes")]),
    ("ldm import", &[("vtax ldm import libvirt:web --as mars", "mars is to have what libvirt's domain web has")]),
    ("ldm init-system", &[("vtax ldm init-system -i domains.json", "the domains of another host")]),
    ("server", &[("vtax server up", "an emulated server with eight NICs")]),
    (
        "demo",
        &[
            ("vtax demo", "what each way to attach a zone costs here"),
            ("vtax demo --samples 100", "more rounds show smaller differences"),
        ],
    ),
    (
        "run",
        &[
            ("vtax run vmdq --quick", "a built-in study, in minutes"),
            ("vtax run vmdq --dry-run", "how long it takes, and what can't run here"),
            ("vtax run mine.toml --samples 20", "a study file of your own, in 20 rounds"),
            ("vtax run demo --methods bridge,veth --mtu 1500", "a part of a study"),
            ("vtax run demo --show 2%", "as many rounds as it takes to show a difference of 2 %"),
            ("vtax run --resume last", "go on with a run that was stopped"),
        ],
    ),
    (
        "measure",
        &[
            ("vtax measure", "the TCP round trip within this machine"),
            ("vtax measure --to ssh:vm1 --test tcp-rr,tcp-stream", "round trip and bandwidth to another host"),
            ("vtax measure --to zone:web --test udp-rr", "to a zone of a lab that is up"),
            ("vtax measure --to ldm:mars", "to a logical domain from its host"),
            ("vtax measure --to ldm:mars --nic net0,net1", "two of its NICs, in turns"),
            ("vtax measure --disk /dev/vdb --disk image.raw", "a disk, and a file beside it"),
            ("vtax measure --disk ldm:mars/data --destroy-data", "a disk of a domain, in the domain"),
            ("vtax measure --engine all", "four engines beside each other"),
            ("vtax measure --rate 10k", "10,000 requests a second (open loop)"),
        ],
    ),
    (
        "explain",
        &[("vtax explain no-such-lab", "what an error means, and what to do"), ("vtax explain", "all codes of errors")],
    ),
    ("studies", &[("vtax studies", "the built-in studies, and how long each takes")]),
    (
        "calibrate",
        &[("vtax calibrate", "everything"), ("vtax calibrate --only delay --rounds 0", "only the known delays")],
    ),
    (
        "crosscheck",
        &[
            ("vtax crosscheck", "every tool that is installed"),
            ("vtax crosscheck --tools iperf3 --only stream", "bandwidth beside iperf3"),
        ],
    ),
    (
        "tune check",
        &[
            ("vtax tune check", "settings of this host that cost speed"),
            ("vtax tune check --rtt 20ms --goal throughput", "buffers are judged by the path's round trip"),
            ("vtax tune check --rtt-to ssh:HOST", "the same, and vtax measures it"),
            ("vtax tune check --path rack/web", "what is under a zone or guest of a lab, on its host"),
            ("vtax tune check --host ssh:HOST", "settings of another host"),
            ("vtax tune check --observe 5s", "watch drops and busy CPUs while the traffic runs"),
        ],
    ),
    (
        "tune apply",
        &[
            ("vtax tune apply --all-safe --dry-run", "what would be changed that risks nothing"),
            ("vtax tune apply tcp-buffers --rtt 20ms", "buffers for a path with this round trip"),
            ("vtax tune apply tcp-buffers --persist", "also after the next start of this machine"),
            ("vtax tune apply mtu --confirm-within 60s", "brought back unless you press Enter"),
            ("vtax tune apply offloads --host zone:rack/web", "of a zone of a lab"),
            ("vtax tune apply --file proved.toml", "what was proved on another host"),
        ],
    ),
    (
        "tune prove",
        &[
            ("vtax tune prove --all-safe --from zone:rack/web --to zone:rack/db", "keep what is shown to help"),
            ("vtax tune prove tcp-buffers rps --to ssh:vm1 --budget 20m", "two rules, on the path to another host"),
            ("vtax tune prove --bundle rps,xps --to ssh:vm1 --keep-none", "two rules as one, and only to know"),
            (
                "vtax tune prove rps --to zone:rack/db --guard zone:rack/web",
                "keep nothing that slows another zone down",
            ),
            ("vtax tune prove --resume last", "go on with a proof that was stopped"),
        ],
    ),
    (
        "tune revert",
        &[
            ("vtax tune revert", "everything as before"),
            ("vtax tune revert 2", "only change 2"),
            ("vtax tune revert --host ssh:HOST", "of another host"),
        ],
    ),
    (
        "tune status",
        &[
            ("vtax tune status", "what is changed, and whether it still is"),
            ("vtax tune status --host ssh:HOST", "of another host"),
        ],
    ),
    ("methods", &[("vtax methods", "what works on this machine"), ("vtax methods --json", "the same for programs")]),
    ("io list", &[("vtax io list", "every PCI device"), ("vtax io list -l eno1", "all that is known of one NIC")]),
    ("io create-vf", &[("vtax io create-vf eno1 --number 4", "four virtual functions of eno1")]),
    ("io destroy-vf", &[("vtax io destroy-vf eno1", "remove them again")]),
    (
        "lab up",
        &[
            ("vtax lab up lab.toml --dry-run", "print each step and do nothing"),
            ("vtax lab up lab.toml", "build the lab"),
            ("vtax lab up demo", "the lab of a study, to look at"),
        ],
    ),
    ("lab down", &[("vtax lab down rack", "remove the lab rack")]),
    ("lab list", &[("vtax lab list", "every lab and its guests")]),
    ("lab exec", &[("vtax lab exec rack web -- ip address", "run a command in the domain web of the lab rack")]),
    ("lab console", &[("vtax lab console rack vm1", "the console of the guest vm1")]),
    ("lab clean", &[("vtax lab clean", "remove the labs whose vtax was killed")]),
    (
        "server up",
        &[
            ("vtax server up", "an emulated server with eight NICs"),
            ("vtax server up emulated:nics=2,memory=2GiB", "a smaller one"),
        ],
    ),
    ("server exec", &[("vtax server exec -- lspci", "run a command in the server")]),
    ("server reboot", &[("vtax server reboot", "boot the server again, with what its vtax keeps")]),
    ("server down", &[("vtax server down", "remove the server")]),
    ("server list", &[("vtax server list", "the emulated servers")]),
    ("results list", &[("vtax results list", "every run")]),
    (
        "results show",
        &[
            ("vtax results show", "the last run"),
            ("vtax results show demo-20260102 --detail", "all figures of a run, by the beginning of its id"),
        ],
    ),
    (
        "results compare",
        &[
            ("vtax results compare demo-20260102 last", "what has changed since an earlier run"),
            ("vtax results compare demo-20260102 last --fail-above 5%", "status 1 if something is shown to be worse"),
        ],
    ),
    (
        "results trend",
        &[
            (
                "vtax results trend --study demo",
                "whether a figure changed its level over the runs of a study, and when",
            ),
            ("vtax results trend --study demo --cell 'bridge TCP RR' --html trend.html", "one cell, as a page"),
        ],
    ),
    (
        "results import",
        &[
            (
                "vtax results import before.json --method bridge",
                "an output of iperf3 -J, as a result of the row bridge",
            ),
            ("vtax results import published.toml", "a table of published figures, as docs/history.md has it"),
            ("vtax results import 1.txt 2.txt 3.txt --size 64", "three rounds of sockperf, which tells no size"),
        ],
    ),
    ("results rm", &[("vtax results rm demo-20260102", "remove a run, by the beginning of its id")]),
    (
        "results prune",
        &[
            ("vtax results prune", "remove runs that have no sample"),
            ("vtax results prune --keep 10 --dry-run", "which runs are older than the last ten of their study"),
        ],
    ),
    ("results export", &[("vtax results export last --csv", "one line a cell, for a spreadsheet")]),
    (
        "report",
        &[
            ("vtax report --html result.html", "the last run as a page"),
            ("vtax report demo-20260102 last --html both.html", "two runs on one page"),
            ("vtax report --png charts", "each chart as a file"),
        ],
    ),
    (
        "ui",
        &[
            ("vtax ui", "print an address to open in a browser on this machine"),
            ("vtax ui --port 8080", "a port that stays the same, for an ssh tunnel"),
        ],
    ),
    (
        "completions",
        &[("vtax completions bash", "for bash: put it into ~/.local/share/bash-completion/completions/vtax")],
    ),
    ("man", &[("vtax man", "the page of vtax"), ("vtax man --dir man", "the pages of all verbs")]),
    ("agent probe", &[("vtax agent probe ssh:vm1", "whether vtax can measure on vm1")]),
];

/// The command `verb` with its examples, if it has some.
pub(super) fn with_examples(command: Command, verb: &str) -> Command {
    match EXAMPLES.iter().find(|(of, _)| *of == verb) {
        Some((_, examples)) => command.after_help(text(examples)),
        None => command,
    }
}

fn text(examples: &[(&str, &str)]) -> String {
    let width = examples.iter().map(|(words, _)| words.len()).max().unwrap_or(0);
    let lines = examples.iter().map(|(words, what)| format!("\n  {words:width$}  # {what}"));
    format!("Examples:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{super::arguments, *};

    #[test]
    fn every_verb_has_examples() {
        let has = |verb: &str| EXAMPLES.iter().any(|(of, _)| *of == verb);
        for verb in arguments::verbs() {
            assert!(has(&verb), "{verb} has no example");
        }
    }
}
