//! The agent as the first process of a guest.
//!
//! The guest contains only this program, the kernel and its modules. The program sets up only what measurements need.
//! For any other use, the guest gets the host's files ([`GuestSettings::root`]).

mod reboot;
mod root;
mod served;
mod state;

use std::{
    convert::Infallible,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    process::{Resource, Rlimit, setrlimit},
    termios::tcdrain,
};
use vtax_sys::{
    SysError,
    children::reap_orphans,
    module,
    mount::{Pseudo, mount, nine_p},
    netlink::{LinkChange, Rtnl},
    power,
};
use vtax_wire::guest::LENT;

use crate::{
    port::{self, PORT, PortError},
    server::{AgentRights, Measuring, ServeError},
};

/// The image's list of modules: one file per line, in loading order, with the module's parameters after a space. A
/// leading `-` means that the module may fail to load.
pub const MODULES: &str = "/etc/vtax/modules";
/// Line on the console which reports that the agent's port is open.
pub const READY: &str = "vtax-agent: ready";
/// Time limit for the port to appear.
const PORT_SOON: Duration = Duration::from_secs(10);

const MOUNTS: [(Pseudo, &str); 5] = [
    (Pseudo::Proc, "/proc"),
    (Pseudo::Sysfs, "/sys"),
    (Pseudo::Devtmpfs, "/dev"),
    (Pseudo::Tmpfs, "/run"),
    (Pseudo::Tmpfs, "/tmp"),
];

/// Reasons why an agent cannot set up a guest or serve in it.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum SelfSetupError {
    #[error("this is process {pid}, not the first process of a guest; use --port to serve next to other processes")]
    #[diagnostic(code("not-a-guest"))]
    NotFirst { pid: u32 },
    #[error("cannot read the list of kernel modules {}: {source}", path.display())]
    #[diagnostic(code("file"))]
    NoList { path: PathBuf, source: io::Error },
    #[error(transparent)]
    #[diagnostic(transparent)]
    System(#[from] SysError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Port(#[from] PortError),
}

/// Settings that differ between guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestSettings<'a> {
    /// List of modules, usually [`MODULES`].
    pub modules: &'a Path,
    /// 9p share whose files replace the image's own, if any. The share is read-only; writes stay in the guest's memory.
    pub root: Option<&'a str>,
    /// 9p share with programs that are temporarily assigned to the guest, if any; mounted at [`LENT`].
    pub lent: Option<&'a str>,
    /// Limit on open files of the agent and of the programs that it starts.
    pub open_files: u64,
}

/// Sets the guest up, serves, and powers the guest off when a coordinator requests it. On a fatal error, prints the
/// error on the console and also powers off. Process 1 doesn't return.
pub fn live(place: &GuestSettings<'_>) -> Result<Infallible, SelfSetupError> {
    match std::process::id() {
        1 => {}
        pid => return Err(SelfSetupError::NotFirst { pid }),
    }
    if let Err(error) = set_up(place).and_then(|()| serve(AgentRights::Init)) {
        say(&format!("vtax-agent: {error}; powering off the guest"));
    }
    // The last message may not be on the console yet.
    let _ = tcdrain(io::stderr());
    say(&format!("vtax-agent: {}", power::off()));
    // If the first process ended, the kernel would panic. The machine could not be powered off, so it stays on and the
    // console stays readable.
    loop {
        thread::park();
    }
}

/// Serves on the port of a guest, as its first process or next to its own init.
pub fn serve(standing: AgentRights) -> Result<(), SelfSetupError> {
    let (reader, writer) = port::open(PORT, PORT_SOON)?;
    say(READY);
    let complain = |error: &ServeError| say(&format!("vtax-agent: {error}"));
    let engine = || {
        reboot::hold();
        Measuring::default()
    };
    Ok(port::serve(reader, writer, engine, standing, complain)?)
}

fn set_up(place: &GuestSettings<'_>) -> Result<(), SelfSetupError> {
    for (what, target) in MOUNTS {
        mount(what, Path::new(target))?;
    }
    load_modules(place.modules, say_of_agent)?;
    if let Some(tag) = place.root {
        root::live_in(tag, say_of_agent)?;
        state::mount(say_of_agent);
    }
    if let Some(tag) = place.lent {
        nine_p(tag, Path::new(LENT))?;
    }
    let loopback = "lo".parse()?;
    Rtnl::open()?.set_link(&loopback, &LinkChange { up: Some(true), ..LinkChange::default() })?;
    served::connect(say_of_agent);
    // By default, no process may open an ICMP socket. A kernel without IPv4 doesn't have this setting.
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0");
    reap_orphans()?;
    // Process 1 may also raise the hard limit. If that fails, a test with too many streams reports it.
    let limit = Rlimit { current: Some(place.open_files), maximum: Some(place.open_files) };
    let _ = setrlimit(Resource::Nofile, limit);
    if let Err(error) = reboot::listen() {
        say_of_agent(&format!("{error}; the guest cannot reboot on request"));
    }
    if place.root.is_some() {
        state::run_boot_script(say_of_agent);
    }
    Ok(())
}

fn load_modules(list: &Path, say: impl Fn(&str)) -> Result<(), SelfSetupError> {
    let unread = |source| SelfSetupError::NoList { path: list.to_owned(), source };
    let text = fs::read_to_string(list).map_err(unread)?;
    for (path, parameters, may_fail) in listed(&text) {
        match module::load(Path::new(path), parameters) {
            Err(error) if may_fail => say(&format!("{error}; the guest continues without it")),
            loaded => drop(loaded?),
        }
    }
    Ok(())
}

/// Returns the path, the parameters, and whether the module may fail to load, for each line of the list.
fn listed(text: &str) -> impl Iterator<Item = (&str, &str, bool)> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| {
        let module = line.strip_prefix('-');
        let (path, parameters) = module.unwrap_or(line).split_once(' ').unwrap_or((module.unwrap_or(line), ""));
        (path, parameters, module.is_some())
    })
}

fn say_of_agent(line: &str) {
    say(&format!("vtax-agent: {line}"));
}

/// The first process has the console as its standard error. Without one, the message is lost.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_list_of_modules_is_read_line_by_line() {
        let list = "/lib/modules/failover.ko\n\n/lib/modules/virtio_net.ko napi_tx=0 gso=1\n-/lib/modules/kvm_amd.ko\n";
        let modules: Vec<_> = listed(list).collect();
        let expected = [
            ("/lib/modules/failover.ko", "", false),
            ("/lib/modules/virtio_net.ko", "napi_tx=0 gso=1", false),
            ("/lib/modules/kvm_amd.ko", "", true),
        ];
        assert_eq!(modules, expected);
    }

    #[test]
    fn a_missing_list_or_module_is_named() {
        let tree = tempfile::tempdir().expect("made");
        let list = tree.path().join("modules");
        let said = RefCell::new(Vec::new());
        let load = || load_modules(&list, |line| said.borrow_mut().push(line.to_owned()));
        let missing = load().expect_err("missing").to_string();
        assert!(missing.contains(list.to_str().expect("text")), "{missing}");
        fs::write(&list, "/no/such/virtio_net.ko\n").expect("written");
        let missing = load().expect_err("missing").to_string();
        assert!(missing.contains("/no/such/virtio_net.ko"), "{missing}");
        assert!(said.borrow().is_empty());
        fs::write(&list, "-/no/such/kvm_amd.ko nested=1\n").expect("written");
        load().expect("it may fail");
        assert!(said.borrow()[0].contains("/no/such/kvm_amd.ko"), "{said:?}");
    }

    #[test]
    fn only_the_first_process_takes_over_a_machine() {
        let refused = live(&GuestSettings { modules: Path::new(MODULES), root: None, lent: None, open_files: 64 })
            .expect_err("a test is process 1 of nothing");
        assert!(refused.to_string().contains("--port"), "{refused}");
    }
}
