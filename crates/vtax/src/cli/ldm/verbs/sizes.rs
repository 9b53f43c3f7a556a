//! Numbers of CPUs and cores, and sizes of memory.

use std::collections::BTreeSet;

use clap::Args;
use vtax_model::{
    domain::CpuDemand,
    topology::Name,
    units::{ByteSize, UnitError},
};

/// Number of CPUs or cores, and the domain.
#[derive(Debug, Args)]
pub(crate) struct CpuArgs {
    /// Count whole cores instead of virtual CPUs
    #[arg(short = 'c')]
    pub(in crate::cli::ldm) cores: bool,
    /// Number of CPUs or cores
    pub(in crate::cli::ldm) count: u32,
    /// Domain
    pub(in crate::cli::ldm) domain: Name,
}

impl CpuArgs {
    /// Returns the demand, in virtual CPUs unless cores are requested.
    pub(in crate::cli::ldm) fn demand(&self) -> CpuDemand {
        if self.cores { CpuDemand::Cores(self.count) } else { CpuDemand::Vcpus(self.count) }
    }
}

/// Whole cores and the domain.
#[derive(Debug, Args)]
pub(crate) struct CoreArgs {
    /// Number of cores, or core IDs as in list-devices, e.g. 2 or cid=4,5
    #[arg(value_name = "COUNT|cid=CORE,…", value_parser = cores)]
    pub(in crate::cli::ldm) cores: CpuDemand,
    /// Domain
    pub(in crate::cli::ldm) domain: Name,
}

fn cores(text: &str) -> Result<CpuDemand, &'static str> {
    let wrong = |_| "use a number of cores, e.g. 2, or a list of core IDs, e.g. cid=4,5";
    match text.strip_prefix("cid=") {
        Some("") => Ok(CpuDemand::Cids(BTreeSet::new())),
        Some(ids) => ids.split(',').map(|id| id.parse().map_err(wrong)).collect::<Result<_, _>>().map(CpuDemand::Cids),
        None => text.parse().map(CpuDemand::Cores).map_err(wrong),
    }
}

/// Memory size and the domain.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Round the resulting size up to a multiple of 256 MiB, and report it
    #[arg(long)]
    pub(in crate::cli::ldm) auto_adj: bool,
    /// Size, e.g. 8G or 512M
    #[arg(value_parser = memory)]
    pub(in crate::cli::ldm) memory: ByteSize,
    /// Domain
    pub(in crate::cli::ldm) domain: Name,
}

fn memory(text: &str) -> Result<ByteSize, String> {
    match text.starts_with("mblock=") {
        true => {
            Err("Linux allocates pages from anywhere, so blocks cannot be selected; use a size, e.g. 8G".to_owned())
        }
        false => text.parse().map_err(|error: UnitError| error.to_string()),
    }
}
