//! Findings in the store that requirements are compared with.

use vtax_model::{
    advice::{FigureSource, WantedEvidence},
    evidence::EvidenceFinding,
    method::IoMethod,
    metric::Metric,
    study::Row,
    workload::TestKind,
};
use vtax_store::{FindingFilter, Store, StoreError};

/// Maximum number of findings of a method, a test and a metric, the newest ones, and of those of other machines, which
/// only give the reason why they do not count.
const MOST: u32 = 400;
const MOST_ELSEWHERE: u32 = 20;

/// Returns the newest findings of what the requirements ask for.
pub(super) fn findings(store: &Store, wanted: &WantedEvidence<'_>) -> Result<Vec<EvidenceFinding>, StoreError> {
    let mut asked: Vec<(TestKind, Metric)> = Vec::new();
    for FigureSource { test, metrics } in wanted.sources() {
        let new = metrics.iter().map(|metric| (test, *metric)).filter(|pair| !asked.contains(pair));
        asked.extend(new.collect::<Vec<_>>());
    }
    let mut found = Vec::new();
    for (test, metric) in asked {
        // A disk's row isn't a method.
        let methods: Vec<Option<IoMethod>> = match test.is_of_disk() {
            true => vec![None],
            false => IoMethod::ALL.into_iter().map(Some).collect(),
        };
        for method in methods {
            found.extend(of_method(store, wanted, method, test, metric)?);
        }
    }
    Ok(found)
}

fn of_method(
    store: &Store,
    wanted: &WantedEvidence<'_>,
    method: Option<IoMethod>,
    test: TestKind,
    metric: Metric,
) -> Result<Vec<EvidenceFinding>, StoreError> {
    let on = |machine: Option<String>, limit| FindingFilter {
        method: method.map(Row::Method),
        metric: Some(metric),
        test: Some(test),
        machine,
        since: None,
        limit,
    };
    let here = store.findings(&on(Some(wanted.machine.machine.raw().to_owned()), MOST))?;
    match here.is_empty() {
        true => store.findings(&on(None, MOST_ELSEWHERE)),
        false => Ok(here),
    }
}
