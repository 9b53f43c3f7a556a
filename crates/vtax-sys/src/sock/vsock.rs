//! Sockets between a machine and its guests (vsock(7)).

use socket2::{Domain, SockAddr, Socket, Type};

use crate::error::SysError;

/// Context identifier by which a machine addresses itself (`VMADDR_CID_LOCAL`).
pub const CID_LOCAL: u32 = 1;

/// Reasons why this kernel cannot use vsock, with the remedy.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum NoVsock {
    #[error(
        "vsock is unavailable: not supported by this kernel (AF_VSOCK); load the module vsock, or vhost_vsock on a host"
    )]
    #[diagnostic(code("not-possible-here"))]
    Absent,
    #[error(
        "vsock between two endpoints on one machine is unavailable: the kernel has no vsock_loopback; load it as root: \
         modprobe vsock_loopback"
    )]
    #[diagnostic(code("not-possible-here"))]
    NoLoopback,
    #[error(transparent)]
    #[diagnostic(transparent)]
    Other(#[from] SysError),
}

/// Checks that two sockets of this machine can use vsock with each other.
pub fn check_vsock_loopback() -> Result<(), NoVsock> {
    let failed = |operation| move |error| SysError::os(operation, "a vsock socket", error);
    let socket = Socket::new(Domain::VSOCK, Type::STREAM, None).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => NoVsock::Absent,
        _ => failed("make")(error).into(),
    })?;
    socket.bind(&SockAddr::vsock(CID_LOCAL, libc::VMADDR_PORT_ANY)).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL) => NoVsock::NoLoopback,
        _ => failed("bind")(error).into(),
    })
}
