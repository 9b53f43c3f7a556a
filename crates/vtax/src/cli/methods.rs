//! `vtax methods`.

mod capabilities;

use clap::Args;
use serde::Serialize;
use vtax_lab::{Facts, GuestNeeds, Lifetime, World, availability, guest_availability};
use vtax_model::{
    guest::{Accelerator, Attach, Flavour, GuestDefaults, System, VirtioNic, Vnet},
    method::{DomainKind, IoMethod, Unsupported},
    study::Row,
};
use vtax_report::Column;

use super::{Locations, answer, lab::accelerator, lists, print};
use crate::exit::{Blamed, Exit, Stop};
use capabilities::CapabilityRecord;

#[derive(Debug, Args)]
pub(crate) struct MethodsArgs {
    /// Methods to show in detail, with their capabilities [default: list all methods]
    #[arg(value_name = "METHOD")]
    methods: Vec<IoMethod>,
    /// Compare what the methods can do: VLANs, rates, migration, hot-plug, isolation
    #[arg(long, conflicts_with = "methods")]
    capabilities: bool,
    /// Print the methods as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct MethodRecord {
    method: IoMethod,
    summary: &'static str,
    domains: &'static [DomainKind],
    #[serde(flatten)]
    answer: Answer,
    /// The backends of `paravirtual`, the models of `emulated`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<VariantRecord>,
    /// The methods of `paravirtual` to connect its tap to the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vnets: Vec<VariantRecord>,
    /// The accelerator of guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    accel: Option<Accelerator>,
    /// The reason why it isn't KVM.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_kvm: Option<String>,
    /// Its capabilities, for each kind of domain and of NIC.
    capabilities: Vec<CapabilityRecord>,
}

/// A variant of a method's NICs.
#[derive(Serialize)]
struct VariantRecord {
    #[serde(flatten)]
    variant: Variant,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Variant {
    Kind(Flavour),
    Vnet(Vnet),
}

#[derive(Clone, PartialEq, Eq, Serialize)]
struct Answer {
    available: bool,
    #[serde(flatten)]
    lacking: Option<Unsupported>,
}

pub(crate) fn methods(args: &MethodsArgs, places: &Locations) -> Result<Exit, Stop> {
    if args.capabilities && !args.json {
        return print(&capabilities::table()).map(|()| Exit::Done);
    }
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let facts = Facts::gather(&world).or_infrastructure()?;
    let agent = places.find_agent();
    let (facts, no_agent) = match agent {
        Ok(agent) => (facts.with_guests(&world, &GuestNeeds::new(&agent, None).of_methods()), None),
        Err(error) => (facts, Some(error.unsupported)),
    };
    let mut records = records(&facts, no_agent.as_ref());
    records.retain(|record| args.methods.is_empty() || args.methods.contains(&record.method));
    answer(args.json, &records, |records| match args.methods.as_slice() {
        [] => table(records, accelerator(&facts).trim_end().to_owned()),
        _ => details(records),
    })
}

fn records(facts: &Facts, no_agent: Option<&Unsupported>) -> Vec<MethodRecord> {
    let qemu = facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok());
    let record = |(method, availability): (IoMethod, Result<(), Unsupported>)| {
        let guests = method.domains() == [DomainKind::Guest];
        let qemu = qemu.filter(|_| guests);
        MethodRecord {
            method,
            summary: method.summary(),
            domains: method.domains(),
            answer: Answer::of(availability.map_err(|why| no_agent.filter(|_| guests).cloned().unwrap_or(why))),
            kinds: if facts.guests.is_some() { kinds(method, facts) } else { Vec::new() },
            vnets: if facts.guests.is_some() { vnets(method, facts) } else { Vec::new() },
            accel: qemu.map(|qemu| qemu.accel),
            no_kvm: qemu.and_then(|qemu| qemu.no_kvm.clone()),
            capabilities: CapabilityRecord::of(method),
        }
    };
    availability(facts).into_iter().map(record).collect()
}

fn kinds(method: IoMethod, facts: &Facts) -> Vec<VariantRecord> {
    let of_method = Flavour::ALL.into_iter().filter(|kind| kind.method() == method);
    let nic = |kind| GuestDefaults::default().attach(Row::Device(kind));
    of_method.filter_map(|kind| Some(VariantRecord::new(Variant::Kind(kind), nic(kind)?, facts))).collect()
}

fn vnets(method: IoMethod, facts: &Facts) -> Vec<VariantRecord> {
    let of_method = [Vnet::Bridge, Vnet::Macvtap].into_iter().filter(|_| method == IoMethod::Paravirtual);
    let nic = |vnet| Attach::Paravirtual(VirtioNic { vnet, ..VirtioNic::default() });
    of_method.map(|vnet| VariantRecord::new(Variant::Vnet(vnet), nic(vnet), facts)).collect()
}

impl VariantRecord {
    fn new(variant: Variant, nic: Attach, facts: &Facts) -> VariantRecord {
        VariantRecord { variant, answer: Answer::of(guest_availability(&nic, &System::default(), facts)) }
    }

    fn row(&self) -> [String; 3] {
        let name = match self.variant {
            Variant::Kind(kind) => format!("  :{kind}"),
            Variant::Vnet(vnet) => format!("  vnet {vnet}"),
        };
        [name, self.answer.here().to_owned(), self.answer.text()]
    }
}

impl Answer {
    fn of(availability: Result<(), Unsupported>) -> Answer {
        Answer { available: availability.is_ok(), lacking: availability.err() }
    }

    fn here(&self) -> &'static str {
        if self.available { "yes" } else { "no" }
    }

    /// Returns the reason and the fix.
    fn text(&self) -> String {
        let text = |Unsupported { why, remedy }: &Unsupported| format!("{why}\n{remedy}");
        self.lacking.as_ref().map(text).unwrap_or_default()
    }
}

fn table(records: &[MethodRecord], remark: String) -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for (nth, record) in records.iter().enumerate() {
        // A reason shared by several methods is printed once: it may be as long as $PATH.
        let earlier =
            records[..nth].iter().find(|earlier| !earlier.answer.available && earlier.answer == record.answer);
        let answer = earlier.map_or(record.answer.text(), |earlier| format!("same as for {}", earlier.method));
        let text = format!("{}\n{answer}", record.summary);
        rows.push([record.method.to_string(), record.answer.here().to_owned(), text.trim_end().to_owned()]);
        let differs = |variant: &&VariantRecord| variant.answer != record.answer;
        // Either all kinds are shown, or none if they do not differ from the method.
        let kinds = record.kinds.iter().filter(|_| record.kinds.iter().any(|kind| differs(&kind)));
        rows.extend(kinds.chain(record.vnets.iter().filter(differs)).map(VariantRecord::row));
    }
    let what = Column::wrapped("DESCRIPTION, OR REASON AND FIX");
    lists::list_with_remark([Column::left("METHOD"), Column::left("HERE"), what], rows, remark)
}

/// Returns each method's availability and capabilities, with the reasons.
fn details(records: &[MethodRecord]) -> String {
    let rows = records.iter().flat_map(|record| {
        let MethodRecord { method, summary, answer, .. } = record;
        let text = format!("{summary}\n{}", answer.text()).trim_end().to_owned();
        let here = [format!("{method}, here"), answer.here().to_owned(), text];
        std::iter::once(here).chain(record.capabilities.iter().flat_map(CapabilityRecord::rows))
    });
    let columns = [Column::left("METHOD"), Column::left("ANSWER"), Column::wrapped("DESCRIPTION, OR REASON")];
    lists::list(columns, rows)
}
