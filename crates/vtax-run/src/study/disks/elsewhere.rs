//! Rows whose disks are used by a logical domain or by a zone.
//!
//! A domain's disk is measured in the domain: by its own fio if it has its own system, else by the host's, which is
//! temporarily provided. A zone has the host's files, and fio runs in its namespace.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
    rc::Rc,
};

use miette::miette;
use vtax_disk::{carried::CarriedProgram, inside::GuestDiskLook, job::FioJob};
use vtax_guest::{
    launch::Boot,
    vdisk::{DiskLaunch, DiskSource},
};
use vtax_model::{
    disk::{BackingFile, DiskAttach, DiskDevice, DiskIdentity, DiskPlace, DiskTest, DiskUser},
    endpoint::LabHost,
    foreign::ForeignText,
    run::RunHeader,
    study::{DiskRow, Row},
    topology::Name,
    units::ByteSize,
};
use vtax_wire::guest::LENT;

use super::{
    MeasuredDisks, RowTargets,
    by_agent::{AgentFio, LentMount, MeasuredGuest, RowInside, SOON, no_shell},
    guest, tests, used,
};
use crate::{
    stop::{Blamed, Stop},
    study::{
        ends::{DomainOfDisks, EndpointConnector, ZoneOfDisks},
        session::RunSetup,
    },
};

/// A distribution's fio maps the libraries of all network storage engines that it supports. A domain with less memory
/// may suffice, too.
const FIO_NEEDS: ByteSize = ByteSize(256 << 20);

/// Maximum length of a guest's quoted output.
const SAID_MOST: usize = 400;

/// Where a row's disks are used. All are in one place, because one fio measures them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RowPlace {
    /// On this machine.
    Here(Vec<PathBuf>),
    /// In a zone or a host of a lab, by paths of this machine.
    Zone { lab: Option<Name>, zone: Name, paths: Vec<PathBuf> },
    /// In a logical domain, by their names there.
    Domain { within: Option<LabHost>, domain: Name, disks: Vec<Name> },
}

impl RowPlace {
    /// Disks of domains are measured only if their contents may be lost, which can't be seen from here.
    pub(super) fn of(row: Row, names: &[DiskPlace], destroy: bool) -> miette::Result<RowPlace> {
        let Some(first) = names.first() else { return Ok(RowPlace::Here(Vec::new())) };
        let mut place = RowPlace::without_disks(first);
        if let Some(other) = names.iter().find(|other| !place.add(other)) {
            return Err(miette!(
                code = "bad-disk-name",
                "{first} and {other} cannot be measured at the same time: one fio measures all disks of a row, and it \
                 runs in one place; use a separate --disk for each"
            ));
        }
        if !matches!(row, Row::Disk(DiskRow::Named(_))) && !matches!(first, DiskPlace::Here(_)) {
            return Err(miette!(
                code = "disk-unusable",
                "{first}: this study attaches disks of this machine to its own guests; name a path"
            ));
        }
        match place {
            RowPlace::Domain { .. } if !destroy => Err(miette!(
                code = "disk-not-empty",
                "{first}: the test overwrites this disk, and vtax cannot see its contents from the host; if they are \
                 not needed, add --destroy-data"
            )),
            place => Ok(place),
        }
    }

    fn without_disks(of: &DiskPlace) -> RowPlace {
        match of.clone() {
            DiskPlace::Here(_) => RowPlace::Here(Vec::new()),
            DiskPlace::Zone { lab, zone, .. } => RowPlace::Zone { lab, zone, paths: Vec::new() },
            DiskPlace::Domain { within, domain, .. } => RowPlace::Domain { within, domain, disks: Vec::new() },
        }
    }

    /// Adds a disk. Returns false if it is in another place.
    fn add(&mut self, disk: &DiskPlace) -> bool {
        match (self, disk) {
            (RowPlace::Here(paths), DiskPlace::Here(path)) => paths.push(path.clone()),
            (RowPlace::Zone { lab, zone, paths }, DiskPlace::Zone { lab: of, zone: named, path })
                if (&*lab, &*zone) == (of, named) =>
            {
                paths.push(path.clone());
            }
            (RowPlace::Domain { within, domain, disks }, DiskPlace::Domain { within: of, domain: named, disk })
                if (&*within, &*domain) == (of, named) =>
            {
                disks.push(disk.clone());
            }
            _ => return false,
        }
        true
    }

    /// Returns the paths on this machine, which a zone has, too. None if a domain has the disks.
    pub(super) fn paths(&self) -> Option<&[PathBuf]> {
        match self {
            RowPlace::Here(paths) | RowPlace::Zone { paths, .. } => Some(paths),
            RowPlace::Domain { .. } => None,
        }
    }
}

impl MeasuredDisks {
    /// Finds the domains and zones of the rows, and inspects the disks there. Nothing is written, and disks that can't
    /// be measured are refused.
    pub(in crate::study) fn connect_elsewhere(&mut self, setup: &RunSetup<'_>, header: &RunHeader) -> Result<(), Stop> {
        let mut connector = setup.connector();
        let mut domains: BTreeMap<(&Option<LabHost>, &Name), FioInDomain> = BTreeMap::new();
        for RowTargets { row, names, place, inside, zone: in_zone, .. } in &mut self.rows {
            match &*place {
                RowPlace::Here(_) => {}
                RowPlace::Zone { lab, zone, .. } => *in_zone = Some(connector.zone_of_disks(lab.as_ref(), zone)?),
                RowPlace::Domain { within, domain, disks } => {
                    let there = match domains.entry((within, domain)) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) => {
                            new.insert(FioInDomain::connect(&mut connector, within.as_ref(), domain)?)
                        }
                    };
                    let tests: Vec<DiskTest> = tests(header, *row).collect();
                    *inside = Some(there.look(names, disks, &tests, self.seed)?);
                }
            }
        }
        Ok(())
    }
}

/// A domain, and fio in it.
struct FioInDomain {
    domain: Rc<DomainOfDisks>,
    fio: AgentFio,
}

impl FioInDomain {
    fn connect(
        connector: &mut EndpointConnector<'_>,
        within: Option<&LabHost>,
        domain: &Name,
    ) -> Result<FioInDomain, Stop> {
        let domain = Rc::new(connector.domain_of_disks(within, domain)?);
        let agent = domain.agent();
        let (mount, command) = match domain.launch().boot {
            Boot::Disk { .. } => (None, vec!["fio".to_owned()]),
            Boot::Kernel { .. } => {
                let folder = lent(&domain)?;
                let mount = LentMount::mount(agent, domain.name()).or_input()?;
                (Some(Rc::new(mount)), CarriedProgram::command(&Path::new(LENT).join(folder)))
            }
        };
        let guest = MeasuredGuest::Domain { domain: Rc::clone(&domain), _mount: mount };
        let fio = AgentFio::new(agent.clone(), guest, command);
        Ok(FioInDomain { domain, fio })
    }

    /// Inspects the disks of a row, which nothing in the domain may use.
    fn look(&self, names: &[DiskPlace], disks: &[Name], tests: &[DiskTest], seed: u64) -> Result<RowInside, Stop> {
        let FioInDomain { domain, fio } = self;
        let version = fio.version().map_err(|error| no_fio(domain, &error))?;
        let program = match domain.launch().boot {
            Boot::Disk { .. } => format!("{version} of {}", domain.name()).into(),
            Boot::Kernel { .. } => version,
        };
        let launches: Vec<DiskLaunch> = disks.iter().map(|disk| domain.disk(disk)).collect::<Result<_, _>>()?;
        let paths = guest::find(fio.agent(), &format!("the domain {}", domain.name()), &launches)?;
        let direct = tests.iter().all(|test| test.direct);
        let mut seen = Vec::new();
        for ((place, path), launch) in names.iter().zip(&paths).zip(&launches) {
            let found = look_at(domain, place, path)?;
            for test in tests.iter().filter(|test| used(names, test).contains(place)) {
                found.check(&place.to_string(), test).or_input()?;
            }
            let (path, user) = (path.display().to_string().into(), Some(served(domain, launch)));
            seen.push(DiskIdentity { path, direct, filesystem: None, device: Some(found.identity), user });
        }
        for test in tests {
            FioJob::new(*test, used(&paths, test), false, seed).or_input()?;
        }
        Ok(RowInside { fio: fio.clone(), paths, served: domain.served(launches), seen: Some((program, seen)) })
    }
}

/// Returns the directory of the host's fio inside the one that the domain sees.
fn lent(domain: &DomainOfDisks) -> Result<String, Stop> {
    let name = domain.name();
    let seen = domain.launch().lent.as_ref().filter(|folder| folder.is_dir()).ok_or_else(|| {
        Stop::input(miette!(
            code = "no-fio",
            "{name} has no fio, and cannot see the directory of programs that vtax passes to domains, because it was \
             started \
             before that existed; stop and start it (vtax ldm stop {name}, vtax ldm start {name})"
        ))
    })?;
    let carried = CarriedProgram::fio(seen).or_infrastructure()?;
    Ok(carried.folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
}

fn look_at(domain: &DomainOfDisks, place: &DiskPlace, path: &Path) -> Result<GuestDiskLook, Stop> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let ran = domain.agent().link.run(&GuestDiskLook::program(&name), &[], SOON);
    let ran = ran.map_err(|error| no_shell(domain.name(), error)).or_infrastructure()?;
    GuestDiskLook::read(&name, ran.stdout.raw()).ok_or_else(|| {
        let said = format!("{} {}", ran.stderr.raw(), ran.stdout.raw());
        let said = ForeignText::from(said.chars().take(SAID_MOST).collect::<String>());
        Stop::infrastructure(miette!(
            code = "no-disk-in-guest",
            "{place}: the domain {} sent an invalid description of the disk {}: {said}",
            domain.name(),
            path.display()
        ))
    })
}

fn no_fio(domain: &DomainOfDisks, error: &dyn std::fmt::Display) -> Stop {
    let (name, end) = (domain.name(), domain.end());
    let remedy = match domain.launch().boot {
        Boot::Disk { .. } => format!("install fio in {name}, in the PATH"),
        Boot::Kernel { .. } if domain.launch().memory < FIO_NEEDS => {
            format!("fio's libraries need memory: give {name} {FIO_NEEDS} (vtax ldm set-memory 256m {name})")
        }
        Boot::Kernel { .. } => format!("stop and start {name} (vtax ldm stop {name}, vtax ldm start {name})"),
    };
    Stop::input(miette!(code = "no-fio", "ldm:{end}: cannot run fio there ({error}); {remedy}"))
}

/// Returns how the host serves the disk.
fn served(domain: &DomainOfDisks, launch: &DiskLaunch) -> DiskUser {
    let (files, device, cached) = match &launch.source {
        DiskSource::File(file) => (std::slice::from_ref(file), launch.device(), !file.direct),
        DiskSource::Paths(paths) => (&paths.files[..], DiskDevice::Nbd, !launch.has_device_paths()),
        DiskSource::Controller { .. } => (&[][..], launch.device(), false),
    };
    let backing = files.iter().map(|file| BackingFile {
        path: file.path.display().to_string().into(),
        format: file.format.to_string().into(),
        slice: file.slice,
    });
    DiskUser::Domain {
        domain: domain.end().to_string().into(),
        attach: DiskAttach { device, ..launch.attach.unwrap_or(DiskAttach::plain(device)) },
        backing: backing.collect(),
        cached,
    }
}

impl ZoneOfDisks {
    /// A process in a lab's zone is in the control group of the process that started it, here vtax.
    pub(super) fn disk_user(&self) -> DiskUser {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let cgroup = groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned);
        let limits = cgroup.as_deref().map(io_limits).unwrap_or_default();
        DiskUser::Zone { zone: self.name().into(), cgroup: cgroup.map(ForeignText::from), limits }
    }
}

/// Reads `io.max` of a group and its ancestors: the tightest limit applies.
fn io_limits(cgroup: &str) -> Vec<ForeignText> {
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(cgroup.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    let lines = groups.filter_map(|group| fs::read_to_string(group.join("io.max")).ok());
    lines.flat_map(|text| text.lines().map(ForeignText::from).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests_of_places {
    use vtax_model::disk::DiskSet;

    use super::*;

    fn place(row: &str, names: &str, destroy: bool) -> Result<RowPlace, String> {
        let names: DiskSet = names.parse().expect("disks");
        RowPlace::of(row.parse().expect("a row"), &names.0, destroy).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rows_disks_are_in_one_place() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let name = |name: &str| name.parse::<Name>().expect("a name");
        let here = RowPlace::Here(paths(&["/dev/vdb", "/dev/vdc"]));
        assert_eq!(place("disk:a", "/dev/vdb,/dev/vdc", false), Ok(here));
        let zone = RowPlace::Zone { lab: None, zone: name("web"), paths: paths(&["/a", "/b"]) };
        assert_eq!(place("disk:a", "zone:web/a,zone:web/b", false), Ok(zone));
        let domain = RowPlace::Domain { within: None, domain: name("mars"), disks: vec![name("a"), name("b")] };
        assert_eq!(place("disk:a", "ldm:mars/a,ldm:mars/b", true), Ok(domain));
        for names in ["/dev/vdb,ldm:mars/a", "ldm:mars/a,ldm:venus/a", "zone:mars/a,ldm:mars/a", "zone:a/x,zone:b/x"] {
            let told = place("disk:a", names, true).expect_err(names);
            assert!(told.contains("cannot be measured at the same time"), "{told}");
        }
    }

    #[test]
    fn data_on_a_domains_disk_is_lost_only_if_allowed() {
        let told = place("disk:mars/a", "ldm:mars/a", false).expect_err("its data may be needed");
        assert!(told.contains("from the host") && told.contains("--destroy-data"), "{told}");
    }

    #[test]
    fn guests_of_a_study_get_disks_of_this_machine() {
        for names in ["ldm:mars/a", "zone:web/a"] {
            let told = place("virtio-blk", names, true).expect_err(names);
            assert!(told.contains("name a path"), "{told}");
        }
    }
}
