//! Files of sysfs: small texts and links.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns a file's text without the newline. None if it cannot be read, e.g. because the hardware doesn't answer.
pub(crate) fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Parses a number in the kernel's notation: decimal, or hexadecimal after `0x`.
pub(crate) fn number(path: &Path) -> Option<u32> {
    let text = text(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the last component of a symbolic link's target, e.g. of `driver` and `iommu_group`.
pub(crate) fn target_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

/// Returns names and paths in a directory, in any order.
pub(crate) fn entries(directory: &Path) -> impl Iterator<Item = (String, PathBuf)> + use<> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
}
