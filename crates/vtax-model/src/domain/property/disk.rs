//! Properties of volumes and of virtual disks.

use super::{
    Configured, Property, PropertyEffect, PropertyVerb, joined, set, set_all, set_number, set_removable, written,
};
use crate::domain::{DiskChange, VirtualDisk, Volume, VolumeChange, VolumeFormat, VolumeOption};

type VolumeProperty = Property<Volume>;
type DiskProperty = Property<VirtualDisk>;

impl Configured for Volume {
    /// The format of a new volume, and what can be changed later.
    type Change = (Option<VolumeFormat>, VolumeChange);
    const EFFECT: PropertyEffect<Volume> = PropertyEffect::Unused;
    const PROPERTIES: &'static [Property<Volume>] = &[
        VolumeProperty::new(
            "options",
            "[ro,][slice,][excl]",
            "`ro`: read-only for the domain, so that several domains can share the volume. `excl`: no other program can \
             use the backend while a domain has it. `slice`: the backend must be a partition",
            |(_, change), text| set_all::<VolumeOption, _>(&mut change.options, text),
            |volume| joined(&volume.options),
        )
        .xml("vol_opts")
        .unlisted(),
        VolumeProperty::new(
            "slice",
            "OFFSET+SIZE",
            "Part of the backend: `1G+512M` is 512 MiB, starting at 1 GiB. So one disk can provide several volumes",
            |(_, change), text| set_removable(&mut change.slice, text),
            |volume| written(volume.slice),
        )
        .removable()
        .unlisted(),
        VolumeProperty::new(
            "mpgroup",
            "GROUP",
            "Group of volumes that are paths to the same blocks",
            |(_, change), text| set_removable(&mut change.mpgroup, text),
            |volume| written(volume.mpgroup.as_ref()),
        )
        .removable(),
        VolumeProperty::new(
            "format",
            "raw|qcow2",
            "Format of the backend. Default: qcow2 for file names that end in `.qcow2`, raw for all others",
            |(format, _), text| set(format, text),
            |volume| written(Some(volume.format).filter(|format| *format != VolumeFormat::Raw)),
        )
        .only(&[PropertyVerb::Add])
        .shown("format", |volume, _| written(Some(volume.format))),
    ];
}

impl Configured for VirtualDisk {
    type Change = DiskChange;
    const EFFECT: PropertyEffect<VirtualDisk> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<VirtualDisk>] = &[
        DiskProperty::new(
            "volume",
            "VOLUME@SERVICE",
            "Volume that stores its blocks",
            |change, text| set(&mut change.volume, text),
            |disk| written(Some(&disk.volume)),
        )
        .only(&[PropertyVerb::Set])
        .xml("")
        .unlisted(),
        DiskProperty::new(
            "id",
            "NUMBER",
            "Its number in the domain, 0 to 31, which determines its position on the PCI bus",
            |change, text| set_number(&mut change.id, text),
            |disk| written(Some(disk.id)),
        )
        .only(&[PropertyVerb::Add])
        .required(),
        DiskProperty::new(
            "timeout",
            "SECONDS",
            "With an mpgroup: time without any path after which its requests fail. By default they wait",
            |change, text| set_number(&mut change.timeout, text),
            |disk| written(disk.timeout),
        )
        .unlisted(),
    ];
}
