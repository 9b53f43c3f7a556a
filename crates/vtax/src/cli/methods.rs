//! `vtax methods`.

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use vtax_lab::{Facts, GuestNeeds, Need, World, availability, guest_availability};
use vtax_model::{
    guest::{Accelerator, Attach, Flavour, GuestDefaults, System, VirtioNic, Vnet},
    method::{DomainKind, IoMethod, Unsupported},
    study::Row,
};

use super::{Locations, lab::accelerator, print, print_json, run::terminal_width};
use crate::exit::{Blamed, Exit, Stop};

#[derive(Debug, Args)]
pub(crate) struct MethodsArgs {
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
    /// Of guests: how else their NICs can be made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<KindRecord>,
    /// Of `paravirtual`: how else its tap can hang on the wire.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vnets: Vec<VnetRecord>,
    /// Of guests: what runs their instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    accel: Option<Accelerator>,
    /// Why that isn't KVM.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_kvm: Option<String>,
}

/// A backend of `paravirtual`, a model of `emulated`.
#[derive(Serialize)]
struct KindRecord {
    kind: Flavour,
    #[serde(flatten)]
    answer: Answer,
}

/// A `vnet` of `paravirtual`.
#[derive(Serialize)]
struct VnetRecord {
    vnet: Vnet,
    #[serde(flatten)]
    answer: Answer,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
struct Answer {
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

pub(crate) fn methods(args: &MethodsArgs, places: &Locations) -> Result<Exit, Stop> {
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let facts = Facts::gather(&world).or_infrastructure()?;
    let agent = places.find_agent();
    let (facts, no_agent) = match agent {
        Ok(agent) => (facts.with_guests(&world, &GuestNeeds::new(&agent, None).of_methods()), None),
        Err(error) => (facts, Some(error.unsupported)),
    };
    let records = records(&facts, no_agent.as_ref());
    match args.json {
        true => print_json(&records)?,
        false => print(&format!("{}{}", table(&records), accelerator(&facts)))?,
    }
    Ok(Exit::Done)
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
        }
    };
    availability(facts).into_iter().map(record).collect()
}

fn kinds(method: IoMethod, facts: &Facts) -> Vec<KindRecord> {
    let of_method = Flavour::ALL.into_iter().filter(|kind| kind.method() == method);
    let record = |kind| {
        let nic = GuestDefaults::default().attach(Row::Device(kind))?;
        let answer = Answer::of(guest_availability(&nic, &System::default(), facts));
        Some(KindRecord { kind, answer })
    };
    of_method.filter_map(record).collect()
}

fn vnets(method: IoMethod, facts: &Facts) -> Vec<VnetRecord> {
    let of_method = [Vnet::Bridge, Vnet::Macvtap].into_iter().filter(|_| method == IoMethod::Paravirtual);
    let record = |vnet| {
        let nic = Attach::Paravirtual(VirtioNic { vnet, ..VirtioNic::default() });
        VnetRecord { vnet, answer: Answer::of(guest_availability(&nic, &System::default(), facts)) }
    };
    of_method.map(record).collect()
}

impl Answer {
    fn of(availability: Result<(), Unsupported>) -> Answer {
        let (why, remedy) = availability.err().map(|Unsupported { why, remedy }| (why, remedy)).unzip();
        Answer { available: why.is_none(), why, remedy }
    }

    fn here(&self) -> &'static str {
        if self.available { "yes" } else { "no" }
    }

    /// Why not, and what mends it.
    fn text(&self) -> String {
        let text = [self.why.clone(), self.remedy.clone()];
        text.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

fn table(records: &[MethodRecord]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "METHOD",
        "HERE",
        "WHAT IT IS; IF IT IS NOT HERE, WHY, AND WHAT MENDS IT",
    ]);
    table.set_width(terminal_width().unwrap_or(100) as u16);
    for (nth, record) in records.iter().enumerate() {
        // What is lacking for several methods is said once: it may be as long as $PATH.
        let earlier =
            records[..nth].iter().find(|earlier| !earlier.answer.available && earlier.answer == record.answer);
        let answer = earlier.map_or(record.answer.text(), |earlier| format!("as {}", earlier.method));
        let text = format!("{}\n{answer}", record.summary);
        table.add_row([record.method.name(), record.answer.here(), text.trim_end()]);
        // Where no kind differs from its method, there is nothing to add.
        for kind in record.kinds.iter().filter(|_| record.kinds.iter().any(|kind| kind.answer != record.answer)) {
            let name = format!("  :{}", kind.kind);
            table.add_row([name.as_str(), kind.answer.here(), &kind.answer.text()]);
        }
        for vnet in record.vnets.iter().filter(|vnet| vnet.answer != record.answer) {
            let name = format!("  vnet {}", vnet.vnet);
            table.add_row([name.as_str(), vnet.answer.here(), &vnet.answer.text()]);
        }
    }
    format!("{}\n", table.trim_fmt())
}
