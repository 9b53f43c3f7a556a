//! Errors of taking and returning PCI devices.

use std::fmt;

use vtax_sys::{SysError, pci::PciAddress};

/// An error while taking or returning a device.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum PciChangeError {
    #[error("{object}: {error}")]
    #[diagnostic(forward(error))]
    Kernel { object: String, error: Box<SysError> },
    #[error(
        "{device} has {found} virtual functions, not {wanted}; create them first (vtax io create-vf), and the lab uses those"
    )]
    #[diagnostic(code("functions-moved"))]
    Moved { device: PciAddress, wanted: String, found: String },
    #[error(
        "{device} has {found} virtual functions, but this lab created {made}: they belong to another program and remain; remove them with vtax io destroy-vf, then clean again"
    )]
    #[diagnostic(code("functions-not-ours"))]
    OtherVfs { device: PciAddress, made: u32, found: u32 },
    #[error("the driver of {device} does not set the {what} of function {index}; omit it, or use another NIC")]
    #[diagnostic(code("setting-not-taken"))]
    VfRefused { device: PciAddress, index: u32, what: &'static str },
    #[error("{device} no longer has a network link here; see `vtax io list -l`")]
    #[diagnostic(code("no-network-link"))]
    NoNicLink { device: PciAddress },
    #[error("the link of {device} has no carrier; check the cable, and the NIC at its other end")]
    #[diagnostic(code("no-carrier"))]
    NoCarrier { device: PciAddress },
}

impl PciChangeError {
    /// Returns a conversion of the kernel's errors for this object.
    pub(crate) fn kernel(object: impl fmt::Display) -> impl Fn(SysError) -> PciChangeError {
        move |error| PciChangeError::Kernel { object: object.to_string(), error: Box::new(error) }
    }
}
