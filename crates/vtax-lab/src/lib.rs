//! Labs: hosts, wires and domains, planned as data and built through the journal.
//!
//! A lab begins as a [`Topology`](vtax_model::topology::Topology), which describes its parts. [`plan()`](plan::plan)
//! converts it into a [`Plan`], without touching anything: the steps of the executor, the resulting endpoints and the
//! links on every path. The plan can be printed, stored and tested. [`Lab::up`] executes it through the journal, so
//! that whatever happens to this process, [`clean`] finds exactly the objects that it created.
//!
//! ```no_run
//! use vtax_lab::{Facts, Lab, Lifetime, World, plan};
//! use vtax_model::{located::Source, topology::Topology};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let world = World::enter(Lifetime::Ephemeral)?; // first thing in main: before any thread
//! let text = std::fs::read_to_string("lab.toml")?;
//! let topology = Topology::parse(Source { name: "lab.toml", text: &text })?;
//! let plan = plan(&topology, &Facts::gather(&world)?)?;
//! println!("{plan}"); // the dry run
//! let lab = Lab::up(&world, plan, Lifetime::Ephemeral)?;
//! let zone = lab.blueprint().zone(&"web".parse()?).ok_or("no zone")?;
//! lab.spawn(zone, std::process::Command::new("ip"))?.wait()?;
//! lab.down()?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod blueprint;
pub mod dependency;
pub mod error;
pub mod facts;
mod holding;
pub mod inventory;
pub mod io;
pub mod lab;
mod live_holding;
mod mark;
mod nic;
mod path;
pub mod plan;
mod processes;
pub mod run_files;
mod script;
pub mod server;
mod site;
pub mod step;
mod survey;
mod verify;
pub mod world;

pub use blueprint::{LabEndpoint, PlannedGuest};
pub use error::LabError;
pub use facts::Facts;
pub use holding::{MadeFiles, MadeVfs};
pub use inventory::{
    CleanNote, CleanReport, GuestState, GuestSummary, HoldingSummary, HoldingWhat, LabState, LabSummary, clean,
    keeper_main, list,
};
pub use lab::Lab;
pub use live_holding::LiveHolding;
pub use nic::{availability, family_support, guest_availability, no_cable};
pub use plan::{NicError, Plan, PlanError, disk_availability, plan};
pub use survey::GuestNeeds;
pub use vtax_step::{Place, RelayProcess};
pub use world::{Lifetime, World};
