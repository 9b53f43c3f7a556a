//! Facts about the migration of a domain: where it was, where it moved to, and what each side has seen.

use vtax_model::{
    metric::SampleFigure,
    result::ResultDocument,
    run::{DomainRecord, EndRecord},
};

use super::{FactKind, listed, only_pair, processors};
use crate::{
    number::{counted, three_digits},
    record::is_of_migrations,
    words::{self, named},
};

/// Suspend time by each side, with the words that precede and follow it.
const SIDES: [(&str, SampleFigure, &str); 3] = [
    ("", SampleFigure::SuspendByQemu, " by QEMU, without the hand-over"),
    ("", SampleFigure::SuspendByGuestClock, " by the domain's clock"),
    ("silent for ", SampleFigure::Silence, " at the source's host"),
];

/// Returns nothing for a study, which has its own guests.
pub(super) fn facts(document: &ResultDocument) -> Vec<(FactKind, String)> {
    let Some(pair) = only_pair(document).filter(|_| is_of_migrations(document)) else { return Vec::new() };
    vec![
        (FactKind::Domain, pair.initiator.domain.as_ref().map_or(String::new(), domain)),
        (FactKind::Source, host(&pair.initiator)),
        (FactKind::Target, host(&pair.responder)),
        (FactKind::Suspended, suspended(document)),
    ]
}

fn domain(DomainRecord { name, vcpus, memory, .. }: &DomainRecord) -> String {
    format!("{name}, {}, {memory} of memory", counted(*vcpus, "virtual CPU"))
}

/// The machine of vtax is described elsewhere.
fn host(EndRecord { name, environment, .. }: &EndRecord) -> String {
    let Some(machine) = environment else {
        return if name.raw() == "local" { "this machine".to_owned() } else { name.to_string() };
    };
    let linux = named("Linux", &machine.kernel.to_string());
    format!("{name}: {}", listed([machine.hostname.to_string(), processors(machine), linux]))
}

fn suspended(document: &ResultDocument) -> String {
    let summary = document.cells.first().and_then(|record| record.summary.as_ref());
    let side = |(before, figure, by): (&str, SampleFigure, &str)| {
        let estimate = summary?.estimate(figure)?;
        Some(format!("{before}{} ms{by}", three_digits(estimate.mean)))
    };
    words::joined(SIDES.into_iter().filter_map(side), "; ")
}
