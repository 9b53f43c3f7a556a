//! A network namespace of this machine that vtax didn't create: one of `ip netns`, of a process, or of a container.
//!
//! The agent is a process of this machine that enters only the network namespace, not the container's other namespaces
//! or its cgroup. So nothing is copied or changed in the container, and its image needs no shell. In the container's
//! cgroup, the agent's memory would be charged to the container, which might lose one of its own processes at its
//! limit.

use std::{
    fs,
    net::IpAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    rc::Rc,
};

use miette::{Report, miette};
use vtax_container::{Container, ContainerQuery, EnginePrograms};
use vtax_host::inspect::{SystemRoot, outer_hops, process_limits};
use vtax_model::{
    endpoint::{ContainerEnd, NamespaceEnd},
    foreign::ForeignText,
    run::{ContainerRecord, Hop, NamespaceRecord, PlacementNote},
    study::Row,
};
use vtax_sys::{
    SysError,
    netns::{NetNs, Outlive},
    process::{Pid, ProcessId},
};

use super::{
    super::{agent::Agent, dial::AgentConnection},
    Attachment,
};
use crate::stop::{Blamed, Stop};

/// Directory where `ip netns` pins namespaces (ip-netns(8)).
const PINS: &str = "/run/netns";

/// A namespace that is held open, so that all agents enter the same one throughout a run.
pub(in crate::study::ends) struct HeldNamespace {
    /// Name known to the user.
    name: String,
    path: PathBuf,
    namespace: NetNs,
    /// Process named by the user, or the first process of the container.
    process: Option<ProcessId>,
    pub(in crate::study::ends) record: NamespaceRecord,
    /// True if vtax itself is in it.
    is_own: bool,
}

pub(in crate::study::ends) struct NamespaceAttachment {
    held: Rc<HeldNamespace>,
    host_links: Vec<Hop>,
}

impl HeldNamespace {
    pub(in crate::study::ends) fn open(end: &NamespaceEnd) -> Result<HeldNamespace, Stop> {
        let name = end.to_string();
        match end {
            NamespaceEnd::Named(pin) => HeldNamespace::pinned(name, Path::new(PINS).join(pin.as_str())),
            NamespaceEnd::At(path) => HeldNamespace::pinned(name, path.as_path().to_owned()),
            NamespaceEnd::Process(pid) => HeldNamespace::of_process(name, Pid(*pid)),
            NamespaceEnd::Container(end) => HeldNamespace::of_container(name, end),
        }
    }

    fn pinned(name: String, path: PathBuf) -> Result<HeldNamespace, Stop> {
        let opened = NetNs::open(&path).map_err(|error| not_opened(&name, &path, error))?;
        HeldNamespace::held(name, path, opened, None)
    }

    fn of_container(name: String, end: &ContainerEnd) -> Result<HeldNamespace, Stop> {
        let container = ContainerQuery { engines: &EnginePrograms::user(), end }.running()?;
        let process = container.process(end)?;
        let mut held = HeldNamespace::of_process(name, process)?;
        let Container { engine, name, id, image, network, .. } = container;
        held.record.container = Some(ContainerRecord { engine, name, id, image, network });
        Ok(held)
    }

    /// The process is checked again after its namespace was opened, because the PID may have been reused in between.
    fn of_process(name: String, pid: Pid) -> Result<HeldNamespace, Stop> {
        let gone = || Stop::input(miette!(code = "no-such-process", "{name}: no such process; `ps` lists them"));
        let process = ProcessId::of(pid).map_err(|_| gone())?;
        let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
        let opened = match NetNs::open(&path) {
            Err(error) if error.is_permission() => Err(Stop::infrastructure(error)),
            opened => opened.map_err(|_| gone()),
        }?;
        if !process.exists() {
            return Err(gone());
        }
        HeldNamespace::held(name, path, opened, Some(process))
    }

    fn held(name: String, path: PathBuf, namespace: NetNs, process: Option<ProcessId>) -> Result<HeldNamespace, Stop> {
        let is_own = NetNs::current().or_infrastructure()?.id() == namespace.id();
        let limits = process.map(|process| process_limits(&SystemRoot::live(), process.pid.0));
        let record = NamespaceRecord { container: None, limits: limits.unwrap_or_default() };
        Ok(HeldNamespace { name, path, namespace, process, record, is_own })
    }

    /// Returns the name of its network stack in paths. None if vtax is in it, because that stack has the machine's
    /// name.
    pub(in crate::study::ends) fn stack_name(&self) -> Option<&str> {
        (!self.is_own).then_some(&self.name)
    }

    /// Returns its path, which is valid as long as its process or pin exists. None if vtax is in it.
    pub(in crate::study::ends) fn other_path(&self) -> Option<&Path> {
        (!self.is_own).then_some(&self.path)
    }

    /// Starts an agent in it.
    pub(in crate::study::ends) fn start(&self, program: &Path) -> Result<Child, Stop> {
        let mut command = Command::new(program);
        command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a separate process group, so that Ctrl-C reaches only vtax, which then stops its agents in order.
        command.process_group(0);
        self.namespace.spawn(command, Outlive::No).or_infrastructure()
    }

    pub(in crate::study::ends) fn attach(self: &Rc<Self>) -> NamespaceAttachment {
        NamespaceAttachment { held: Rc::clone(self), host_links: Vec::new() }
    }
}

impl Attachment for NamespaceAttachment {
    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        let child = self.held.start(program)?;
        Ok(Box::new(move |_| Agent::of_child(name, child).or_infrastructure()))
    }

    fn is_in_stack_of_vtax(&self) -> bool {
        self.held.is_own
    }

    fn namespace(&self) -> Option<&HeldNamespace> {
        Some(&self.held)
    }

    /// Finds the links of this machine that its packets pass: from the peer of its veth, or the link below its macvlan.
    fn measure_on(&mut self, address: IpAddr) {
        if !self.held.is_own {
            self.host_links = outer_hops(&self.held.namespace, address);
        }
    }

    fn host_links(&self) -> &[Hop] {
        &self.host_links
    }

    fn notes(&self, _: Row, name: &str) -> Vec<PlacementNote> {
        described(name, &self.held.record).map(PlacementNote::Remark).into_iter().collect()
    }

    fn death(&self) -> Option<Report> {
        let (name, process) = (&self.held.name, self.held.process?);
        (!process.exists()).then(|| {
            miette!(
                code = "end-stopped",
                "{name} stopped during the run: its process {} has exited; start it, and run again",
                process.pid
            )
        })
    }
}

/// Describes a container, and the limits of a container or process, which didn't apply to vtax's agent.
fn described(name: &str, NamespaceRecord { container, limits }: &NamespaceRecord) -> Option<String> {
    let limits = limits.to_string();
    let apart = match limits.is_empty() {
        true => None,
        false => Some(format!(
            "vtax's agent was in its network namespace, but outside of its cgroup, so these limits did not apply to \
             the agent: {limits}"
        )),
    };
    let what = container.as_ref().map(|ContainerRecord { engine, name, image, network, .. }| {
        format!("container {name} of {engine}, image {image}, network {network}")
    });
    match (what, apart) {
        (Some(what), Some(apart)) => Some(format!("{name} is {what}; {apart}")),
        (Some(only), None) => Some(format!("{name} is {only}")),
        (None, Some(only)) => Some(format!("{name}: {only}")),
        (None, None) => None,
    }
}

fn not_opened(name: &str, path: &Path, error: SysError) -> Stop {
    match error {
        error if error.is_missing() => {
            let path = ForeignText::from(path.display().to_string());
            let known = known_pins();
            Stop::input(miette!(
                code = "no-such-namespace",
                "{name}: no such network namespace ({path} does not exist); {known}"
            ))
        }
        SysError::NotANamespace { .. } => Stop::input(error),
        error => Stop::infrastructure(error),
    }
}

/// Returns the namespaces that `ip netns list` lists.
fn known_pins() -> String {
    let names = fs::read_dir(PINS).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        names.map(|pin| ForeignText::from(pin.file_name().display().to_string()).to_string()).collect();
    names.sort();
    const MOST: usize = 20;
    match names.len() {
        0 => "`ip netns` has none on this machine; create one with `ip netns add NAME`".to_owned(),
        count if count > MOST => format!("there is {}, and {} more", names[..MOST].join(", "), count - MOST),
        _ => format!("there is {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{endpoint::ContainerEngine, run::ProcessLimits};

    use super::*;

    #[test]
    fn a_container_and_the_limits_of_its_processes_are_reported() {
        let limits = ProcessLimits { no_raw_sockets: true, ..ProcessLimits::default() };
        let container = ContainerRecord {
            engine: ContainerEngine::Podman,
            name: "web".into(),
            id: "3f0a".into(),
            image: "web:1".into(),
            network: "bridge".into(),
        };
        let told = |container: Option<&ContainerRecord>, limits: &ProcessLimits| {
            described("the end", &NamespaceRecord { container: container.cloned(), limits: limits.clone() })
        };
        insta::assert_snapshot!(told(Some(&container), &limits).expect("all"));
        let plain = told(Some(&container), &ProcessLimits::default());
        assert_eq!(plain.as_deref(), Some("the end is container web of podman, image web:1, network bridge"));
        assert!(told(None, &limits).is_some_and(|told| told.starts_with("the end: vtax's agent")));
        assert_eq!(told(None, &ProcessLimits::default()), None);
    }
}
