//! The kinds of NIC within one I/O method.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{Backend, EmulatedNic};
use crate::method::IoMethod;

/// Which of its method's kinds a guest's NIC is: a backend of `paravirtual`, a model of `emulated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Flavour {
    /// Of `paravirtual`.
    Backend(Backend),
    /// Of `emulated`.
    Model(EmulatedNic),
}

impl Flavour {
    /// Every one, in the order of tables.
    pub const ALL: [Flavour; 7] = [
        Flavour::Backend(Backend::Vhost),
        Flavour::Backend(Backend::Userspace),
        Flavour::Backend(Backend::VhostUser),
        Flavour::Model(EmulatedNic::E1000e),
        Flavour::Model(EmulatedNic::Igb),
        Flavour::Model(EmulatedNic::Vmxnet3),
        Flavour::Model(EmulatedNic::Rtl8139),
    ];

    /// The name in files and tables, without that of the method.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Backend(Backend::Vhost) => "vhost",
            Flavour::Backend(Backend::Userspace) => "userspace",
            Flavour::Backend(Backend::VhostUser) => "vhost-user",
            Flavour::Model(model) => model.name(),
        }
    }

    /// The method that it is a kind of.
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

/// A name that no backend and no model has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of NIC `{0}`; there are {known}", known = Flavour::ALL.map(Flavour::name).join(", "))]
pub struct UnknownFlavour(String);

impl FromStr for Flavour {
    type Err = UnknownFlavour;

    fn from_str(name: &str) -> Result<Self, UnknownFlavour> {
        let found = Flavour::ALL.into_iter().find(|flavour| flavour.name() == name);
        found.ok_or_else(|| UnknownFlavour(name.to_owned()))
    }
}

impl TryFrom<String> for Flavour {
    type Error = UnknownFlavour;

    fn try_from(name: String) -> Result<Self, UnknownFlavour> {
        name.parse()
    }
}

impl From<Flavour> for String {
    fn from(flavour: Flavour) -> String {
        flavour.name().to_owned()
    }
}
