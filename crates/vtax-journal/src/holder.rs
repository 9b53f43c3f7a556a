//! Process that holds a journal.

pub use vtax_sys::lock::LockHolder;
