//! Capabilities of methods, for people and as JSON.

use serde::{Serialize, Serializer};
use vtax_model::{
    guest::{Backend, Vnet},
    method::{Capability, CapabilityAnswer, DomainKind, IoMethod, MethodVariant, VirtioPath},
};
use vtax_report::Column;

use crate::cli::lists;

const LEGEND: &str = "VLAN, RATE: who can restrict the domain (NIC or host). Some: depends on hardware or a program. \
    ISOLATION: what it does not share. NEEDS: what interrupts its network if it fails, apart from the host's kernel. \
    HOST CPU: what handles each packet on the host. Reasons: vtax methods METHOD, or --json";

/// Capabilities of one way of attaching a domain.
#[derive(Serialize)]
pub(super) struct CapabilityRecord {
    #[serde(flatten)]
    variant: MethodVariant,
    #[serde(serialize_with = "by_capability")]
    answers: [CapabilityAnswer; 9],
}

fn by_capability<S: Serializer>(answers: &[CapabilityAnswer; 9], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(answers.iter().map(|answer| (answer.capability, answer)))
}

impl CapabilityRecord {
    pub(super) fn of(method: IoMethod) -> Vec<CapabilityRecord> {
        let record = |variant: MethodVariant| CapabilityRecord { variant, answers: variant.capabilities().answers() };
        method.variants().into_iter().map(record).collect()
    }

    /// Returns the rows of its details: one for each capability, below the name.
    pub(super) fn rows(&self) -> Vec<[String; 3]> {
        let head = [self.variant.to_string(), String::new(), String::new()];
        let row = |answer: &CapabilityAnswer| {
            [format!("  {}", answer.capability.title()), answer.word.to_owned(), answer.reason.to_owned()]
        };
        std::iter::once(head).chain(self.answers.iter().map(row)).collect()
    }
}

/// Returns a row for each way of attaching a domain, and the legend.
pub(super) fn table() -> String {
    let columns: [Column; 10] = std::array::from_fn(|nth| match nth {
        0 => Column::left("METHOD"),
        nth => Column::left(Capability::ALL[nth - 1].head()),
    });
    let rows = MethodVariant::all().into_iter().map(|variant| {
        let answers = variant.capabilities().answers();
        std::array::from_fn(|nth| match nth {
            0 => short_name(variant),
            nth => answers[nth - 1].word.to_owned(),
        })
    });
    lists::list_with_remark(columns, rows, LEGEND.to_owned())
}

/// Returns the name without the method's if the row above has it: as narrow as the table needs.
fn short_name(variant: MethodVariant) -> String {
    match variant.virtio {
        Some(VirtioPath { backend: Backend::Vhost, vnet: Vnet::Bridge }) => variant.method.to_string(),
        Some(VirtioPath { backend, vnet: Vnet::Bridge }) => format!("  :{}", <&str>::from(backend)),
        Some(VirtioPath { vnet, .. }) => format!("  vnet {vnet}"),
        None if variant.domain == DomainKind::Zone && variant.method.variants().len() > 1 => "  for a zone".to_owned(),
        None => variant.method.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_100_columns() {
        let text = table();
        let (rows, _) = text.split_once("\n\n").expect("a legend");
        let widest = rows.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?}:\n{rows}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn details_have_a_row_for_each_capability() {
        let rows: Vec<_> = CapabilityRecord::of(IoMethod::SrIov).iter().flat_map(CapabilityRecord::rows).collect();
        let told: Vec<String> = rows.iter().map(|row| row.join(" | ")).collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn json_names_every_capability() {
        let records = CapabilityRecord::of(IoMethod::Paravirtual);
        insta::assert_snapshot!(serde_json::to_string_pretty(&records[3]).expect("data"));
    }
}
