//! Proposed cores and memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    CoreRange, CostPoint, Knee, KneePoint, KneeSource, MemoryFacts, MemoryNeed, MigrationPoint, MigrationReserve,
    RuleOfThumb, ServiceNeed, SizeError, SizeTarget, SizedService,
};
use crate::topology::Name;

/// Measurements and facts of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeFacts {
    /// I/O domain to size.
    pub domain: Name,
    /// Threads of a core (SMT siblings), at least 1.
    pub threads_per_core: u32,
    /// Clock of a core, if known.
    pub clock_ghz: Option<f64>,
    /// Measured costs of all services.
    pub costs: Vec<CostPoint>,
    /// Samples of a proof with the same load, by service; empty before the first.
    pub proof: BTreeMap<SizedService, Vec<KneePoint>>,
    /// Measured migrations.
    pub migrations: Vec<MigrationPoint>,
    pub memory: MemoryFacts,
}

/// Proposed size of an I/O domain, with everything that it was derived from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeProposal {
    pub schema: String,
    pub domain: Name,
    pub target: SizeTarget,
    /// Whole cores for the services.
    pub cores: u32,
    /// Threads of these cores. Siblings share a core, so they don't count as additional cores.
    pub threads: u32,
    /// Sum of the services' needs.
    pub needs: CoreRange,
    pub services: Vec<ServiceNeed>,
    pub knee: Knee,
    /// Absent if no guest migrates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationReserve>,
    /// Absent if neither the backends were measured nor the guests are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryNeed>,
    /// Published rules for the same target.
    pub rules: Vec<RuleOfThumb>,
    /// Assumptions, and what is not known.
    pub notes: Vec<String>,
}

/// Schema of [`SizeProposal`] as JSON.
const SCHEMA: &str = "vtax.size/v1";
/// Clocks of CPUs, in GHz.
const CLOCKS: std::ops::RangeInclusive<f64> = 0.01..=100.0;
/// Threads of a core: POWER has 8.
const MOST_THREADS: u32 = 16;
/// Maximum number of cores; a larger result is an error.
const MOST_CORES: f64 = 65_536.0;

impl SizeProposal {
    /// Proposes the fewest cores whose utilization stays at or below the knee.
    pub fn of(target: &SizeTarget, facts: &SizeFacts) -> Result<SizeProposal, SizeError> {
        facts.check()?;
        let loads = target.loads()?;
        let is_left_out = |service| service == SizedService::Console && !facts.has_costs_of(service);
        let sized = loads.iter().filter(|load| !is_left_out(load.service));
        let services = sized.map(|load| ServiceNeed::of(load, &facts.costs)).collect::<Result<Vec<_>, _>>()?;
        if services.is_empty() {
            return Err(SizeError::OnlyConsoles);
        }
        let knee = facts.knee(target)?;
        let needs = CoreRange::sum(services.iter().map(|service| service.cores));
        let cores = whole_cores(needs.high, knee.low)?;
        let per_day = target.migrations;
        let migration = per_day.map(|rate| MigrationReserve::of(rate, &facts.migrations)).transpose()?;
        let mut proposal = SizeProposal {
            schema: SCHEMA.to_owned(),
            domain: facts.domain.clone(),
            target: *target,
            cores,
            threads: cores * facts.threads_per_core,
            needs,
            services,
            knee,
            migration,
            memory: MemoryNeed::of(target, facts.memory)?,
            rules: RuleOfThumb::of(target, facts.clock_ghz),
            notes: target.assumptions(),
        };
        let consoles = loads.iter().any(|load| is_left_out(load.service));
        let notes = proposal.notes_on_the_unknown(consoles, facts);
        proposal.notes.extend(notes);
        Ok(proposal)
    }

    /// Returns the cores while a guest migrates.
    pub fn cores_with_migration(&self) -> u32 {
        self.cores + self.migration.as_ref().map_or(0, |migration| migration.cores)
    }

    /// Returns the expected utilization of the proposed cores, with its bounds.
    pub fn utilization(&self) -> CoreRange {
        let cores = f64::from(self.cores);
        let CoreRange { estimate, low, high } = self.needs;
        CoreRange { estimate: estimate / cores, low: low / cores, high: high / cores }
    }

    fn notes_on_the_unknown(&self, consoles: bool, facts: &SizeFacts) -> Vec<String> {
        let knee = match (self.knee.source, self.target.p99) {
            (KneeSource::Measured, _) => None,
            (KneeSource::Default, None) => Some("the knee is a default, not measured"),
            (KneeSource::Default, Some(_)) => Some(
                "the knee is a default, so --p99 is not verified; to verify it on these cores: vtax size prove --last",
            ),
        };
        let migration = self.migration.as_ref().filter(|migration| migration.measured.is_none());
        let consoles = consoles.then_some("the cost of consoles was not measured, and is not included");
        let migration = migration
            .map(|_| "the cores for migration were not measured, but assumed; to measure them: vtax run migration");
        let memory = match self.memory {
            None => Some("memory is not known: specify the guests (--guests)"),
            Some(MemoryNeed { estimated: true, .. }) => Some("memory is computed from the guests' sizes, not measured"),
            Some(_) => None,
        };
        let siblings =
            (facts.threads_per_core > 1).then_some("siblings of a core aren't counted as additional capacity");
        let notes = [knee, consoles, migration, memory, siblings];
        notes.into_iter().flatten().map(str::to_owned).collect()
    }
}

impl SizeFacts {
    fn check(&self) -> Result<(), SizeError> {
        let clock = self.clock_ghz.unwrap_or(1.0);
        let good = (1..=MOST_THREADS).contains(&self.threads_per_core) && CLOCKS.contains(&clock);
        good.then_some(()).ok_or(SizeError::Machine(self.threads_per_core, clock))
    }

    fn has_costs_of(&self, service: SizedService) -> bool {
        self.costs.iter().any(|point| point.load.service == service)
    }

    /// A proof without a limit has no knee.
    fn knee(&self, target: &SizeTarget) -> Result<Knee, SizeError> {
        match target.p99 {
            Some(limit) if !self.proof.is_empty() => Knee::of_services(&self.proof, limit),
            _ => Ok(Knee::DEFAULT),
        }
    }
}

/// Fewest whole cores on which this much CPU time is at most this utilization.
fn whole_cores(needed: f64, utilization: f64) -> Result<u32, SizeError> {
    // Less the error of binary fractions.
    let cores = (needed / utilization - 1e-9).ceil().max(1.0);
    if cores <= MOST_CORES { Ok(cores as u32) } else { Err(SizeError::TooManyCores { needed }) }
}
