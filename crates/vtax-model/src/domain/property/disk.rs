//! Properties of volumes and of virtual disks.

use super::{
    Configured, Property, PropertyEffect, PropertyVerb, joined, set, set_all, set_number, set_removable, written,
};
use crate::domain::{DiskChange, VirtualDisk, Volume, VolumeChange, VolumeFormat, VolumeOption};

type VolumeProperty = Property<Volume>;
type DiskProperty = Property<VirtualDisk>;

impl Configured for Volume {
    /// The format of a new volume, and the properties that can be changed later.
    type Change = (Option<VolumeFormat>, VolumeChange);
    const EFFECT: PropertyEffect<Volume> = PropertyEffect::Unused;
    const PROPERTIES: &'static [Property<Volume>] = &[
        VolumeProperty::new(
            "options",
            "[ro,][slice,][excl]",
            |(_, to), text| set_all::<VolumeOption, _>(&mut to.options, text),
            |it| joined(&it.options),
        )
        .means(
            "`ro`: read-only for the domain, so that several domains can share the volume. `excl`: no other program \
             can use the backend while a domain has it. `slice`: the backend must be a partition",
        )
        .xml("vol_opts")
        .unlisted(),
        VolumeProperty::new(
            "slice",
            "OFFSET+SIZE",
            |(_, to), text| set_removable(&mut to.slice, text),
            |it| written(it.slice),
        )
        .means("Part of the backend: `1G+512M` is 512 MiB, starting at 1 GiB. So one disk can provide several volumes")
        .removable()
        .unlisted(),
        VolumeProperty::new(
            "mpgroup",
            "GROUP",
            |(_, to), text| set_removable(&mut to.mpgroup, text),
            |it| written(it.mpgroup.as_ref()),
        )
        .means("Group of volumes that are paths to the same blocks")
        .removable(),
        VolumeProperty::new(
            "format",
            "raw|qcow2",
            |(format, _), text| set(format, text),
            |it| written(Some(it.format).filter(|format| *format != VolumeFormat::Raw)),
        )
        .means("Format of the backend. Default: qcow2 for file names that end in `.qcow2`, raw for all others")
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
            |to, text| set(&mut to.volume, text),
            |it| written(Some(&it.volume)),
        )
        .means("Volume that stores its blocks")
        .only(&[PropertyVerb::Set])
        .xml("")
        .unlisted(),
        DiskProperty::new("id", "NUMBER", |to, text| set_number(&mut to.id, text), |it| written(Some(it.id)))
            .means("Its number in the domain, 0 to 31, which determines its position on the PCI bus")
            .only(&[PropertyVerb::Add])
            .required(),
        DiskProperty::new("timeout", "SECONDS", |to, text| set_number(&mut to.timeout, text), |it| written(it.timeout))
            .means("With an mpgroup: time without any path after which its requests fail. By default they wait")
            .unlisted(),
    ];
}
