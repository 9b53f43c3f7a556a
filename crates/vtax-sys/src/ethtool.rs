//! Driver information and driver settings of a link, through the ethtool ioctls (`linux/ethtool.h`).
//!
//! The ioctls are used because every kernel has them, and because reading needs no privilege. The newer netlink family
//! calls the same functions of the driver.

mod features;
mod setting;

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};
use vtax_model::nic::{Channels, Coalescing, Rings};

use crate::error::{Result, SysError};
use crate::netlink::{IfName, ioctl_request};

pub use setting::DriverSetting;

/// A fixed-length structure that the kernel fills in, and of which it accepts a changed copy.
#[derive(Clone, Copy)]
struct Command {
    /// Number of the command that reads it.
    number: u32,
    /// Number of the command that sets it.
    setter: Option<u32>,
    /// Length in 32-bit words.
    words: usize,
}

/// `struct ethtool_drvinfo`.
const DRIVER: Command = Command { number: 0x03, setter: None, words: 49 };
/// `struct ethtool_coalesce`.
const COALESCING: Command = Command { number: 0x0e, setter: Some(0x0f), words: 23 };
/// `struct ethtool_ringparam`.
const RINGS: Command = Command { number: 0x10, setter: Some(0x11), words: 9 };
/// `struct ethtool_channels`.
const CHANNELS: Command = Command { number: 0x3c, setter: Some(0x3d), words: 9 };

const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const SPEED_UNKNOWN: u32 = u32::MAX;
/// Words of `struct ethtool_link_settings` up to its masks, and the byte offset of `link_mode_masks_nwords`.
const LINK_WORDS: usize = 12;
const LINK_MASK_WORDS_AT: usize = 14;

/// A link whose driver can be queried and configured.
#[derive(Debug)]
pub struct Ethtool {
    /// Any socket will do: it only identifies the link's network namespace.
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
    /// Opens a link in the calling thread's network namespace. Any thread can use it afterwards.
    pub fn open(link: &IfName) -> Result<Self> {
        let socket =
            Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(|e| SysError::os("query the driver of", link, e))?;
        Ok(Self { socket, link: link.clone() })
    }

    pub(crate) fn driver(&self) -> Driver {
        self.known(DRIVER).map(|words| Driver::parse(&bytes(&words))).unwrap_or_default()
    }

    pub(crate) fn channels(&self) -> Option<Channels> {
        let words = self.known(CHANNELS)?;
        Some(Channels { rx: words[5], tx: words[6], other: words[7], combined: words[8] })
    }

    pub(crate) fn rings(&self) -> Option<Rings> {
        let words = self.known(RINGS)?;
        Some(Rings { rx_most: words[1], tx_most: words[4], rx: words[5], tx: words[8] })
    }

    pub(crate) fn coalescing(&self) -> Option<Coalescing> {
        let words = self.known(COALESCING)?;
        Some(Coalescing {
            rx_us: words[1],
            rx_frames: words[2],
            tx_us: words[5],
            tx_frames: words[6],
            adaptive_rx: words[10] != 0,
            adaptive_tx: words[11] != 0,
        })
    }

    /// Returns the speed in Mbit/s. Some virtual links report an invented value.
    pub(crate) fn speed_mbps(&self) -> Option<u32> {
        let mut words = vec![0; LINK_WORDS];
        words[0] = ETHTOOL_GLINKSETTINGS;
        // SAFETY: with no room for masks given, the kernel writes the structure only up to them.
        unsafe { self.call(&mut words) }.ok()?;
        // It answers with the required room for each of the three masks, negated.
        let room = bytes(&words)[LINK_MASK_WORDS_AT].cast_signed().checked_neg()?;
        let room = usize::try_from(room).ok().filter(|room| *room > 0)?;
        words = vec![0; LINK_WORDS + 3 * room];
        words[0] = ETHTOOL_GLINKSETTINGS;
        let mut word = [0; 4];
        word[LINK_MASK_WORDS_AT % 4] = room as u8;
        words[LINK_MASK_WORDS_AT / 4] = u32::from_ne_bytes(word);
        // SAFETY: there is room for the three masks of the size that the kernel requested. It writes nothing unless the
        // given size is that one.
        unsafe { self.call(&mut words) }.ok()?;
        Some(words[1]).filter(|speed| *speed != 0 && *speed != SPEED_UNKNOWN)
    }

    /// Reads a structure. None if the driver has no such setting, or if the link no longer exists.
    fn ask(&self, command: Command) -> Result<Option<Vec<u32>>> {
        let mut words = vec![0; command.words];
        words[0] = command.number;
        // SAFETY: the buffer is as long as the structure of this command.
        match unsafe { self.call(&mut words) } {
            Ok(()) => Ok(Some(words)),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(SysError::os("query the driver of", &self.link, error)),
        }
    }

    fn known(&self, command: Command) -> Option<Vec<u32>> {
        self.ask(command).ok().flatten()
    }

    /// # Safety
    /// The buffer must begin with a command and be as long as everything that the kernel will write for it.
    unsafe fn call(&self, buffer: &mut [u32]) -> io::Result<()> {
        let mut request = ioctl_request(self.link.as_str());
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: the request is valid, its name ends with a zero because no `IfName` is longer than 15 bytes, and the
        // caller guarantees the length of the buffer.
        let status = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Returns whether an error means that the link or its driver has no such setting.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENODEV))
}

impl Driver {
    /// Parses `struct ethtool_drvinfo`: the command, then texts of 32 bytes each.
    fn parse(info: &[u8]) -> Self {
        let field = |index: usize| info.get(4 + index * 32..).and_then(|from| text(&from[..from.len().min(32)]));
        Self { name: field(0), version: field(1), firmware: field(2), bus: field(3) }
    }
}

/// Returns a text up to its first zero. Drivers write "N/A" for unknown values.
fn text(bytes: &[u8]) -> Option<String> {
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8_lossy(text).trim().to_owned();
    Some(text).filter(|text| !text.is_empty() && text != "N/A")
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

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
        let lo = Ethtool::open(&"lo".parse().unwrap()).unwrap();
        let offloads = lo.offloads();
        assert_eq!(offloads.get("tx-checksum-ip-generic"), Some(&true), "{offloads:?}");
        assert!(offloads.contains_key("tx-tcp-segmentation") && !offloads.contains_key("highdma"), "{offloads:?}");
        assert_eq!((lo.driver(), lo.speed_mbps()), (Driver::default(), None));
        assert_eq!((lo.channels(), lo.rings(), lo.coalescing()), (None, None, None));
    }

    #[test]
    fn a_link_that_does_not_exist_tells_nothing() {
        let none = Ethtool::open(&"no-such-link".parse().unwrap()).unwrap();
        assert_eq!((none.driver(), none.offloads(), none.speed_mbps()), (Driver::default(), BTreeMap::new(), None));
        assert_eq!((none.setting(DriverSetting::RxRing).unwrap(), none.feature("rx-gro").unwrap()), (None, None));
    }

    proptest! {
        #[test]
        fn hostile_answers_never_panic(info: Vec<u8>) {
            let _ = (Driver::parse(&info), text(&info));
        }
    }
}
