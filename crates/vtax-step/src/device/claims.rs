//! Devices assigned to logical domains: a file for each, with its owner and its previous state.
//!
//! The file is created before the device is changed, and removed when the device is restored. So labs see that the
//! device belongs to someone else, and it can be restored even without its domain's journal.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vtax_change::pci::PhysicalLink;
use vtax_journal::{Undone, checksum};
use vtax_model::topology::Name;
use vtax_sys::{
    directory,
    pci::{PciAddress, PciTree},
    record,
};

use super::VfState;
use crate::error::StepError;

/// Claims of this machine's domains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceClaims {
    folder: PathBuf,
}

/// Record of a domain's ownership of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceClaim {
    /// Domain that owns the device.
    pub owner: Name,
    /// PCI address on this host.
    pub device: PciAddress,
    /// For a virtual function, the physical function and the number of the virtual one.
    pub function_of: Option<(PciAddress, u32)>,
    /// Previous state of the device. The settings of a device that is not a virtual function are empty.
    pub was: VfState,
}

impl DeviceClaims {
    /// Returns the claims with files in this directory, which need not exist.
    pub fn below(folder: PathBuf) -> DeviceClaims {
        DeviceClaims { folder }
    }

    /// Claims a device. It is an error if another domain has it.
    pub fn take(&self, claim: &DeviceClaim) -> Result<(), StepError> {
        if let Some(found) = self.find(claim.device)? {
            return match found == *claim {
                true => Ok(()),
                false => Err(StepError::Claimed { device: claim.device, owner: found.owner }),
            };
        }
        let path = self.path(claim.device);
        let line = serde_json::to_vec(claim).map_err(|error| StepError::file("write", &path)(error.into()))?;
        directory::create_private(&self.folder).map_err(StepError::file("create", &self.folder))?;
        Ok(record::replace(&path, &checksum::line(&line))?)
    }

    /// Releases a claim. It is not an error if there is none.
    pub fn give_up(&self, device: PciAddress) -> Result<(), StepError> {
        let path = self.path(device);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StepError::file("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Returns a device to the host in its previous state, unless another domain has it, and releases its claim.
    pub fn give_back(&self, claim: &DeviceClaim) -> Result<Undone, StepError> {
        match self.find(claim.device)? {
            Some(found) if found.owner == claim.owner => {}
            _ => return Ok(Undone::AlreadyGone),
        }
        let undone = claim.restore()?;
        self.give_up(claim.device)?;
        Ok(undone)
    }

    /// Returns the claim on a device; `None` if it has no claim file.
    pub fn find(&self, device: PciAddress) -> Result<Option<DeviceClaim>, StepError> {
        read(&self.path(device))
    }

    /// Returns all claims, in no particular order.
    pub fn all(&self) -> Result<Vec<DeviceClaim>, StepError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(StepError::file("read", &self.folder))?,
        };
        let is_address =
            |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.parse::<PciAddress>().is_ok());
        let found = entries.flatten().filter(is_address).map(|entry| read(&entry.path()));
        Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn path(&self, device: PciAddress) -> PathBuf {
        self.folder.join(device.to_string())
    }
}

impl DeviceClaim {
    fn restore(&self) -> Result<Undone, StepError> {
        if PciTree::live().device(self.device).map_err(StepError::kernel(self.device))?.is_none() {
            return Ok(Undone::AlreadyGone);
        }
        self.was.give_back(self.device, |settings| {
            let Some((physical, index)) = self.function_of else { return Ok(false) };
            let Some(mut link) = PhysicalLink::here(physical)? else { return Ok(false) };
            Ok(link.restore_vf(index, settings)?)
        })
    }
}

fn read(path: &Path) -> Result<Option<DeviceClaim>, StepError> {
    let Some(bytes) = record::read(path, record::SMALL)? else { return Ok(None) };
    checked(path, &bytes).map(Some)
}

/// Parses a file of one line with a checksum. It is always written as a whole, so a truncated one is damaged.
pub fn checked<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, StepError> {
    let wrong = |why: String| StepError::DeviceMark { path: path.to_owned(), why };
    let line = bytes.strip_suffix(b"\n").ok_or_else(|| wrong("the file is truncated".to_owned()))?;
    let content = checksum::content(line).map_err(|why| wrong(why.to_owned()))?;
    serde_json::from_slice(content).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use vtax_change::pci::{DriverState, VfSettings};

    use super::*;

    fn claim(owner: &str) -> DeviceClaim {
        let driver =
            DriverState { driver: Some("igbvf".to_owned()), driver_override: None, link: None, has_disk: false };
        DeviceClaim {
            owner: owner.parse().expect("a name"),
            device: "0000:01:10.0".parse().expect("an address"),
            function_of: Some(("0000:01:00.0".parse().expect("an address"), 0)),
            was: VfState { settings: VfSettings::default(), driver },
        }
    }

    #[test]
    fn a_device_has_one_owner_at_a_time() {
        let base = tempfile::tempdir().expect("a folder");
        let claims = DeviceClaims { folder: base.path().join("devices") };
        assert_eq!(claims.all().expect("none yet"), []);
        claims.take(&claim("mars")).expect("it is free");
        claims.take(&claim("mars")).expect("it is its own");
        let refused = claims.take(&claim("venus")).expect_err("mars has it").to_string();
        assert!(refused.contains("0000:01:10.0") && refused.contains("mars"), "{refused}");
        assert_eq!(claims.all().expect("they are read"), [claim("mars")]);
        claims.give_up(claim("mars").device).expect("it is there");
        claims.give_up(claim("mars").device).expect("it is gone");
        assert_eq!(claims.find(claim("mars").device).expect("it is read"), None);
    }

    /// A truncated claim was taken for a missing one, so another domain got the device.
    #[test]
    fn a_claim_that_is_cut_at_any_byte_is_named() {
        let base = tempfile::tempdir().expect("a folder");
        let claims = DeviceClaims { folder: base.path().to_owned() };
        claims.take(&claim("mars")).expect("it is free");
        let path = base.path().join("0000:01:10.0");
        let whole = fs::read(&path).expect("it is there");
        println!("{} cuts", whole.len());
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("ours");
            let errors =
                [claims.all().map(drop), claims.find(claim("mars").device).map(drop), claims.take(&claim("venus"))];
            for error in errors {
                assert!(error.expect_err("it is cut").to_string().contains("0000:01:10.0"));
            }
            assert_eq!(fs::read(&path).expect("it is there"), whole[..cut]);
        }
    }

    #[test]
    fn a_modified_claim_is_named() {
        let base = tempfile::tempdir().expect("a folder");
        let claims = DeviceClaims { folder: base.path().to_owned() };
        claims.take(&claim("mars")).expect("it is free");
        let path = base.path().join("0000:01:10.0");
        let text = fs::read_to_string(&path).expect("it is there").replace("mars", "pars");
        fs::write(&path, text).expect("ours");
        assert!(claims.all().expect_err("its checksum is wrong").to_string().contains("0000:01:10.0"));
    }
}
