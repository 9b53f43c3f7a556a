//! The head of a report: what was run, where and how.

mod warnings;

use vtax_model::{
    cell::Instrument,
    endpoint::{Control, Pinning},
    guest::Accelerator,
    options::Engine,
    result::{Disturbance, ResultDocument},
    run::{EmulatedServer, EndRecord, Environment, GuestMachine, ImportedFrom, PairRecord, Placement, RunState},
    study::{Row, SamplingPlan, Slices},
    workload::Warmup,
};

use super::{
    blocks::distinct,
    disks,
    number::{counted, memory, waiting},
    record::is_of_disks,
    steady, trouble,
    words::{self, named},
};

pub(crate) use warnings::warnings;

/// A fact about a run, by its label.
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
    /// Whether vtax knows it of a run that another program has measured.
    fn is_known_of_imported(self) -> bool {
        use FactKind::{Date, Imported, Kernel, Machine, Run};
        matches!(self, Run | Date | Imported | Machine | Kernel)
    }
}

/// Label and text of what the reader needs to place the figures; with `all`, of all that is known.
pub(crate) fn facts(document: &ResultDocument, all: bool) -> Vec<(&'static str, String)> {
    let mut facts = if all { all_facts(document) } else { main_facts(document) };
    let before_machine = facts.iter().position(|(kind, _)| *kind == FactKind::Machine).unwrap_or(facts.len());
    let disks = disks::facts(document).into_iter().map(|text| (FactKind::Disk, text));
    facts.splice(before_machine..before_machine, disks);
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
        (FactKind::Ends, if are_named(document) || most_pairs(document) > 1 { ends(document) } else { String::new() }),
        (FactKind::Engine, engines(document)),
        (FactKind::Flows, flows(document)),
        (FactKind::Options, options(document)),
        (FactKind::Initiator, only_pair(document).map_or(String::new(), |pair| end(&pair.initiator))),
        (FactKind::Responder, only_pair(document).map_or(String::new(), |pair| end(&pair.responder))),
        (FactKind::Server, document.environment.server.as_ref().map_or(String::new(), server)),
        (FactKind::Guests, document.placement.guests.as_ref().map_or(String::new(), guests)),
        (FactKind::Machine, listed([hostname.to_string(), cpus, named("Linux", &kernel.to_string())])),
    ]
}

/// From what another program's figures are.
fn imported(ImportedFrom { program, files, dated }: &ImportedFrom) -> String {
    const NAMED: usize = 4;
    let named = files.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let date = if *dated { "" } else { "; the date is that of the first file" };
    format!("of {program}, from {named}{more}{date}. vtax doesn't know under which conditions")
}

/// The options of all cells. What an instrument is made of is said in the title of its tables.
fn options(document: &ResultDocument) -> String {
    let mut chosen = words::common(document.cells.iter().map(|record| &record.cell));
    if matches!(document.baseline, Row::Engine(_)) {
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
        (FactKind::Ends, ends(document)),
        (FactKind::Initiator, only_pair(document).map_or(String::new(), |pair| end(&pair.initiator))),
        (FactKind::Responder, only_pair(document).map_or(String::new(), |pair| end(&pair.responder))),
        (FactKind::Server, document.environment.server.as_ref().map_or(String::new(), server)),
        (FactKind::Guests, document.placement.guests.as_ref().map_or(String::new(), guests)),
        (FactKind::Machine, machine(&document.environment)),
        (FactKind::Kernel, kernel_of(document)),
        (FactKind::Placement, if is_of_disks(document) { String::new() } else { placement(document) }),
        (FactKind::WarmUp, steady::fact(document)),
        (FactKind::Load, load_of(document)),
        (FactKind::Command, document.command.to_string()),
        (
            FactKind::Version,
            listed([document.environment.vtax.to_string(), named("as", &document.environment.privilege.to_string())]),
        ),
    ]
}

/// `complete`, or what may be the matter.
pub(crate) fn state(state: RunState) -> &'static str {
    match state {
        RunState::Complete => "complete",
        RunState::Stopped => "stopped early",
        RunState::Running => "under way, or killed",
    }
}

/// `2026-01-02 03:04:05 UTC`; as written if it is no time.
pub(crate) fn date(rfc3339: &str) -> String {
    match rfc3339.parse::<jiff::Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => rfc3339.to_owned(),
    }
}

pub(crate) fn plan(document: &ResultDocument) -> String {
    format!("{}, seed {}", brief_plan(document), document.plan.seed)
}

/// Of each instrument that the run has cells of.
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
    // A transfer lasts as long as its file takes.
    if document.cells.iter().all(|record| record.cell.kind().is_file()) {
        return format!("{rounds}, a file in each");
    }
    let mut text = match &sampling.slices {
        None => format!("{rounds} of {}", sampling.duration),
        Some(Slices { passes, stream }) => {
            format!("{rounds} of {passes} slices of {} (streams {stream})", sampling.duration)
        }
    };
    if let Some(rule) = &document.plan.stopping {
        let (confidence, width) = (rule.confidence().percent(), rule.width());
        text = format!(
            "{} to {} rounds of {}, until every {confidence} % interval is {width} wide at most (a precision, no verdict)",
            rule.min(),
            rule.max(),
            sampling.duration
        );
    }
    match sampling.warmup {
        Warmup::UntilSteady { most } => text += &format!(", each when the figures are steady, after {most} at most"),
        Warmup::For(span) if span.0.is_zero() => {}
        Warmup::For(span) => text += &format!(" after {span} of warm-up"),
    }
    text
}

/// Said where it is no matter of course.
fn engines(document: &ResultDocument) -> String {
    let engines = distinct(document.cells.iter().filter_map(|record| Some(record.cell.net()?.options.engine)));
    let usual = engines == [Engine::default()] && !matches!(document.baseline, Row::Engine(_));
    let names: Vec<&str> = engines.into_iter().map(<&str>::from).collect();
    if usual { String::new() } else { names.join(", ") }
}

/// Of a list that has no column for them; of a matrix they are in the titles.
fn flows(document: &ResultDocument) -> String {
    let counts = distinct(document.cells.iter().filter_map(|record| Some(record.cell.net()?.streams)));
    match (document.baseline, counts.as_slice()) {
        (Row::Engine(_), [several]) if *several > 1 => format!("{several} at the same time"),
        _ => String::new(),
    }
}

pub(crate) fn ends(document: &ResultDocument) -> String {
    match (document.baseline, shared_pairs(document)) {
        (Row::Disk(_), None) => String::new(),
        (_, Some([_])) | (Row::Engine(_) | Row::AsIs, None) => String::new(),
        (_, Some(pairs)) => format!("{} pairs at the same time", pairs.len()),
        (_, None) if are_named(document) => "endpoints that were there already, each row's below".into(),
        (_, None) if most_pairs(document) > 1 => format!(
            "{} clients at the same time, each on a wire of its own to a switch; behind its uplink the host, or a \
             guest or zone for each",
            most_pairs(document)
        ),
        (Row::Path(_), None) => "hosts and guests: sender-to-receiver".into(),
        (Row::Zones { .. }, None) => "two zones of one host: sender-to-receiver".into(),
        (_, None) if document.both => "each method at both ends of the wire".into(),
        (_, None) => "each method at one end of the wire, against a native peer".into(),
    }
}

/// The pairs between which every row was measured; none if each has its own, or that isn't known.
pub(crate) fn shared_pairs(document: &ResultDocument) -> Option<&[PairRecord]> {
    let mut all = document.cells.iter().filter_map(|record| record.ends.as_ref());
    let first = all.next()?;
    all.all(|ends| ends.pairs == first.pairs).then_some(&first.pairs)
}

/// Whether the ends are the user's endpoints and not those of a lab of our own.
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

/// `ssh:root@vm1 at 10.0.0.2 on CPU 3, a 4 × EPYC`
pub(crate) fn end(end: &EndRecord) -> String {
    let EndRecord { name, address, cpus: pinned, environment, .. } = end;
    let machine = environment
        .as_ref()
        .map(|machine| format!(", machine {}", or(&machine.hostname.to_string(), "of unknown name")));
    let address = if address.is_empty() { String::new() } else { format!(" at {address}") };
    format!("{name}{address} on {}{}", cpus(pinned), machine.unwrap_or_default())
}

/// All that is known of a machine.
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
        format!("{cpus} × {}", or(&cpu_model.to_string(), "CPU of unknown model"))
    } else {
        cpu_model.to_string()
    }
}

/// A run of disks has no TCP in it.
fn kernel_of(document: &ResultDocument) -> String {
    match is_of_disks(document) {
        true => kernel(&Environment { congestion_control: Default::default(), ..document.environment.clone() }),
        false => kernel(&document.environment),
    }
}

/// fio tells nothing of other programs.
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
        deepest_idle_us.map_or(String::new(), |us| format!("idle states up to {us} µs")),
        named("TCP", &congestion_control.to_string()),
    ])
}

/// `emulated:nics=8, by QEMU 10.0.3 under KVM: shows function, not speed`
fn server(server: &EmulatedServer) -> String {
    let EmulatedServer { spec, accel, qemu, why_not_kvm } = server;
    let why = why_not_kvm.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    format!("{spec}, by QEMU {qemu} under {accel}{why}: shows function, not speed")
}

/// What runs them, and what that means for their figures.
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

/// Ends that are named have their CPUs beside their names.
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
        Pinning::Auto => "chosen by the machine's topology (auto)".to_owned(),
        Pinning::Unpinned => "wherever the scheduler likes (none)".to_owned(),
        Pinning::Cpus(_) => format!("CPUs {policy} as asked"),
    }
}

/// Shares of the machine's CPU time while samples were taken.
pub fn load(disturbance: &Disturbance) -> String {
    let Disturbance { other_programs, stolen, guests_waited } = disturbance;
    let Some(other_programs) = other_programs else {
        return "what other programs took of the CPUs is not known".to_owned();
    };
    let stolen = stolen.map_or(String::new(), |share| format!(", the hypervisor {}", percent(share)));
    let waited =
        guests_waited.map_or(String::new(), |share| format!("; guests waited for one {} of the time", percent(share)));
    format!("other programs took {} of the CPUs{stolen}{waited}", percent(*other_programs))
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
