//! Examples at the end of each command's help, and the exit statuses.

use clap::Command;

/// The exit statuses, for the long help of the whole program.
const EXIT_STATUSES: &str = "\
Exit status:
  0    Success
  1    A study ran, but cells failed, or --confidence or --show was not reached;
       or a comparison exceeded --fail-above; or no method meets the requirements;
       or a domain cannot migrate; or a mesh found slow hosts
  2    Invalid input; nothing was changed
  69   This machine lacks a requirement
  130  Interrupted by Ctrl-C; stored samples are kept";

/// The words of each command, and examples with a description.
pub(super) const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "",
        &[
            ("vtax demo", "compare the ways to attach zones"),
            ("vtax measure --to ssh:vm1", "TCP round-trip time to another host"),
            ("vtax report --html result.html", "write a page of the last run"),
        ],
    ),
    (
        "lab",
        &[
            ("vtax lab up rack.toml", "build the lab defined in a file"),
            ("vtax lab exec rack web -- ip address", "run a command in its zone or guest web"),
            ("vtax lab down rack", "remove the lab"),
        ],
    ),
    (
        "results",
        &[
            ("vtax results list", "list all runs"),
            ("vtax results show", "show the last run"),
            ("vtax results compare demo-20260102 last", "compare it with an earlier one"),
        ],
    ),
    ("io", &[("vtax io list", "list all PCI devices")]),
    (
        "ldm",
        &[
            ("vtax ldm add-vsw net-dev=eno3 test-vsw primary", "create a switch with uplink eno3"),
            ("vtax ldm create pluto", "create a domain"),
            ("vtax ldm add-vnet admin-net admin-vsw venus", "connect venus to the switch admin-vsw"),
            ("vtax ldm list", "list all domains"),
            ("vtax ldm --host ssh:root@vm1 list", "list those of another host"),
        ],
    ),
    (
        "ldm add-domain",
        &[
            ("vtax ldm add-domain jupiter pluto", "create two domains without CPUs and memory"),
            ("vtax ldm add-domain -i jupiter.xml", "create the domains of a file"),
        ],
    ),
    (
        "ldm migrate-domain",
        &[
            ("vtax ldm migrate-domain -n mars ssh:root@hostb", "print all reasons why mars cannot move to hostb"),
            ("vtax ldm migrate-domain -n --bandwidth 1G mars rack/peer", "estimate the times at 1 Gbit/s"),
            ("vtax ldm migrate-domain mars ssh:root@hostb", "move mars to hostb while it runs"),
            ("vtax ldm migrate-domain --all ssh:root@hostb", "evacuate this host"),
            ("vtax results show last", "print the stored result of the last migration"),
        ],
    ),
    ("ldm serve", &[("vtax ldm serve --stdio", "what ssh starts for `vtax ldm --host ssh:HOST`")]),
    ("ldm remove-domain", &[("vtax ldm remove-domain mars", "remove the domain and its constraints")]),
    (
        "ldm set-domain",
        &[("vtax ldm set-domain failure-policy=reset primary", "reset its dependants if primary fails")],
    ),
    (
        "ldm set-core",
        &[
            ("vtax ldm set-core 8 mars", "assign eight whole cores to mars"),
            ("vtax ldm set-core cid=1 mars", "assign core 1 of list-devices"),
        ],
    ),
    ("ldm add-core", &[("vtax ldm add-core 2 mars", "add two cores")]),
    ("ldm remove-core", &[("vtax ldm remove-core 1 mars", "remove one core")]),
    ("ldm add-vcpu", &[("vtax ldm add-vcpu 2 pluto", "add two virtual CPUs")]),
    ("ldm remove-vcpu", &[("vtax ldm remove-vcpu 1 pluto", "remove one virtual CPU")]),
    ("ldm add-memory", &[("vtax ldm add-memory 1g mars", "add 1 GiB")]),
    ("ldm remove-memory", &[("vtax ldm remove-memory 512m mars", "remove 512 MiB")]),
    ("ldm cancel-operation", &[("vtax ldm cancel-operation reconf primary", "discard the pending changes")]),
    ("ldm set-vcpu", &[("vtax ldm set-vcpu 2 mars", "set two virtual CPUs")]),
    (
        "ldm set-memory",
        &[
            ("vtax ldm set-memory 8g mars", "set 8 GiB of memory"),
            ("vtax ldm set-memory --auto-adj 1000m mars", "round up to a multiple of 256 MiB: 1 GiB"),
        ],
    ),
    ("ldm set-variable", &[("vtax ldm set-variable image=debian.qcow2 mars", "boot from a disk image")]),
    ("ldm remove-variable", &[("vtax ldm remove-variable kernel mars", "boot the host's kernel again (default)")]),
    ("ldm add-vsw", &[("vtax ldm add-vsw net-dev=eno3 test-vsw primary", "create a switch with uplink eno3")]),
    ("ldm set-vsw", &[("vtax ldm set-vsw mtu=9000 admin-vsw", "use jumbo frames on the switch and its vnets")]),
    ("ldm remove-vsw", &[("vtax ldm remove-vsw spare-vsw", "remove the switch")]),
    ("ldm add-vnet", &[("vtax ldm add-vnet pvid=33 vid=44 admin-net admin-vsw venus", "VLAN 33 untagged, 44 tagged")]),
    ("ldm set-vnet", &[("vtax ldm set-vnet mac-addr=0:14:4f:f9:c4:13 admin-net mars", "change the MAC address")]),
    ("ldm add-vds", &[("vtax ldm add-vds primary-vds0 primary", "create a service that exports disks")]),
    ("ldm remove-vds", &[("vtax ldm remove-vds -f spare-vds", "remove the service and its exports")]),
    (
        "ldm add-vdsdev",
        &[
            ("vtax ldm add-vdsdev -q /var/lib/vtax/mars.qcow2 mars-root@primary-vds0", "export a file"),
            ("vtax ldm add-vdsdev -q options=ro /dev/sr0 tools@primary-vds0", "export a device read-only"),
            ("vtax ldm add-vdsdev -q slice=1G+512M /dev/sdb part@primary-vds0", "export a part of a disk"),
        ],
    ),
    ("ldm set-vdsdev", &[("vtax ldm set-vdsdev options=excl venus-root@primary-vds0", "export it exclusively")]),
    ("ldm remove-vdsdev", &[("vtax ldm remove-vdsdev spare@primary-vds0", "stop exporting it")]),
    (
        "ldm add-vdisk",
        &[("vtax ldm add-vdisk data data@primary-vds0 mars", "attach the volume data to mars as disk data")],
    ),
    ("ldm set-vdisk", &[("vtax ldm set-vdisk timeout=60 root venus", "fail requests after 60 s without a path")]),
    ("ldm remove-vdisk", &[("vtax ldm remove-vdisk root venus", "detach the disk; its data stays")]),
    ("ldm remove-vnet", &[("vtax ldm remove-vnet admin-net mars", "remove the virtual NIC")]),
    ("ldm add-io", &[("vtax ldm add-io pci_1/slot2/PF1.VF0 mars", "assign a virtual function to mars")]),
    ("ldm remove-io", &[("vtax ldm remove-io pci_1/slot2/PF1.VF0 mars", "return it to the host")]),
    ("ldm set-io", &[("vtax ldm set-io pvid=7 pci_1/slot2/PF1.VF0", "put the function into VLAN 7")]),
    ("ldm start-reconf", &[("vtax ldm start-reconf primary", "delay changes of primary until reboot")]),
    ("ldm cancel-reconf", &[("vtax ldm cancel-reconf primary", "discard the pending changes")]),
    ("ldm apply-reconf", &[("vtax ldm apply-reconf", "apply the changes that need no reboot")]),
    ("ldm add-vcc", &[("vtax ldm add-vcc port-range=6000-6100 other-console primary", "create a console service")]),
    ("ldm set-vcc", &[("vtax ldm set-vcc port-range=7000-7100 console", "change the ports")]),
    ("ldm remove-vcc", &[("vtax ldm remove-vcc console", "remove the service")]),
    (
        "ldm set-vcons",
        &[("vtax ldm set-vcons group=planets service=console mars", "share a port with the group planets")],
    ),
    ("ldm bind-domain", &[("vtax ldm bind-domain mars", "bind CPUs, memory, NICs and a console port")]),
    ("ldm unbind-domain", &[("vtax ldm unbind-domain mars", "release all of it to the host")]),
    ("ldm start-domain", &[("vtax ldm start-domain mars", "start its CPUs")]),
    ("ldm autostart", &[("vtax ldm autostart", "start all domains configured to start at boot")]),
    ("ldm stop-domain", &[("vtax ldm stop-domain -f mars", "stop its CPUs immediately")]),
    ("ldm panic-domain", &[("vtax ldm panic-domain mars", "panic its kernel; kdump in it saves a dump")]),
    ("ldm release", &[("vtax ldm release mars", "release its resources, even if its record is damaged")]),
    ("ldm exec", &[("vtax ldm exec mars -- ip address", "run a command in mars")]),
    ("ldm vntsd", &[("vtax ldm vntsd --idle 10m", "end sessions after 10 min without input")]),
    ("ldm create-vf", &[("vtax ldm create-vf pvid=7 pci_0/net0.pf0", "create a virtual function in VLAN 7")]),
    ("ldm destroy-vf", &[("vtax ldm destroy-vf pci_0/net0.pf0", "remove all its virtual functions")]),
    ("ldm list-io", &[("vtax ldm list-io", "list all PCI devices")]),
    ("ldm list-devices", &[("vtax ldm list-devices -a memory", "list memory and its owners")]),
    ("ldm list-domain", &[("vtax ldm list -o network mars", "list its virtual NICs")]),
    ("ldm list-bindings", &[("vtax ldm list-bindings mars", "list the CPUs, links and console port of mars")]),
    (
        "ldm list-constraints",
        &[
            ("vtax ldm list-constraints --json", "print input for init-system"),
            ("vtax ldm list-constraints -x", "print XML"),
        ],
    ),
    ("ldm list-services", &[("vtax ldm list-services", "list switches, disk and console services")]),
    ("ldm list-dependencies", &[("vtax ldm list-dependencies -l", "list domains, what they depend on, and why")]),
    ("ldm list-variable", &[("vtax ldm list-variable mars", "list its boot variables")]),
    ("ldm list-spconfig", &[("vtax ldm list-spconfig", "list saved configurations")]),
    ("ldm add-spconfig", &[("vtax ldm add-spconfig before-change", "save the configuration of all domains")]),
    ("ldm set-spconfig", &[("vtax ldm set-spconfig initial", "restore a saved configuration")]),
    ("ldm remove-spconfig", &[("vtax ldm remove-spconfig initial", "remove a saved configuration")]),
    ("ldm import", &[("vtax ldm import libvirt:web --as mars", "import web from libvirt as mars")]),
    ("ldm init-system", &[("vtax ldm init-system -i domains.json", "configure the domains of another host here")]),
    ("server", &[("vtax server up", "boot an emulated server with eight NICs")]),
    (
        "demo",
        &[
            ("vtax demo", "compare zone attachment methods on this machine"),
            ("vtax demo --samples 100", "take more rounds to detect smaller differences"),
        ],
    ),
    (
        "run",
        &[
            ("vtax run vmdq --quick", "run a built-in study in minutes"),
            ("vtax run vmdq --dry-run", "show its run time and unavailable rows"),
            ("vtax run mine.toml --samples 20", "run a custom study in 20 rounds"),
            ("vtax run demo --methods bridge,veth --mtu 1500", "run a part of a study"),
            ("vtax run demo --show 2%", "take enough rounds to detect a difference of 2 %"),
            ("vtax run --resume last", "resume a stopped run"),
        ],
    ),
    (
        "measure",
        &[
            ("vtax measure", "TCP round-trip time within this machine"),
            ("vtax measure --to ssh:vm1 --test tcp-rr,tcp-stream", "round-trip time and bandwidth to another host"),
            ("vtax measure --to zone:web --test udp-rr", "UDP round-trip time to a zone of a running lab"),
            ("vtax measure --to ldm:mars", "to a logical domain from its host"),
            ("vtax measure --to ldm:mars --nic net0,net1", "compare two of its NICs"),
            ("vtax measure --disk /dev/vdb --disk image.raw", "compare a disk and a file"),
            ("vtax measure --disk ldm:mars/data --destroy-data", "a disk of a domain, from within the domain"),
            ("vtax measure --engine all", "compare the four engines"),
            ("vtax measure --rate 10k", "10,000 requests/s (open loop)"),
            ("vtax measure --to ssh:vm1 --under tcp-stream", "latency that a TCP stream adds"),
        ],
    ),
    (
        "fleet mesh",
        &[
            ("vtax fleet mesh --hosts fleet.toml --dry-run", "print the rounds, their duration and detection limit"),
            ("vtax fleet mesh --hosts fleet.toml --show 5%", "name hosts that are 5 % slow"),
            ("vtax fleet mesh --hosts fleet.toml --within leaf7", "only the hosts behind one uplink"),
        ],
    ),
    ("fleet list", &[("vtax fleet list", "stored meshes with their hosts and tests")]),
    ("fleet compare", &[("vtax fleet compare mesh-20260102 last", "hosts that are slower or faster than in January")]),
    (
        "fleet show",
        &[
            ("vtax fleet show last --csv", "figures of each host of the latest mesh"),
            ("vtax fleet show last --html mesh.html", "a page with a matrix of all pairs"),
        ],
    ),
    (
        "explain",
        &[("vtax explain no-such-lab", "explain an error and its fix"), ("vtax explain", "list all error codes")],
    ),
    ("studies", &[("vtax studies", "list built-in studies and their run times")]),
    (
        "calibrate",
        &[("vtax calibrate", "check everything"), ("vtax calibrate --only delay --rounds 0", "only known delays")],
    ),
    (
        "crosscheck",
        &[
            ("vtax crosscheck", "compare with all installed tools"),
            ("vtax crosscheck --tools iperf3 --only stream", "compare bandwidth with iperf3"),
        ],
    ),
    (
        "tune",
        &[
            ("vtax tune check", "find settings that reduce performance"),
            ("vtax tune apply --all-safe --dry-run", "show the low-risk changes"),
            ("vtax tune revert", "restore all previous settings"),
        ],
    ),
    (
        "tune check",
        &[
            ("vtax tune check", "find settings of this host that cost performance"),
            ("vtax tune check --rtt 20ms --goal throughput", "check buffers for this round-trip time"),
            ("vtax tune check --rtt-to ssh:HOST", "the same, with the measured round-trip time"),
            ("vtax tune check --path rack/web", "the path of a zone or guest of a lab, on its host"),
            ("vtax tune check --host ssh:HOST", "check another host"),
            ("vtax tune check --observe 5s", "watch drops and CPU load under live traffic"),
        ],
    ),
    (
        "tune apply",
        &[
            ("vtax tune apply --all-safe --dry-run", "show the low-risk changes"),
            ("vtax tune apply tcp-buffers --rtt 20ms", "size buffers for this round-trip time"),
            ("vtax tune apply tcp-buffers --persist", "keep the change across reboots"),
            ("vtax tune apply mtu --confirm-within 60s", "revert unless you press Enter in time"),
            ("vtax tune apply offloads --host zone:rack/web", "change a zone of a lab"),
            ("vtax tune apply --file proved.toml", "apply settings proved on another host"),
        ],
    ),
    (
        "tune prove",
        &[
            ("vtax tune prove --all-safe --from zone:rack/web --to zone:rack/db", "keep what is shown to help"),
            ("vtax tune prove tcp-buffers rps --to ssh:vm1 --budget 20m", "test two rules on the path to another host"),
            ("vtax tune prove --bundle rps,xps --to ssh:vm1 --keep-none", "test two rules as one; keep neither"),
            (
                "vtax tune prove rps --to zone:rack/db --guard zone:rack/web",
                "keep nothing that slows down another zone",
            ),
            ("vtax tune prove --resume last", "resume a stopped proof"),
        ],
    ),
    (
        "tune revert",
        &[
            ("vtax tune revert", "restore all previous settings"),
            ("vtax tune revert 2", "revert change 2 only"),
            ("vtax tune revert --host ssh:HOST", "revert changes on another host"),
        ],
    ),
    (
        "tune status",
        &[
            ("vtax tune status", "show changes and whether they are in effect"),
            ("vtax tune status --host ssh:HOST", "show changes on another host"),
        ],
    ),
    (
        "size",
        &[
            ("vtax size --net 10G --pps 1.5M --iops 40k", "propose a size from stored runs"),
            ("vtax size --net 10G --measure --to ldm:mars", "measure the costs in a guest first"),
            ("vtax size --net 10G --measure --to ldm:mars --dry-run", "print the measurements and their time"),
        ],
    ),
    (
        "size prove",
        &[
            ("vtax size prove --last --to ldm:mars", "run the load on the cores last proposed"),
            ("vtax size prove --last --to ldm:mars --dry-run", "print the commands and the CPUs"),
            ("vtax size prove --net 1G --p99 200us --cores 2 --to ldm:mars", "prove 2 cores"),
        ],
    ),
    (
        "methods",
        &[
            ("vtax methods", "list methods and availability"),
            ("vtax methods --capabilities", "compare what the methods can do"),
            ("vtax methods sr-iov", "details of a method, with the reasons"),
        ],
    ),
    ("io list", &[("vtax io list", "list all PCI devices"), ("vtax io list -l eno1", "all details of a NIC")]),
    ("io create-vf", &[("vtax io create-vf eno1 --number 4", "create four virtual functions of eno1")]),
    ("io destroy-vf", &[("vtax io destroy-vf eno1", "remove all virtual functions of eno1")]),
    (
        "lab up",
        &[
            ("vtax lab up lab.toml --dry-run", "print the steps without running them"),
            ("vtax lab up lab.toml", "build the lab"),
            ("vtax lab up demo", "build the lab of a study, to inspect it"),
        ],
    ),
    ("lab down", &[("vtax lab down rack", "remove the lab rack")]),
    ("lab list", &[("vtax lab list", "list all labs and their guests")]),
    ("lab exec", &[("vtax lab exec rack web -- ip address", "run a command in web of the lab rack")]),
    ("lab console", &[("vtax lab console rack vm1", "open the console of the guest vm1")]),
    ("lab clean", &[("vtax lab clean", "remove labs whose vtax was killed")]),
    (
        "server up",
        &[
            ("vtax server up", "boot an emulated server with eight NICs"),
            ("vtax server up emulated:nics=2,memory=2GiB", "boot a smaller one"),
        ],
    ),
    ("server exec", &[("vtax server exec -- lspci", "run a command in the server")]),
    ("server reboot", &[("vtax server reboot", "reboot the server; its vtax state is kept")]),
    ("server down", &[("vtax server down", "remove the server")]),
    ("server list", &[("vtax server list", "list emulated servers")]),
    ("results list", &[("vtax results list", "list all runs")]),
    (
        "results show",
        &[
            ("vtax results show", "show the last run"),
            ("vtax results show demo-20260102 --detail", "show all figures of a run, by a prefix of its id"),
        ],
    ),
    (
        "results compare",
        &[
            ("vtax results compare demo-20260102 last", "compare it with an earlier one"),
            (
                "vtax results compare demo-20260102 last --fail-above 5%",
                "exit status 1 if a cell is significantly worse, by > 5 %",
            ),
        ],
    ),
    (
        "results find",
        &[
            ("vtax results find --method bridge --metric rtt", "list the round trips of bridge found so far"),
            ("vtax results find --since 30d --test stream --json", "print the streams of the last 30 days as JSON"),
        ],
    ),
    (
        "results trend",
        &[
            ("vtax results trend --study demo", "find level shifts over the runs of a study"),
            ("vtax results trend --study demo --cell 'bridge TCP RR' --html trend.html", "write a page of one cell"),
        ],
    ),
    (
        "results import",
        &[
            ("vtax results import before.json --method bridge", "import the output of iperf3 -J as the row bridge"),
            ("vtax results import published.toml", "import published figures (docs/history.md)"),
            ("vtax results import 1.txt 2.txt 3.txt --size 64", "three rounds of sockperf, which prints no size"),
        ],
    ),
    ("results rm", &[("vtax results rm demo-20260102", "remove a run, by a prefix of its id")]),
    (
        "results prune",
        &[
            ("vtax results prune", "remove runs without samples"),
            ("vtax results prune --keep 10 --dry-run", "list all but the last ten runs of each study"),
        ],
    ),
    ("results export", &[("vtax results export last --csv", "one line per cell, for a spreadsheet")]),
    (
        "report",
        &[
            ("vtax report --html result.html", "write a page of the last run"),
            ("vtax report demo-20260102 last --html both.html", "write one page of two runs"),
            ("vtax report --png charts", "write each chart to a file"),
        ],
    ),
    (
        "ui",
        &[
            ("vtax ui", "print an address for a browser on this machine"),
            ("vtax ui --port 8080", "use a fixed port, e.g. for an SSH tunnel"),
        ],
    ),
    (
        "advise",
        &[
            ("vtax advise --guests 12 --p99 150us --migrate live", "compare the methods with three requirements"),
            ("vtax advise --bandwidth 2G --vlan --measure --budget 20m", "measure what is open, then answer"),
            ("vtax advise --file required.toml --html advice.html", "write a page; requirements from a file"),
        ],
    ),
    ("completions", &[("vtax completions bash", "save as ~/.local/share/bash-completion/completions/vtax")]),
    ("man", &[("vtax man", "the page of vtax itself"), ("vtax man --dir man", "the pages of all commands")]),
    ("agent", &[("vtax agent probe ssh:vm1", "check that vtax can measure on vm1")]),
    ("agent probe", &[("vtax agent probe ssh:vm1", "check that vtax can measure on vm1")]),
];

/// Returns the command `verb` with its examples, if it has any.
pub(super) fn with_examples(command: Command, verb: &str) -> Command {
    match EXAMPLES.iter().find(|(of, _)| *of == verb) {
        Some((_, examples)) if verb.is_empty() => {
            command.after_long_help(format!("{EXIT_STATUSES}\n\n{}", text(examples)))
        }
        Some((_, examples)) => command.after_help(text(examples)),
        None => command,
    }
}

/// Columns of a usual terminal, in which no line may wrap.
const COLUMNS: usize = 80;

/// Descriptions are next to the words, or on the line above if they don't fit.
fn text(examples: &[(&str, &str)]) -> String {
    let width = examples.iter().map(|(words, _)| words.chars().count()).max().unwrap_or(0);
    let next_to = |(words, what): &(&str, &str)| format!("  {words:width$}  # {what}");
    let mut lines: Vec<String> = examples.iter().map(next_to).collect();
    if lines.iter().any(|line| line.chars().count() > COLUMNS) {
        lines = examples.iter().flat_map(|(words, what)| [format!("  # {what}"), format!("  {words}")]).collect();
    }
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::{super::arguments, *};

    #[test]
    fn every_verb_has_examples() {
        let has = |verb: &str| EXAMPLES.iter().any(|(of, _)| *of == verb);
        for verb in arguments::verbs() {
            assert!(has(&verb), "{verb} has no example");
        }
        assert!(has("tune") && has("agent"));
    }

    #[test]
    fn no_line_of_an_example_wraps() {
        for (verb, examples) in EXAMPLES {
            for line in text(examples).lines() {
                assert!(line.chars().count() <= COLUMNS, "{verb}: {line}");
            }
        }
    }

    /// Every command below this one, with the words that lead to it.
    fn commands(command: &Command, words: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().flat_map(|sub| commands(sub, &format!("{words} {}", sub.get_name())));
        std::iter::once((words.to_owned(), command.clone())).chain(below.collect::<Vec<_>>()).collect()
    }

    #[test]
    fn every_value_has_an_example() {
        let is_option = |argument: &&Arg| argument.get_action().takes_values() && !argument.is_positional();
        let lacks = |option: &&Arg| {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            let shown = option.get_value_names().unwrap_or_default().join(" ");
            let listed = !option.get_possible_values().is_empty() || ["poll|system", "N|max"].contains(&&*shown);
            let told = help.contains("e.g. ") || !option.get_default_values().is_empty();
            // The place of the state is shown by its default.
            !listed && !told && option.get_id() != "state"
        };
        let of_command = |(words, command): (String, Command)| {
            let lacking = command.get_arguments().filter(is_option).filter(lacks);
            lacking.map(|option| format!("{words}: {}", option.get_id())).collect::<Vec<_>>()
        };
        let lacking: Vec<String> = commands(&arguments::whole(), "vtax").into_iter().flat_map(of_command).collect();
        assert_eq!(lacking, Vec::<String>::new());
    }

    /// A name of values that only repeats the option says nothing, and a second name for the same thing misleads.
    #[test]
    fn one_thing_has_one_name() {
        let others = ["DURATION", "WARMUP", "BYTES", "METHOD,…", "SPOOF_CHECK", "DOMAINS", "INSTRUMENT"];
        let of_command = |(words, command): (String, Command)| {
            let options = command.get_arguments().filter(|option| option.get_action().takes_values());
            let misnamed = options.filter(|option| {
                option.get_value_names().unwrap_or_default().iter().any(|name| others.contains(&name.as_str()))
            });
            misnamed.map(|option| format!("{words}: {}", option.get_id())).collect::<Vec<_>>()
        };
        let misnamed: Vec<String> = commands(&arguments::whole(), "vtax").into_iter().flat_map(of_command).collect();
        assert_eq!(misnamed, Vec::<String>::new());
    }
}
