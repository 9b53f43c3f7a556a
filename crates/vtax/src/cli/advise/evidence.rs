//! Findings in the store that requirements are compared with.

use std::collections::BTreeSet;

use vtax_model::{
    advice::{FigureSource, WantedEvidence},
    evidence::EvidenceFinding,
    method::IoMethod,
    metric::Metric,
    study::Row,
    workload::TestKind,
};
use vtax_store::{FindingFilter, Store, StoreError};

/// Maximum number of findings of a method, a test and a metric, the newest ones: more than a machine takes in years of daily
/// runs, and few enough for memory.
pub(super) const MOST: u32 = 10_000;
/// Maximum number of those of other machines, which only give the reason why they do not count.
const MOST_ELSEWHERE: u32 = 20;

/// Findings to compare with requirements.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FoundEvidence {
    pub(super) findings: Vec<EvidenceFinding>,
    /// Methods of which there are older findings that were not read, each with the test.
    pub(super) cut: BTreeSet<String>,
}

/// Returns the newest findings of what the requirements ask for, at most this many of a method, a test and a metric.
pub(super) fn findings(store: &Store, wanted: &WantedEvidence<'_>, most: u32) -> Result<FoundEvidence, StoreError> {
    let mut asked: Vec<(TestKind, Metric)> = Vec::new();
    for FigureSource { test, metrics } in wanted.sources() {
        let new = metrics.iter().map(|metric| (test, *metric)).filter(|pair| !asked.contains(pair));
        asked.extend(new.collect::<Vec<_>>());
    }
    let mut found = FoundEvidence::default();
    for (test, metric) in asked {
        // A disk's row isn't a method.
        let methods: Vec<Option<IoMethod>> = match test.is_of_disk() {
            true => vec![None],
            false => IoMethod::ALL.into_iter().map(Some).collect(),
        };
        for method in methods {
            let limit = most.saturating_add(1);
            let mut newest = of_method(store, wanted, method, test, metric, limit)?;
            if newest.len() > most as usize {
                newest.truncate(most as usize);
                let of = method.map_or_else(|| "disks".to_owned(), |method| method.to_string());
                found.cut.insert(format!("{of} ({test})"));
            }
            found.findings.extend(newest);
        }
    }
    Ok(found)
}

impl FoundEvidence {
    /// Returns what was not read, as a remark.
    pub(super) fn remark(&self, most: u32) -> Option<String> {
        let of = self.cut.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        (!self.cut.is_empty()).then(|| {
            format!(
                "only the newest {most} findings of each quantity were read, and older ones were not used: {of}; remove runs \
                 that you no longer need (vtax results remove)"
            )
        })
    }
}

fn of_method(
    store: &Store,
    wanted: &WantedEvidence<'_>,
    method: Option<IoMethod>,
    test: TestKind,
    metric: Metric,
    limit: u32,
) -> Result<Vec<EvidenceFinding>, StoreError> {
    let on = |machine: Option<String>, limit| FindingFilter {
        method: method.map(Row::Method),
        metric: Some(metric),
        test: Some(test),
        machine,
        since: None,
        limit,
    };
    let here = store.findings(&on(Some(wanted.machine.machine.raw().to_owned()), limit))?;
    match here.is_empty() {
        true => store.findings(&on(None, MOST_ELSEWHERE)),
        false => Ok(here),
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{advice::Requirements, evidence::EvidenceSetting, located::Source, run::RunState, units::Mtu};

    use super::*;

    #[test]
    fn older_findings_that_are_not_read_are_named() {
        let folder = tempfile::tempdir().expect("a directory");
        let store = Store::open(folder.path()).expect("it opens");
        let run = vtax_synthetic::built_in("demo");
        for nth in 0..3 {
            let mut header = run.header.clone();
            header.id = format!("demo-{nth}");
            header.started = format!("2026-01-0{}T00:00:00Z", nth + 1);
            let mut writer = store.create_run(&header).expect("begun");
            writer.samples(&run.samples).expect("stored");
            writer.finish(RunState::Complete, 1.0).expect("complete");
        }
        let requirements = Requirements::parse(Source { name: "required.toml", text: "p50 = \"90us\"\n" });
        let machine = EvidenceSetting::of_machine(&run.header.environment, None);
        let wanted = WantedEvidence {
            requirements: &requirements.expect("a requirement"),
            machine: &machine,
            mtu: Mtu::ETHERNET,
            now: 0,
            seconds: |_| None,
        };
        let all = findings(&store, &wanted, MOST).expect("they are read");
        assert!(!all.findings.is_empty() && all.remark(MOST).is_none(), "{all:?}");
        let newest = findings(&store, &wanted, 1).expect("they are read");
        assert!(newest.findings.iter().all(|finding| finding.run == "demo-2"), "{newest:?}");
        let remark = newest.remark(1).expect("older ones are left");
        assert!(remark.starts_with("only the newest 1 findings") && remark.contains("bridge (RR)"), "{remark}");
    }
}
