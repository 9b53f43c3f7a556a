//! Requested sizes: the load, what carries it, and what is proposed for it.

use std::{path::Path, str::FromStr};

use clap::Args;
use jiff::Timestamp;
use miette::{Report, miette};
use serde::{Deserialize, Serialize};
use vtax_host::inspect::{self, SystemRoot};
use vtax_model::{
    domain::PRIMARY,
    evidence::EvidenceSetting,
    run::Environment,
    size::{
        GuestTotals, IoRate, MemoryFacts, MigrationRate, PacketRate, SizeError, SizeFacts, SizeProposal, SizeTarget,
        SizedService,
    },
    study::Row,
    topology::Name,
    units::{BitRate, ByteSize, Span},
};
use vtax_sys::record::{self, RecordError};

use super::{
    evidence::{self, EvidenceSearch, SizeEvidence},
    machine::CoreFacts,
    refusal::stopped,
};
use crate::{
    exit::{Blamed, Stop},
    whole_number::whole,
};

/// The load, and what carries it.
#[derive(Debug, Args)]
pub(super) struct WantedSize {
    #[command(flatten)]
    load: SizedLoad,
    /// I/O domain to size, e.g. ldg1, which serves switches or disks [default: this machine]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<Name>,
    /// Method whose costs count, if several were measured, e.g. paravirtual:vhost; may be repeated, once for each service
    #[arg(long, value_name = "METHOD")]
    method: Vec<Row>,
}

/// The load to carry.
#[derive(Debug, Args)]
struct SizedLoad {
    /// Bit rate of the guests' networks, both directions together, e.g. 10G
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    net: Option<BitRate>,
    /// Packets per second of this traffic, e.g. 1.5M [default: those of 1500 bytes]
    #[arg(long, value_name = "PER_SECOND", help_heading = "Load")]
    pps: Option<PacketRate>,
    /// I/Os per second on the guests' disks, e.g. 40k
    #[arg(long, value_name = "PER_SECOND", help_heading = "Load")]
    iops: Option<IoRate>,
    /// Size of an I/O, e.g. 8KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE", help_heading = "Load")]
    block: Option<ByteSize>,
    /// Limit of the 99th percentile of response times, e.g. 200us. The proposal reports whether it is verified
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    p99: Option<Span>,
    /// Consoles in use at the same time, e.g. 4
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole::<u32>, help_heading = "Load")]
    consoles: u32,
    /// Live migrations per hour, day or week, e.g. 2/day
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    migrate: Option<MigrationRate>,
    /// Guests served by the domain, with the virtual CPUs and memory of each, to size its own memory, e.g. 12,2,4GiB
    #[arg(long, value_name = "N,VCPUS,SIZE", help_heading = "Load")]
    guests: Option<EqualGuests>,
    /// Page cache for files behind virtual disks, e.g. 4GiB
    #[arg(long, value_name = "SIZE", help_heading = "Load")]
    file_cache: Option<ByteSize>,
}

/// Guests of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EqualGuests(GuestTotals);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use the number of guests, virtual CPUs and memory of each, e.g. 12,2,4GiB")]
struct NotGuests;

impl FromStr for EqualGuests {
    type Err = NotGuests;

    fn from_str(text: &str) -> Result<EqualGuests, NotGuests> {
        let parts: [&str; 3] = text.split(',').collect::<Vec<_>>().try_into().map_err(|_| NotGuests)?;
        let [guests, vcpus, memory] = parts;
        let guests: u32 = guests.parse().map_err(|_| NotGuests)?;
        let vcpus = vcpus.parse::<u32>().ok().and_then(|each| each.checked_mul(guests)).ok_or(NotGuests)?;
        let memory = memory.parse::<ByteSize>().ok().and_then(|each| each.0.checked_mul(guests.into()));
        Ok(EqualGuests(GuestTotals { guests, vcpus, memory: ByteSize(memory.ok_or(NotGuests)?) }))
    }
}

impl SizedLoad {
    fn target(&self) -> SizeTarget {
        SizeTarget {
            net: self.net,
            packets: self.pps,
            ios: self.iops,
            block: self.block,
            p99: self.p99,
            consoles: self.consoles,
            migrations: self.migrate,
            guests: self.guests.map(|guests| guests.0),
            file_cache: self.file_cache,
        }
    }
}

impl WantedSize {
    pub(super) fn asked(&self) -> AskedSize {
        AskedSize { target: self.load.target(), domain: self.domain.clone(), method: self.method.clone() }
    }
}

/// A size that was requested. The last one is kept for `vtax size prove --last`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AskedSize {
    pub(super) target: SizeTarget,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<Name>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    method: Vec<Row>,
}

/// Name of its file in the results directory.
const LAST: &str = "last-size.json";

impl AskedSize {
    pub(super) fn keep(&self, dir: &Path) -> Result<(), RecordError> {
        record::replace(&dir.join(LAST), &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the last size that was proposed.
    pub(super) fn last(dir: &Path) -> Result<AskedSize, Stop> {
        let path = dir.join(LAST);
        let found = record::read(&path, record::SMALL).or_infrastructure()?.ok_or_else(|| {
            Stop::input(miette!(
                code = "bad-target",
                "--last: no size was proposed yet; propose one, e.g. vtax size --net 10G, or specify the load"
            ))
        })?;
        serde_json::from_slice(&found)
            .map_err(|error| RecordError::Damaged { path, why: error.to_string() })
            .or_infrastructure()
    }

    /// Returns the name of the domain, unless it is this machine.
    pub(super) fn served_by(&self) -> Option<&str> {
        self.domain.as_ref().map(Name::as_str).filter(|name| *name != PRIMARY)
    }

    pub(super) fn name(&self) -> Result<Name, Stop> {
        self.domain.clone().map_or_else(|| PRIMARY.parse::<Name>().or_input(), Ok)
    }

    pub(super) fn proposal(&self, dir: &Path) -> Result<SizeProposal, Stop> {
        let tree = SystemRoot::live();
        let environment = inspect::environment(&tree);
        let here = EvidenceSetting::of_machine(&environment, None);
        let domain = self.served_by();
        let mut found = evidence::find(dir, &EvidenceSearch { here: &here, domain, now: Timestamp::now() })?;
        found.choose(&self.method).map_err(|known| not_measured(&known.into_iter().collect::<Vec<_>>()))?;
        let facts = self.facts(&tree, &environment, &mut found)?;
        let mut proposal = SizeProposal::of(&self.target, &facts).map_err(|error| without_size(error, &found))?;
        proposal.notes.extend(found.without_migrations().filter(|_| proposal.migration.is_some()));
        proposal.notes.extend(found.remarks);
        if proposal.services.iter().any(|need| need.target.service == SizedService::Vnet) && domain.is_none() {
            proposal.notes.push(INTERRUPTS.to_owned());
        }
        Ok(proposal)
    }

    fn facts(&self, tree: &SystemRoot, environment: &Environment, found: &mut SizeEvidence) -> Result<SizeFacts, Stop> {
        let CoreFacts { threads, clock_ghz } = CoreFacts::of(tree, environment);
        Ok(SizeFacts {
            domain: self.name()?,
            threads_per_core: threads,
            clock_ghz,
            costs: found.costs.clone(),
            proof: found.proof_of(&self.target),
            migrations: found.migrations.clone(),
            memory: MemoryFacts::default(),
        })
    }
}

/// The kernel charges them to whatever they interrupt.
const INTERRUPTS: &str = "interrupts of the host's NICs are not attributed to guests, and are not included";

/// Lists the stored samples that don't count, in addition to what is missing.
fn without_size(error: SizeError, found: &SizeEvidence) -> Stop {
    let (stop, told) = (stopped(error.clone()), found.told());
    if told.is_empty() || stop.status() == INPUT {
        return stop;
    }
    let text = format!("{error}; {told}");
    Stop::infrastructure(Report::new(error).wrap_err(text))
}

/// Exit status of invalid input.
pub(super) const INPUT: u8 = 2;

fn not_measured(known: &[String]) -> Stop {
    let known = if known.is_empty() {
        "no costs are known".to_owned()
    } else {
        format!("there are costs of {}", known.join(", "))
    };
    Stop::input(miette!(
        code = "bad-target",
        "--method: the cost of this method has not been measured on this machine; {known}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_summed() {
        let totals = GuestTotals { guests: 12, vcpus: 24, memory: ByteSize(48 << 30) };
        assert_eq!("12,2,4GiB".parse(), Ok(EqualGuests(totals)));
        for text in ["", "12", "12,2", "12,2,4GiB,1", "a,2,4GiB", "12,2,4", "4294967295,2,4GiB", "-1,2,4GiB"] {
            let read = text.parse::<EqualGuests>();
            assert!(read.is_err() || text == "12,2,4", "{text}: {read:?}");
        }
    }

    #[test]
    fn the_last_size_is_kept_for_a_proof() {
        let folder = tempfile::tempdir().expect("a directory");
        let refused = AskedSize::last(folder.path()).expect_err("there is none");
        assert!(refused.status() == 2 && refused.to_string().contains("no size was proposed yet"), "{refused}");
        let asked = AskedSize {
            target: SizeTarget { net: "10G".parse().ok(), p99: "200us".parse().ok(), ..SizeTarget::default() },
            domain: "ldg1".parse().ok(),
            method: vec![vtax_synthetic::row("emulated:e1000e")],
        };
        asked.keep(folder.path()).expect("written");
        assert_eq!(AskedSize::last(folder.path()).expect("it is there"), asked);
        std::fs::write(folder.path().join(LAST), "{").expect("written");
        assert_eq!(AskedSize::last(folder.path()).expect_err("damaged").status(), 69);
    }

    #[test]
    fn a_refused_load_is_input_and_an_unknown_cost_is_missing_here() {
        assert_eq!(stopped(SizeError::NothingToSize).status(), 2);
        let unknown = SizeError::NotMeasured(SizedService::Vnet);
        assert_eq!(stopped(unknown.clone()).status(), 69);
        let mut found = SizeEvidence::default();
        found.refused.insert("measured in a guest under TCG".to_owned(), 4);
        let stop = without_size(unknown, &found);
        assert_eq!((stop.status(), stop.code().as_deref()), (69, Some("cost-not-measured")));
        assert_eq!(
            stop.to_string(),
            "the cost of vnet has not been measured; to measure it, repeat `vtax size` with e.g. --measure --to ldm:mars; samples that don't count: \
             4 measured in a guest under TCG"
        );
    }
}
