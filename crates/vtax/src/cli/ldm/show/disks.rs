//! Virtual disks, and the services that export their backends, in `ldm`'s layout.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

use vtax_domain::{BoundDisk, BoundPath, DiskPath, DomainView};
use vtax_model::{
    domain::{Configuration, DiskService, VirtualDisk, Volume},
    topology::Name,
};

use super::{layout, parseable::object};

/// Returns a domain's disks.
pub(super) fn disks(disks: &[VirtualDisk], all: &Configuration) -> String {
    let columns = [("NAME", 16), ("VOLUME", 27), ("TOUT", 4), ("ID", 3), ("DEVICE", 8), ("SERVER", 16), ("MPGROUP", 0)];
    let line = |disk: &VirtualDisk| {
        let Parts { volume, timeout, server, group } = Parts::of(disk, all);
        [disk.name.to_string(), volume, timeout, disk.id.to_string(), format!("disk@{}", disk.id), server, group]
    };
    layout::block("DISK", columns, disks.iter().map(line))
}

/// Current state of the paths of bound domains' disks.
pub(super) type PathsByDisk = BTreeMap<(Name, Name), Vec<DiskPath>>;

/// Returns the state of the paths of bound domains' disks.
pub(super) fn paths_now(bound: &[DomainView]) -> PathsByDisk {
    let of_domain = |bound: &DomainView| {
        let of_disk = |(disk, paths): &(Name, Vec<DiskPath>)| ((bound.name().clone(), disk.clone()), paths.clone());
        bound.paths.iter().map(of_disk).collect::<Vec<_>>()
    };
    bound.iter().flat_map(of_domain).collect()
}

/// Returns the paths of a domain's disks that have more than one.
pub(super) fn path_lines(domain: &Name, paths: &PathsByDisk) -> String {
    let line = |(disk, path): (&Name, &DiskPath)| [disk.to_string(), path.volume.to_string(), path.state.to_string()];
    let columns = [("NAME", 16), ("MPGROUP VOLUME", 27), ("MPGROUP STATE", 0)];
    layout::block("MPGROUP", columns, paths_of(domain, paths).map(line))
}

/// Returns the paths for programs.
pub(super) fn parseable_paths(domain: &Name, paths: &PathsByDisk) -> String {
    paths_of(domain, paths)
        .map(|(disk, DiskPath { volume, state })| format!("MPGROUP|name={disk}|vol={volume}|state={state}\n"))
        .collect()
}

fn paths_of<'a>(domain: &'a Name, paths: &'a PathsByDisk) -> impl Iterator<Item = (&'a Name, &'a DiskPath)> {
    let own = paths.iter().filter(move |((of, _), _)| of == domain);
    own.flat_map(|((_, disk), paths)| paths.iter().map(move |path| (disk, path)))
}

/// Returns the disks for programs.
pub(super) fn parseable(disks: &[VirtualDisk], all: &Configuration) -> String {
    let line = |disk: &VirtualDisk| {
        let Parts { volume, timeout, server, group } = Parts::of(disk, all);
        let device = format!("disk@{}", disk.id);
        let names: [(&str, &dyn Display); 6] = [
            ("name", &disk.name),
            ("vol", &volume),
            ("timeout", &timeout),
            ("dev", &device),
            ("server", &server),
            ("mpgroup", &group),
        ];
        object("VDISK", &names, disk, all)
    };
    disks.iter().map(line).collect()
}

/// Texts in a disk's line.
struct Parts {
    volume: String,
    timeout: String,
    server: String,
    group: String,
}

impl Parts {
    fn of(disk: &VirtualDisk, all: &Configuration) -> Parts {
        let group = all.volume(&disk.volume).ok().and_then(|volume| volume.mpgroup.as_ref());
        Parts {
            volume: disk.volume.to_string(),
            timeout: shown(disk.timeout),
            server: shown(all.disk_services.get(&disk.volume.service).map(|service| &service.domain)),
            group: shown(group),
        }
    }
}

/// Returns the backend of a bound domain's disk.
pub(super) fn bound(disk: &BoundDisk) -> String {
    let options: Vec<String> = disk.options.iter().map(ToString::to_string).collect();
    let options = if options.is_empty() { String::new() } else { format!(", {}", options.join(",")) };
    let size = disk.size;
    let line = |BoundPath { volume, backend, format, part, .. }: &BoundPath| {
        let slice = part.slice.map(|slice| format!(", slice {slice}")).unwrap_or_default();
        let path = if disk.mpgroup.is_some() { format!("path {volume}, ") } else { String::new() };
        format!("    {}: {path}{} ({format}, {size}{slice}{options})\n", disk.disk.name, backend.display())
    };
    disk.paths.iter().map(line).collect()
}

/// Returns the disk services with their volumes.
pub(super) fn services(all: &Configuration) -> String {
    let columns = [("NAME", 16), ("LDOM", 16), ("VOLUME", 14), ("OPTIONS", 16), ("MPGROUP", 14), ("DEVICE", 0)];
    let of_service = |(name, service): (&Name, &DiskService)| {
        let volume = |(volume, exported): (&Name, &Volume)| {
            let (options, group) = (options(exported), shown(exported.mpgroup.as_ref()));
            [String::new(), String::new(), volume.to_string(), options, group, exported.backend.clone()]
        };
        let mut lines: Vec<[String; 6]> = service.volumes.iter().map(volume).collect();
        if lines.is_empty() {
            lines.push(Default::default());
        }
        [lines[0][0], lines[0][1]] = [name.to_string(), service.domain.to_string()];
        lines
    };
    layout::block("VDS", columns, all.disk_services.iter().flat_map(of_service))
}

/// Returns the disk services for programs.
pub(super) fn parseable_services(all: &Configuration) -> String {
    let mut text = String::new();
    for (name, service) in &all.disk_services {
        let _ = writeln!(text, "VDS|name={name}|ldom={}", service.domain);
        for (volume, exported) in &service.volumes {
            let names: [(&str, &dyn Display); 3] =
                [("vol", volume), ("opts", &options(exported)), ("dev", &exported.backend)];
            text += &object("", &names, exported, all);
        }
    }
    text
}

/// Returns the options and the slice.
fn options(volume: &Volume) -> String {
    let slice = volume.slice.map(|slice| format!("slice={slice}"));
    volume.options.iter().map(ToString::to_string).chain(slice).collect::<Vec<_>>().join(",")
}

fn shown(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use vtax_domain::PathState;
    use vtax_model::domain::{DiskChange, PRIMARY, VolumeFormat, VolumeName, VolumeOption};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn volume_name(text: &str) -> VolumeName {
        text.parse().expect("a volume")
    }

    fn mars() -> Configuration {
        let mut all = Configuration::new("sun");
        all.add_domain(&name("mars")).expect("it is new");
        all.add_disk_service(&name("primary-vds0"), name(PRIMARY)).expect("it is new");
        all.add_disk_service(&name("spare-vds"), name(PRIMARY)).expect("it is new");
        let plain = |backend: &str, mpgroup: Option<&str>| Volume {
            backend: backend.to_owned(),
            format: VolumeFormat::Raw,
            options: Default::default(),
            slice: None,
            mpgroup: mpgroup.map(name),
        };
        let (ro, slice) = ([VolumeOption::Ro].into(), "1G+512M".parse().ok());
        let tools = Volume { options: ro, slice, ..plain("/dev/sdb", None) };
        let volumes =
            [("tools", tools), ("lun1", plain("/dev/sdc", Some("lun"))), ("lun2", plain("/dev/sdd", Some("lun")))];
        for (volume, exported) in volumes {
            all.add_volume(&volume_name(&format!("{volume}@primary-vds0")), exported).expect("it is new");
        }
        for (disk, volume, timeout) in [("tools", "tools@primary-vds0", None), ("data", "lun1@primary-vds0", Some(60))]
        {
            let change = DiskChange { timeout, ..DiskChange::default() };
            all.add_disk(&name("mars"), &name(disk), volume_name(volume), change).expect("nobody has it");
        }
        all
    }

    #[test]
    fn disks_have_the_columns_of_ldm_and_their_paths_a_state() {
        let all = mars();
        let own = &all.domain(&name("mars")).expect("it is there").disks;
        let path = |volume, state| DiskPath { volume: volume_name(volume), state };
        let states = vec![path("lun1@primary-vds0", PathState::Standby), path("lun2@primary-vds0", PathState::Active)];
        let paths: PathsByDisk = [((name("mars"), name("data")), states)].into();
        let told = disks(own, &all) + &path_lines(&name("mars"), &paths) + &services(&all);
        let parsed = parseable(own, &all) + &parseable_paths(&name("mars"), &paths) + &parseable_services(&all);
        insta::assert_snapshot!(told + &parsed);
        assert_eq!(path_lines(&name("venus"), &paths), "");
    }
}
