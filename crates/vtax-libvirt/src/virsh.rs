//! Queries libvirt through its own program, `virsh`.
//!
//! With libvirt's C library, vtax could not be a static binary, and libvirt's wire protocol is private. virsh uses the
//! connection that the user has configured (`LIBVIRT_DEFAULT_URI`, libvirt.conf). All but one of the questions use a
//! read-only connection, which cannot change anything.

use std::{
    ffi::OsString,
    io,
    net::IpAddr,
    process::{Command, Stdio},
    time::Duration,
};

use vtax_sys::deadline::{OutputError, output_within};

/// Time limit of an answer: a guest's agent alone may take 5 s (libvirt's `QEMU_AGENT_WAIT_TIME`).
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question<'a> {
    /// Names of all domains, one per line.
    Names,
    Xml(&'a str),
    /// State of a domain, in one word.
    State(&'a str),
    /// Addresses of a domain, one per line.
    Addresses(&'a str, AddressSource),
    Versions,
}

/// Source of a domain's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum AddressSource {
    /// DHCP server of libvirt's own networks.
    Lease,
    /// Neighbour table of the host.
    Arp,
    /// QEMU guest agent.
    Agent,
}

impl Question<'_> {
    /// Returns the arguments of virsh. Names follow `--`; otherwise, a name that begins with `-` would be an option.
    fn arguments(&self) -> Vec<&str> {
        let read_only = !matches!(self, Question::Addresses(_, AddressSource::Agent));
        let mut arguments = vec!["-q"];
        // libvirt allows communication with a guest's agent only on a connection with write access.
        arguments.extend(read_only.then_some("--readonly"));
        arguments.extend(match self {
            Question::Names => vec!["list", "--all", "--name"],
            Question::Xml(domain) => vec!["dumpxml", "--", domain],
            Question::State(domain) => vec!["domstate", "--", domain],
            Question::Addresses(domain, source) => vec!["domifaddr", "--full", "--source", source.into(), "--", domain],
            Question::Versions => vec!["version"],
        });
        arguments
    }
}

pub trait Virsh {
    fn ask(&self, question: Question<'_>) -> Result<String, VirshRefusal>;
}

#[derive(Debug)]
pub enum VirshRefusal {
    NoProgram(io::Error),
    /// Error message of virsh.
    Said(String),
    /// virsh did not answer in time and was killed.
    Silent(Duration),
}

pub struct VirshProgram {
    program: OsString,
    patience: Duration,
}

impl VirshProgram {
    /// Returns the virsh in the PATH.
    pub fn user() -> VirshProgram {
        VirshProgram { program: "virsh".into(), patience: PATIENCE }
    }
}

impl Virsh for VirshProgram {
    fn ask(&self, question: Question<'_>) -> Result<String, VirshRefusal> {
        let mut command = Command::new(&self.program);
        // vtax parses virsh's output, so it must not be translated.
        command.args(question.arguments()).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_within(&mut command, self.patience).map_err(|error| match error {
            OutputError::Start(source) => VirshRefusal::NoProgram(source),
            OutputError::Late(patience) | OutputError::Stuck { limit: patience, .. } => VirshRefusal::Silent(patience),
            OutputError::Lost(source) => VirshRefusal::Said(source.to_string()),
            OutputError::Cancelled => VirshRefusal::Said(error.to_string()),
        })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(VirshRefusal::Said(text(output.stderr))),
        }
    }
}

/// Returns the errors of virsh in one line, without the word `error:`.
pub fn words(text: &str) -> String {
    let lines = text.lines().map(|line| line.trim().trim_start_matches("error: ")).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(": ")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Ethernet address of the NIC, in lower case.
    pub mac: String,
    pub address: IpAddr,
}

/// Parses lines such as `vnet0 52:54:00:11:22:33 ipv4 192.0.2.2/24`, without addresses that cannot be reached.
pub fn leases(text: &str) -> Vec<Lease> {
    text.lines().filter_map(lease).filter(|lease| is_reachable(lease.address)).collect()
}

fn lease(line: &str) -> Option<Lease> {
    let [.., mac, _, network] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    let address = network.split('/').next()?.parse().ok()?;
    Some(Lease { mac: mac.to_ascii_lowercase(), address })
}

fn is_reachable(address: IpAddr) -> bool {
    let of_its_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        // A link-local address would also require the name of the link.
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(of_its_link || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// Returns the version of QEMU from `Running hypervisor: QEMU 10.0.2`.
pub fn qemu_version(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Running hypervisor: QEMU "));
    line.map(|version| version.trim().to_owned()).filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Instant};

    use proptest::prelude::*;

    use super::*;

    /// Creates a virsh that is this script.
    fn fake(script: &str, patience: Duration) -> (tempfile::TempDir, VirshProgram) {
        let folder = tempfile::tempdir().expect("a directory");
        let [text, path] = ["script", "virsh"].map(|name| folder.path().join(name));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("written");
        // A file that is open for writing cannot be executed (ETXTBSY, execve(2)), and a child that another test starts
        // at this moment inherits this program's open files until it executes its own program.
        let copied = Command::new("install").args(["-m", "755"]).args([&text, &path]).status();
        assert!(copied.is_ok_and(|status| status.success()), "install(1) is there");
        (folder, VirshProgram { program: path.into(), patience })
    }

    #[test]
    fn virsh_is_queried_read_only_and_names_are_not_options() {
        let (_folder, virsh) = fake("echo \"$LC_ALL:$@\"; echo noise >&2", PATIENCE);
        let asked = |question| virsh.ask(question).expect("an answer");
        assert_eq!(asked(Question::Xml("--all")), "C:-q --readonly dumpxml -- --all\n");
        assert_eq!(asked(Question::State("a b")), "C:-q --readonly domstate -- a b\n");
        assert_eq!(asked(Question::Names), "C:-q --readonly list --all --name\n");
        assert_eq!(
            asked(Question::Addresses("web", AddressSource::Arp)),
            "C:-q --readonly domifaddr --full --source arp -- web\n"
        );
        // libvirt refuses this question on a read-only connection.
        assert_eq!(
            asked(Question::Addresses("web", AddressSource::Agent)),
            "C:-q domifaddr --full --source agent -- web\n"
        );
    }

    #[test]
    fn no_answer_is_reported_in_virsh_s_words() {
        let (_folder, virsh) = fake("echo some; echo 'error: no'; echo 'error: it is not there' >&2; exit 1", PATIENCE);
        let Err(VirshRefusal::Said(said)) = virsh.ask(Question::Names) else { panic!("it failed") };
        assert_eq!(words(&said), "it is not there");
        let missing = VirshProgram { program: "/nonexistent/virsh".into(), patience: PATIENCE };
        assert!(matches!(missing.ask(Question::Names), Err(VirshRefusal::NoProgram(_))));
    }

    #[test]
    fn a_virsh_that_hangs_is_ended() {
        let (_folder, virsh) = fake("exec sleep 1000", Duration::from_millis(200));
        let begun = Instant::now();
        assert!(matches!(virsh.ask(Question::Names), Err(VirshRefusal::Silent(_))));
        assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    }

    #[test]
    fn addresses_that_lead_to_a_guest_are_read() {
        let text = " vnet0      52:54:00:11:22:AA    ipv4         192.0.2.2/24\n \
            vnet0      52:54:00:11:22:aa    ipv6         2001:db8::2/64\n \
            lo         00:00:00:00:00:00    ipv4         127.0.0.1/8\n \
            vnet0      52:54:00:11:22:aa    ipv6         fe80::1/64\n \
            vnet1      52:54:00:11:22:bb    N/A          N/A\n\n";
        let found: Vec<_> = leases(text).into_iter().map(|lease| (lease.mac, lease.address.to_string())).collect();
        let of = |address: &str| ("52:54:00:11:22:aa".to_owned(), address.to_owned());
        assert_eq!(found, [of("192.0.2.2"), of("2001:db8::2")]);
    }

    #[test]
    fn the_version_of_qemu_is_found() {
        let text = "Compiled against library: libvirt 9.0.0\nRunning hypervisor: QEMU 10.0.2\n";
        assert_eq!(qemu_version(text).as_deref(), Some("10.0.2"));
        assert_eq!(qemu_version("Running hypervisor: QEMU \n"), None);
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_readers_panic(text: String) {
            let _ = (leases(&text), qemu_version(&text), words(&text));
        }
    }

    #[test]
    fn fuzz_virsh() {
        let seeds = [
            " vnet0      52:54:00:11:22:AA    ipv4         192.0.2.2/24\n lo 00:00:00:00:00:00 ipv6 2001:db8::2/64\n",
            "Compiled against library: libvirt 9.0.0\nRunning hypervisor: QEMU 10.0.2\n",
            "error: failed\nerror: it is not there\n",
        ];
        vtax_fuzz::fuzz_text("virsh", &seeds, |text| {
            assert!(words(text).len() <= 2 * text.len());
            let _ = qemu_version(text);
            leases(text).into_iter().for_each(|lease| assert!(is_reachable(lease.address)));
            Some(())
        });
    }
}
