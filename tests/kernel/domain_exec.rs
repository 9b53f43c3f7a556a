//! `vtax ldm exec`: a command in a domain, through its agent.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use rustix::io::ioctl_fionread;
use vtax_wire::{
    frame::{HELLO_MOST, MAGIC, REQUEST_MOST, encode},
    protocol::{Call, CallId, Opening, Request},
};

use super::{Bench, deaths::signal, domains::Host};

#[test]
fn a_command_runs_in_a_domain_as_in_a_guest_of_a_lab() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-x");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    let code = |words: &str, code: &str, text: &str| {
        let told = host.refused(&format!("exec {words}"));
        assert!(told.contains(&format!("error[{code}]")) && told.contains(text), "{words}: {told}");
    };
    code("mars -- true", "domain-state", "mars is inactive; bind and start it first");
    code("saturn -- true", "no-such-object", "mars");
    code("primary -- true", "is-primary", "vtax lab exec t-ldm-x sut -- COMMAND");
    host.ldm("bind mars");
    code("mars -- true", "domain-state", "mars is bound; start it first");
    host.ldm("start mars");

    // The command waits until the agent responds.
    assert!(host.ldm("exec mars -- /init --version").starts_with("vtax-agent"));
    let failed = host.try_ldm("exec mars -- /init --no-such-option");
    assert_eq!(failed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("missing arguments") && failed.stdout.is_empty());
    let mut input = host.command("exec mars -- cat");
    fs::write(bench.path().join("input"), "text for mars\n").expect("a file of the test");
    input.stdin(fs::File::open(bench.path().join("input")).expect("a file of the test"));
    assert_eq!(input.output().expect("vtax runs").stdout, b"text for mars\n");
    // Busybox, if the host has a static one, exits like a shell.
    let missing = host.try_ldm("exec mars -- no-such-program");
    let told = String::from_utf8_lossy(&missing.stderr);
    assert!(matches!(missing.status.code(), Some(2 | 127)) && told.contains("no-such-program"), "{told}");
    // The domain can create interfaces for any VLAN or address that it is given later.
    for link in ["name vnet44 type vlan id 44", "name zone type macvlan"] {
        host.ldm(&format!("exec mars -- ip link add link eth0 {link}"));
    }

    // The first signal is passed on to the command, the second kills it.
    let ended = |script: &str, signals: &[&str]| {
        let mut command = host.command("exec mars -- sh -c");
        let mut child = command.arg(script).stdout(Stdio::piped()).spawn().expect("vtax runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        for signal in signals {
            lines.next().expect("the command runs").expect("text");
            self::signal(child.id(), signal);
        }
        child.wait().expect("vtax has ended").code()
    };
    let patient = "trap 'echo caught' INT; echo runs; while :; do sleep 0.1; done";
    assert_eq!(ended("trap 'exit 5' INT; echo runs; while :; do sleep 0.1; done", &["-INT"]), Some(5));
    assert_eq!(ended(patient, &["-INT", "-INT"]), Some(128 + 9));

    // A domain with its own system has no agent unless that system starts one.
    host.add("earth");
    let mut disk = vec![0; 1 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(bench.path().join("earth.raw"), disk).expect("a file of the test");
    host.ldm(&format!("set-variable image={} earth", bench.path().join("earth.raw").display()));
    host.ldm("bind earth");
    host.ldm("start earth");
    code("earth -- true", "no-domain-agent", "vtax-agent --port");
    for words in ["stop -f mars earth", "unbind mars earth"] {
        host.ldm(words);
    }
}

/// Acts as a coordinator that sends many requests, reads nothing, and exits while the domain answers. QEMU then holds
/// part of an answer for which its socket has no space.
fn ask_and_die(socket: &Path) {
    let mut raw = UnixStream::connect(socket).expect("QEMU listens");
    let hello = encode(&Opening::ours(), HELLO_MOST).expect("small");
    let ping = |id| encode(&Call { id: CallId(id), request: Request::Ping }, REQUEST_MOST).expect("small");
    let calls: Vec<u8> = (1..=1000).flat_map(ping).collect();
    raw.write_all(&[&MAGIC[..], &hello, &calls].concat()).expect("QEMU reads");
    let waiting = || ioctl_fionread(&raw).expect("a socket");
    let (mut seen, mut since) = (0, Instant::now());
    while seen == 0 || since.elapsed() < Duration::from_millis(40) {
        if waiting() != seen {
            (seen, since) = (waiting(), Instant::now());
        }
        assert!(since.elapsed() < Duration::from_secs(60), "the agent doesn't answer");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Regression test: QEMU loses a buffer of the port with each such coordinator. After all 128 were lost, the domain
/// never answered again.
#[test]
fn a_domain_continues_answering_however_many_have_died_while_it_answered() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-m");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    host.ldm("start mars");
    host.ldm("exec mars -- /init --version");
    let socket = host.folder().join("mars/qemu/agent.sock");
    for _ in 0..140 {
        ask_and_die(&socket);
    }
    assert!(host.ldm("exec mars -- /init --version").starts_with("vtax-agent"));
    let console = fs::read_to_string(host.folder().join("mars/qemu/console.log")).expect("its console");
    assert!(!console.contains("panic") && !console.contains("Call Trace"), "{console}");
}
