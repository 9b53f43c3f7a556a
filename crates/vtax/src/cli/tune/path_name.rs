//! The path for which a host's settings are judged.

use std::str::FromStr;

use vtax_host::inspect::HostFacts;
use vtax_model::{endpoint::Control, topology::Name};
use vtax_run::LabPath;
use vtax_tune::TuningPath;

use super::on_host::HostArgs;
use crate::exit::{Blamed, Stop};

/// A path as the user names it.
#[derive(Debug, Clone)]
pub(super) enum PathName {
    /// A link or guest of the host.
    OnHost(String),
    /// A zone, host or guest of a lab.
    InLab { lab: Name, domain: Name },
}

/// A path with a known host, whose links are not yet resolved.
pub(super) enum NamedPath {
    Everything,
    OnHost(String),
    InLab(LabPath),
}

impl FromStr for PathName {
    type Err = String;

    fn from_str(text: &str) -> Result<PathName, String> {
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        match text.split_once('/') {
            None if text.is_empty() => Err("specify a link, a guest or LAB/NAME".to_owned()),
            None => Ok(PathName::OnHost(text.to_owned())),
            Some((lab, domain)) => Ok(PathName::InLab { lab: name(lab)?, domain: name(domain)? }),
        }
    }
}

/// Returns the host of the path, unless the user names it.
pub(super) fn locate(path: Option<&PathName>, on: &HostArgs) -> Result<(Control, NamedPath), Stop> {
    match path {
        None => Ok((on.control(), NamedPath::Everything)),
        Some(PathName::OnHost(name)) => Ok((on.control(), NamedPath::OnHost(name.clone()))),
        Some(PathName::InLab { lab, domain }) => {
            let path = LabPath::under(lab, domain)?;
            Ok((on.only(&path.host)?, NamedPath::InLab(path)))
        }
    }
}

impl NamedPath {
    pub(super) fn find(&self, host: &HostFacts) -> Result<Option<TuningPath>, Stop> {
        match self {
            NamedPath::Everything => Ok(None),
            NamedPath::OnHost(name) => TuningPath::of(host, name).map(Some).or_input(),
            NamedPath::InLab(path) => Ok(Some(TuningPath::under(host, path.links.iter().cloned(), path.guests))),
        }
    }
}
