//! Tests of the statistics as a whole: on studies whose truth is known, and beside another implementation.

mod independent;
pub(crate) mod synthetic;
mod trial;
