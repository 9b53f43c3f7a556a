//! `vtax io`.

mod functions;
mod show;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use vtax_lab::{
    Need, World,
    facts::PciFacts,
    io::{IoEntry, IoKind, IoList},
};

pub(super) use self::functions::destroy_record;
use self::functions::{CreateArgs, DestroyArgs};
use super::{print, print_json};
use crate::exit::{Blamed, Exit, Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum IoVerb {
    /// List root complexes, slots, and physical and virtual functions, with the domains that have them
    ///
    /// TYPE: BUS a root complex, PCIE a slot or endpoint, PF a physical function that can have
    /// virtual ones, VF one of these. STATUS: IOV what is below can be lent; OCC occupied; EMP
    /// empty; INV of no use. DOMAIN: primary is this machine itself, LAB/DOMAIN one of a lab.
    ///
    /// Names don't change when the machine boots again: slots and ports of the board, not buses.
    List(ListArgs),
    /// Make virtual functions of a physical one, and leave them there
    ///
    /// Each gets its driver, if the machine gives new ones theirs. Labs have functions of their own by
    /// the method sr-iov; those that are made here are used by them, too, as long as nobody else does.
    #[command(name = "create-vf")]
    Create(CreateArgs),
    /// Remove all virtual functions of a physical one, as Linux removes them only together
    ///
    /// The physical function is then as it was before create-vf. Functions that somebody uses are left.
    #[command(name = "destroy-vf")]
    Destroy(DestroyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show driver, IOMMU group, NUMA node, links and settings of each, and why it must stay
    #[arg(short, long)]
    long: bool,
    /// Show what the physical functions can do
    #[arg(short, long, conflicts_with = "long")]
    details: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Only this one and what is below it: its name, PCI address, link or MAC address
    name: Option<String>,
}

pub(crate) fn io(verb: &IoVerb) -> Result<Exit, Stop> {
    match verb {
        IoVerb::List(args) => list(args),
        IoVerb::Create(args) => functions::create(args),
        IoVerb::Destroy(args) => functions::destroy(args),
    }
}

fn list(args: &ListArgs) -> Result<Exit, Stop> {
    let facts = PciFacts::gather().or_infrastructure()?;
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let list = IoList::new(facts, &world).or_infrastructure()?;
    let mut entries: Vec<&IoEntry> = match &args.name {
        Some(name) => list.select(name).or_input()?,
        None => list.entries.iter().collect(),
    };
    if args.details {
        entries.retain(|entry| entry.kind == IoKind::Pf);
        no_pf(&entries, args)?;
    }
    match (args.json, entries.is_empty()) {
        (true, _) => print_json(&entries)?,
        (false, true) => print("This machine has no PCI devices.\n")?,
        (false, false) if args.details => print(&show::capabilities(&entries, &list))?,
        (false, false) => print(&show::entries(&entries, &list, args.long))?,
    }
    Ok(Exit::Done)
}

fn no_pf(entries: &[&IoEntry], args: &ListArgs) -> Result<(), Stop> {
    if !entries.is_empty() || args.json {
        return Ok(());
    }
    let of = args.name.as_ref().map_or("this machine".to_owned(), |name| format!("`{name}`"));
    Err(Stop::infrastructure(anyhow!(
        "{of} has no function that can have virtual ones; SR-IOV may be switched off in the firmware"
    )))
}
