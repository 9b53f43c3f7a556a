//! `vtax results find`.

use std::{path::Path, str::FromStr};

use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};
use miette::miette;

use vtax_model::{evidence::EvidenceFinding, metric::Metric, study::Row, workload::TestKind};
use vtax_report::{Column, FindingWords};
use vtax_store::{FindingFilter, Store, StoreError};

use crate::{
    cli::{answer, lists, metric::word},
    exit::{Exit, Stop},
    one_of::{Choice, one_of},
    whole_number::whole,
};

const TESTS: [Choice<TestKind>; TestKind::ALL.len()] = [
    ("rr", "Request and response", TestKind::Rr),
    ("crr", "Connect, request, response, close", TestKind::Crr),
    ("cc", "Connect and close", TestKind::Cc),
    ("stream", "Stream from the initiator", TestKind::Stream),
    ("maerts", "Stream from the responder", TestKind::Maerts),
    ("bidirectional", "Streams in both directions", TestKind::Bidirectional),
    ("multicast", "Datagrams from the initiator to a group", TestKind::Multicast),
    ("file", "File transfer", TestKind::File),
    ("random", "Random I/O of a disk", TestKind::Random),
    ("sequential", "Sequential I/O of a disk", TestKind::Sequential),
    ("migration", "Live migration of a guest", TestKind::Migration),
];

#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// I/O method with all of its devices, or another row, e.g. bridge or paravirtual:vhost [default: all]
    #[arg(long, value_name = "METHOD")]
    method: Option<Row>,
    /// Metric of the findings [default: all]
    #[arg(long, value_name = "METRIC", value_parser = metrics())]
    metric: Option<Metric>,
    /// Kind of test [default: all]
    #[arg(long, value_name = "TEST", value_parser = one_of(&TESTS))]
    test: Option<TestKind>,
    /// Host name of the machine, e.g. hv1 [default: all machines]
    #[arg(long, value_name = "HOST")]
    machine: Option<String>,
    /// Earliest start of the runs: an age, e.g. 7d or 12h, a date, e.g. 2026-01-31, or a timestamp [default: all runs]
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Maximum number of findings, the newest ones, e.g. 1000
    #[arg(long, value_name = "N", default_value = "200", value_parser = whole::<u32>)]
    limit: u32,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

fn metrics() -> impl TypedValueParser<Value = Metric> {
    let names = Metric::ALL.map(|metric| PossibleValue::new(word(metric)).help(metric.described()));
    PossibleValuesParser::new(names).map(|text| {
        let named = Metric::ALL.into_iter().find(|metric| word(*metric) == text);
        named.expect("clap refuses other words")
    })
}

/// Earliest time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since(Timestamp);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid time; use an age (7d, 12h), a date (2026-01-31) or a timestamp (2026-01-31T12:00:00Z)")]
struct NoTime;

impl Since {
    /// Parses a time: ages count back from `now`, and dates begin at midnight, UTC.
    fn before(text: &str, now: Timestamp) -> Result<Since, NoTime> {
        let hours = [('d', 24), ('h', 1)].into_iter().find_map(|(unit, hours)| {
            let count: i64 = text.strip_suffix(unit)?.parse::<u32>().ok()?.into();
            Some(count * hours)
        });
        let age = hours.and_then(|hours| now.checked_sub(SignedDuration::from_hours(hours)).ok());
        let date = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|midnight| midnight.timestamp());
        age.or_else(|| text.parse().ok()).or_else(date).map(Since).ok_or(NoTime)
    }
}

impl FromStr for Since {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Since, NoTime> {
        Since::before(text, Timestamp::now())
    }
}

/// Findings of a store, with the facts of the remark below them.
struct Found {
    findings: Vec<EvidenceFinding>,
    /// True if there are more than the limit.
    more: bool,
    /// Number of complete runs whose findings aren't computed yet.
    without: usize,
}

pub(super) fn find(dir: &Path, args: &FindArgs) -> Result<Exit, Stop> {
    let found = Store::reading(dir, |store| search(store, args))?;
    if found.findings.is_empty() {
        known_machine(dir, args)?;
    }
    let remark = found.remark(args.limit);
    if args.json && !remark.is_empty() {
        tell!("{remark}");
    }
    answer(args.json, &found.findings, |findings| match findings.is_empty() {
        true => {
            [String::from("No finding meets all conditions; `vtax results list` lists the runs."), remark]
                .join(" ")
                .trim_end()
                .to_owned()
                + "\n"
        }
        false => table(findings, remark, Timestamp::now()),
    })
}

fn search(store: &Store, args: &FindArgs) -> Result<Found, StoreError> {
    let FindArgs { method, metric, test, limit, .. } = *args;
    let (machine, since) = (args.machine.clone(), args.since.map(|since| since.0.to_string()));
    let filter = FindingFilter { method, metric, test, machine, since, limit: limit.saturating_add(1) };
    let mut findings = store.findings(&filter)?;
    let more = findings.len() > limit as usize;
    findings.truncate(limit as usize);
    Ok(Found { findings, more, without: store.runs_without_findings()? })
}

/// Refuses a machine of which the store has no findings.
fn known_machine(dir: &Path, args: &FindArgs) -> Result<(), Stop> {
    let Some(wanted) = &args.machine else { return Ok(()) };
    let known = Store::reading(dir, Store::machines_with_findings)?;
    if known.is_empty() || known.contains(wanted) {
        return Ok(());
    }
    Err(Stop::input(miette!(
        code = "no-runs",
        "--machine {wanted}: no findings of this machine; machines with findings: {}",
        known.join(", ")
    )))
}

impl Found {
    fn remark(&self, limit: u32) -> String {
        let more = self.more.then(|| format!("Only the newest {limit} findings are listed: use --limit N for more."));
        let without = match self.without {
            0 => None,
            1 => Some("The findings of 1 older run are missing until vtax next stores a run.".to_owned()),
            runs => Some(format!("The findings of {runs} older runs are missing until vtax next stores a run.")),
        };
        more.into_iter().chain(without).collect::<Vec<_>>().join(" ")
    }
}

fn table(findings: &[EvidenceFinding], remark: String, now: Timestamp) -> String {
    let row = |finding: &EvidenceFinding| {
        let FindingWords { test, value, tax, verdict } = FindingWords::of(finding);
        let mtu = finding.cell.mtu().map_or(String::new(), |mtu| mtu.to_string());
        let caveat = finding.setting.caveat().map_or(String::new(), |caveat| format!(" ({caveat})"));
        let run = format!("{}{caveat}", finding.run);
        let (row, metric) = (finding.cell.row.to_string(), word(finding.metric).to_owned());
        [row, test, mtu, metric, value, tax, verdict, age(&finding.started, now), run]
    };
    let columns = [
        Column::left("METHOD"),
        Column::left("TEST"),
        Column::right("MTU"),
        Column::left("METRIC"),
        Column::left("VALUE"),
        Column::left("TAX"),
        Column::left("VERDICT"),
        Column::right("AGE"),
        Column::wrapped("RUN"),
    ];
    lists::list_with_remark(columns, findings.iter().map(row), remark)
}

/// Returns the age of a run in its largest unit, e.g. `3 d`.
fn age(started: &str, now: Timestamp) -> String {
    let Ok(started) = started.parse::<Timestamp>() else { return String::new() };
    let minutes = now.duration_since(started).as_mins().max(0);
    match (minutes / (24 * 60), minutes / 60) {
        (0, 0) => format!("{minutes} min"),
        (0, hours) => format!("{hours} h"),
        (days, _) => format!("{days} d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_its_name() {
        for (name, _, test) in TESTS {
            assert_eq!(test.to_string().to_lowercase(), name);
        }
        assert!(TestKind::ALL.iter().all(|test| TESTS.iter().any(|(.., known)| known == test)));
    }

    #[test]
    fn a_time_is_an_age_a_date_or_a_timestamp() {
        let now: Timestamp = "2026-03-08T12:00:00Z".parse().expect("a time");
        let since = |text: &str| Since::before(text, now).map(|since| since.0.to_string());
        assert_eq!(since("7d").as_deref(), Ok("2026-03-01T12:00:00Z"));
        assert_eq!(since("12h").as_deref(), Ok("2026-03-08T00:00:00Z"));
        assert_eq!(since("2026-01-31").as_deref(), Ok("2026-01-31T00:00:00Z"));
        assert_eq!(since("2026-01-31T10:00:00+02:00").as_deref(), Ok("2026-01-31T08:00:00Z"));
        for text in ["", "d", "-1d", "7w", "4294967296d", "4294967295d", "yesterday", "2026-02-30"] {
            assert_eq!(since(text), Err(NoTime), "{text}");
        }
    }

    #[test]
    fn an_age_has_its_largest_unit() {
        let now: Timestamp = "2026-03-08T12:00:00Z".parse().expect("a time");
        let ages = ["2026-03-08T11:58:00Z", "2026-03-08T09:00:00Z", "2026-03-01T09:00:00Z", "2027-01-01T00:00:00Z", ""];
        assert_eq!(ages.map(|started| age(started, now)), ["2 min", "3 h", "7 d", "0 min", ""]);
    }
}
