//! View of a proposed size.

use vtax_model::size::{
    CoreRange, CostTerms, Knee, KneeSource, MeasuredSuspensions, MemoryNeed, MigrationReserve, RuleOfThumb,
    ServiceNeed, SizeProposal, SizeTarget, SizedService, SuspensionByCores, ThumbFigure,
};

use super::{
    number::{counted, memory, percent, span, with_interval},
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value, View},
};

/// Returns the view of a proposed size: the size, what each service needs, and what is assumed.
pub fn proposed_size(proposal: &SizeProposal) -> View {
    View {
        answer: Some(Section::of("", vec![SectionPart::Paragraph(answer(proposal))])),
        facts: facts(proposal),
        sections: [
            Section::of_table("", services(&proposal.services)),
            Section::of_table(source(&proposal.rules), rules(proposal)),
            Section::bullets("Assumed or unknown", proposal.notes.clone()),
        ]
        .into_iter()
        .flatten()
        .collect(),
        ..View::default()
    }
}

fn answer(proposal: &SizeProposal) -> String {
    let SizeProposal { domain, cores, threads, needs, .. } = proposal;
    let threads = if threads > cores { format!(" ({threads} threads)") } else { String::new() };
    let memory = proposal.memory.map_or(String::new(), |memory| format!(", {}", memory.total));
    let size = counted(*cores, "core");
    format!("{}: {size}{threads}{memory}; it needs {} cores", domain.as_str(), range(*needs))
}

fn facts(proposal: &SizeProposal) -> Vec<(&'static str, String)> {
    let mut facts =
        vec![("load", load(&proposal.target)), ("utilization", utilization(proposal)), ("knee", knee(&proposal.knee))];
    facts.extend(proposal.migration.as_ref().map(|reserve| ("migration", migration(proposal, reserve))));
    facts.extend(proposal.memory.map(|need| ("memory", memory_parts(need))));
    facts
}

pub(super) fn load(target: &SizeTarget) -> String {
    let block = target.block.map_or(String::new(), |block| format!(" of {block}"));
    let parts = [
        target.net.map(|net| net.to_string()),
        target.packets.map(|packets| packets.to_string()),
        target.ios.map(|ios| format!("{ios}{block}")),
        target.p99.map(|limit| format!("p99 at most {}", span(limit))),
        (target.consoles > 0).then(|| counted(target.consoles, "console")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn utilization(proposal: &SizeProposal) -> String {
    let CoreRange { estimate, low, high } = proposal.utilization();
    format!("{} expected", percents(estimate, [low, high]))
}

pub(super) fn knee(knee: &Knee) -> String {
    match (knee.source, knee.high) {
        (KneeSource::Default, _) => format!("{}, a default: not measured", percent(knee.utilization)),
        (KneeSource::Measured, Some(high)) => percents(knee.utilization, [knee.low, high]),
        (KneeSource::Measured, None) => format!("above {}, the highest utilization measured", percent(knee.low)),
    }
}

fn migration(proposal: &SizeProposal, reserve: &MigrationReserve) -> String {
    let cores = counted(reserve.cores, "core");
    let reserved = format!("+{cores} while it lasts ({} in all), {}", proposal.cores_with_migration(), reserve.per_day);
    let Some(MeasuredSuspensions { guest, suspensions }) = &reserve.measured else { return reserved };
    let suspension = |of: &SuspensionByCores| {
        let time = with_interval(of.mean_ms, of.low_ms.zip(of.high_ms).map(<[f64; 2]>::from));
        format!("{time} ms with {}", counted(of.cores, "core"))
    };
    let suspended = suspensions.iter().map(suspension).collect::<Vec<_>>().join(", ");
    let rate = guest.dirty_rate.map(|rate| format!(" that changes {rate} MB/s")).unwrap_or_default();
    format!("{reserved}; a guest of {}{rate} is suspended for {suspended}", memory(guest.memory.0))
}

fn memory_parts(need: MemoryNeed) -> String {
    let origin = if need.estimated { "computed" } else { "measured" };
    let [backends, cache, reserve] = [need.backends, need.page_cache, need.reserve].map(|size| memory(size.0));
    let cache = if need.page_cache.0 == 0 { String::new() } else { format!(", {cache} of page cache") };
    format!("{backends} for backends ({origin}){cache}, {reserve} reserve")
}

/// Columns without any value are omitted.
fn services(needs: &[ServiceNeed]) -> Table {
    type Term = fn(&CostTerms) -> Option<f64>;
    const TERMS: [(&str, Term); 4] = [
        ("fixed", |terms| Some(terms.fixed_cores)),
        ("ns/packet", |terms| terms.ns_per_packet),
        ("ns/I/O", |terms| terms.ns_per_io),
        ("ns/byte", |terms| terms.ns_per_byte),
    ];
    let present = |(_, term): &&(&str, Term)| needs.iter().any(|need| term(&need.terms).is_some());
    let terms: Vec<&(&str, Term)> = TERMS.iter().filter(present).collect();
    let row = |need: &ServiceNeed| {
        let CoreRange { estimate, low, high } = need.cores;
        let cores = Value::Estimate { mean: estimate, ends: Some([low, high]) };
        let values = terms.iter().map(|(_, term)| Value::figure(term(&need.terms)));
        let last = [evidence(need).into()];
        TableRow::new(vec![need.target.service.to_string()], [cores].into_iter().chain(values).chain(last))
    };
    let heads = ["cores"].into_iter().chain(terms.iter().map(|(head, _)| *head)).map(Column::right);
    Table {
        labels: vec!["service".to_owned()],
        groups: vec![Group::untitled(heads.chain([Column::wrapped("measured")]).collect::<Vec<_>>())],
        rows: needs.iter().map(row).collect(),
        ..Table::default()
    }
}

fn evidence(need: &ServiceNeed) -> String {
    let samples = counted(need.points as u32, "sample");
    let rates = counted(need.rates as u32, "rate");
    let runs = if need.runs.len() == 1 { "run" } else { "runs" };
    let extrapolated = need.extrapolated.map(|times| format!("; extrapolated to {times:.2} times the highest rate"));
    let one_size = need.one_message_size.then_some("; for this message size only");
    format!(
        "{}, {samples} at {rates}, {runs} {}{}{}",
        need.method,
        need.runs.join(", "),
        extrapolated.unwrap_or_default(),
        one_size.unwrap_or_default()
    )
}

/// All rules of a target have one source.
fn source(rules: &[RuleOfThumb]) -> String {
    rules.first().map_or(String::new(), |rule| format!("Published rules: {}", rule.source))
}

/// The published rules next to the proposal.
fn rules(proposal: &SizeProposal) -> Table {
    let row = |rule: &RuleOfThumb| {
        let here = here(proposal, rule.figure).unwrap_or_else(|| "not known".to_owned());
        let values: [Value; 3] = [published(rule).into(), here.into(), rule.rule.as_str().into()];
        TableRow::new(vec![subject(rule.figure).to_owned()], values)
    };
    Table {
        labels: vec!["for".to_owned()],
        groups: vec![Group::untitled([Column::left("published"), Column::left("here"), Column::wrapped("rule")])],
        rows: proposal.rules.iter().map(row).collect(),
        ..Table::default()
    }
}

fn subject(figure: ThumbFigure) -> &'static str {
    match figure {
        ThumbFigure::NetworkCores | ThumbFigure::NetworkGhz => "networks",
        ThumbFigure::DiskThreads => "disks",
        ThumbFigure::DomainCores => "domain",
        ThumbFigure::MigrationCores => "migration",
        ThumbFigure::MemoryGb => "memory",
    }
}

fn published(rule: &RuleOfThumb) -> String {
    let amount = if rule.low < rule.high { format!("{} to {}", rule.low, rule.high) } else { rule.high.to_string() };
    let counted = |unit: &str| format!("{amount} {unit}{}", if rule.high == 1.0 { "" } else { "s" });
    match rule.figure {
        ThumbFigure::NetworkCores | ThumbFigure::DomainCores | ThumbFigure::MigrationCores => counted("core"),
        ThumbFigure::NetworkGhz => format!("{amount} GHz"),
        ThumbFigure::DiskThreads => counted("thread"),
        ThumbFigure::MemoryGb => format!("{amount} GB"),
    }
}

/// The figure of the proposal that a rule is about.
fn here(proposal: &SizeProposal, figure: ThumbFigure) -> Option<String> {
    let of_service = |service: SizedService| {
        let need = proposal.services.iter().find(|need| need.target.service == service)?;
        Some(format!("{} cores", range(need.cores)))
    };
    match figure {
        ThumbFigure::NetworkCores | ThumbFigure::NetworkGhz => of_service(SizedService::Vnet),
        ThumbFigure::DiskThreads => of_service(SizedService::Vdisk),
        ThumbFigure::DomainCores => Some(counted(proposal.cores, "core")),
        ThumbFigure::MigrationCores => Some(counted(proposal.cores_with_migration(), "core")),
        ThumbFigure::MemoryGb => proposal.memory.map(|need| need.total.to_string()),
    }
}

pub(super) fn range(CoreRange { estimate, low, high }: CoreRange) -> String {
    with_interval(estimate, Some([low, high]))
}

/// Formats shares with their interval, e.g. `82 % [78, 85]`.
fn percents(share: f64, ends: [f64; 2]) -> String {
    let [low, high] = ends.map(|end| end * 100.0);
    format!("{:.0} % [{low:.0}, {high:.0}]", share * 100.0)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use vtax_model::{
        cell::MigrationCell,
        size::{CostPoint, GuestTotals, KneePoint, MemoryFacts, MigrationPoint, SizeFacts, plan_rates},
        units::{BitRate, ByteSize, Span},
    };

    use super::*;
    use crate::Options;

    fn target() -> SizeTarget {
        SizeTarget {
            net: BitRate::new(10_000_000_000),
            packets: "1.5M".parse().ok(),
            ios: "40k".parse().ok(),
            p99: Some(Span(Duration::from_micros(200))),
            consoles: 12,
            migrations: "2/day".parse().ok(),
            guests: Some(GuestTotals { guests: 12, vcpus: 24, memory: ByteSize(48 << 30) }),
            ..SizeTarget::default()
        }
    }

    /// Costs with a disturbance of 3 % that alternates.
    fn costs(target: &SizeTarget) -> Vec<CostPoint> {
        let planned = plan_rates(target).expect("a target");
        let planned = planned.iter().filter(|rate| rate.load.service != SizedService::Console);
        let point = |(number, rate): (usize, &vtax_model::size::PlannedRate)| {
            let load = rate.load;
            let cores = 0.1 + (900.0 * load.packets_per_s + 9_000.0 * load.ios_per_s + 0.3 * load.bytes_per_s) / 1e9;
            let disturbed = [1.0, 1.03, 0.98, 1.01, 0.97][number % 5];
            CostPoint { load, method: "paravirtual".into(), cores: cores * disturbed, run: "t7-bold-hare".into() }
        };
        planned.flat_map(|rate| [rate, rate, rate]).enumerate().map(point).collect()
    }

    fn facts() -> SizeFacts {
        SizeFacts {
            domain: "primary".parse().expect("a name"),
            threads_per_core: 2,
            clock_ghz: Some(2.5),
            costs: costs(&target()),
            proof: BTreeMap::new(),
            migrations: Vec::new(),
            memory: MemoryFacts::default(),
        }
    }

    fn drawn(target: &SizeTarget, facts: &SizeFacts) -> String {
        let proposal = SizeProposal::of(target, facts).expect("a size");
        proposed_size(&proposal).draw(&Options::default()).plain()
    }

    #[test]
    fn a_size_with_all_parts() {
        let proof = [(0.6, 90), (0.7, 110), (0.78, 150), (0.85, 260), (0.95, 900)];
        let point = |utilization: f64, micros: u64| KneePoint { utilization, p99: Span(Duration::from_micros(micros)) };
        let guest = MigrationCell { memory: ByteSize(1 << 30), dirty_rate: Some(100) };
        let migrations = (0..10).flat_map(|round| {
            let noise = 1.0 + f64::from(round) / 100.0;
            let migration =
                |cores, mean| MigrationPoint { cores, guest, round: ("t9".into(), round), suspended_ms: mean * noise };
            [migration(1, 350.0), migration(2, 87.0)]
        });
        let facts = SizeFacts {
            proof: [(
                SizedService::Vnet,
                proof.iter().flat_map(|(at, micros)| [point(*at, *micros), point(*at, micros + 4)]).collect(),
            )]
            .into(),
            migrations: migrations.collect(),
            ..facts()
        };
        insta::assert_snapshot!(drawn(&target(), &facts));
    }

    #[test]
    fn a_size_before_any_proof() {
        let target = SizeTarget { net: target().net, packets: target().packets, ..SizeTarget::default() };
        let facts = SizeFacts { clock_ghz: None, threads_per_core: 1, ..facts() };
        insta::assert_snapshot!(drawn(&target, &facts));
    }
}
