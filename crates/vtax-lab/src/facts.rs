//! Machine facts for a plan.

mod disks;
mod guests;
pub mod pci;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_model::{method::Unsupported, topology::Name};
use vtax_sys::pci::PciAddress;

pub use disks::{DiskBackendFacts, DiskFacts};
pub(crate) use disks::{drivers_of_guest, tried};
pub use guests::{GuestFacts, QemuFacts, SystemFacts};
pub use pci::{Netdev, NoDevice, PciDevice, PciFacts};

/// Facts about this machine. They are data, so that every plan can be tested anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The reason, if any, why a kind of link, the rate-limiting qdisc or address translation can't be created.
    pub kinds: BTreeMap<String, Option<String>>,
    /// The programs in `PATH` that methods require, each with its path.
    #[serde(default)]
    pub programs: BTreeMap<String, PathBuf>,
    /// Address ranges that a lab must stay clear of.
    pub in_use: Vec<InUse>,
    /// Names of all labs, in any state.
    pub labs: Vec<Name>,
    /// Maximum number of network namespaces of this user (`user.max_net_namespaces`).
    pub most_namespaces: u64,
    /// PCI devices, which could be assigned.
    #[serde(default)]
    pub pci: PciFacts,
    /// The PCI devices that labs have, each with its owner: `LAB/DOMAIN`.
    #[serde(default)]
    pub lent: BTreeMap<PciAddress, String>,
    /// True if this process has the privilege of a user namespace only. PCI devices are out of its reach.
    #[serde(default)]
    pub ordinary_user: bool,
    /// Facts for guests. `None` means that they were not gathered ([`Facts::with_guests`]).
    pub guests: Option<GuestFacts>,
}

/// An address range and its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// The range.
    pub net: IpNet,
    /// Its user, e.g. "address 192.0.2.1/24 of eth0".
    pub by: String,
}

impl Facts {
    /// The kinds of links that labs are made of.
    pub const KINDS: [&'static str; 5] = ["veth", "bridge", "macvlan", "ipvlan", "vxlan"];
    /// The qdisc that limits a wire's rate.
    pub const RATE_LIMIT: &'static str = "tbf";
    /// The translation of addresses by the kernel.
    pub const TRANSLATION: &'static str = "nat";
    /// The programs that methods require, each with its Debian package.
    pub const PROGRAMS: [(&'static str, &'static str); 4] =
        [("nft", "nftables"), ("docker-proxy", "docker.io"), ("pasta", "passt"), ("slirp4netns", "slirp4netns")];

    pub(crate) fn has_link_kind(&self, kind: &str) -> Result<(), Unsupported> {
        self.lacks(kind).map_or(Ok(()), |why| {
            let remedy = format!("load or install the module `{kind}` (CONFIG_{})", kind.to_ascii_uppercase());
            Err(Unsupported::new(why, remedy))
        })
    }

    /// A program by its name.
    pub(crate) fn program(&self, name: &str) -> Result<&Path, Unsupported> {
        let package = Self::PROGRAMS.into_iter().find(|(known, _)| *known == name).map_or(name, |(_, package)| package);
        self.programs.get(name).map(PathBuf::as_path).ok_or_else(|| {
            let remedy = format!("install it (Debian: apt-get install {package}) in a directory of PATH");
            Unsupported::new(format!("the program {name} is missing"), remedy)
        })
    }

    pub(crate) fn can_translate(&self) -> Result<(), Unsupported> {
        self.program("nft")?;
        self.lacks(Self::TRANSLATION).map_or(Ok(()), |why| {
            let remedy =
                "load or install the modules `nf_tables` and `nft_chain_nat` (CONFIG_NF_TABLES, CONFIG_NFT_NAT)";
            Err(Unsupported::new(why, remedy))
        })
    }

    /// Returns why an object of this kind can't be created here.
    pub(crate) fn lacks(&self, kind: &str) -> Option<&str> {
        self.kinds.get(kind)?.as_deref()
    }

    pub(crate) fn guests_directory(&self, lab: &Name) -> PathBuf {
        let labs = self.guests.as_ref().map(|guests| guests.labs.as_path());
        labs.unwrap_or(Path::new("")).join(lab.as_str()).join("guests")
    }

    /// Returns the user of addresses of this range, if any.
    pub(crate) fn user_of(&self, range: IpNet) -> Option<&InUse> {
        self.in_use.iter().find(|used| used.net.contains(&range) || range.contains(&used.net))
    }
}
