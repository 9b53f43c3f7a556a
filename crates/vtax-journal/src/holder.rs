//! Which process has a journal.

pub use vtax_sys::lock::LockHolder;
