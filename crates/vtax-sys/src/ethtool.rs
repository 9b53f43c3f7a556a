//! What a link's driver says about it, by the ethtool ioctls (`linux/ethtool.h`).
//!
//! The ioctls are used because they need no privilege and every kernel has them. The newer netlink family
//! calls the same functions of the driver.
//!
//! If the driver or the kernel gives no answer, or the privilege is missing, the result is empty and not an error.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};
use vtax_model::nic::{Channels, Coalescing, Rings};

use crate::netlink::{IfName, ioctl_request};

/// A command's number, and the length in 32-bit words of the structure that the kernel reads and fills in.
/// All of these have a fixed length.
#[derive(Clone, Copy)]
struct Command {
    number: u32,
    words: usize,
}

/// `struct ethtool_drvinfo`.
const DRIVER: Command = Command { number: 0x03, words: 49 };
/// `struct ethtool_coalesce`.
const COALESCING: Command = Command { number: 0x0e, words: 23 };
/// `struct ethtool_ringparam`.
const RINGS: Command = Command { number: 0x10, words: 9 };
/// `struct ethtool_channels`.
const CHANNELS: Command = Command { number: 0x3c, words: 9 };

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;
const SPEED_UNKNOWN: u32 = u32::MAX;
/// `struct ethtool_link_settings` up to its masks, and the place of `link_mode_masks_nwords`.
const LINK_WORDS: usize = 12;
const LINK_MASK_WORDS_AT: usize = 14;

/// A link that can be asked.
#[derive(Debug)]
pub(crate) struct Ethtool {
    /// Any socket will do: it only tells the kernel in which network namespace the link is.
    socket: Socket,
    link: IfName,
}

/// The driver's name and version (`ethtool -i`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) firmware: Option<String>,
    pub(crate) bus: Option<String>,
}

impl Ethtool {
    /// For a link in the calling thread's network namespace.
    pub(crate) fn of(link: &IfName) -> Option<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
        Some(Self { socket, link: link.clone() })
    }

    pub(crate) fn driver(&self) -> Driver {
        self.ask(DRIVER).map(|words| Driver::parse(&bytes(&words))).unwrap_or_default()
    }

    pub(crate) fn channels(&self) -> Option<Channels> {
        let words = self.ask(CHANNELS)?;
        Some(Channels { rx: words[5], tx: words[6], other: words[7], combined: words[8] })
    }

    pub(crate) fn rings(&self) -> Option<Rings> {
        let words = self.ask(RINGS)?;
        Some(Rings { rx_most: words[1], tx_most: words[4], rx: words[5], tx: words[8] })
    }

    pub(crate) fn coalescing(&self) -> Option<Coalescing> {
        let words = self.ask(COALESCING)?;
        Some(Coalescing {
            rx_us: words[1],
            rx_frames: words[2],
            tx_us: words[5],
            tx_frames: words[6],
            adaptive_rx: words[10] != 0,
            adaptive_tx: words[11] != 0,
        })
    }

    /// In 10^6 bits a second. Some virtual links report an invented value.
    pub(crate) fn speed_mbps(&self) -> Option<u32> {
        let mut words = vec![0; LINK_WORDS];
        words[0] = ETHTOOL_GLINKSETTINGS;
        // SAFETY: with no room for masks given, the kernel writes the structure only up to them.
        unsafe { self.call(&mut words) }.ok()?;
        // It answers with the room that it wants for each of the three masks, negated.
        let room = bytes(&words)[LINK_MASK_WORDS_AT].cast_signed().checked_neg()?;
        let room = usize::try_from(room).ok().filter(|room| *room > 0)?;
        words = vec![0; LINK_WORDS + 3 * room];
        words[0] = ETHTOOL_GLINKSETTINGS;
        let mut word = [0; 4];
        word[LINK_MASK_WORDS_AT % 4] = room as u8;
        words[LINK_MASK_WORDS_AT / 4] = u32::from_ne_bytes(word);
        // SAFETY: there is room for the three masks that the kernel asked for. It writes nothing unless the
        // given size is the one that it wants.
        unsafe { self.call(&mut words) }.ok()?;
        Some(words[1]).filter(|speed| *speed != 0 && *speed != SPEED_UNKNOWN)
    }

    /// Whether each offload that affects speed, and that the link has or could have, is on.
    pub(crate) fn offloads(&self) -> BTreeMap<String, bool> {
        let read = || {
            let names = self.feature_names()?;
            let states = self.features(names.len())?;
            Some(select_offloads(&names, &states))
        };
        read().unwrap_or_default()
    }

    /// The names of the features by their bits. The list is the kernel's, so it is the same for all links.
    fn feature_names(&self) -> Option<Vec<String>> {
        let [mask_low, mask_high] = halves(1 << ETH_SS_FEATURES);
        let mut info = vec![ETHTOOL_GSSET_INFO, 0, mask_low, mask_high, 0];
        // SAFETY: the structure has four words, and one follows for the one set in the mask.
        unsafe { self.call(&mut info) }.ok()?;
        let count = usize::try_from(info[4]).ok().filter(|count| *count > 0)?;
        let mut words = vec![0; 3 + count * ETH_GSTRING_LEN / 4];
        words[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, info[4]]);
        // SAFETY: there is room for as many strings as the kernel said, and for this set the
        // number is a constant of the kernel (`netdev_features_strings`).
        unsafe { self.call(&mut words) }.ok()?;
        Some(bytes(&words[3..]).chunks_exact(ETH_GSTRING_LEN).map(|name| text(name).unwrap_or_default()).collect())
    }

    fn features(&self, count: usize) -> Option<Vec<Feature>> {
        let blocks = count.div_ceil(32);
        let mut words = vec![0; 2 + blocks * 4];
        words[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        // SAFETY: the second word says for how many blocks of four words there is room.
        unsafe { self.call(&mut words) }.ok()?;
        let bit = |word: u32, index: usize| word >> (index % 32) & 1 == 1;
        let feature = |index: usize| {
            // `struct ethtool_get_features_block`: available, requested, active, never_changed.
            let block = &words[2 + index / 32 * 4..][..4];
            Feature { possible: bit(block[0], index) || bit(block[2], index), on: bit(block[2], index) }
        };
        Some((0..count).map(feature).collect())
    }

    fn ask(&self, command: Command) -> Option<Vec<u32>> {
        let mut words = vec![0; command.words];
        words[0] = command.number;
        // SAFETY: the buffer is as long as the structure of this command.
        unsafe { self.call(&mut words) }.ok().map(|()| words)
    }

    /// # Safety
    /// The buffer begins with a command and is as long as all that the kernel will write for it.
    unsafe fn call(&self, buffer: &mut [u32]) -> io::Result<()> {
        let mut request = ioctl_request(self.link.as_str());
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: the request is valid, its name ends with a zero because no `IfName` is longer
        // than 15 bytes, and the caller answers for the length of the buffer.
        let status = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A bit of the kernel's list of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Feature {
    /// Whether the feature is on or could be switched on.
    possible: bool,
    on: bool,
}

impl Driver {
    /// `struct ethtool_drvinfo`: the command, then texts of 32 bytes each.
    fn parse(info: &[u8]) -> Self {
        let field = |index: usize| info.get(4 + index * 32..).and_then(|from| text(&from[..from.len().min(32)]));
        Self { name: field(0), version: field(1), firmware: field(2), bus: field(3) }
    }
}

/// Parts of the names of features that can change how fast packets are or what they cost.
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

/// A text up to its first zero. Drivers write "N/A" where they know nothing.
fn text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8_lossy(text).trim().to_owned();
    Some(text).filter(|text| !text.is_empty() && text != "N/A")
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The two words in which a number of 64 bits is stored.
fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OFF: Feature = Feature { possible: true, on: false };
    const ON: Feature = Feature { possible: true, on: true };
    const IMPOSSIBLE: Feature = Feature { possible: false, on: false };

    #[test]
    fn offloads_are_those_that_bear_on_speed_and_can_be_had() {
        let names = ["tx-checksum-ipv4", "highdma", "rx-gro", "tx-fcoe-segmentation", "tx-udp-segmentation", "rx-lro"];
        let states = [ON, ON, OFF, ON, ON, IMPOSSIBLE];
        let found = select_offloads(&names.map(str::to_owned), &states);
        let expected = [("rx-gro", false), ("tx-checksum-ipv4", true), ("tx-udp-segmentation", true)];
        assert_eq!(found, expected.map(|(name, on)| (name.to_owned(), on)).into());
    }

    #[test]
    fn a_driver_is_read_from_its_fields() {
        let mut info = vec![0; DRIVER.words * 4];
        info[4..8].copy_from_slice(b"veth");
        info[36..39].copy_from_slice(b"1.0");
        info[68..71].copy_from_slice(b"N/A");
        let driver = Driver::parse(&info);
        assert_eq!((driver.name.as_deref(), driver.version.as_deref()), (Some("veth"), Some("1.0")));
        assert_eq!((driver.firmware, driver.bus), (None, None));
    }

    #[test]
    fn the_loopback_link_has_offloads_and_no_driver() {
        let lo = Ethtool::of(&"lo".parse().unwrap()).unwrap();
        let offloads = lo.offloads();
        assert_eq!(offloads.get("tx-checksum-ip-generic"), Some(&true), "{offloads:?}");
        assert!(offloads.contains_key("tx-tcp-segmentation") && !offloads.contains_key("highdma"), "{offloads:?}");
        assert_eq!((lo.driver(), lo.channels(), lo.rings()), (Driver::default(), None, None));
        assert_eq!((lo.coalescing(), lo.speed_mbps()), (None, None));
    }

    #[test]
    fn a_link_that_is_not_there_tells_nothing() {
        let none = Ethtool::of(&"no-such-link".parse().unwrap()).unwrap();
        assert_eq!((none.driver(), none.offloads(), none.speed_mbps()), (Driver::default(), BTreeMap::new(), None));
    }

    proptest! {
        #[test]
        fn hostile_answers_never_panic(info: Vec<u8>) {
            let _ = (Driver::parse(&info), text(&info));
        }
    }
}
