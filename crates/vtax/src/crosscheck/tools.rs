//! The known tools, one file each.

pub(crate) mod iperf3;
pub(crate) mod neper;
pub(crate) mod netperf;
pub(crate) mod qperf;
pub(crate) mod sockperf;
