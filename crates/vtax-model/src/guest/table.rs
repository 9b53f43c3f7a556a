//! Guest options in a file: the same in `[[guest]]` of a lab and in `[guest]` of a study.

use std::{ops::Range, path::PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::{Attach, Backend, BadGuest, EmulatedNic, GuestSize, System, VirtioNic, Vnet};
use crate::{
    disk::{DiskAttach, DiskDevice},
    located::{FileError, Source},
    method::{Capabilities, IoMethod, MethodVariant},
    topology::{GuestDisk, Name},
    units::{BitRate, ByteSize},
    vf::{VfOptions, Vlan},
};

/// Defines a table of a file that has the guest options, after other fields.
///
/// A macro, because serde loses the position of a value when it flattens one table into another,
/// and every error must name its line.
macro_rules! with_guest_options {
    ($(#[$about:meta])* $name:ident { $($field:ident: $kind:ty,)* }) => {
        with_guest_options! { @ $(#[$about])* $name { $($field: $kind,)* }
            vcpus: Spanned<u32>,
            memory: Spanned<ByteSize>,
            hugepages: bool,
            cpus: Spanned<Vec<u32>>,
            io_cpus: Spanned<Vec<u32>>,
            vhost_cpus: Spanned<Vec<u32>>,
            node: u32,
            image: Spanned<PathBuf>,
            kernel: Spanned<PathBuf>,
            backend: Spanned<Backend>,
            vnet: Spanned<Vnet>,
            model: Spanned<EmulatedNic>,
            queues: Spanned<u32>,
            vectors: Spanned<u32>,
            packed: Spanned<bool>,
            offloads: Spanned<bool>,
            mrg_rxbuf: Spanned<bool>,
            rx_ring: Spanned<u32>,
            tx_ring: Spanned<u32>,
            vlan: Spanned<Vlan>,
            trust: Spanned<bool>,
            spoof_check: Spanned<bool>,
            rate: Spanned<BitRate>,
        }
    };
    (@ $(#[$about:meta])* $name:ident { $($field:ident: $kind:ty,)* } $($option:ident: $of:ty,)*) => {
        $(#[$about])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $(pub(crate) $field: $kind,)*
            $($option: Option<$of>,)*
        }

        impl $name {
            pub(crate) fn options(&self) -> GuestOptions {
                GuestOptions { $($option: self.$option.clone(),)* }
            }
        }
    };
}

with_guest_options! {
    /// `[guest]` of a study.
    GuestOptions {}
}

with_guest_options! {
    /// `[[guest]]` of a lab.
    GuestTable {
        name: Spanned<Name>,
        host: Spanned<Name>,
        method: Spanned<IoMethod>,
        wire: Option<Spanned<Name>>,
        count: Option<Spanned<i64>>,
        mac: Option<Spanned<super::Mac>>,
        masters: Option<Vec<Name>>,
        disk: Option<Vec<GuestDiskTable>>,
    }
}

/// `[[guest.disk]]` of a lab.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuestDiskTable {
    path: PathBuf,
    attach: Option<Spanned<DiskAttach>>,
}

impl GuestDiskTable {
    /// Returns the disk, if guests of this size can have it.
    pub(crate) fn disk(&self, size: &GuestSize, source: Source<'_>) -> Result<GuestDisk, FileError> {
        let attach = value(&self.attach).unwrap_or(DiskAttach::plain(DiskDevice::VirtioBlk));
        let disk = GuestDisk { path: self.path.clone(), attach };
        let at = span(&self.attach).unwrap_or_default();
        disk.check(size).map_err(|error| source.refuse(&at, error))?;
        Ok(disk)
    }
}

impl GuestOptions {
    pub(crate) fn size(&self) -> GuestSize {
        let usual = GuestSize::default();
        let memory = if self.image.is_some() { GuestSize::OF_A_DISK } else { usual.memory };
        GuestSize {
            vcpus: value(&self.vcpus).unwrap_or(usual.vcpus),
            memory: value(&self.memory).unwrap_or(memory),
            hugepages: self.hugepages.unwrap_or(usual.hugepages),
            cpus: value(&self.cpus).unwrap_or(usual.cpus),
            io_cpus: value(&self.io_cpus).unwrap_or(usual.io_cpus),
            vhost_cpus: value(&self.vhost_cpus).unwrap_or(usual.vhost_cpus),
            node: self.node,
        }
    }

    pub(crate) fn system(&self, source: Source<'_>) -> Result<System, FileError> {
        match (&self.image, &self.kernel) {
            (Some(_), Some(kernel)) => {
                let message = "a disk image boots its own kernel; remove `kernel` or `image`";
                Err(source.coded("options-clash", &kernel.span(), message))
            }
            (Some(image), None) => Ok(System::Disk { image: image.get_ref().clone() }),
            (None, kernel) => Ok(System::Own { kernel: value(kernel) }),
        }
    }

    pub(crate) fn virtio(&self) -> VirtioNic {
        let usual = VirtioNic::default();
        VirtioNic {
            backend: value(&self.backend),
            vnet: value(&self.vnet).unwrap_or(usual.vnet),
            queues: value(&self.queues).unwrap_or(usual.queues),
            vectors: value(&self.vectors),
            packed: value(&self.packed).unwrap_or(usual.packed),
            offloads: value(&self.offloads).unwrap_or(usual.offloads),
            mrg_rxbuf: value(&self.mrg_rxbuf).unwrap_or(usual.mrg_rxbuf),
            rx_ring: value(&self.rx_ring),
            tx_ring: value(&self.tx_ring),
        }
    }

    pub(crate) fn vf(&self) -> VfOptions {
        VfOptions {
            vlan: value(&self.vlan),
            trust: value(&self.trust),
            spoof_check: value(&self.spoof_check),
            rate: value(&self.rate),
        }
    }

    pub(crate) fn model(&self) -> EmulatedNic {
        value(&self.model).unwrap_or_default()
    }

    /// Returns the NIC of a guest of this method; options of another method are refused.
    pub(crate) fn attach(&self, method: &Spanned<IoMethod>, source: Source<'_>) -> Result<Attach, FileError> {
        let attach = match method.get_ref() {
            IoMethod::Paravirtual => Attach::Paravirtual(self.virtio()),
            IoMethod::Emulated => Attach::Emulated { model: self.model() },
            IoMethod::SrIov => Attach::SrIov(self.vf()),
            IoMethod::Assigned => Attach::Assigned,
            IoMethod::RootDomain => Attach::RootDomain,
            other => {
                let message = format!(
                    "a [[guest]] is paravirtual, emulated, sr-iov, assigned or root-domain; {other} does not attach guests"
                );
                return Err(source.coded("method-not-for-domain", &method.span(), message));
            }
        };
        let able = MethodVariant::of_guest(&attach).capabilities();
        match self.of_other_methods(*method.get_ref(), &able) {
            Some((option, span, other)) => {
                let why = able.refuses(option).map(|why| format!(": {why}")).unwrap_or_default();
                let method = method.get_ref();
                let message = format!("`{option}` applies to {other} guests, and this one is {method}{why}; remove it");
                Err(source.coded("option-not-for-this", &span, message))
            }
            None => Ok(attach),
        }
    }

    /// Returns the position of the option that makes a guest impossible.
    pub(crate) fn blamed(&self, error: &BadGuest) -> Option<Range<usize>> {
        self.written().find_map(|(option, span, _)| (option == error.option()).then_some(span))
    }

    /// Returns the first option that only guests of another method have.
    fn of_other_methods(
        &self,
        method: IoMethod,
        able: &Capabilities,
    ) -> Option<(&'static str, Range<usize>, IoMethod)> {
        let of_methods = self.written().filter_map(|(option, span, of)| Some((option, span, of?)));
        { of_methods }.find(|(option, _, of)| *of != method || able.refuses(option).is_some())
    }

    /// Returns the options that are set, each with its position and the method of the guests that have it, if not all
    /// have.
    fn written(&self) -> impl Iterator<Item = (&'static str, Range<usize>, Option<IoMethod>)> {
        let (virtio, model, vf) = (IoMethod::Paravirtual, IoMethod::Emulated, IoMethod::SrIov);
        let options = [
            ("vcpus", span(&self.vcpus), None),
            ("memory", span(&self.memory), None),
            ("cpus", span(&self.cpus), None),
            ("vhost_cpus", span(&self.vhost_cpus), None),
            ("backend", span(&self.backend), Some(virtio)),
            ("vnet", span(&self.vnet), Some(virtio)),
            ("queues", span(&self.queues), Some(virtio)),
            ("vectors", span(&self.vectors), Some(virtio)),
            ("packed", span(&self.packed), Some(virtio)),
            ("offloads", span(&self.offloads), Some(virtio)),
            ("mrg_rxbuf", span(&self.mrg_rxbuf), Some(virtio)),
            ("rx_ring", span(&self.rx_ring), Some(virtio)),
            ("tx_ring", span(&self.tx_ring), Some(virtio)),
            ("model", span(&self.model), Some(model)),
            ("vlan", span(&self.vlan), Some(vf)),
            ("trust", span(&self.trust), Some(vf)),
            ("spoof_check", span(&self.spoof_check), Some(vf)),
            ("rate", span(&self.rate), Some(vf)),
        ];
        options.into_iter().filter_map(|(option, span, of)| Some((option, span?, of)))
    }
}

pub(crate) fn value<T: Clone>(written: &Option<Spanned<T>>) -> Option<T> {
    written.as_ref().map(|written| written.get_ref().clone())
}

pub(crate) fn span<T>(written: &Option<Spanned<T>>) -> Option<Range<usize>> {
    written.as_ref().map(Spanned::span)
}
