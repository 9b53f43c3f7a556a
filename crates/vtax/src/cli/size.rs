//! `vtax size`.

mod evidence;
mod machine;
mod measurement;

use std::{path::Path, str::FromStr};

use clap::Args;
use jiff::Timestamp;
use miette::{Diagnostic, Report, miette};
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
use vtax_report::{Options, proposed_size};

use super::{Locations, answer, print_json, run::terminal_width};
use crate::{
    exit::{Blamed, Exit, Stop},
    terminal::print_styled,
    whole_number::whole,
};
use evidence::{EvidenceSearch, SizeEvidence};
use machine::CoreFacts;
use measurement::{SizeMeasurements, SizeMeasuring};

#[derive(Debug, Args)]
pub(crate) struct SizeArgs {
    #[command(flatten)]
    load: SizedLoad,
    /// I/O domain to size, e.g. ldg1, which serves switches or disks [default: this machine]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<Name>,
    /// Method whose costs count, if several were measured, e.g. paravirtual:vhost; may be repeated, once for each service
    #[arg(long, value_name = "METHOD")]
    method: Vec<Row>,
    /// Print the proposal as JSON (vtax.size/v1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measuring: SizeMeasuring,
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
    /// Limit of the 99th percentile of response times, e.g. 200us. The proposal says whether it is verified
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    p99: Option<Span>,
    /// Consoles in use at the same time, e.g. 4
    #[arg(long, value_name = "N", default_value = "0", value_parser = whole::<u32>, help_heading = "Load")]
    consoles: u32,
    /// Live migrations per hour, day or week, e.g. 2/day
    #[arg(long, value_name = "RATE", help_heading = "Load")]
    migrate: Option<MigrationRate>,
    /// Guests that the domain serves, with the virtual CPUs and memory of each, for its own memory, e.g. 12,2,4GiB
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

pub(crate) fn size(args: &SizeArgs, places: &Locations) -> Result<Exit, Stop> {
    let target = args.load.target();
    target.loads().map_err(stopped)?;
    if args.measuring.measure {
        let plan = args.measuring.planned(&target)?;
        if args.measuring.dry_run {
            return answer(args.json, &plan, SizeMeasurements::told);
        }
        match plan.take(places)? {
            Exit::Done => {}
            other => return Ok(other),
        }
    }
    let proposal = args.proposal(&target, &places.state_dir()?)?;
    if args.json {
        print_json(&proposal)?;
    } else {
        let usual = Options::default();
        let options = Options { width: terminal_width().unwrap_or(usual.width), ..usual };
        print_styled(&proposed_size(&proposal).draw(&options))?;
    }
    Ok(Exit::Done)
}

impl SizeArgs {
    fn proposal(&self, target: &SizeTarget, dir: &Path) -> Result<SizeProposal, Stop> {
        let tree = SystemRoot::live();
        let environment = inspect::environment(&tree);
        let here = EvidenceSetting::of_machine(&environment, None);
        let domain = self.domain.as_ref().map(Name::as_str).filter(|name| *name != PRIMARY);
        let mut found = evidence::find(dir, &EvidenceSearch { here: &here, domain, now: Timestamp::now() })?;
        found.choose(&self.method).map_err(|known| not_measured(&known.into_iter().collect::<Vec<_>>()))?;
        let facts = self.facts(&tree, &environment, &found)?;
        let mut proposal = SizeProposal::of(target, &facts).map_err(|error| without_size(error, &found))?;
        proposal.notes.extend(found.remarks);
        if proposal.services.iter().any(|need| need.target.service == SizedService::Vnet) && domain.is_none() {
            proposal.notes.push(INTERRUPTS.to_owned());
        }
        Ok(proposal)
    }

    fn facts(&self, tree: &SystemRoot, environment: &Environment, found: &SizeEvidence) -> Result<SizeFacts, Stop> {
        let CoreFacts { threads, clock_ghz } = CoreFacts::of(tree, environment);
        let domain = self.domain.clone().map_or_else(|| PRIMARY.parse::<Name>().or_input(), Ok)?;
        Ok(SizeFacts {
            domain,
            threads_per_core: threads,
            clock_ghz,
            costs: found.costs.clone(),
            proof: Vec::new(),
            migrations: Vec::new(),
            memory: MemoryFacts::default(),
        })
    }
}

/// The kernel charges them to whatever they interrupt.
const INTERRUPTS: &str = "interrupts of the host's NICs are not attributed to guests, and are not included";

/// A refused load is the user's; a cost that isn't known is missing on this machine.
fn stopped(error: SizeError) -> Stop {
    let code = error.code().map(|code| code.to_string());
    match code.as_deref() {
        Some("bad-rate" | "bad-target") => Stop::input(error),
        _ => Stop::infrastructure(error),
    }
}

/// Says which stored samples don't count, in addition to what is missing.
fn without_size(error: SizeError, found: &SizeEvidence) -> Stop {
    let (stop, told) = (stopped(error.clone()), found.told());
    if told.is_empty() || stop.status() == INPUT {
        return stop;
    }
    let text = format!("{error}; {told}");
    Stop::infrastructure(Report::new(error).wrap_err(text))
}

/// Exit status of invalid input.
const INPUT: u8 = 2;

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
            "the cost of vnet has not been measured; measure it: vtax size --measure; samples that don't count: \
             4 measured in a guest under TCG"
        );
    }
}
