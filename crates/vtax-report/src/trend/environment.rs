//! Changes of the machine, of vtax or of the plan from one result to the next.

use serde::Serialize;
use vtax_model::{
    evidence::{StandingObjection, run_standing},
    result::ResultDocument,
};

use crate::compare::{differences, sampling};

/// Changes between a result and the previous one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MachineChange {
    /// First result with the new state.
    pub(super) result: usize,
    pub(super) fields: Vec<ChangedField>,
}

/// Field of the environment, or of the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ChangedField {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
}

/// Fields that affect speed most, in the order in which they are listed. All others follow.
const FIRST: [&str; 13] = [
    "kernel",
    "QEMU",
    "vtax",
    "hostname",
    "accelerator",
    "endpoints",
    "domain",
    "kind of NIC",
    "cpu model",
    "governor",
    "hypervisor",
    "samples",
    "turbo",
];

/// Maximum number of fields in a sentence.
const NAMED: usize = 3;

pub(super) fn changes(documents: &[&ResultDocument]) -> Vec<MachineChange> {
    let of = |(index, pair): (usize, &[&ResultDocument])| {
        let fields = fields(pair[0], pair[1]);
        (!fields.is_empty()).then_some(MachineChange { result: index + 1, fields })
    };
    documents.windows(2).enumerate().filter_map(of).collect()
}

fn fields(before: &ResultDocument, after: &ResultDocument) -> Vec<ChangedField> {
    let qemu = |run: &ResultDocument| run.placement.guests.as_ref().map_or(String::new(), |by| by.qemu.to_string());
    let of = |name: &str, text: fn(&ResultDocument) -> String| (name.to_owned(), text(before), text(after));
    let own = [of("QEMU", qemu), of("samples", sampling)].into_iter().filter(|(_, from, to)| from != to);
    // Every run has its own seed.
    let others = differences(before, after).into_iter().filter(|(name, ..)| name != "plan");
    let standing = run_standing(before, after);
    let of_standing = standing.objections().iter().filter_map(StandingObjection::property);
    // The environment has the machine, by its host name, and the kernel.
    let of_standing = of_standing.filter(|property| !["machine", "kernel"].contains(&property.name));
    let of_standing = of_standing.map(|property| (property.name.to_owned(), property.measured, property.wanted));
    let mut fields: Vec<ChangedField> =
        own.chain(of_standing).chain(others).map(|(name, from, to)| ChangedField { name, from, to }).collect();
    fields.sort_by_key(|field| FIRST.iter().position(|name| *name == field.name).unwrap_or(FIRST.len()));
    fields
}

impl MachineChange {
    /// Returns e.g. `kernel from 6.1 to 6.8, governor from powersave to performance`.
    pub(super) fn told(&self) -> String {
        let told = |field: &ChangedField| {
            let [from, to] = [&field.from, &field.to].map(|text| if text.is_empty() { "not reported" } else { text });
            format!("{} from {from} to {to}", field.name)
        };
        let named: Vec<String> = self.fields.iter().take(NAMED).map(told).collect();
        let more = self.fields.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("{}{more}", named.join(", "))
    }

    /// Short label for a chart, e.g. `kernel 6.8`.
    pub(super) fn label(&self) -> String {
        let field = &self.fields[0];
        format!("{} {}", field.name, field.to)
    }
}
