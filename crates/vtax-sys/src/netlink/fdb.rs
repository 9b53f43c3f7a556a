//! Forwarding tables of bridges: the port behind which each address is.
//!
//! The bridge learns this from frames that it receives. A guest that has just migrated to this host has sent none yet,
//! so its addresses are added as if they had been learnt: such an entry ages, and moves when a frame arrives at another
//! port.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use vtax_model::vf::Vlan;

use super::name::{IfIndex, MacAddr};
use super::reply::{attribute, number16, number32};
use super::request::{NetlinkRequest, emitted};
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Result, SysError};

/// From `linux/neighbour.h`: `struct ndmsg`, its states and flags, and the attributes.
const HEADER: usize = 12;
const INDEX_AT: usize = 4;
const STATE_AT: usize = 8;
const NUD_REACHABLE: u16 = 0x02;
const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
/// The request is for the bridge of the port, not for the port's own driver.
const NTF_MASTER: u8 = 0x04;
const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;

/// Entry of a bridge's forwarding table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbEntry {
    /// The port, or the bridge itself for one of its own addresses.
    pub port: IfIndex,
    pub mac: MacAddr,
    /// None on a bridge without VLAN filtering.
    pub vlan: Option<Vlan>,
    pub origin: FdbOrigin,
}

/// Origin of an entry, which decides how long it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FdbOrigin {
    /// Address of the bridge or of the port's own link. Frames to it go to the host.
    Own,
    /// Set by an administrator; doesn't age.
    Static,
    /// Learnt, or added as if it had been: ages, and moves with the address.
    Dynamic,
}

impl Rtnl {
    /// Adds a dynamic entry, or moves the entry of that address here, if it was behind another port.
    ///
    /// # Errors
    /// `EPERM` if the port doesn't forward: it is down or has no carrier. `EINVAL` if the port is not a member of the
    /// VLAN, or if the bridge doesn't filter VLANs and one is given.
    pub fn set_fdb(&mut self, port: IfIndex, mac: MacAddr, vlan: Option<Vlan>) -> Result<()> {
        let subject = Subject { operation: "add to the forwarding table", object: &place(port, mac, vlan) };
        let request = NetlinkRequest::raw(libc::RTM_NEWNEIGH, entry(port, mac, vlan));
        self.change(&request, NLM_F_CREATE | NLM_F_REPLACE, subject).map_err(|error| match error {
            // The kernel's usual reason for this number is a missing privilege, but not here.
            SysError::NotPermitted { operation, object, errno, detail, .. } => {
                let remedy = Some("set the port up and check its carrier; if it forwards, run as root");
                SysError::NotPermitted { operation, object, errno, detail, remedy }
            }
            error => error,
        })
    }

    /// Removes an entry from a port. Returns false if there is none.
    pub fn delete_fdb(&mut self, port: IfIndex, mac: MacAddr, vlan: Option<Vlan>) -> Result<bool> {
        let subject = Subject { operation: "remove from the forwarding table", object: &place(port, mac, vlan) };
        let request = NetlinkRequest::raw(libc::RTM_DELNEIGH, entry(port, mac, vlan));
        match self.change(&request, CHANGE, subject) {
            Err(error) if error.is_missing() => Ok(false),
            deleted => deleted.map(|()| true),
        }
    }

    /// Returns the forwarding table of a bridge, with its own addresses.
    pub fn fdb(&mut self, bridge: IfIndex) -> Result<Vec<FdbEntry>> {
        let object = format_args!("of bridge number {bridge}");
        let subject = Subject { operation: "read the forwarding table", object: &object };
        let master = DefaultNla::new(NDA_MASTER, bridge.0.to_ne_bytes().to_vec());
        let all = [header(IfIndex(0), 0, 0).to_vec(), emitted(&master)].concat();
        self.dump(&NetlinkRequest::raw(libc::RTM_GETNEIGH, all), subject, |body| {
            let (of, entry) = FdbEntry::parse(body).ok_or("an entry without an address or with an impossible VLAN")?;
            // Kernels before 5.0 ignore the filter; drivers of ports report their own tables without a bridge.
            Ok(Some(entry).filter(|_| of == Some(bridge)))
        })
    }
}

impl FdbEntry {
    /// Parses an entry, and its bridge.
    pub(super) fn parse(body: &[u8]) -> Option<(Option<IfIndex>, Self)> {
        let attributes = body.get(HEADER..)?;
        let state = number16(body.get(STATE_AT..)?)?;
        let origin = match state {
            _ if state & NUD_PERMANENT != 0 => FdbOrigin::Own,
            _ if state & NUD_NOARP != 0 => FdbOrigin::Static,
            _ => FdbOrigin::Dynamic,
        };
        let mac = MacAddr(attribute(attributes, NDA_LLADDR)?.try_into().ok()?);
        let vlan = match attribute(attributes, NDA_VLAN).map(number16) {
            None => None,
            Some(number) => Some(Vlan::try_from(i64::from(number?)).ok()?),
        };
        let bridge = attribute(attributes, NDA_MASTER).and_then(number32).map(IfIndex);
        Some((bridge, Self { port: number32(body.get(INDEX_AT..)?).map(IfIndex)?, mac, vlan, origin }))
    }
}

fn header(port: IfIndex, state: u16, flags: u8) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = libc::AF_BRIDGE as u8;
    header[INDEX_AT..STATE_AT].copy_from_slice(&port.0.to_ne_bytes());
    header[STATE_AT..STATE_AT + 2].copy_from_slice(&state.to_ne_bytes());
    header[STATE_AT + 2] = flags;
    header
}

fn entry(port: IfIndex, mac: MacAddr, vlan: Option<Vlan>) -> Vec<u8> {
    let mut bytes = header(port, NUD_REACHABLE, NTF_MASTER).to_vec();
    bytes.extend(emitted(&DefaultNla::new(NDA_LLADDR, mac.0.to_vec())));
    if let Some(vlan) = vlan {
        bytes.extend(emitted(&DefaultNla::new(NDA_VLAN, vlan.get().to_ne_bytes().to_vec())));
    }
    bytes
}

fn place(port: IfIndex, mac: MacAddr, vlan: Option<Vlan>) -> String {
    let vlan = vlan.map_or(String::new(), |vlan| format!(" in VLAN {vlan}"));
    format!("{mac}{vlan} at link number {port}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 0, 0x5e, 0x10, 0, 1]);

    fn vlan(number: u16) -> Vlan {
        Vlan::try_from(i64::from(number)).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + " ").collect()
    }

    fn reported(state: u16, bridge: u32, vlan: Option<u16>) -> Vec<u8> {
        let mut bytes = header(IfIndex(7), state, 0).to_vec();
        bytes.extend(emitted(&DefaultNla::new(NDA_LLADDR, MAC.0.to_vec())));
        bytes.extend(emitted(&DefaultNla::new(NDA_MASTER, bridge.to_ne_bytes().to_vec())));
        bytes.extend(
            vlan.map(|vlan| emitted(&DefaultNla::new(NDA_VLAN, vlan.to_ne_bytes().to_vec()))).unwrap_or_default(),
        );
        bytes
    }

    /// As requested by `bridge fdb replace 02:00:5e:10:00:01 dev PORT master dynamic vlan 33`.
    #[test]
    fn entries_are_asked_for_as_the_kernel_reads_them() {
        let header = "07000000 05000000 02000400 0a000200 02005e10 00010000 ";
        assert_eq!(hex(&entry(IfIndex(5), MAC, None)), header);
        assert_eq!(hex(&entry(IfIndex(5), MAC, Some(vlan(33)))), format!("{header}06000500 21000000 "));
    }

    #[test]
    fn the_state_shows_the_origin_of_an_entry() {
        let states = [(NUD_REACHABLE, FdbOrigin::Dynamic), (0x04, FdbOrigin::Dynamic), (NUD_NOARP, FdbOrigin::Static)];
        for (state, origin) in states.into_iter().chain([(NUD_PERMANENT, FdbOrigin::Own)]) {
            let entry = FdbEntry { port: IfIndex(7), mac: MAC, vlan: Some(vlan(44)), origin };
            assert_eq!(FdbEntry::parse(&reported(state, 3, Some(44))), Some((Some(IfIndex(3)), entry)));
        }
        let (_, untagged) = FdbEntry::parse(&reported(NUD_REACHABLE, 3, None)).unwrap();
        assert_eq!(untagged.vlan, None);
    }

    #[test]
    fn impossible_vlans_are_malformed() {
        for number in [0, 4095] {
            assert_eq!(FdbEntry::parse(&reported(NUD_REACHABLE, 3, Some(number))), None, "{number}");
        }
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(junk in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = FdbEntry::parse(&junk);
        }

        #[test]
        fn requests_are_read_back_identically(index in 1..u32::MAX, octets: [u8; 6], number in 1..=4094_u16) {
            let (port, mac) = (IfIndex(index), MacAddr(octets));
            for vlan in [None, Some(vlan(number))] {
                let expected = FdbEntry { port, mac, vlan, origin: FdbOrigin::Dynamic };
                prop_assert_eq!(FdbEntry::parse(&entry(port, mac, vlan)), Some((None, expected)));
            }
        }
    }
}
