//! `vtax io create-vf` and `destroy-vf`.

use std::num::NonZeroU32;

use clap::Args;
use miette::miette;
use vtax_lab::{
    Lifetime, World,
    facts::PciFacts,
    io::{IoList, NewVfs},
    list,
};
use vtax_model::{
    guest::Mac,
    units::{BitRate, Mtu},
    vf::{BadVlan, Vlan},
};
use vtax_sys::{pci::PciAddress, userns};

use crate::{
    exit::{Blamed, Exit, Stop},
    one_of::on_or_off,
    terminal::print,
};

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    choice: VfChoice,
    /// Physical function: name, PCI address, link or MAC address
    pf: String,
}

/// The number of virtual functions to create, and their settings.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct VfChoice {
    /// Number of functions, e.g. 4; `max`: as many as the device supports
    #[arg(short, long, value_name = "N|max", default_value = "1")]
    number: VfCount,
    /// MAC address, for a single function, e.g. 52:54:00:00:00:01
    #[arg(long)]
    mac: Option<Mac>,
    /// VLAN of each, e.g. 7: the NIC adds its tag to frames that the function sends, and removes it from those it
    /// receives
    #[arg(long, value_parser = vlan)]
    vlan: Option<Vlan>,
    /// Allow each to change its MAC address and to receive frames addressed to others
    #[arg(long, value_parser = on_or_off(), value_name = "on|off", hide_possible_values = true)]
    trust: Option<bool>,
    /// Drop frames that a function sends from another MAC address
    #[arg(long, value_parser = on_or_off(), value_name = "on|off", hide_possible_values = true)]
    spoof_check: Option<bool>,
    /// Maximum send rate of each, in whole Mbit/s, e.g. 100M
    #[arg(long)]
    rate: Option<BitRate>,
    /// MTU of each function's link, e.g. 9000
    #[arg(long)]
    mtu: Option<Mtu>,
}

#[derive(Debug, Args)]
pub(crate) struct DestroyArgs {
    /// Physical function, or its only virtual one: name, PCI address, link or MAC address
    pub(in crate::cli) pf: String,
}

/// A number of virtual functions.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) enum VfCount {
    Max,
    Of(NonZeroU32),
}

impl VfCount {
    /// Returns the number, if it is not the maximum.
    pub(in crate::cli) fn number(self) -> Option<NonZeroU32> {
        match self {
            VfCount::Max => None,
            VfCount::Of(number) => Some(number),
        }
    }
}

impl std::str::FromStr for VfCount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.parse()) {
            ("max", _) => Ok(VfCount::Max),
            (_, Ok(number)) => Ok(VfCount::Of(number)),
            _ => Err("use a number from 1, or max"),
        }
    }
}

fn vlan(text: &str) -> Result<Vlan, BadVlan> {
    text.parse().unwrap_or(-1).try_into()
}

impl VfChoice {
    /// Returns the choice with these properties, where they are set.
    pub(in crate::cli) fn with(self, mac: Option<Mac>, vlan: Option<Vlan>, mtu: Option<Mtu>) -> VfChoice {
        VfChoice { mac: mac.or(self.mac), vlan: vlan.or(self.vlan), mtu: mtu.or(self.mtu), ..self }
    }

    pub(in crate::cli) fn wish(self) -> NewVfs {
        let VfChoice { number, mac, vlan, trust, spoof_check, rate, mtu } = self;
        NewVfs { count: number.number(), mac, vlan, trust, spoof_check, rate, mtu }
    }
}

pub(super) fn create(args: &CreateArgs) -> Result<Exit, Stop> {
    let (list, world) = look()?;
    let plan = list.new_vfs(&args.pf, &args.choice.wish()).or_input()?;
    if let Some(warning) = &plan.warning {
        tell!("warning: {}: {warning}", plan.name);
    }
    for function in plan.make(&world).or_infrastructure()? {
        show_created(&function.name, function.driver.is_some())?;
    }
    Ok(Exit::Done)
}

/// Prints a new function in the format of `ldm`.
pub(in crate::cli) fn show_created(name: &str, has_driver: bool) -> Result<(), Stop> {
    print(&format!("Created new vf: {name}\n"))?;
    if !has_driver {
        tell!("warning: {name} has no driver: load its vendor's, or bind vfio-pci");
    }
    Ok(())
}

pub(in crate::cli) fn show_removed(name: &str) -> Result<(), Stop> {
    print(&format!("Removed vf: {name}\n"))
}

pub(super) fn destroy(args: &DestroyArgs) -> Result<Exit, Stop> {
    let (devices, world) = look()?;
    let labs = list(&world).or_infrastructure()?;
    let removal = devices.removal(&args.pf, &labs).or_input()?;
    removal.carry_out(&world).or_infrastructure()?;
    removal.names.iter().try_for_each(|name| show_removed(name))?;
    Ok(Exit::Done)
}

/// Removes the virtual functions of a record, for `lab down`.
pub(in crate::cli) fn destroy_record(device: PciAddress) -> Result<Exit, Stop> {
    destroy(&DestroyArgs { pf: device.to_string() })
}

/// Refuses unprivileged users, who cannot change the machine's links in any namespace.
fn look() -> Result<(IoList, World), Stop> {
    if !userns::have_net_admin() {
        let error = miette!(code = "no-privilege", "PCI devices require root: run this as root");
        return Err(Stop::infrastructure(error));
    }
    let facts = PciFacts::gather().or_infrastructure()?;
    let world = World::enter(Lifetime::Kept).or_infrastructure()?;
    Ok((IoList::new(facts, &world).or_infrastructure()?, world))
}
