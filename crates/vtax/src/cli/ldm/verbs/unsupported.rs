//! Verbs, options and properties of Oracle's `ldm` that have no equivalent on Linux. Each is refused with a reason and
//! an alternative, so that a script doesn't take it for done.

use clap::{
    Arg, ArgAction, Command, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::aliases::forms;

/// Unsupported words: the verbs they belong to, their names, and the reason.
struct Unsupported {
    verbs: &'static [&'static str],
    names: &'static [&'static str],
    why: &'static str,
}

const fn row(verbs: &'static [&'static str], names: &'static [&'static str], why: &'static str) -> Unsupported {
    Unsupported { verbs, names, why }
}

/// Unsupported verbs; their aliases follow from those of actions and resources.
const VERBS: &[Unsupported] = &[
    row(
        &["add-crypto", "set-crypto", "remove-crypto"],
        &[],
        "cryptographic units are parts of SPARC processors. A domain's CPUs have the same instructions as the host's",
    ),
    row(
        &["add-policy", "set-policy", "remove-policy"],
        &[],
        "the host's scheduler shares CPUs among domains with virtual CPUs, without policies. Set their number with \
         set-vcpu or set-core",
    ),
    row(
        &["add-vsan", "remove-vsan", "list-vsan", "add-vhba", "set-vhba", "remove-vhba", "rescan-vhba", "list-hba"],
        &[],
        "domains have no virtual SCSI adapters. Export a device as a volume (add-vdsdev, add-vdisk), or assign the \
         controller to the domain (add-io)",
    ),
    row(
        &["list-socket", "set-socket", "grow-socket", "shrink-socket", "list-rsrc-group"],
        &[],
        "CPUs cannot be selected by socket or resource group. List cores with list-devices and assign them with \
         set-core cid=…",
    ),
    row(
        &["add-cmi", "set-cmi", "remove-cmi", "grow-cmi", "shrink-cmi", "list-cmi"],
        &[],
        "CMI devices are parts of SPARC servers. Assign cores (set-core) and memory (set-memory) instead",
    ),
    row(&["list-permits"], &[], "CPUs need no permits. list-devices shows the available cores"),
    row(
        &["list-hvdump", "set-hvdump"],
        &[],
        "the hypervisor is the host's Linux kernel, and kdump writes its crash dumps: see kdumpctl or kdump-config",
    ),
    row(
        &["list-netdev"],
        &[],
        "list the host's links with ip link, a domain's with vtax ldm exec DOMAIN -- ip link, and PCI devices with \
         list-io",
    ),
    row(
        &["list-netstat"],
        &[],
        "see ip -s link for link counters and list-bindings for frames dropped by a switch; measure with vtax measure",
    ),
    row(
        &["evacuate-io"],
        &[],
        "list-io shows the devices of each domain. Remove them one by one (remove-io), or move the domains to another host \
         (migrate-domain --all)",
    ),
    row(
        &["list-logctl", "set-logctl", "list-history", "set-history"],
        &[],
        "vtax ldm has no daemon that writes logs: each command reports its errors, and the shell keeps the history",
    ),
    row(
        &["add-vdpcs", "remove-vdpcs", "add-vdpcc", "remove-vdpcc"],
        &[],
        "virtual data plane channels belong to Netra DPS on SPARC. Connect domains through a switch (add-vsw, \
         add-vnet)",
    ),
];

/// Unsupported options.
const OPTIONS: &[Unsupported] = &[
    row(
        &["bind-domain"],
        &["-q", "-f"],
        "bind uses the backend of each disk and NIC, so it cannot skip its checks. Fix what it reports, or remove that \
         disk or vnet (rm-vdisk, rm-vnet). --quiet prints errors only",
    ),
    row(
        &["set-vsw"],
        &["-q"],
        "a switch changes on the host immediately, so its net-dev must exist. add-vsw has -q; --quiet prints errors \
         only",
    ),
    row(
        &["add-vdsdev", "set-vdsdev"],
        &["-f"],
        "two disks with the same backend destroy each other's data. Export both with options=ro, as slices that don't \
         overlap, or as paths of one mpgroup",
    ),
    row(&["remove-vsw"], &["-f"], "remove the vnets of the switch first (rm-vnet); list -o network shows them"),
    row(&["remove-vcc"], &["-f"], "move the consoles to another service first (set-vcons service=…)"),
    row(
        &["remove-vnet", "remove-vdisk"],
        &["-f"],
        "a running domain must release the device itself, or it loses I/O in flight. Omit -f; if the domain doesn't \
         release it, stop the domain first",
    ),
    row(
        &["remove-vcpu", "remove-core"],
        &["-f"],
        "a running domain's CPUs change at its next boot, so there is nothing to force. Omit -f",
    ),
    row(
        &["stop-domain"],
        &["-q"],
        "Linux has no uadmin that stops a domain quickly. Give it less time to shut down (-t SECONDS), or stop it immediately (-f). \
         --quiet prints errors only",
    ),
    row(
        &["stop-domain"],
        &["-m"],
        "a shutdown request is a press of the virtual power button, which carries no message. Notify users first, e.g. \
         with vtax ldm exec DOMAIN -- wall MESSAGE",
    ),
    row(
        &["list-domain", "list-devices"],
        &["-S", "-B"],
        "Linux keeps no status of CPUs and memory: it stops using those that fail, and logs it. See dmesg, ras-mc-ctl \
         --errors, and HardwareCorrupted in /proc/meminfo",
    ),
    row(
        &["migrate-domain"],
        &["-p"],
        "vtax logs in to the target with ssh, which reads no password from a file. Use a key (ssh-copy-id)",
    ),
    row(
        &["migrate-domain"],
        &["-f"],
        "a domain that migrates despite an obstacle is lost. Apply the remedy that -n prints with each obstacle",
    ),
    row(&["init-system"], &["-r"], "vtax doesn't reboot this host, and nothing in FILE requires it. Omit -r"),
    row(
        &["list-spconfig", "add-spconfig", "remove-spconfig"],
        &["-r"],
        "there are no autosaved configurations: each change is on disk when its command exits. Omit -r",
    ),
];

const VNETS: &[&str] = &["add-vnet", "set-vnet"];
const SWITCHES: &[&str] = &["add-vsw", "set-vsw"];
const DOMAINS: &[&str] = &["add-domain", "set-domain"];

/// Unsupported properties.
const PROPERTIES: &[Unsupported] = &[
    row(
        VNETS,
        &["mode"],
        "hybrid vnets require the NIU of a SPARC processor; assign a virtual function to the domain (create-vf, \
         add-io)",
    ),
    row(VNETS, &["auto-alt-mac-addrs"], "use one `auto` per address: alt-mac-addrs=auto,auto"),
    row(VNETS, &["pvlan"], "Linux bridges have no private VLANs; give each domain its own VLAN (pvid=) or switch"),
    row(
        VNETS,
        &["allowed-ips", "allowed-dhcp-cids"],
        "a switch filters MAC addresses and VLANs, but not IP addresses; filter those with nftables, family bridge",
    ),
    row(
        VNETS,
        &["custom", "custom/max-mac-addrs", "custom/max-vlans"],
        "a vnet has the addresses of alt-mac-addrs= and the VLANs of vid=, without other limits",
    ),
    row(
        VNETS,
        &["priority", "cos"],
        "a switch has no priority queues; maxbw= limits a vnet, and the domain itself sets the priority in its VLAN \
         tags",
    ),
    row(SWITCHES, &["linkprop"], "individual vnets follow the carrier of net-dev: set-vnet linkprop=phys-state"),
    row(SWITCHES, &["mode"], "mode=sc is for Oracle Solaris Cluster heartbeats"),
    row(SWITCHES, &["id"], "a switch has no device number: it is a bridge with the same name"),
    row(
        SWITCHES,
        &["inter-vnet-link", "vsw-relay-mode"],
        "frames between vnets always pass through the switch, which is a bridge on the host",
    ),
    row(DOMAINS, &["mac-addr"], "domains have no MAC address, only their vnets do: set-vnet mac-addr="),
    row(DOMAINS, &["uuid"], "domains are identified by name only"),
    row(DOMAINS, &["max-cores"], "a domain never has more cores than set by set-core"),
    row(
        DOMAINS,
        &["shutdown-group"],
        "stop-domain -a has no groups; list the domains in order: stop-domain venus mars",
    ),
    row(DOMAINS, &["boot-policy"], "the firmware of an image controls verified boot"),
    row(
        DOMAINS,
        &[
            "cpu-arch",
            "hostid",
            "extended-mapin-space",
            "effective-max-pagesize",
            "threading",
            "rc-add-policy",
            "perf-counters",
        ],
        "this is a property of SPARC servers",
    ),
    row(&["set-vcons"], &["log"], "each console always has a 1 MiB log and one older log; this cannot be changed"),
    row(
        &["set-io", "create-vf"],
        &["alt-mac-addrs"],
        "Linux gives a virtual function one address; vtax io create-vf --trust on allows it to use others",
    ),
    row(
        &["create-vf"],
        &["vid"],
        "Linux gives a virtual function one untagged VLAN: pvid=. Without pvid=, the domain sends and receives any tag",
    ),
    row(
        &["set-io", "create-vf"],
        &["bw-percent", "port-wwn", "node-wwn"],
        "only NICs have virtual functions here, Fibre Channel adapters do not",
    ),
];

/// OpenBoot variables that SPARC scripts set.
const OPENBOOT: &[&str] =
    &["boot-device", "boot-file", "boot-command", "nvramrc", "network-boot-arguments", "ttya-mode"];

/// Returns why a variable is unsupported. The names of OpenBoot's boolean variables end with a question mark.
pub(in crate::cli::ldm) fn variable(name: &str) -> Option<&'static str> {
    (name.ends_with('?') || OPENBOOT.contains(&name)).then_some(
        "it belongs to OpenBoot, which domains here don't have: they always boot the kernel or image that is set",
    )
}

/// Returns why a property of a verb is unsupported.
pub(in crate::cli::ldm) fn property(verb: &str, key: &str) -> Option<&'static str> {
    find(PROPERTIES, verb, key)
}

fn find(rows: &'static [Unsupported], verb: &str, name: &str) -> Option<&'static str> {
    rows.iter().find(|row| row.verbs.contains(&verb) && row.names.contains(&name)).map(|row| row.why)
}

/// Returns the error that replaces clap's if the words belong to Oracle's `ldm`.
pub(in crate::cli) fn refusal(error: &Error, words: &[&str], ldm: &Command) -> Option<Error> {
    let mut words = words.iter().skip_while(|word| **word != "ldm").skip(1);
    let said = |what: &str, why: &str| Some(Error::raw(error.kind(), format!("{what} is not supported: {why}\n")));
    match (error.kind(), error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(written)), _) => {
            let of_ldm = words.any(|word| word == written);
            let is_it = |verb: &&str| forms(verb).iter().any(|form| form == written) || verb == written;
            let found = VERBS.iter().find(|row| of_ldm && row.verbs.iter().any(is_it))?;
            said(written, found.why)
        }
        (ErrorKind::UnknownArgument, _, Some(ContextValue::String(option))) => {
            let verb = words.find_map(|word| ldm.find_subcommand(word))?.get_name();
            said(&format!("{verb} {option}"), find(OPTIONS, verb, option)?)
        }
        _ => None,
    }
}

/// Removes `-q` from verbs for which it has another meaning in Oracle's manual; `--quiet` stays.
pub(in crate::cli) fn with_vendors_q(ldm: Command) -> Command {
    ldm.mut_subcommands(|verb| {
        let own = verb.get_arguments().any(|argument| argument.get_short() == Some('q'));
        match own || find(OPTIONS, verb.get_name(), "-q").is_some() {
            true => verb.arg(long_quiet()),
            false => verb,
        }
    })
}

/// `--quiet` without `-q`. It overrides the global option because it has the same id.
fn long_quiet() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .action(ArgAction::SetTrue)
        .conflicts_with("verbose")
        .help_heading("Messages")
        .help("Print errors only")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::arguments;

    fn told(words: &str) -> String {
        let words = format!("vtax ldm {words}");
        let error = arguments::read(words.split(' ').map(OsString::from)).expect_err("it is refused");
        assert_eq!(error.exit_code(), 2, "{words}");
        error.to_string()
    }

    #[test]
    fn each_verb_without_a_meaning_is_refused_by_all_its_names() {
        for row in VERBS {
            for verb in row.verbs {
                for name in forms(verb).iter().map(String::as_str).chain([*verb]) {
                    assert_eq!(told(&format!("{name} -f x")), format!("error: {name} is not supported: {}\n", row.why));
                }
            }
        }
        assert!(told("rm-mau 1 mars").contains("SPARC"));
        assert!(!told("migrat x").contains("add-domain -i FILE"));
    }

    #[test]
    fn each_option_without_a_meaning_is_refused_with_the_reason() {
        let ldm = arguments::whole().find_subcommand("ldm").expect("a verb").clone();
        for row in OPTIONS {
            for verb in row.verbs {
                assert_eq!(ldm.find_subcommand(verb).map(Command::get_name), Some(*verb), "{verb} is its first name");
                for option in row.names {
                    assert_eq!(
                        told(&format!("{verb} {option} x")),
                        format!("error: {verb} {option} is not supported: {}\n", row.why)
                    );
                }
            }
        }
        assert!(told("--in rack/sun bind -q mars").contains("bind-domain -q is not supported: bind uses"));
    }

    #[test]
    fn q_is_quiet_only_where_the_vendor_has_no_other_meaning_for_it() {
        let is_quiet = |words: &str| {
            let matches = arguments::read(words.split(' ').map(OsString::from)).expect(words);
            matches.get_flag("quiet")
        };
        assert!(is_quiet("vtax ldm start -q mars") && is_quiet("vtax -q ldm bind mars"));
        assert!(is_quiet("vtax ldm bind --quiet mars") && is_quiet("vtax ldm add-vsw --quiet a primary"));
        assert!(!is_quiet("vtax ldm add-vsw -q a primary") && !is_quiet("vtax ldm add-vdsdev -q a b@c"));
    }
}
