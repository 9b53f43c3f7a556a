//! The kinds of NIC within one I/O method.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::{Backend, EmulatedNic};
use crate::{method::IoMethod, spelling::available};

/// Kind of a guest's NIC within its method: a backend of `paravirtual`, a model of `emulated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub enum Flavour {
    /// A backend of `paravirtual`.
    Backend(Backend),
    /// A model of `emulated`.
    Model(EmulatedNic),
}

impl Flavour {
    /// All of them, in the order of tables.
    pub const ALL: [Flavour; 7] = [
        Flavour::Backend(Backend::Vhost),
        Flavour::Backend(Backend::Userspace),
        Flavour::Backend(Backend::VhostUser),
        Flavour::Model(EmulatedNic::E1000e),
        Flavour::Model(EmulatedNic::Igb),
        Flavour::Model(EmulatedNic::Vmxnet3),
        Flavour::Model(EmulatedNic::Rtl8139),
    ];

    /// Returns the name in files and tables, without that of the method.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Backend(backend) => backend.into(),
            Flavour::Model(model) => model.into(),
        }
    }

    /// Returns the method that it is a kind of.
    pub fn method(self) -> IoMethod {
        match self {
            Flavour::Backend(_) => IoMethod::Paravirtual,
            Flavour::Model(_) => IoMethod::Emulated,
        }
    }

    /// The Linux module that drives the NIC in the guest. Each backend of virtio-net has the same one.
    pub fn driver(self) -> &'static str {
        match self {
            Flavour::Backend(_) => "virtio_net",
            Flavour::Model(model) => model.driver(),
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Unknown kind of NIC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("unknown NIC model `{_0}`; {}", available(_0, &Flavour::ALL.map(Flavour::name)))]
#[diagnostic(code("unknown-name"))]
pub struct UnknownFlavour(String);

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(name: &str) -> Result<Self, UnknownFlavour> {
        let backend = name.parse().map(Flavour::Backend);
        backend.or_else(|_| name.parse().map(Flavour::Model)).map_err(|_| UnknownFlavour(name.to_owned()))
    }
}
