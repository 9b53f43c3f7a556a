//! One file a tool.

pub(crate) mod iperf3;
pub(crate) mod neper;
pub(crate) mod netperf;
pub(crate) mod qperf;
pub(crate) mod sockperf;
