//! Congestion control of TCP sockets.

use std::fs;
use std::os::fd::AsFd;

use socket2::{Domain, Socket, Type};
use vtax_model::options::CongestionControl;

use super::set_congestion_control;
use crate::error::SysError;

/// A congestion control that is unavailable to sockets of this process.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[error(
    "congestion control `{name}`: {source}; this kernel has {available} (net.ipv4.tcp_available_congestion_control), \
     unprivileged users may choose {allowed} (net.ipv4.tcp_allowed_congestion_control)"
)]
#[diagnostic(code("no-congestion-control"))]
pub struct NoCongestionControl {
    pub name: CongestionControl,
    pub available: String,
    pub allowed: String,
    pub source: Box<SysError>,
}

/// Checks that this kernel has a congestion control and that this process may use it. The kernel loads a module for it,
/// as it does for a test.
///
/// # Errors
/// [`NoCongestionControl`], with the names that the kernel offers.
pub fn check_congestion_control(name: CongestionControl) -> Result<(), NoCongestionControl> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let socket = socket.map_err(|error| refused(name, SysError::os("make", "a TCP socket", error)))?;
    choose_congestion_control(&socket, name)
}

/// Sets a socket's congestion control.
pub fn choose_congestion_control(socket: impl AsFd, name: CongestionControl) -> Result<(), NoCongestionControl> {
    set_congestion_control(socket, name.name()).map_err(|source| refused(name, source))
}

fn refused(name: CongestionControl, source: SysError) -> NoCongestionControl {
    NoCongestionControl { name, available: list("available"), allowed: list("allowed"), source: Box::new(source) }
}

fn list(which: &str) -> String {
    let path = format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control");
    fs::read_to_string(path).map_or_else(|error| format!("({error})"), |names| names.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_is_named_with_the_available_ones() {
        let unknown = check_congestion_control("no_such_one".parse().unwrap()).unwrap_err();
        assert!(unknown.available.contains("reno") && unknown.to_string().contains("no_such_one"), "{unknown}");
        assert!(check_congestion_control("reno".parse().unwrap()).is_ok(), "each kernel has it");
    }
}
