//! Head of a report: what was run, where and how.

mod migration;
mod warnings;

use vtax_model::{
    address_family::AddressFamily,
    cell::Instrument,
    endpoint::{Control, Pinning},
    guest::Accelerator,
    metric::FigureUnit,
    options::Engine,
    result::{CellRecord, Disturbance, ResultDocument},
    run::{EmulatedServer, EndRecord, Environment, GuestMachine, ImportedFrom, PairRecord, Placement, RunState},
    study::{Row, SamplingPlan, Slices},
    workload::{TestKind, Warmup},
};

use super::{
    blocks::distinct,
    column_unit::exact,
    disks,
    number::{counted, memory, span, waiting},
    record::{is_of_disks, is_of_network, is_of_one_path},
    steady, trouble,
    words::{self, named},
};

pub(crate) use warnings::warnings;

/// Fact about a run, by its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum FactKind {
    Run,
    Date,
    Imported,
    Plan,
    Ends,
    Engine,
    Flows,
    Options,
    Initiator,
    Responder,
    Domain,
    Source,
    Target,
    Suspended,
    Server,
    Guests,
    Disk,
    Machine,
    Kernel,
    Placement,
    WarmUp,
    Load,
    #[strum(serialize = "repeat it")]
    Command,
    #[strum(serialize = "vtax")]
    Version,
}

impl FactKind {
    /// Returns `true` if vtax knows the fact about a run that another program measured.
    fn is_known_of_imported(self) -> bool {
        use FactKind::{Date, Imported, Kernel, Machine, Run};
        matches!(self, Run | Date | Imported | Machine | Kernel)
    }
}

/// Returns label and text of the facts that a reader needs to interpret the figures; with `all`, of all known facts.
pub(crate) fn facts(document: &ResultDocument, all: bool) -> Vec<(&'static str, String)> {
    let mut facts = if all { all_facts(document) } else { main_facts(document) };
    let before_machine = facts.iter().position(|(kind, _)| *kind == FactKind::Machine).unwrap_or(facts.len());
    let disks = disks::facts(document).into_iter().map(|text| (FactKind::Disk, text));
    facts.splice(before_machine..before_machine, disks.chain(migration::facts(document)));
    let is_known = |kind: FactKind| document.imported.is_none() || kind.is_known_of_imported();
    facts.retain(|(kind, text)| !text.is_empty() && is_known(*kind));
    facts.into_iter().map(|(kind, text)| (kind.into(), text)).collect()
}

fn main_facts(document: &ResultDocument) -> Vec<(FactKind, String)> {
    let Environment { hostname, kernel, .. } = &document.environment;
    let cpus = processors(&document.environment);
    let took = if document.wall_seconds > 0.0 { waiting(document.wall_seconds) } else { String::new() };
    let run = listed([document.id.clone(), state(document.state).to_owned(), date(&document.started), took]);
    vec![
        (FactKind::Run, run),
        (FactKind::Imported, document.imported.as_ref().map_or(String::new(), imported)),
        (FactKind::Ends, listed([shown_ends(document), family(document)])),
        (FactKind::Engine, engines(document)),
        (FactKind::Flows, flows(document)),
        (FactKind::Options, options(document)),
        (FactKind::Initiator, net_pair(document).map_or(String::new(), |pair| end(&pair.initiator))),
        (FactKind::Responder, net_pair(document).map_or(String::new(), |pair| end(&pair.responder))),
        (FactKind::Server, document.environment.server.as_ref().map_or(String::new(), server)),
        (FactKind::Guests, document.placement.guests.as_ref().map_or(String::new(), guests)),
        (FactKind::Machine, listed([hostname.to_string(), cpus, named("Linux", &kernel.to_string())])),
    ]
}

/// Describes the source of another program's figures.
fn imported(ImportedFrom { program, files, dated }: &ImportedFrom) -> String {
    const NAMED: usize = 4;
    let named = files.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let date = if *dated { "" } else { "; the date is that of the first file" };
    format!("of {program}, from {named}{more}{date}. The measurement conditions are unknown")
}

/// Options of all cells. The title of a mode's tables states what the mode sets.
fn options(document: &ResultDocument) -> String {
    let mut chosen = words::common(document.cells.iter().map(|record| &record.cell));
    if is_of_one_path(document) {
        chosen.extend(trouble::idle_words(document.cells.iter()).map(str::to_owned));
    }
    chosen.join(", ")
}

fn all_facts(document: &ResultDocument) -> Vec<(FactKind, String)> {
    vec![
        (FactKind::Run, format!("{}, {}", document.id, state(document.state))),
        (FactKind::Date, format!("{}, took {}", date(&document.started), waiting(document.wall_seconds))),
        (FactKind::Imported, document.imported.as_ref().map_or(String::new(), imported)),
        (FactKind::Plan, plan(document)),
        (FactKind::Engine, engines(document)),
        (FactKind::Flows, flows(document)),
        (FactKind::Options, options(document)),
        (FactKind::Ends, listed([ends(document), family(document)])),
        (FactKind::Initiator, net_pair(document).map_or(String::new(), |pair| end(&pair.initiator))),
        (FactKind::Responder, net_pair(document).map_or(String::new(), |pair| end(&pair.responder))),
        (FactKind::Server, document.environment.server.as_ref().map_or(String::new(), server)),
        (FactKind::Guests, document.placement.guests.as_ref().map_or(String::new(), guests)),
        (FactKind::Machine, machine(&document.environment)),
        (FactKind::Kernel, kernel_of(document)),
        (FactKind::Placement, if is_of_network(document) { placement(document) } else { String::new() }),
        (FactKind::WarmUp, steady::fact(document)),
        (FactKind::Load, load_of(document)),
        (FactKind::Command, document.command.to_string()),
        (
            FactKind::Version,
            listed([document.environment.vtax.to_string(), named("as", &document.environment.privilege.to_string())]),
        ),
    ]
}

/// State of a run, e.g. `complete`, or the probable reason why it isn't.
pub(crate) fn state(state: RunState) -> &'static str {
    match state {
        RunState::Complete => "complete",
        RunState::Stopped => "stopped early",
        RunState::Running => "running or killed",
    }
}

/// Formats a time, e.g. `2026-01-02 03:04:05 UTC`; returns the text unchanged if it is not a time.
pub(crate) fn date(rfc3339: &str) -> String {
    match rfc3339.parse::<jiff::Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => rfc3339.to_owned(),
    }
}

pub(crate) fn plan(document: &ResultDocument) -> String {
    format!("{}, seed {}", brief_plan(document), document.plan.seed)
}

/// Plan of each measurement mode in which the run has cells.
fn brief_plan(document: &ResultDocument) -> String {
    let plan = |instrument| {
        let path = document.plan.path.filter(|_| instrument == Instrument::Path);
        plan_of(document, &path.unwrap_or(document.plan.sampling))
    };
    match document.instruments().as_slice() {
        [one] => plan(*one),
        several => {
            let named =
                |instrument: &Instrument| format!("{}: {}", words::of_instrument(*instrument), plan(*instrument));
            words::joined(several.iter().map(named), "; ")
        }
    }
}

fn plan_of(document: &ResultDocument, sampling: &SamplingPlan) -> String {
    let rounds = counted(sampling.samples, "round");
    // A transfer lasts as long as its file takes to send, and a migration as long as its memory.
    let all = |is: fn(TestKind) -> bool| document.cells.iter().all(|record| is(record.cell.kind()));
    if all(TestKind::is_file) {
        return format!("{rounds}, a file in each");
    }
    if all(TestKind::is_unbounded) {
        return format!("{rounds}, a migration in each");
    }
    let duration = span(sampling.duration);
    let mut text = match &sampling.slices {
        None => format!("{rounds} of {duration}"),
        Some(Slices { passes, stream }) => {
            format!("{rounds} of {passes} slices of {duration} (streams {})", span(*stream))
        }
    };
    if let Some(rule) = &document.plan.stopping {
        let (confidence, width) = (rule.confidence().percent(), rule.width());
        let of = document.plan.metric.map_or(String::new(), |metric| format!(" of {}", metric.noun()));
        text = format!(
            "{} to {} rounds of {duration}, until every {confidence} % interval{of} is {width} wide (precision, not a verdict)",
            rule.min(),
            rule.max(),
        );
    }
    match sampling.warmup {
        Warmup::UntilSteady { most } => text += &format!(", each after a warm-up until steady, {} at most", span(most)),
        Warmup::For(time) if time.0.is_zero() => {}
        Warmup::For(time) => text += &format!(" after {} of warm-up", span(time)),
    }
    text
}

/// Engines, where they aren't the obvious ones.
fn engines(document: &ResultDocument) -> String {
    let engines = distinct(document.cells.iter().filter_map(|record| Some(record.cell.net()?.options.engine)));
    let usual = engines == [Engine::default()] && !matches!(document.baseline, Row::Engine(_));
    let names: Vec<&str> = engines.into_iter().map(<&str>::from).collect();
    if usual { String::new() } else { names.join(", ") }
}

/// Number of flows of a list without a column for them; a matrix has them in its titles.
fn flows(document: &ResultDocument) -> String {
    let counts = distinct(document.cells.iter().filter_map(|record| Some(record.cell.net()?.streams)));
    match (document.baseline, counts.as_slice()) {
        (Row::Engine(_) | Row::Load(_), [several]) if *several > 1 => format!("{several} concurrent"),
        _ => String::new(),
    }
}

/// The endpoints, unless they are as usual.
fn shown_ends(document: &ResultDocument) -> String {
    if are_named(document) || most_pairs(document) > 1 { ends(document) } else { String::new() }
}

/// Address family of a lab, unless it is the usual one. Existing endpoints are listed with their addresses.
fn family(document: &ResultDocument) -> String {
    let mut families = document.cells.iter().filter_map(CellRecord::address_family);
    let is_ipv6 = families.any(|family| family == AddressFamily::Ipv6) && !are_named(document);
    if is_ipv6 { format!("over {}", AddressFamily::Ipv6) } else { String::new() }
}

pub(crate) fn ends(document: &ResultDocument) -> String {
    match (document.baseline, shared_pairs(document)) {
        (Row::Disk(_), None) => String::new(),
        (Row::Migration(_), Some(_)) => String::new(),
        (Row::Migration(_), None) => {
            "two QEMUs of this machine, each in its own network namespace, with a wire between them".into()
        }
        (_, Some([_])) | (Row::Engine(_) | Row::Load(_) | Row::AsIs, None) => String::new(),
        (_, Some(pairs)) => format!("{} concurrent pairs", pairs.len()),
        (Row::Pods(_), None) => "pods created for the run and then removed, listed per row below".into(),
        (_, None) if are_named(document) => "existing endpoints, listed per row below".into(),
        (_, None) if most_pairs(document) > 1 => format!(
            "{} concurrent clients, each on a separate wire to a switch; behind its uplink the host, or a \
             guest or zone for each",
            most_pairs(document)
        ),
        (Row::Path(_), None) => "hosts and guests: sender-to-receiver".into(),
        (Row::Zones { .. }, None) => "two zones of one host: sender-to-receiver".into(),
        (_, None) if document.both => "each method on both endpoints".into(),
        (_, None) => "each method on one endpoint, with a native peer".into(),
    }
}

/// Pairs between which every row was measured; `None` if each row has its own, or if that isn't known.
pub(crate) fn shared_pairs(document: &ResultDocument) -> Option<&[PairRecord]> {
    let mut all = document.cells.iter().filter_map(|record| record.ends.as_ref());
    let first = all.next()?;
    all.all(|ends| ends.pairs == first.pairs).then_some(&first.pairs)
}

/// Returns `true` if the endpoints are the user's and not those of a lab that vtax built.
pub(crate) fn are_named(document: &ResultDocument) -> bool {
    let pairs = document.cells.iter().filter_map(|record| record.ends.as_ref()).flat_map(|ends| &ends.pairs);
    let mut names = pairs.flat_map(|pair| [&pair.initiator.name, &pair.responder.name]);
    names.any(|name| name.raw().parse::<Control>().is_ok())
}

fn most_pairs(document: &ResultDocument) -> usize {
    let ends = document.cells.iter().filter_map(|record| record.ends.as_ref());
    ends.map(|ends| ends.pairs.len()).max().unwrap_or(0)
}

fn only_pair(document: &ResultDocument) -> Option<&PairRecord> {
    match shared_pairs(document)? {
        [pair] => Some(pair),
        _ => None,
    }
}

/// The hosts of a migration are not endpoints.
fn net_pair(document: &ResultDocument) -> Option<&PairRecord> {
    only_pair(document).filter(|_| is_of_network(document))
}

/// Describes an endpoint, e.g. `ssh:root@vm1 at 10.0.0.2 on CPU 3, a 4 × EPYC`.
pub(crate) fn end(end: &EndRecord) -> String {
    let EndRecord { name, address, cpus: pinned, environment, published, .. } = end;
    let machine =
        environment.as_ref().map(|machine| format!(", machine {}", or(&machine.hostname.to_string(), "name unknown")));
    let address = if address.is_empty() { String::new() } else { format!(" at {address}") };
    let published = published.as_ref().map(|ports| format!(" (published: {ports})")).unwrap_or_default();
    format!("{name}{address}{published} on {}{}", cpus(pinned), machine.unwrap_or_default())
}

/// Stages of all rows are compared with one another.
pub(crate) fn machine_and_kernel(environment: &Environment) -> String {
    listed([machine(environment), kernel(environment)])
}

fn machine(environment: &Environment) -> String {
    let Environment { hostname, numa_nodes, memory_bytes, hypervisor, smt, .. } = environment;
    listed([
        hostname.to_string(),
        processors(environment),
        if *numa_nodes > 1 { format!("{numa_nodes} NUMA nodes") } else { String::new() },
        if *memory_bytes > 0 { memory(*memory_bytes) } else { String::new() },
        named("SMT", &smt.to_string()),
        named("hypervisor", &hypervisor.to_string()),
    ])
}

fn processors(environment: &Environment) -> String {
    let Environment { cpu_model, cpus, .. } = environment;
    if *cpus > 0 {
        format!("{cpus} × {}", or(&cpu_model.to_string(), "CPU (model unknown)"))
    } else {
        cpu_model.to_string()
    }
}

/// A run of disks involves no TCP.
fn kernel_of(document: &ResultDocument) -> String {
    match is_of_disks(document) {
        true => kernel(&Environment { congestion_control: Default::default(), ..document.environment.clone() }),
        false => kernel(&document.environment),
    }
}

/// fio reports nothing about other programs.
fn load_of(document: &ResultDocument) -> String {
    let unknown = is_of_disks(document) && document.disturbance.other_programs.is_none();
    if unknown { String::new() } else { load(&document.disturbance) }
}

fn kernel(environment: &Environment) -> String {
    let Environment { kernel, clocksource, governor, congestion_control, deepest_idle_us, .. } = environment;
    listed([
        kernel.to_string(),
        named("clock", &clocksource.to_string()),
        named("governor", &governor.to_string()),
        deepest_idle_us
            .map_or(String::new(), |us| format!("idle states up to {}", exact(us.into(), FigureUnit::Microseconds))),
        named("TCP", &congestion_control.to_string()),
    ])
}

/// Returns e.g. `emulated:nics=8, by QEMU 10.0.3 under KVM: shows function, not speed`.
fn server(server: &EmulatedServer) -> String {
    let EmulatedServer { spec, accel, qemu, why_not_kvm } = server;
    let why = why_not_kvm.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    format!("{spec}, QEMU {qemu} under {accel}{why}: shows function, not speed")
}

/// Describes the guests' accelerator and its effect on their figures.
fn guests(machine: &GuestMachine) -> String {
    let GuestMachine { accel, no_kvm, qemu } = machine;
    let why = no_kvm.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    match accel {
        Accelerator::Kvm => format!("under KVM, by QEMU {qemu}"),
        Accelerator::Tcg => {
            format!("under TCG, the software emulation of QEMU {qemu}: their figures show function, not speed{why}")
        }
    }
}

/// Named endpoints have their CPUs next to their names.
fn placement(document: &ResultDocument) -> String {
    let Placement { policy, responder_policy, initiator, responder, notes, .. } = &document.placement;
    let named = document.cells.iter().any(|record| record.ends.is_some());
    let mut text = match (named, responder_policy) {
        (true, None) => asked(policy),
        (true, Some(other)) => format!("initiator {}; responder {}", asked(policy), asked(other)),
        (false, _) => format!("initiator on {}, responder on {}", cpus(initiator), cpus(responder)),
    };
    let quiet = notes.iter().filter(|note| !note.is_wrong_label());
    quiet.for_each(|note| text += &format!(". {}", note.to_string().trim_end_matches('.')));
    text
}

fn asked(policy: &Pinning) -> String {
    match policy {
        Pinning::Auto => "by CPU topology (auto)".to_owned(),
        Pinning::Unpinned => "not pinned (none)".to_owned(),
        Pinning::Cpus(_) => format!("CPUs {policy} as requested"),
    }
}

/// Describes the shares of the machine's CPU time used by others while samples were taken.
pub fn load(disturbance: &Disturbance) -> String {
    let Disturbance { other_programs, stolen, guests_waited } = disturbance;
    let Some(other_programs) = other_programs else {
        return "CPU time of other programs unknown".to_owned();
    };
    let stolen = stolen.map_or(String::new(), |share| format!(", steal time {}", percent(share)));
    let waited = guests_waited
        .map_or(String::new(), |share| format!("; guests waited for a CPU {} of the time", percent(share)));
    format!("other programs took {} of the CPU time{stolen}{waited}", percent(*other_programs))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 1e2)
}

fn cpus(cpus: &[u32]) -> String {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    match cpus.len() {
        0 => "any CPU".into(),
        1 => format!("CPU {}", list[0]),
        _ => format!("CPUs {}", list.join(", ")),
    }
}

fn listed<const N: usize>(texts: [String; N]) -> String {
    words::joined(texts, ", ")
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}
