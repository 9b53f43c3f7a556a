//! Published rules of thumb, for comparison with measurements.

use serde::{Deserialize, Serialize};

use super::SizeTarget;

/// Published rule, applied to a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleOfThumb {
    pub figure: ThumbFigure,
    pub low: f64,
    pub high: f64,
    /// Basis of the rule, or the case for which it was published.
    pub rule: String,
    pub source: String,
}

/// Figure of a rule, in the unit of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThumbFigure {
    NetworkCores,
    /// Instead of cores if the clock of a core is unknown.
    NetworkGhz,
    DiskThreads,
    DomainCores,
    MigrationCores,
    MemoryGb,
}

const SOURCE: &str = "What's up with LDoms, part 6: Sizing the IO Domain (21 December 2012)";
/// IOPS for which one to two threads sufficed, of a SPARC T2 CPU.
const IOS_PER_STEP: f64 = 15_000.0;

impl RuleOfThumb {
    fn new(figure: ThumbFigure, [low, high]: [f64; 2], rule: &str) -> RuleOfThumb {
        RuleOfThumb { figure, low, high, rule: rule.to_owned(), source: SOURCE.to_owned() }
    }

    /// Returns the rules that apply to a target. `clock_ghz` is the clock of a core, if known.
    pub fn of(target: &SizeTarget, clock_ghz: Option<f64>) -> Vec<RuleOfThumb> {
        let network = target.net.map(|net| {
            let gigahertz = net.bits() as f64 / 1e9;
            match clock_ghz {
                Some(clock) => {
                    let cores = (gigahertz / clock).ceil();
                    RuleOfThumb::new(ThumbFigure::NetworkCores, [cores; 2], "1 GHz per Gb/s")
                }
                None => RuleOfThumb::new(ThumbFigure::NetworkGhz, [gigahertz; 2], "1 GHz per Gb/s"),
            }
        });
        let disk = target.ios.map(|ios| {
            let steps = ios.per_second() / IOS_PER_STEP;
            let range = [steps.ceil(), (2.0 * steps).ceil()];
            RuleOfThumb::new(ThumbFigure::DiskThreads, range, "1 to 2 threads per 15,000 IOPS")
        });
        let cores = RuleOfThumb::new(ThumbFigure::DomainCores, [1.0, 2.0], "the usual recommendation");
        let migration = target
            .migrations
            .map(|_| RuleOfThumb::new(ThumbFigure::MigrationCores, [3.0; 2], "for the shortest suspensions"));
        let memory = match target.file_cache {
            Some(_) => RuleOfThumb::new(ThumbFigure::MemoryGb, [8.0; 2], "with a file cache"),
            None => RuleOfThumb::new(ThumbFigure::MemoryGb, [2.0, 4.0], "without a file cache"),
        };
        [network, disk, Some(cores), migration, Some(memory)].into_iter().flatten().collect()
    }
}
