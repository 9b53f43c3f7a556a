//! Kernel settings under `/proc/sys`. Those below `net` exist once per network namespace, and the *reading thread's*
//! namespace decides which ones it sees. So they are always read and written inside a given namespace.

use std::fmt;
use std::fs;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// The name of a setting, such as `net.ipv4.ip_forward`.
///
/// As in sysctl(8), the first separator decides. In `net/ipv4/conf/eth0.1/…` the dots are part of the names; in
/// `net.ipv4.conf.eth0/1.…` a slash stands for a dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct SysctlKey(String);

impl SysctlKey {
    /// Returns the name as in sysctl(8): `net.ipv4.ip_forward`.
    pub fn dotted(&self) -> String {
        swap_separators(&self.0)
    }

    /// Returns the path of its file below `/proc`.
    pub fn below_proc(&self) -> String {
        format!("sys/{}", self.0)
    }

    fn path(&self) -> String {
        format!("/proc/sys/{}", self.0)
    }
}

impl fmt::Display for SysctlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SysctlKey {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let dotted = text.find(['.', '/']).is_some_and(|at| text.as_bytes()[at] == b'.');
        let path = if dotted { swap_separators(text) } else { text.to_owned() };
        let sound = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(|byte| byte.is_ascii_graphic());
        if path.split('/').all(sound) {
            Ok(Self(path))
        } else {
            Err(SysError::invalid("name of a kernel setting", text, "use dots or slashes, e.g. net.ipv4.ip_forward"))
        }
    }
}

/// Reads the value, without the newline at its end.
///
/// # Errors
/// `ENOENT` if this kernel has no such setting, or not in this namespace.
pub fn read(namespace: &NetNs, key: &SysctlKey) -> Result<String> {
    namespace.run(|| read_here(key))?
}

/// Sets a value, reads it back, and returns the previous value.
///
/// # Errors
/// [`SysError::SysctlNotTaken`] if it reads back a different value: the kernel silently limits some settings.
pub fn write(namespace: &NetNs, key: &SysctlKey, value: &str) -> Result<String> {
    namespace.run(|| {
        let before = read_here(key)?;
        fs::write(key.path(), value).map_err(|e| SysError::os("set kernel setting", key, e))?;
        let now = read_here(key)?;
        if same(&now, value) {
            return Ok(before);
        }
        Err(SysError::SysctlNotTaken { key: key.to_string(), wrote: value.into(), read: now })
    })?
}

fn read_here(key: &SysctlKey) -> Result<String> {
    let value = fs::read_to_string(key.path()).map_err(|e| SysError::os("read kernel setting", key, e))?;
    Ok(value.trim_end().to_owned())
}

/// Returns whether two values are equal. The kernel returns a list with tabs between its numbers.
fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

fn swap_separators(text: &str) -> String {
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    text.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> SysctlKey {
        text.parse().unwrap()
    }

    #[test]
    fn both_notations_name_the_same_setting() {
        assert_eq!(key("net.ipv4.ip_forward"), key("net/ipv4/ip_forward"));
        assert_eq!(key("net/ipv4/conf/eth0.1/mtu").dotted(), "net.ipv4.conf.eth0/1.mtu");
        assert_eq!(key("net.ipv4.conf.eth0/1.forwarding"), key("net/ipv4/conf/eth0.1/forwarding"));
    }

    #[test]
    fn keys_that_leave_proc_sys_are_refused() {
        for text in ["", "/etc/passwd", "net/../../self/mem", "a//b", "a b", "net.", "..", "./x", "a\0b"] {
            assert!(text.parse::<SysctlKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn values_are_read_and_a_missing_setting_is_named() {
        let here = NetNs::current().unwrap();
        assert!(read(&here, &key("kernel.ostype")).unwrap().contains("Linux"));
        let error = read(&here, &key("net.no_such")).unwrap_err();
        assert!(error.to_string().contains("net/no_such"), "{error}");
    }

    #[test]
    fn lists_compare_by_their_numbers() {
        assert!(same("4096\t131072\t6291456", "4096 131072 6291456"));
        assert!(!same("1", "0"));
    }

    proptest! {
        #[test]
        fn no_key_leaves_proc_sys(text in "[a-z./]{0,30}|\\PC{0,30}") {
            if let Ok(key) = text.parse::<SysctlKey>() {
                prop_assert!(!key.path().split('/').any(|name| name == ".."));
                prop_assert!(!key.path().contains("//"));
                prop_assert_eq!(&key.to_string().parse::<SysctlKey>().unwrap(), &key);
                prop_assert!(!key.dotted().contains('.') || key.dotted().parse::<SysctlKey>().unwrap() == key);
            }
        }
    }
}
