//! `vtax io`.

mod functions;
mod show;

use clap::{Args, Subcommand};
use miette::miette;
use vtax_lab::{
    Lifetime, World,
    facts::PciFacts,
    io::{IoEntry, IoKind, IoList},
};

use self::functions::CreateArgs;
pub(super) use self::functions::{DestroyArgs, VfChoice, VfCount, destroy_record, show_created, show_removed};
use super::answer;
use crate::exit::{Blamed, Exit, Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum IoVerb {
    /// List root complexes, slots, and physical and virtual functions, with the domains that use them
    ///
    /// TYPE: BUS is a root complex, PCIE a slot or endpoint, PF a physical function that supports virtual functions,
    /// VF a virtual function. STATUS: IOV, the devices below can be assigned to guests; OCC, occupied; EMP, empty; INV,
    /// unusable. DOMAIN: primary is this machine itself, LAB/DOMAIN a domain of a lab.
    ///
    /// Names are those of the board's slots and ports. Unlike bus numbers, they persist across reboots.
    List(ListArgs),
    /// Create virtual functions of a physical function, and keep them
    ///
    /// The kernel binds a driver to each, unless sriov_drivers_autoprobe is off. A lab with the method sr-iov creates
    /// its own functions. It also uses functions created with this command, unless they are in use.
    #[command(name = "create-vf")]
    Create(CreateArgs),
    /// Remove all virtual functions of a physical function (Linux cannot remove single ones)
    ///
    /// The physical function is restored to its state before create-vf. If any of the functions is in use, vtax removes
    /// none.
    #[command(name = "destroy-vf")]
    Destroy(DestroyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show driver, IOMMU group, NUMA node, links and settings of each, and why it cannot be assigned
    #[arg(short, long)]
    long: bool,
    /// Show the capabilities of physical functions
    #[arg(short, long, conflicts_with = "long")]
    details: bool,
    /// Print all details as JSON
    #[arg(long)]
    json: bool,
    /// Device to list with those below it: name, PCI address, link or MAC address [default: all]
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
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let list = IoList::new(facts, &world).or_infrastructure()?;
    let mut entries: Vec<&IoEntry> = match &args.name {
        Some(name) => list.select(name).or_input()?,
        None => list.entries.iter().collect(),
    };
    if args.details {
        entries.retain(|entry| entry.kind == IoKind::Pf);
        no_pf(&entries, args)?;
    }
    answer(args.json, &entries, |entries| match args.details {
        _ if entries.is_empty() => "This machine has no PCI devices.\n".to_owned(),
        true => show::capabilities(entries, &list),
        false => show::entries(entries, &list, args.long),
    })
}

fn no_pf(entries: &[&IoEntry], args: &ListArgs) -> Result<(), Stop> {
    if !entries.is_empty() || args.json {
        return Ok(());
    }
    let of = args.name.as_ref().map_or("this machine".to_owned(), |name| format!("`{name}`"));
    Err(Stop::infrastructure(miette!(
        code = "no-sriov",
        "{of} has no function that supports virtual functions; SR-IOV may be disabled in the firmware"
    )))
}
