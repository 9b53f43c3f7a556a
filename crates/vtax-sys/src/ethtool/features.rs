//! Features of a link: offloads and similar, each of which is on or off (`ethtool -k`).

use std::collections::BTreeMap;
use std::io;

use super::{Ethtool, bytes, is_nothing, text};
use crate::error::{Result, SysError};

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;

/// A bit of the kernel's list of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Feature {
    /// True if the feature is on or could be enabled.
    possible: bool,
    on: bool,
}

impl Ethtool {
    /// Returns the state of each offload that affects speed and that the link has or could have.
    pub(crate) fn offloads(&self) -> BTreeMap<String, bool> {
        let read = || {
            let names = self.feature_names()?;
            let states = self.features(names.len())?;
            Ok::<_, io::Error>(select_offloads(&names, &states))
        };
        read().unwrap_or_default()
    }

    /// Returns whether a feature is on, by the kernel's name for it (`rx-gro`, `tx-tcp-segmentation`). None if the link
    /// cannot have it, or no longer exists.
    pub fn feature(&self, name: &str) -> Result<Option<bool>> {
        match self.find_feature(name) {
            Ok(found) => Ok(found.filter(|(_, state)| state.possible).map(|(_, state)| state.on)),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(SysError::os("read the features of", &self.link, error)),
        }
    }

    /// Enables or disables a feature. Read it back: the kernel changes only what the driver allows, and disables
    /// features that depend on this one.
    pub fn set_feature(&self, name: &str, on: bool) -> Result<()> {
        let fail = |e| SysError::os("change the features of", &self.link, e);
        let unknown =
            || SysError::invalid("feature of a link", name, "the kernel has no such feature; ethtool -k lists them");
        let names = self.feature_names().map_err(fail)?;
        let index = names.iter().position(|other| other == name).ok_or_else(unknown)?;
        let mut words = change_of(index, names.len(), on);
        // SAFETY: the second word is the number of blocks of two words that follow.
        unsafe { self.call(&mut words) }.map_err(fail)
    }

    fn find_feature(&self, name: &str) -> io::Result<Option<(usize, Feature)>> {
        let names = self.feature_names()?;
        let index = names.iter().position(|other| other == name);
        let states = self.features(names.len())?;
        Ok(index.map(|index| (index, states[index])))
    }

    /// Returns the names of the features by their bits. The list is the kernel's, so it is the same for all links.
    fn feature_names(&self) -> io::Result<Vec<String>> {
        let [mask_low, mask_high] = halves(1 << ETH_SS_FEATURES);
        let mut info = vec![ETHTOOL_GSSET_INFO, 0, mask_low, mask_high, 0];
        // SAFETY: the structure has four words, and one follows for the one set in the mask.
        unsafe { self.call(&mut info) }?;
        let count = info[4] as usize;
        let mut words = vec![0; 3 + count * ETH_GSTRING_LEN / 4];
        words[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, info[4]]);
        // SAFETY: there is room for as many strings as the kernel reported, and for this set the number is a constant
        // of the kernel (`netdev_features_strings`).
        unsafe { self.call(&mut words) }?;
        Ok(bytes(&words[3..]).chunks_exact(ETH_GSTRING_LEN).map(|name| text(name).unwrap_or_default()).collect())
    }

    fn features(&self, count: usize) -> io::Result<Vec<Feature>> {
        let blocks = count.div_ceil(32);
        let mut words = vec![0; 2 + blocks * 4];
        words[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        // SAFETY: the second word is the number of blocks of four words for which there is room.
        unsafe { self.call(&mut words) }?;
        let bit = |word: u32, index: usize| word >> (index % 32) & 1 == 1;
        let feature = |index: usize| {
            // `struct ethtool_get_features_block`: available, requested, active, never_changed.
            let block = &words[2 + index / 32 * 4..][..4];
            Feature { possible: bit(block[0], index) || bit(block[2], index), on: bit(block[2], index) }
        };
        Ok((0..count).map(feature).collect())
    }
}

/// Parts of the names of features that affect the speed or cost of packets.
const BEARING_ON_SPEED: [&str; 7] = ["checksum", "segmentation", "scatter-gather", "gso", "gro", "lro", "rx-hashing"];
/// Protocols that vtax doesn't measure.
const OTHER_PROTOCOLS: [&str; 3] = ["fcoe", "sctp", "esp"];

fn select_offloads(names: &[String], states: &[Feature]) -> BTreeMap<String, bool> {
    let bears = |name: &str| {
        BEARING_ON_SPEED.iter().any(|part| name.contains(part))
            && !OTHER_PROTOCOLS.iter().any(|part| name.contains(part))
    };
    let known = names.iter().zip(states).filter(|(name, state)| state.possible && bears(name));
    known.map(|(name, state)| (name.clone(), state.on)).collect()
}

/// Builds `struct ethtool_sfeatures` for the feature with this index of `count`. A block has the mask of the features
/// to change, and their new states. The kernel requires all blocks.
fn change_of(index: usize, count: usize, on: bool) -> Vec<u32> {
    let (blocks, bit) = (count.div_ceil(32), 1 << (index % 32));
    let mut words = vec![0; 2 + blocks * 2];
    words[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
    let block = 2 + index / 32 * 2;
    words[block] = bit;
    words[block + 1] = if on { bit } else { 0 };
    words
}

/// Returns the two words in which a 64-bit number is stored.
fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Feature = Feature { possible: true, on: false };
    const ON: Feature = Feature { possible: true, on: true };
    const IMPOSSIBLE: Feature = Feature { possible: false, on: false };

    #[test]
    fn only_available_offloads_that_affect_speed_are_listed() {
        let names = ["tx-checksum-ipv4", "highdma", "rx-gro", "tx-fcoe-segmentation", "tx-udp-segmentation", "rx-lro"];
        let states = [ON, ON, OFF, ON, ON, IMPOSSIBLE];
        let found = select_offloads(&names.map(str::to_owned), &states);
        let expected = [("rx-gro", false), ("tx-checksum-ipv4", true), ("tx-udp-segmentation", true)];
        assert_eq!(found, expected.map(|(name, on)| (name.to_owned(), on)).into());
    }

    #[test]
    fn a_change_has_the_bit_of_its_feature_and_no_other() {
        assert_eq!(change_of(0, 32, true), [ETHTOOL_SFEATURES, 1, 1, 1]);
        assert_eq!(change_of(33, 65, false), [ETHTOOL_SFEATURES, 3, 0, 0, 2, 0, 0, 0]);
    }
}
