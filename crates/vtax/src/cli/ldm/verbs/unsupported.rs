//! Verbs, options and properties of Oracle's `ldm` that have no meaning on Linux. Each is refused with the reason, and with
//! what to use instead: a script must not believe that it has got something.

use clap::{
    Arg, ArgAction, Command, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::aliases::forms;

/// What has no meaning: in which verbs, by which names, and why.
struct Unsupported {
    verbs: &'static [&'static str],
    names: &'static [&'static str],
    why: &'static str,
}

const fn row(verbs: &'static [&'static str], names: &'static [&'static str], why: &'static str) -> Unsupported {
    Unsupported { verbs, names, why }
}

/// Verbs; their other names follow from those of actions and resources.
const VERBS: &[Unsupported] = &[
    row(
        &["migrate-domain", "migrate"],
        &[],
        "domains don't move to another host while they run. Stop it here; then on the other host: vtax ldm add-domain -i FILE, \
         with the FILE of vtax ldm list-constraints -x DOMAIN",
    ),
    row(
        &["add-crypto", "set-crypto", "remove-crypto"],
        &[],
        "cryptographic units are parts of SPARC processors. The CPUs of a domain have the instructions of the host's",
    ),
    row(
        &["add-policy", "set-policy", "remove-policy"],
        &[],
        "the host's scheduler shares its CPUs among domains with virtual CPUs, without policies. set-vcpu and set-core say how many \
         a domain has",
    ),
    row(
        &["add-vsan", "remove-vsan", "list-vsan", "add-vhba", "set-vhba", "remove-vhba", "rescan-vhba", "list-hba"],
        &[],
        "domains have no virtual SCSI adapters. Export a device as a volume (add-vdsdev, add-vdisk), or give the domain the \
         controller itself (add-io)",
    ),
    row(
        &["list-socket", "set-socket", "grow-socket", "shrink-socket", "list-rsrc-group"],
        &[],
        "CPUs aren't chosen by sockets or resource groups. list-devices shows the cores; set-core cid=… names those of a domain",
    ),
    row(
        &["add-cmi", "set-cmi", "remove-cmi", "grow-cmi", "shrink-cmi", "list-cmi"],
        &[],
        "CMI devices are parts of SPARC servers. Give the domain cores (set-core) and memory (set-memory)",
    ),
    row(&["list-permits"], &[], "no CPU needs a permit. list-devices shows the cores that a domain can have"),
    row(
        &["list-hvdump", "set-hvdump"],
        &[],
        "the hypervisor is the host's Linux, and its crash dumps are those of kdump: see kdumpctl or kdump-config",
    ),
    row(
        &["list-netdev"],
        &[],
        "list the links of the host with ip link, those of a domain with vtax ldm exec DOMAIN -- ip link, and PCI devices with \
         list-io",
    ),
    row(
        &["list-netstat"],
        &[],
        "the counters of links are in ip -s link, and frames that a switch has dropped in list-bindings; vtax measure measures",
    ),
    row(
        &["list-logctl", "set-logctl", "list-history", "set-history"],
        &[],
        "vtax ldm has no daemon that could log: each command says what is wrong, and the shell keeps their history",
    ),
    row(
        &["add-vdpcs", "remove-vdpcs", "add-vdpcc", "remove-vdpcc"],
        &[],
        "virtual data plane channels are those of SPARC's Netra DPS. Connect domains by a switch (add-vsw, add-vnet)",
    ),
];

/// Options.
const OPTIONS: &[Unsupported] = &[
    row(
        &["bind-domain"],
        &["-q", "-f"],
        "bind takes what is behind each disk and NIC, so it can't leave its checks out. Mend what it names, or remove that disk or \
         vnet (rm-vdisk, rm-vnet). --quiet prints errors only",
    ),
    row(
        &["set-vsw"],
        &["-q"],
        "a switch is changed on the host at once, so its net-dev must be there. add-vsw has -q; --quiet prints errors only",
    ),
    row(
        &["add-vdsdev", "set-vdsdev"],
        &["-f"],
        "two disks of one backend destroy each other's data. Export both with options=ro, as slices that don't overlap, or as \
         paths of one mpgroup",
    ),
    row(&["remove-vsw"], &["-f"], "first remove the vnets of the switch (rm-vnet), which list -o network shows"),
    row(&["remove-vcc"], &["-f"], "first give the consoles of the service another one (set-vcons service=…)"),
    row(
        &["remove-vnet", "remove-vdisk"],
        &["-f"],
        "a domain that runs must let go of the device itself, or lose what is under way. Leave -f out; if the domain doesn't let \
         go, stop it first",
    ),
    row(
        &["remove-vcpu", "remove-core"],
        &["-f"],
        "a domain that runs has other CPUs when it boots again, so there is nothing to force. Leave -f out",
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
        "a virtual machine is asked to shut down by its power button, which has no message. Tell the users before, e.g. \
         vtax ldm exec DOMAIN -- wall MESSAGE",
    ),
    row(
        &["list-domain", "list-devices"],
        &["-S", "-B"],
        "Linux keeps no status of CPUs and memory: it stops using what fails, and says so in its log. See dmesg, ras-mc-ctl \
         --errors, and HardwareCorrupted in /proc/meminfo",
    ),
    row(
        &["init-system"],
        &["-r"],
        "vtax doesn't reboot this host, and nothing that a file has needs that. Leave -r out",
    ),
    row(
        &["list-spconfig", "add-spconfig", "remove-spconfig"],
        &["-r"],
        "there are no autosaved configurations: each change is on disk when its command ends. Leave -r out",
    ),
];

const VNETS: &[&str] = &["add-vnet", "set-vnet"];
const SWITCHES: &[&str] = &["add-vsw", "set-vsw"];
const DOMAINS: &[&str] = &["add-domain", "set-domain"];

/// Properties.
const PROPERTIES: &[Unsupported] = &[
    row(
        VNETS,
        &["mode"],
        "hybrid vnets need the NIU of a SPARC processor; give the domain a virtual function (create-vf, add-io)",
    ),
    row(VNETS, &["auto-alt-mac-addrs"], "write an `auto` for each address: alt-mac-addrs=auto,auto"),
    row(
        VNETS,
        &["pvlan"],
        "Linux bridges have no private VLANs; give the domains VLANs (pvid=) or switches of their own",
    ),
    row(
        VNETS,
        &["protection", "allowed-ips", "allowed-dhcp-cids"],
        "a switch guards MAC addresses and VLANs, and no IP addresses; filter these with nftables in the family bridge",
    ),
    row(
        VNETS,
        &["custom", "custom/max-mac-addrs", "custom/max-vlans"],
        "a vnet has the addresses of alt-mac-addrs= and the VLANs of vid=, without other limits",
    ),
    row(
        VNETS,
        &["priority", "cos"],
        "a switch has no queues by priority; maxbw= limits a vnet, and the domain sets the priority in its VLAN tags itself",
    ),
    row(SWITCHES, &["linkprop"], "the carrier of net-dev is passed on to single vnets: set-vnet linkprop=phys-state"),
    row(SWITCHES, &["mode"], "mode=sc is for heartbeats of Oracle Solaris Cluster"),
    row(SWITCHES, &["id"], "a switch has no device number: it is the bridge with its name"),
    row(
        SWITCHES,
        &["inter-vnet-link", "vsw-relay-mode"],
        "frames from vnet to vnet always go by the switch, which is a bridge of the host",
    ),
    row(DOMAINS, &["mac-addr"], "a domain has no address, only its vnets have: set-vnet mac-addr="),
    row(DOMAINS, &["uuid"], "a domain is known by its name only"),
    row(DOMAINS, &["max-cores"], "a domain has as many cores as set-core says, and no more"),
    row(
        DOMAINS,
        &["shutdown-group"],
        "stop-domain -a knows no groups; name the domains in their order: stop-domain venus mars",
    ),
    row(DOMAINS, &["boot-policy"], "verified boot is for the firmware of an image to do"),
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
        "it is a property of SPARC servers",
    ),
    row(&["set-vcons"], &["log"], "each console has a log, of 1 MiB and an older one; it can't be switched on or off"),
    row(
        &["set-io", "create-vf"],
        &["alt-mac-addrs"],
        "Linux gives a virtual function one address; vtax io create-vf --trust on lets it take others",
    ),
    row(
        &["create-vf"],
        &["vid"],
        "Linux gives a virtual function one VLAN, without tags: pvid=. Without it, its domain sends and receives the tags that it \
         likes",
    ),
    row(
        &["set-io", "create-vf"],
        &["bw-percent", "port-wwn", "node-wwn"],
        "virtual functions are those of NICs here, not of Fibre Channel adapters",
    ),
];

/// Variables of OpenBoot that scripts for SPARC set.
const OPENBOOT: &[&str] =
    &["boot-device", "boot-file", "boot-command", "nvramrc", "network-boot-arguments", "ttya-mode"];

/// Returns why a variable has no meaning. The names of OpenBoot's switches end with a question mark.
pub(in crate::cli::ldm) fn variable(name: &str) -> Option<&'static str> {
    (name.ends_with('?') || OPENBOOT.contains(&name)).then_some(
        "it is one of OpenBoot, which domains here don't have: they boot the kernel or the image that is set, each time they are \
         started",
    )
}

/// Returns why a property of a verb has no meaning.
pub(in crate::cli::ldm) fn property(verb: &str, key: &str) -> Option<&'static str> {
    find(PROPERTIES, verb, key)
}

fn find(rows: &'static [Unsupported], verb: &str, name: &str) -> Option<&'static str> {
    rows.iter().find(|row| row.verbs.contains(&verb) && row.names.contains(&name)).map(|row| row.why)
}

/// Returns what to say in place of clap's error, if the words are of Oracle's `ldm`.
pub(in crate::cli) fn refusal(error: &Error, words: &[&str], ldm: &Command) -> Option<Error> {
    let mut words = words.iter().skip_while(|word| **word != "ldm").skip(1);
    let said = |what: &str, why: &str| Some(Error::raw(error.kind(), format!("{what}: {why}\n")));
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

/// Takes `-q` from verbs for which it has another meaning in Oracle's manual; `--quiet` stays.
pub(in crate::cli) fn with_vendors_q(ldm: Command) -> Command {
    ldm.mut_subcommands(|verb| {
        let own = verb.get_arguments().any(|argument| argument.get_short() == Some('q'));
        match own || find(OPTIONS, verb.get_name(), "-q").is_some() {
            true => verb.arg(long_quiet()),
            false => verb,
        }
    })
}

/// It hides the option of all verbs, because it has the same id.
fn long_quiet() -> Arg {
    Arg::new("quiet")
        .long("quiet")
        .action(ArgAction::SetTrue)
        .conflicts_with("verbose")
        .help_heading("Messages")
        .help("Print nothing on standard error but errors")
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
                    assert_eq!(told(&format!("{name} -f x")), format!("error: {name}: {}\n", row.why));
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
                    assert_eq!(told(&format!("{verb} {option} x")), format!("error: {verb} {option}: {}\n", row.why));
                }
            }
        }
        assert!(told("--in rack/sun bind -q mars").contains("bind-domain -q: bind takes"));
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
