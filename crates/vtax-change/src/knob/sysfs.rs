//! Settings in files of sysfs: CPUs of a link's queues, CPU frequency governors and others.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

use super::Knob;
use crate::{
    error::ChangeError,
    host::HostAccess,
    namespace::{NamespaceRef, WhereIn},
    text::KernelText,
};

/// A file below `/sys` with one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysfsFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<NamespaceRef>,
    path: String,
    /// Index of the link whose directory contains the file: another link may get its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

impl SysfsFile {
    /// Finds a file. `path` is relative to `/sys`, such as `class/net/eth0/queues/rx-0/rps_cpus`.
    pub(crate) fn find(
        host: &mut HostAccess,
        namespace: Option<NamespaceRef>,
        path: &str,
    ) -> Result<SysfsFile, ChangeError> {
        check(path)?;
        let file = SysfsFile { namespace, path: path.to_owned(), link: None };
        let link = file.link(host)?;
        Ok(SysfsFile { link, ..file })
    }

    /// Returns the index of the link whose directory contains the file, if any.
    fn link(&self, host: &mut HostAccess) -> Result<Option<String>, ChangeError> {
        let names: Vec<&str> = self.path.split('/').collect();
        let Some(net) = names.iter().position(|name| *name == "net") else { return Ok(None) };
        let Some(directory) = names.get(..net + 2) else { return Ok(None) };
        let Some(sys) = host.sys(self.namespace.as_ref())? else { return Ok(None) };
        Ok(sys.read(&format!("{}/ifindex", directory.join("/")))?)
    }
}

impl Knob for SysfsFile {
    type Value = KernelText;

    fn read(&self, host: &mut HostAccess) -> Result<Option<KernelText>, ChangeError> {
        // The path comes from a journal, which someone may have written by hand.
        check(&self.path)?;
        if self.link(host)? != self.link {
            return Ok(None);
        }
        let Some(sys) = host.sys(self.namespace.as_ref())? else { return Ok(None) };
        Ok(sys.read(&self.path)?.as_deref().map(KernelText::new))
    }

    fn write(&self, host: &mut HostAccess, value: &KernelText) -> Result<(), ChangeError> {
        check(&self.path)?;
        let missing = || ChangeError::Missing { what: self.to_string() };
        let sys = host.sys(self.namespace.as_ref())?.ok_or_else(missing)?;
        Ok(sys.write(&self.path, value.as_str())?)
    }

    /// Returns true outside namespaces: the value can be read only if the link with this name has the same index as
    /// before.
    fn is_known_after_restart(&self, _: &mut HostAccess) -> Result<bool, ChangeError> {
        Ok(self.namespace.is_none())
    }
}

impl fmt::Display for SysfsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = ForeignText::from(self.path.as_str());
        write!(f, "file /sys/{path}{}", WhereIn(self.namespace.as_ref()))
    }
}

/// Checks a path. Symbolic links that lead out of `/sys` are detected when the file is opened.
fn check(path: &str) -> Result<(), ChangeError> {
    let why = match path {
        "" => "it is empty",
        _ if path.starts_with('/') => "omit the leading /sys/",
        _ if path.split('/').any(|name| matches!(name, "" | "." | "..")) => {
            "it has a component that is empty, `.` or `..`"
        }
        _ if !path.bytes().all(|byte| byte.is_ascii_graphic()) => "only visible ASCII characters are allowed",
        _ => return Ok(()),
    };
    Err(ChangeError::Path { path: path.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_out_of_sysfs_are_refused() {
        for path in ["", "/sys/class", "a/../../etc/passwd", "..", "a//b", "./a", "a/", "a b", "a\0b"] {
            let error = check(path).expect_err(path).to_string();
            assert!(error.contains("is not a file below /sys"), "{error}");
        }
        check("class/net/eth0.7/queues/rx-0/rps_cpus").expect("a good one");
    }

    proptest! {
        #[test]
        fn no_path_that_is_taken_goes_up(path in "[a-z./]{0,20}|\\PC{0,20}") {
            if check(&path).is_ok() {
                prop_assert!(!path.starts_with('/') && path.split('/').all(|name| name != ".."));
            }
        }
    }
}
