//! The control stream between vtax and its agents: its messages, and the coordinator's side.
//!
//! [`protocol`], [`frame`], [`conversations`] and [`limits`] are common to both sides; they open nothing and never
//! block. [`carry`], [`ssh`] and [`link`] reach an agent, and [`measure`] takes samples with pairs of agents. The agent's side,
//! which measures, is the crate `vtax-agent`: nothing here needs the engine.

#![forbid(unsafe_code)]

pub mod carry;
pub mod clock;
pub mod conversations;
pub mod frame;
pub mod guest;
pub mod limits;
pub mod link;
pub mod measure;
pub mod pool;
pub mod protocol;
pub mod ssh;
