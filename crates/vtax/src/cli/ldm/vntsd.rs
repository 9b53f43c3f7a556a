//! `vtax ldm vntsd`: the console service of bound domains.

use std::{
    cell::RefCell,
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use clap::Args;
use vtax_console::{Console, ConsoleGroup, ConsoleOptions, ConsoleTable, serve};
use vtax_domain::{BoundDomain, Domains};
use vtax_model::units::Span;

use super::host::{LdmHost, own_program};
use crate::exit::{Blamed, Exit, Stop};

/// QEMU answers within this time.
const ANSWER: Duration = Duration::from_secs(2);
/// A service that a command has started ends so long after the last domain was unbound.
const GRACE: Duration = Duration::from_secs(5);

/// A domain is bound within this time.
const SETTLED: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct VntsdArgs {
    /// End a session that types nothing for so long [default: never]
    #[arg(long, value_name = "TIME")]
    idle: Option<Span>,
    /// End when no domain is bound any more (so does the one that `bind` starts)
    #[arg(long)]
    while_bound: bool,
}

pub(super) fn vntsd(host: &LdmHost, args: &VntsdArgs) -> Result<Exit, Stop> {
    let domains = host.domains()?;
    let Some(_lock) = domains.lock_service().or_infrastructure()? else {
        tell!("the console service of this host runs already");
        return Ok(Exit::Done);
    };
    let for_breaks = domains.clone();
    let options = ConsoleOptions {
        host: host_name(),
        idle: args.idle.map(|span| span.0),
        send_break: Box::new(move |domain| send_break(&for_breaks, domain)),
    };
    let tables = BoundConsoles { domains, while_bound: args.while_bound, last: RefCell::new(None) };
    serve(|| tables.now(), options, |why| tell!("{why}")).or_infrastructure()?;
    Ok(Exit::Done)
}

/// Starts the service beside this command, unless it runs.
pub(super) fn start_beside(host: &LdmHost) -> Result<(), Stop> {
    let mut command = own_program()?;
    command.args(host.words()?).args(["vntsd", "--while-bound"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C in this terminal must not end it.
    command.process_group(0);
    let started = command.spawn();
    started.map(drop).map_err(|error| {
        Stop::infrastructure(miette::miette!(code = "file", "the console service can't be started: {error}"))
    })
}

/// The consoles of the bound domains. The journals are read again only when one has come or gone.
struct BoundConsoles {
    domains: Domains,
    while_bound: bool,
    last: RefCell<Option<ConsolesAsRead>>,
}

struct ConsolesAsRead {
    changed: Option<SystemTime>,
    table: ConsoleTable,
    idle_since: Option<Instant>,
}

impl BoundConsoles {
    fn now(&self) -> ConsoleTable {
        let changed = self.domains.changed();
        let mut last = self.last.borrow_mut();
        // A domain that has just come has its QEMU a moment later.
        let is_fresh = changed.is_none_or(|at| at.elapsed().is_ok_and(|age| age < SETTLED));
        if last.as_ref().is_none_or(|read| read.changed != changed || is_fresh) {
            let bound = self.domains.bound().unwrap_or_default();
            let idle_since =
                bound.is_empty().then(|| last.as_ref().and_then(|read| read.idle_since).unwrap_or_else(Instant::now));
            *last = Some(ConsolesAsRead { changed, table: table(&bound, &self.domains), idle_since });
        }
        let read = last.as_ref().expect("it has just been read");
        if self.while_bound && read.idle_since.is_some_and(|since| since.elapsed() > GRACE) {
            std::process::exit(0);
        }
        read.table.clone()
    }
}

fn table(bound: &[BoundDomain], domains: &Domains) -> ConsoleTable {
    let mut groups: Vec<ConsoleGroup> = Vec::new();
    for domain in bound {
        let (Some(place), Some(socket)) = (&domain.bindings.console, domain.console_socket()) else { continue };
        let console = Console {
            id: domain.bindings.id,
            domain: domain.name().to_string(),
            socket,
            log: domains.console_log(domain.name()),
        };
        match groups.iter_mut().find(|group| group.port == place.port) {
            Some(group) => group.consoles.push(console),
            None => {
                groups.push(ConsoleGroup { name: place.group.to_string(), port: place.port, consoles: vec![console] })
            }
        }
    }
    ConsoleTable { groups }
}

/// A break that can't be sent is none.
fn send_break(domains: &Domains, domain: &str) {
    let found = domain.parse().ok().and_then(|name| domains.find(&name).ok()?);
    if let Some(mut qemu) = found.and_then(|bound| bound.qemu()) {
        let _ = qemu.monitor(ANSWER).and_then(|mut monitor| monitor.send_break());
    }
}

/// The name of this host without its domain.
fn host_name() -> String {
    let name = fs::read_to_string(PathBuf::from("/proc/sys/kernel/hostname")).unwrap_or_default();
    name.trim().split('.').next().filter(|name| !name.is_empty()).unwrap_or("host").to_owned()
}
