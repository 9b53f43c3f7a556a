//! Announcements of a guest's addresses that have moved to this host, or from it.
//!
//! They affect three tables. In the switch of this host, the addresses are entered for the guest's port. The switches
//! behind the uplink, including the other host's, learn from frames with these source addresses. The other host's
//! switch also forgets the addresses when the guest's port there is removed, but not before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use vtax_model::{guest::Mac, vf::Vlan};
use vtax_sys::{
    netlink::{FdbEntry, FdbOrigin, IfIndex, MacAddr, VlanMembership},
    rarp::{FrameSender, MacAnnouncement},
};

use super::{NetStack, PortVlanSet};
use crate::error::StepError;

/// Times of an announcement and its repetitions after the guest starts to run here, those of QEMU's `announce-self`:
/// 50 ms after the first one, then 100 ms later each time, five in all. A frame may be lost, and the last of the
/// guest's own frames may arrive from the other host after the first announcement.
const TIMES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(450),
    Duration::from_millis(800),
];

/// Announcement that is prepared, to be sent and repeated once the guest runs here.
///
/// Because of the preparation, each round takes only two calls per address and VLAN. It never waits between rounds; the
/// caller does.
#[derive(Debug)]
pub struct Announcement {
    port: String,
    entries: Vec<PortEntry>,
    uplink: Option<AnnouncingLink>,
    rounds: usize,
}

/// Entry of the switch for the guest's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortEntry {
    port: IfIndex,
    mac: MacAddr,
    /// `None` if the switch doesn't filter VLANs.
    vlan: Option<Vlan>,
}

/// Link to other switches, and the frames to send there.
#[derive(Debug)]
struct AnnouncingLink {
    name: String,
    sender: FrameSender,
    frames: Vec<Vec<u8>>,
}

impl Announcement {
    /// Returns the time of the next round, from when the guest began to run here. `None` if no round is left.
    pub fn due(&self) -> Option<Duration> {
        TIMES.get(self.rounds).copied()
    }

    /// Executes all rounds that are due by now, `running` after the guest began to run here, as one. Returns the time
    /// of the next round.
    ///
    /// # Errors
    /// The kernel refuses an entry or a frame. The other entries and frames of that round are processed nevertheless,
    /// and the next round remains due.
    pub fn make(&mut self, running: Duration, stack: &mut NetStack) -> Result<Option<Duration>, StepError> {
        let passed = TIMES[self.rounds..].iter().take_while(|due| **due <= running).count();
        self.rounds += passed;
        if passed > 0 {
            let entered = self.enter(stack);
            self.send(stack).and(entered)?;
        }
        Ok(self.due())
    }

    fn enter(&self, stack: &mut NetStack) -> Result<(), StepError> {
        let rtnl = &mut stack.rtnl;
        let entered = self.entries.iter().map(|entry| rtnl.set_fdb(entry.port, entry.mac, entry.vlan));
        let first = entered.fold(Ok(()), Result::and);
        first.map_err(stack.wrong(&self.port))
    }

    fn send(&self, stack: &NetStack) -> Result<(), StepError> {
        let Some(AnnouncingLink { name, sender, frames }) = &self.uplink else { return Ok(()) };
        let sent = frames.iter().map(|frame| sender.send(frame));
        let first = sent.fold(Ok(()), Result::and);
        first.map_err(stack.wrong(name))
    }
}

impl NetStack {
    /// Prepares the announcement of addresses that will be behind `port`, in the VLANs of that port. Changes and sends
    /// nothing. The port must belong to a switch, unless it sends to its network directly like a macvtap, which is its
    /// own `uplink`.
    pub fn announce(
        &mut self,
        port: &str,
        uplink: Option<&str>,
        macs: &[Mac],
        vlans: Option<&PortVlanSet>,
    ) -> Result<Announcement, StepError> {
        let found = self.existing(port)?;
        let members = found.master.map(|bridge| self.filtered_vlans(bridge, port)).transpose()?.flatten();
        let of_macs = |vlan| macs.iter().map(move |mac| (MacAddr(mac.octets()), vlan));
        let entry = |(mac, vlan)| PortEntry { port: found.index, mac, vlan };
        let entries = match (found.master, &members, vlans) {
            (None, ..) => Vec::new(),
            (_, Some(_), Some(vlans)) => vlans.all().into_iter().map(Some).flat_map(of_macs).map(entry).collect(),
            _ => of_macs(None).map(entry).collect(),
        };
        let uplink = match uplink {
            Some(name) => Some(self.announcing_link(name, macs, members.as_ref(), vlans)?),
            None => None,
        };
        Ok(Announcement { port: port.to_owned(), entries, uplink, rounds: 0 })
    }

    fn announcing_link(
        &mut self,
        name: &str,
        macs: &[Mac],
        members: Option<&BTreeMap<IfIndex, Vec<VlanMembership>>>,
        vlans: Option<&PortVlanSet>,
    ) -> Result<AnnouncingLink, StepError> {
        let index = self.existing(name)?.index;
        let of_uplink = members.map(|members| members.get(&index).map_or(&[][..], Vec::as_slice));
        let tags = tags(vlans, of_uplink);
        let announcements = macs.iter().flat_map(|mac| tags.iter().map(|tag| (MacAddr(mac.octets()), *tag)));
        let frames = announcements.map(|(mac, tag)| MacAnnouncement { mac, tag }.frame()).collect();
        let sender = FrameSender::open_in(&self.namespace, index).map_err(self.wrong(name))?;
        Ok(AnnouncingLink { name: name.to_owned(), sender, frames })
    }

    /// Returns the VLANs of each port of a switch. `None` if the switch doesn't filter VLANs, or the kernel doesn't
    /// support that.
    fn filtered_vlans(
        &mut self,
        bridge: IfIndex,
        port: &str,
    ) -> Result<Option<BTreeMap<IfIndex, Vec<VlanMembership>>>, StepError> {
        let settings = self.rtnl.bridge_settings(bridge).map_err(self.wrong(port))?;
        if !settings.is_some_and(|settings| settings.vlan_filtering) {
            return Ok(None);
        }
        let members = self.rtnl.bridge_vlans(bridge).map_err(self.wrong(port))?;
        Ok(Some(members.into_iter().map(|member| (member.link, member.vlans)).collect()))
    }

    /// Removes addresses that have moved away from a port that still exists, in every VLAN, and returns the removed
    /// entries. Otherwise, frames from this host to these addresses would go to that port until an announcement
    /// arrives. Entries behind other ports stay: they are newer.
    pub fn withdraw(&mut self, port: &str, macs: &[Mac]) -> Result<Vec<FdbEntry>, StepError> {
        let Some(found) = self.link(port)? else { return Ok(Vec::new()) };
        let Some(bridge) = found.master else { return Ok(Vec::new()) };
        let gone = |entry: &FdbEntry| {
            let is_dynamic = entry.port == found.index && entry.origin == FdbOrigin::Dynamic;
            is_dynamic && macs.iter().any(|mac| mac.octets() == entry.mac.0)
        };
        let mut removed = self.rtnl.fdb(bridge).map_err(self.wrong(port))?;
        removed.retain(gone);
        for entry in &removed {
            // An entry that has moved in the meantime is no longer at this port.
            self.rtnl.delete_fdb(entry.port, entry.mac, entry.vlan).map_err(self.wrong(port))?;
        }
        Ok(removed)
    }

    /// Returns the forwarding table of a switch.
    pub fn forwarding(&mut self, switch: &str) -> Result<Vec<FdbEntry>, StepError> {
        let bridge = self.existing(switch)?.index;
        self.rtnl.fdb(bridge).map_err(self.wrong(switch))
    }
}

impl PortVlanSet {
    fn all(&self) -> BTreeSet<Vlan> {
        self.vids.iter().copied().chain([self.pvid]).collect()
    }
}

/// Returns the tags of the frames on the uplink. A switch that filters VLANs determines them: frames of a VLAN of which
/// the uplink isn't a member never reach it. Otherwise, frames leave as the guest sends them.
fn tags(vlans: Option<&PortVlanSet>, uplink: Option<&[VlanMembership]>) -> Vec<Option<Vlan>> {
    let Some(vlans) = vlans else { return vec![None] };
    let tag = |vlan: Vlan| match uplink {
        Some(members) => {
            let member = members.iter().find(|member| member.vlan == vlan)?;
            Some((!member.untagged).then_some(vlan))
        }
        None => Some((vlan != vlans.pvid).then_some(vlan)),
    };
    vlans.all().into_iter().filter_map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vlan(number: i64) -> Vlan {
        Vlan::try_from(number).expect("a VLAN")
    }

    fn set(pvid: i64, vids: &[i64]) -> PortVlanSet {
        PortVlanSet { pvid: vlan(pvid), vids: vids.iter().map(|number| vlan(*number)).collect() }
    }

    #[test]
    fn the_uplink_decides_which_frames_have_tags() {
        let wanted = set(5, &[7, 9]);
        let members =
            [VlanMembership::native(vlan(1)), VlanMembership::tagged(vlan(5)), VlanMembership::tagged(vlan(9))];
        // VLAN 7 never reaches this uplink.
        assert_eq!(tags(Some(&wanted), Some(&members)), [Some(vlan(5)), Some(vlan(9))]);
        assert_eq!(tags(Some(&set(1, &[])), Some(&members)), [None]);
        assert_eq!(tags(Some(&wanted), Some(&[])), []);
    }

    #[test]
    fn frames_of_a_switch_without_vlans_leave_as_the_guest_sends_them() {
        assert_eq!(tags(None, None), [None]);
        assert_eq!(tags(Some(&set(5, &[7])), None), [None, Some(vlan(7))]);
        // A port with an untagged VLAN that is also listed as tagged sends it untagged.
        assert_eq!(tags(Some(&set(5, &[5])), None), [None]);
    }

    #[test]
    fn rounds_are_those_of_qemu() {
        let mut announcement = Announcement { port: "tap".into(), entries: vec![], uplink: None, rounds: 0 };
        let gaps: Vec<u128> = TIMES.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        assert_eq!(gaps, [50, 150, 250, 350]);
        assert_eq!(announcement.due(), Some(Duration::ZERO));
        announcement.rounds = TIMES.len();
        assert_eq!(announcement.due(), None);
    }
}
