//! Proof of a size: the load on the proposed cores, and on one core less.
//!
//! Queueing formulas only choose where to begin, so the load itself is run, at three shares, with the I/O side confined to
//! whole cores. A limit holds if the whole interval of p99 is within it: one that crosses the limit is undecided.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{CoreRange, Knee, KneePoint, SizeError, SizeTarget, SizedService};
use crate::{
    cpus::CpuSet,
    result::{CellRecord, Percentile},
    run::{HostCpu, SampleReading},
    topology::Name,
    units::Span,
};

/// Schema of [`SizeProof`] as JSON.
const SCHEMA: &str = "vtax.size-proof/v1";
/// Shares of the load to run at the size.
const SHARES: [f64; 3] = [0.7, 0.85, 1.0];
/// Prefix of the labels of the runs.
const LABEL: &str = "size-prove:";
/// Share of the offered load that must be delivered.
const DELIVERED: f64 = 0.95;
/// Standard deviations by which random arrivals may fall short of it. The number of arrivals has Poisson's distribution.
const ARRIVALS: f64 = 2.0;

/// Load and cores of one run of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProofLoad {
    /// Share of the target.
    pub share: f64,
    /// Whole cores of the I/O side.
    pub cores: u32,
}

/// Label of a run of a proof, e.g. `size-prove:vnet-833B-70%-2cores`. Later proposals read it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProofLabel {
    pub service: SizedService,
    /// Bytes of a packet or an I/O.
    pub size: u64,
    pub load: ProofLoad,
}

/// Result of one load, or of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofVerdict {
    Holds,
    /// The load is not delivered, or p99 exceeds its limit.
    Fails,
    /// The interval of p99 crosses the limit, or is unknown.
    Undecided,
}

/// Figures of one service at one load. All other services of the target have the same share of their load in the
/// meantime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProofRow {
    pub service: SizedService,
    #[serde(flatten)]
    pub load: ProofLoad,
    /// Requests or I/Os per second.
    pub offered: f64,
    pub delivered: f64,
    /// 99th percentile of response times in µs, with its 95 % interval; absent if too few were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<Percentile>,
    /// Used share of the cores' time; absent if it wasn't observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    pub verdict: ProofVerdict,
    pub run: String,
    /// Utilization and p99 of each sample.
    pub samples: Vec<KneePoint>,
}

/// A proved size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeProof {
    pub schema: String,
    pub domain: Name,
    pub target: SizeTarget,
    pub cores: u32,
    /// CPUs of these cores, with siblings.
    pub cpus: CpuSet,
    /// Predicted need in cores; absent if the size was specified and no cost is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<CoreRange>,
    pub rows: Vec<ProofRow>,
    pub verdict: ProofVerdict,
    /// Verdict of the full load with one core less; absent for one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_core_less: Option<ProofVerdict>,
    /// Knee of the proposal; absent like `needs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_knee: Option<Knee>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_knee: Option<Knee>,
    pub notes: Vec<String>,
}

impl ProofLoad {
    /// Loads to run for a size.
    pub fn of_size(cores: u32) -> Vec<ProofLoad> {
        let at_size = SHARES.map(|share| ProofLoad { share, cores });
        let less = (cores > 1).then(|| ProofLoad { share: 1.0, cores: cores - 1 });
        at_size.into_iter().chain(less).collect()
    }
}

impl fmt::Display for ProofLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProofLabel { service, size, load: ProofLoad { share, cores } } = self;
        write!(f, "{LABEL}{service}-{size}B-{:.0}%-{cores}cores", share * 100.0)
    }
}

/// Text that is not the label of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the label of a proof")]
pub struct NotProofLabel;

impl FromStr for ProofLabel {
    type Err = NotProofLabel;

    fn from_str(text: &str) -> Result<ProofLabel, NotProofLabel> {
        let parts: Vec<&str> = text.strip_prefix(LABEL).ok_or(NotProofLabel)?.split('-').collect();
        let [service, size, share, cores] = parts[..] else { return Err(NotProofLabel) };
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok()).ok_or(NotProofLabel);
        let share = f64::from(number(share.strip_suffix('%'))?) / 100.0;
        let cores = number(cores.strip_suffix("cores"))?;
        Ok(ProofLabel {
            service: service.parse().map_err(|_| NotProofLabel)?,
            size: number(size.strip_suffix('B'))?.into(),
            load: (share > 0.0 && cores > 0).then_some(ProofLoad { share, cores }).ok_or(NotProofLabel)?,
        })
    }
}

impl ProofVerdict {
    /// `due` and `answered` are numbers of requests.
    fn of(due: f64, answered: f64, p99_us: Option<Percentile>, limit: Option<Span>) -> ProofVerdict {
        if answered < due * DELIVERED - ARRIVALS * due.sqrt() || answered == 0.0 {
            return ProofVerdict::Fails;
        }
        let Some(limit) = limit.map(|limit| limit.0.as_secs_f64() * 1e6) else { return ProofVerdict::Holds };
        match p99_us.and_then(|p99| p99.low.zip(p99.high)) {
            Some((_, high)) if high <= limit => ProofVerdict::Holds,
            Some((low, _)) if low > limit => ProofVerdict::Fails,
            _ => ProofVerdict::Undecided,
        }
    }

    /// More load never improves response times: the full load of each service decides, unless a lower one contradicts
    /// it.
    fn of_rows(rows: &[&ProofRow]) -> ProofVerdict {
        let full = rows.iter().map(|row| row.load.share).fold(0.0, f64::max);
        let is_any =
            |wanted: ProofVerdict, least: f64| rows.iter().any(|row| row.verdict == wanted && row.load.share >= least);
        if rows.is_empty() || is_any(ProofVerdict::Fails, 0.0) {
            ProofVerdict::Fails
        } else if is_any(ProofVerdict::Undecided, full) {
            ProofVerdict::Undecided
        } else {
            ProofVerdict::Holds
        }
    }
}

impl ProofRow {
    /// Figures of a cell. `used` returns the CPU time per second of the I/O side.
    pub fn of(
        (service, load): (SizedService, ProofLoad),
        offered: f64,
        limit: Option<Span>,
        (run, record): (&str, &CellRecord),
        used: impl Fn(&HostCpu) -> Option<f64>,
    ) -> ProofRow {
        let seconds: f64 = record.samples.iter().map(|sample| sample.seconds).sum();
        let transactions: u64 = record.samples.iter().map(|sample| sample.transactions).sum();
        let delivered = if seconds > 0.0 { transactions as f64 / seconds } else { 0.0 };
        let p99_us = record.summary.as_ref().and_then(|summary| summary.times()).map(|times| times.p99);
        let cores = f64::from(load.cores);
        let shares = || record.samples.iter().filter_map(|sample| Some(used(sample.host_cpu.as_deref()?)? / cores));
        let count = shares().count();
        ProofRow {
            service,
            load,
            offered,
            delivered,
            p99_us,
            utilization: (count > 0).then(|| shares().sum::<f64>() / count as f64),
            verdict: ProofVerdict::of(offered * seconds, transactions as f64, p99_us, limit),
            run: run.to_owned(),
            samples: record.samples.iter().filter_map(|sample| KneePoint::of(sample, load.cores, &used)).collect(),
        }
    }
}

impl KneePoint {
    /// Point of a sample. `used` returns the CPU time per second of the I/O side, which was confined to these cores.
    pub fn of(sample: &SampleReading, cores: u32, used: impl Fn(&HostCpu) -> Option<f64>) -> Option<KneePoint> {
        let utilization = used(sample.host_cpu.as_deref()?)? / f64::from(cores);
        let p99 = Span(std::time::Duration::from_nanos(sample.rtt?.p99));
        (utilization > 0.0 && !p99.0.is_zero()).then_some(KneePoint { utilization, p99 })
    }
}

impl SizeProof {
    /// Judges the loads of a size.
    pub fn of(
        (domain, target): (Name, SizeTarget),
        (cores, cpus): (u32, CpuSet),
        rows: Vec<ProofRow>,
        notes: Vec<String>,
    ) -> SizeProof {
        let of = |wanted: u32| rows.iter().filter(move |row| row.load.cores == wanted).collect::<Vec<_>>();
        let (at_size, less) = (of(cores), of(cores.saturating_sub(1)));
        let mut points: BTreeMap<SizedService, Vec<KneePoint>> = BTreeMap::new();
        rows.iter().for_each(|row| points.entry(row.service).or_default().extend(&row.samples));
        let knee = target.p99.map(|limit| Knee::of_services(&points, limit)).transpose();
        let mut proof = SizeProof {
            schema: SCHEMA.to_owned(),
            domain,
            target,
            cores,
            cpus,
            needs: None,
            verdict: ProofVerdict::of_rows(&at_size),
            one_core_less: (!less.is_empty()).then(|| ProofVerdict::of_rows(&less)),
            predicted_knee: None,
            measured_knee: None,
            rows,
            notes,
        };
        match knee {
            Ok(knee) => proof.measured_knee = knee,
            Err(error) => proof.notes.push(no_knee(&error)),
        }
        if target.p99.is_none() {
            proof.notes.push("no limit of response times (--p99): only the delivered load is judged".to_owned());
        }
        proof
    }
}

fn no_knee(error: &SizeError) -> String {
    format!("the knee is not known: {error}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn label(share: f64, cores: u32) -> ProofLabel {
        ProofLabel { service: SizedService::Vnet, size: 833, load: ProofLoad { share, cores } }
    }

    #[test]
    fn a_size_is_run_at_three_shares_and_with_a_core_less() {
        let loads = |cores| ProofLoad::of_size(cores).iter().map(|load| (load.share, load.cores)).collect::<Vec<_>>();
        assert_eq!(loads(2), [(0.7, 2), (0.85, 2), (1.0, 2), (1.0, 1)]);
        assert_eq!(loads(1), [(0.7, 1), (0.85, 1), (1.0, 1)]);
    }

    #[test]
    fn labels_are_read_again() {
        assert_eq!(label(0.85, 2).to_string(), "size-prove:vnet-833B-85%-2cores");
        for other in ["", "size:vnet-50%-805B", "size-prove:vnet-833B-85%", "size-prove:vnet-833B-0%-2cores"] {
            assert_eq!(other.parse::<ProofLabel>(), Err(NotProofLabel), "{other}");
        }
        assert!("size-prove:vnet-833B-85%-0cores".parse::<ProofLabel>().is_err());
    }

    fn p99(value: f64, low: f64, high: f64) -> Option<Percentile> {
        Some(Percentile { value, low: Some(low), high: Some(high) })
    }

    fn micros(micros: u64) -> Option<Span> {
        Some(Span(Duration::from_micros(micros)))
    }

    #[test]
    fn an_interval_across_the_limit_is_undecided() {
        let verdict = |low, high| ProofVerdict::of(1e3, 1e3, p99(150.0, low, high), micros(200));
        assert_eq!(verdict(140.0, 200.0), ProofVerdict::Holds);
        assert_eq!(verdict(140.0, 201.0), ProofVerdict::Undecided);
        assert_eq!(verdict(201.0, 260.0), ProofVerdict::Fails);
        let unknown = Percentile { value: 150.0, low: None, high: None };
        assert_eq!(ProofVerdict::of(1e3, 1e3, Some(unknown), micros(200)), ProofVerdict::Undecided);
        assert_eq!(ProofVerdict::of(1e3, 1e3, None, micros(200)), ProofVerdict::Undecided);
    }

    #[test]
    fn an_undelivered_load_fails_at_any_response_time() {
        assert_eq!(ProofVerdict::of(1e6, 947_999.0, p99(1.0, 1.0, 1.0), micros(200)), ProofVerdict::Fails);
        assert_eq!(ProofVerdict::of(1e6, 950_001.0, None, None), ProofVerdict::Holds);
        assert_eq!(ProofVerdict::of(100.0, 80.0, None, None), ProofVerdict::Holds, "so few arrivals vary");
        assert_eq!(ProofVerdict::of(0.5, 0.0, None, None), ProofVerdict::Fails);
    }

    fn row(share: f64, cores: u32, verdict: ProofVerdict) -> ProofRow {
        ProofRow {
            service: SizedService::Vnet,
            load: ProofLoad { share, cores },
            offered: 1e3 * share,
            delivered: 1e3 * share,
            p99_us: None,
            utilization: None,
            verdict,
            run: "t7".to_owned(),
            samples: Vec::new(),
        }
    }

    fn proved(verdicts: &[(f64, u32, ProofVerdict)]) -> (ProofVerdict, Option<ProofVerdict>) {
        let rows = verdicts.iter().map(|(share, cores, verdict)| row(*share, *cores, *verdict)).collect();
        let domain: Name = "primary".parse().expect("a name");
        let cpus = "2-3".parse().expect("CPUs");
        let proof = SizeProof::of((domain, SizeTarget::default()), (2, cpus), rows, Vec::new());
        (proof.verdict, proof.one_core_less)
    }

    #[test]
    fn the_full_load_decides_unless_a_lower_one_fails() {
        use ProofVerdict::{Fails, Holds, Undecided};
        assert_eq!(
            proved(&[(0.7, 2, Undecided), (0.85, 2, Holds), (1.0, 2, Holds), (1.0, 1, Fails)]),
            (Holds, Some(Fails))
        );
        assert_eq!(proved(&[(0.7, 2, Fails), (0.85, 2, Holds), (1.0, 2, Holds)]), (Fails, None));
        assert_eq!(proved(&[(0.7, 2, Holds), (0.85, 2, Holds), (1.0, 2, Undecided)]).0, Undecided);
        assert_eq!(proved(&[]).0, Fails, "nothing is shown");
    }

    #[test]
    fn each_service_has_to_hold_at_the_full_load() {
        use ProofVerdict::{Fails, Holds, Undecided};
        let verdict = |disk: ProofVerdict| {
            let disk = ProofRow { service: SizedService::Vdisk, ..row(1.0, 2, disk) };
            ProofVerdict::of_rows(&[&row(0.7, 2, Undecided), &row(1.0, 2, Holds), &disk])
        };
        assert_eq!([Holds, Undecided, Fails].map(verdict), [Holds, Undecided, Fails]);
    }

    #[test]
    fn the_knee_of_a_proof_is_measured() {
        let samples = |utilization: f64, micros: [u64; 2]| -> Vec<KneePoint> {
            micros.map(|p99| KneePoint { utilization, p99: Span(Duration::from_micros(p99)) }).to_vec()
        };
        let mut rows = [0.7, 0.85, 1.0].map(|share| row(share, 1, ProofVerdict::Holds)).to_vec();
        rows[0].samples = samples(0.5, [100, 103]);
        rows[1].samples = samples(0.65, [150, 152]);
        rows[2].samples = samples(0.8, [320, 330]);
        let target = SizeTarget { p99: micros(200), ..SizeTarget::default() };
        let domain: Name = "primary".parse().expect("a name");
        let cpus: CpuSet = "1".parse().expect("CPUs");
        let proof = SizeProof::of((domain.clone(), target), (1, cpus.clone()), rows.clone(), Vec::new());
        let knee = proof.measured_knee.expect("a knee");
        assert_eq!((knee.low, knee.high), (0.65, Some(0.8)));
        let unmet = SizeTarget { p99: micros(50), ..SizeTarget::default() };
        let proof = SizeProof::of((domain, unmet), (1, cpus), rows, Vec::new());
        assert!(proof.measured_knee.is_none() && proof.notes[0].starts_with("the knee is not known: p99"), "{proof:?}");
    }

    proptest! {
        #[test]
        fn every_label_reads_back(size in 0..100_000u64, percent in 1..200u32, cores in 1..1_000u32, disk: bool) {
            let service = if disk { SizedService::Vdisk } else { SizedService::Vnet };
            let load = ProofLoad { share: f64::from(percent) / 100.0, cores };
            let label = ProofLabel { service, size, load };
            prop_assert_eq!(label.to_string().parse(), Ok(label));
        }

        #[test]
        fn no_label_makes_it_panic(text in "\\PC{0,40}", end in "[-0-9a-zB%]{0,30}") {
            let _ = text.parse::<ProofLabel>();
            let _ = format!("{LABEL}{end}").parse::<ProofLabel>();
        }
    }
}
