//! `vtax ldm vntsd`: the console service of bound domains.

use std::{
    collections::BTreeSet,
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use clap::Args;
use vtax_console::{
    Attendant, Bounds, Console, ConsoleAccess, ConsoleGroup, ConsoleId, ConsoleServer, ConsoleTable, GroupName,
    ServerEvent,
};
use vtax_domain::{BoundDomain, DomainSurvey, Domains, LdmHost, user_id};
use vtax_model::{domain::Configuration, foreign::ForeignText, topology::Name, units::Span};

use crate::exit::{Blamed, Exit, Stop};

/// Interval at which the service checks which domains are bound.
const REFRESH: Duration = Duration::from_millis(500);
/// Timeout for QEMU's answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Time between the last unbind and the end of a service that a command has started.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum time that binding a domain takes.
const SETTLED: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct VntsdArgs {
    /// Idle time after which a session ends, e.g. 10m [default: never]
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
    /// Exit when no domain is bound (like the service started by `bind`)
    #[arg(long)]
    while_bound: bool,
}

pub(super) fn vntsd(host: &LdmHost, args: &VntsdArgs) -> Result<Exit, Stop> {
    let domains = host.domains()?;
    let Some(service) = domains.lock_service().or_infrastructure()? else {
        tell!("the console service of this host is already running");
        return Ok(Exit::Done);
    };
    let bounds = Bounds { idle: args.idle.map(|span| span.0), ..Bounds::default() };
    let server = ConsoleServer::start(&host_name(), bounds, Arc::new(Caretaker { domains: domains.clone() }));
    let server = server.or_infrastructure()?;
    let mut consoles = BoundConsoles { host, domains, changed: (None, None), groups: Vec::new(), idle_since: None };
    loop {
        if args.while_bound && consoles.are_gone() {
            // A command that is binding a domain waits for this lock, or is waited for.
            let locked = host.store().lock().or_infrastructure()?;
            if consoles.domains.bound().is_ok_and(|bound| bound.is_empty()) {
                consoles.domains.unlock_service(service, &locked)?;
                return Ok(Exit::Done);
            }
        }
        match consoles.change().map(ConsoleTable::new) {
            Some(Ok(table)) => server.replace(table),
            Some(Err(error)) => tell!("{error}"),
            None => {}
        }
        thread::sleep(REFRESH);
    }
}

/// Consoles of the bound domains. Journals and configuration are read again only when they have changed.
struct BoundConsoles<'a> {
    host: &'a LdmHost,
    domains: Domains,
    /// Times of the last change of domains and of the configuration.
    changed: (Option<SystemTime>, Option<SystemTime>),
    groups: Vec<ConsoleGroup>,
    /// Time since which no domain is bound.
    idle_since: Option<Instant>,
}

impl BoundConsoles<'_> {
    /// Returns the groups if they have changed. While the journals can't be read, they count as unchanged.
    fn change(&mut self) -> Option<Vec<ConsoleGroup>> {
        let changed = (self.domains.changed(), self.host.store().changed());
        // A domain that was just bound gets its QEMU a moment later.
        let is_fresh = changed.0.is_none_or(|at| at.elapsed().is_ok_and(|age| age < SETTLED));
        if self.changed == changed && !is_fresh {
            return None;
        }
        let DomainSurvey { bound, unreadable } = self.domains.survey().ok()?;
        self.changed = changed;
        self.idle_since =
            (bound.is_empty() && unreadable.is_empty()).then(|| self.idle_since.unwrap_or_else(Instant::now));
        let configuration = self.host.read().ok()?.configuration;
        let groups = groups(&bound, &self.domains, &configuration);
        let is_new = groups != self.groups;
        self.groups = groups;
        is_new.then(|| self.groups.clone())
    }

    fn are_gone(&self) -> bool {
        self.idle_since.is_some_and(|since| since.elapsed() > GRACE)
    }
}

fn groups(bound: &[BoundDomain], domains: &Domains, configuration: &Configuration) -> Vec<ConsoleGroup> {
    let mut groups: Vec<ConsoleGroup> = Vec::new();
    for domain in bound {
        let (Some(place), Some(serial)) = (&domain.bindings.console, domain.console_socket()) else { continue };
        let console = Console {
            id: ConsoleId(domain.bindings.id),
            domain: domain.name().clone(),
            serial,
            log: Some(domains.console_log(domain.name())),
        };
        match groups.iter_mut().find(|group| group.port == place.port) {
            Some(group) => group.consoles.push(console),
            None => groups.push(ConsoleGroup {
                name: GroupName { service: place.service.clone(), name: place.group.clone() },
                port: place.port,
                access: access(configuration, &place.service),
                consoles: vec![console],
            }),
        }
    }
    groups
}

/// Returns the access list of a service's consoles. A named user who no longer exists is ignored.
fn access(configuration: &Configuration, service: &Name) -> ConsoleAccess {
    match configuration.consoles.get(service).and_then(|service| service.users.as_ref()) {
        Some(users) => ConsoleAccess::Users(users.iter().filter_map(user_id).collect::<BTreeSet<_>>()),
        None => ConsoleAccess::Everybody,
    }
}

/// Performs actions for the console server that only the owner of the domains can.
struct Caretaker {
    domains: Domains,
}

impl Attendant for Caretaker {
    fn send_break(&self, domain: &Name) -> Result<(), ForeignText> {
        let found = self.domains.find(domain).map_err(|error| error.to_string())?;
        let mut qemu = found.and_then(|bound| bound.qemu()).ok_or("the domain has no QEMU")?;
        let sent = qemu.monitor(ANSWER).and_then(|mut monitor| monitor.send_break());
        sent.map_err(|error| error.to_string().into())
    }

    fn hear(&self, event: &ServerEvent) {
        tell!("{event}");
    }
}

/// Returns the host name without its domain.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().split('.').next().filter(|name| !name.is_empty()).unwrap_or("host").to_owned()
}
