//! Domains and switches with unreadable records. They keep their resources, and are never treated as having none, until
//! the user orders their release: then their resources are found by their marks.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use vtax_guest::{home::remove_of, paths, process::end_below};
use vtax_journal::{Journal, JournalError, Opened, Snapshot, read_header, scan};
use vtax_lab::World;
use vtax_model::topology::Name;
use vtax_step::StepSite;
use vtax_sys::record::RecordError;

use crate::{
    bindings::Bindings,
    bound::BoundDomain,
    domains::{Domains, QEMU, remove_folder},
    error::BindError,
    host_links,
    locked::LockedDomains,
    step::DomainStep,
    supervisor_process,
};

/// Domains that have resources of this host.
#[derive(Debug, Default)]
pub struct DomainSurvey {
    /// Domains with readable records, by name.
    pub bound: Vec<BoundDomain>,
    pub unreadable: Vec<UnreadableRecord>,
}

/// Domain or switch with an unreadable record.
#[derive(Debug)]
pub struct UnreadableRecord {
    /// Name of the domain or switch.
    pub object: Name,
    /// Error, including the file.
    pub error: JournalError,
    /// Resources that the domain got when it was bound, if the record's first line is intact.
    pub(crate) bindings: Option<Box<Bindings>>,
}

/// Damaged record that was set aside when its domain or switch was released.
#[derive(Debug)]
pub struct KeptRecord {
    /// Domain or switch that was found by its marks.
    pub object: Name,
    pub error: JournalError,
    /// Current path of the record; none if it was missing.
    pub path: Option<PathBuf>,
}

impl DomainSurvey {
    /// Returns the domains if all records can be read.
    pub(crate) fn whole(self) -> Result<Vec<BoundDomain>, BindError> {
        match self.unreadable.into_iter().next() {
            Some(unreadable) => Err(unreadable.into()),
            None => Ok(self.bound),
        }
    }

    /// Returns the resources of all domains, which are unavailable to a new one. Fails if they are unknown for one of
    /// them.
    pub(crate) fn holdings(self) -> Result<Vec<Bindings>, BindError> {
        let mut holdings: Vec<Bindings> = self.bound.into_iter().map(|bound| bound.bindings).collect();
        for mut unreadable in self.unreadable {
            match unreadable.bindings.take() {
                Some(bindings) => holdings.push(*bindings),
                None => return Err(unreadable.into()),
            }
        }
        Ok(holdings)
    }
}

impl From<UnreadableRecord> for BindError {
    fn from(UnreadableRecord { object, error, .. }: UnreadableRecord) -> BindError {
        BindError::Unreadable { object, error }
    }
}

impl Domains {
    /// Returns all domains that have resources of this host.
    pub fn survey(&self) -> Result<DomainSurvey, BindError> {
        let (mut bound, mut unreadable) = (Vec::new(), self.lost()?);
        for (object, snapshot) in named(&self.journals())? {
            match snapshot.and_then(|snapshot| BoundDomain::of(snapshot, self.folder())) {
                Ok(domain) => bound.push(domain),
                Err(JournalError::Missing { .. }) => {}
                Err(error) => {
                    let header = read_header(&self.journals(), object.as_str());
                    let bindings = header.and_then(|header| Bindings::deserialize(header.about).ok()).map(Box::new);
                    unreadable.push(UnreadableRecord { object, error, bindings });
                }
            }
        }
        Ok(DomainSurvey { bound, unreadable })
    }

    /// Fails if a domain without a record is bound nevertheless: the file system of its QEMU is mounted from before the
    /// record is complete until after it was executed.
    pub(crate) fn check_not_lost(&self, domain: &Name) -> Result<(), BindError> {
        match self.lost_record(domain) {
            Some(error) => Err(BindError::Unreadable { object: domain.clone(), error }),
            None => Ok(()),
        }
    }

    fn lost_record(&self, domain: &Name) -> Option<JournalError> {
        let path = self.journals().join(format!("{domain}.journal"));
        let directory = self.directory(domain);
        let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
        let is_mounted = || device(&directory.join(QEMU)).is_some_and(|qemu| Some(qemu) != device(&directory));
        let is_missing = || fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        // A domain that is bound or unbound at this moment has a record at one of these looks.
        let is_lost = is_mounted() && is_missing() && is_mounted();
        let why = "it is missing, although the domain is bound".to_owned();
        is_lost.then_some(JournalError::Record(RecordError::Damaged { path, why }))
    }

    /// Returns the bound domains without a record.
    fn lost(&self) -> Result<Vec<UnreadableRecord>, BindError> {
        let entries = match fs::read_dir(self.folder()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(BindError::file("read", self.folder()))?,
        };
        let domains = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let lost = |object: Name| {
            let error = self.lost_record(&object)?;
            Some(UnreadableRecord { object, error, bindings: None })
        };
        Ok(domains.filter_map(lost).collect())
    }

    /// Returns the domains and switches with unreadable records.
    pub fn unreadable(&self) -> Result<Vec<UnreadableRecord>, BindError> {
        let mut unreadable = self.survey()?.unreadable;
        let switches = named(&self.switches())?.into_iter();
        unreadable.extend(switches.filter_map(|(object, snapshot)| {
            Some(UnreadableRecord { object, error: snapshot.err()?, bindings: None })
        }));
        Ok(unreadable)
    }
}

impl LockedDomains<'_> {
    /// Releases, by their marks, the resources of domains and switches with damaged records, or only of the named ones.
    pub(crate) fn release_damaged(&self, wanted: Option<&Name>) -> Result<Vec<KeptRecord>, BindError> {
        let mut kept = Vec::new();
        let is_wanted = |lost: &UnreadableRecord| wanted.is_none_or(|wanted| *wanted == lost.object);
        for UnreadableRecord { object, error, .. } in self.lost()?.into_iter().filter(is_wanted) {
            self.remove_marked_domain(&object, &mut self.site())?;
            kept.push(KeptRecord { object, error, path: None });
        }
        kept.extend(self.set_aside(&self.journals(), wanted, |name, site| self.remove_marked_domain(name, site))?);
        kept.extend(
            self.set_aside(&self.switches(), wanted, |switch, site| host_links::remove_marked(site.own()?, switch))?,
        );
        Ok(kept)
    }

    fn set_aside(
        &self,
        journals: &Path,
        wanted: Option<&Name>,
        remove: impl Fn(&Name, &mut StepSite) -> Result<(), BindError>,
    ) -> Result<Vec<KeptRecord>, BindError> {
        let mut kept = Vec::new();
        for (object, snapshot) in named(journals)? {
            let is_damaged = snapshot.is_err_and(|error| error.is_damage());
            if !is_damaged || wanted.is_some_and(|wanted| *wanted != object) {
                continue;
            }
            if let Opened::Damaged(damaged) = Journal::<DomainStep>::open_any(journals, object.as_str())? {
                remove(&object, &mut self.site())?;
                let (error, path) = damaged.set_aside()?;
                kept.push(KeptRecord { object, error, path: Some(path) });
            }
        }
        Ok(kept)
    }

    fn remove_marked_domain(&self, domain: &Name, site: &mut StepSite) -> Result<(), BindError> {
        let directory = self.directory(domain);
        supervisor_process::end(&directory);
        self.end_renewal(domain);
        end_below(&directory).map_err(BindError::kernel(domain))?;
        remove_of(domain, &directory.join(QEMU))?;
        paths::unmount(&directory);
        give_back_all(self.world(), domain)?;
        host_links::remove_marked(site.own()?, domain)?;
        remove_folder(&directory)
    }
}

/// Returns all devices of a domain with an unreadable journal to the host.
fn give_back_all(world: &World, domain: &Name) -> Result<(), BindError> {
    let claims = world.device_claims();
    let own = claims.all()?.into_iter().filter(|claim| claim.owner == *domain);
    own.into_iter().try_for_each(|claim| Ok(claims.give_back(&claim).map(drop)?))
}

/// Domain or switch, with the contents of its record or the error of reading it.
type NamedRecord = (Name, Result<Snapshot<DomainStep>, JournalError>);

/// Returns the records in a directory. A file with a different kind of name isn't vtax's.
fn named(journals: &Path) -> Result<Vec<NamedRecord>, BindError> {
    if !journals.exists() {
        return Ok(Vec::new());
    }
    let found = scan::<DomainStep>(journals)?.into_iter();
    Ok(found.filter_map(|(id, snapshot)| Some((id.parse().ok()?, snapshot))).collect())
}

/// Returns true if a record was set aside in a directory.
pub(crate) fn has_kept(journals: &Path) -> bool {
    let names = journals.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().contains(".damaged"))
}
