//! VLANs of a port.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vtax_model::vf::Vlan;
use vtax_sys::netlink::VlanMembership;

/// VLANs that a port of a switch is a member of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortVlanSet {
    /// VLAN of untagged frames.
    pub pvid: Vlan,
    /// VLANs of tagged frames.
    pub vids: BTreeSet<Vlan>,
}

impl PortVlanSet {
    pub(super) fn memberships(&self) -> Vec<VlanMembership> {
        let tagged = self.vids.iter().filter(|vlan| **vlan != self.pvid).map(|vlan| VlanMembership::tagged(*vlan));
        tagged.chain([VlanMembership::native(self.pvid)]).collect()
    }

    /// Returns the VLANs from which a port must be removed.
    pub(super) fn surplus(&self, has: &[VlanMembership]) -> Vec<Vlan> {
        let is_wanted = |vlan: &Vlan| self.pvid == *vlan || self.vids.contains(vlan);
        has.iter().map(|it| it.vlan).filter(|vlan| !is_wanted(vlan)).collect()
    }

    /// Returns the memberships that the uplink of a switch lacks to forward the frames of a port. An untagged
    /// membership that it already has stays untagged.
    pub(super) fn missing(&self, has: &[VlanMembership]) -> Vec<VlanMembership> {
        let wanted: BTreeSet<Vlan> = self.vids.iter().copied().chain([self.pvid]).collect();
        let missing = wanted.into_iter().filter(|vlan| has.iter().all(|it| it.vlan != *vlan));
        missing.map(VlanMembership::tagged).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vlan(id: i64) -> Vlan {
        Vlan::try_from(id).expect("a VLAN")
    }

    fn set(pvid: i64, vids: &[i64]) -> PortVlanSet {
        PortVlanSet { pvid: vlan(pvid), vids: vids.iter().map(|id| vlan(*id)).collect() }
    }

    fn tagged(ids: &[i64]) -> Vec<VlanMembership> {
        ids.iter().map(|id| VlanMembership::tagged(vlan(*id))).collect()
    }

    /// The kernel stores one membership per VLAN, the last one added.
    #[test]
    fn the_vlan_of_untagged_frames_is_never_tagged_as_well() {
        let native = |id| VlanMembership::native(vlan(id));
        for (pvid, vids, expected) in [
            (1, &[][..], vec![native(1)]),
            (1, &[5, 6], [tagged(&[5, 6]), vec![native(1)]].concat()),
            (5, &[5, 6], [tagged(&[6]), vec![native(5)]].concat()),
        ] {
            assert_eq!(set(pvid, vids).memberships(), expected);
        }
    }

    #[test]
    fn a_port_leaves_exactly_the_vlans_that_it_no_longer_has() {
        let has = [tagged(&[5, 6, 7]), vec![VlanMembership::native(vlan(1))]].concat();
        for (wanted, expected) in [
            (set(1, &[5, 6, 7]), &[][..]),
            (set(1, &[6]), &[5, 7]),
            (set(5, &[6]), &[7, 1]),
            (set(9, &[]), &[5, 6, 7, 1]),
        ] {
            let expected: Vec<Vlan> = expected.iter().map(|id| vlan(*id)).collect();
            assert_eq!(wanted.surplus(&has), expected, "{wanted:?}");
        }
        assert_eq!(set(9, &[]).surplus(&[]), []);
    }

    /// Otherwise frames of the uplink's untagged VLAN would leave the host with a tag.
    #[test]
    fn an_uplink_gets_what_it_lacks_and_keeps_what_it_has_without_tags() {
        let has = [tagged(&[5]), vec![VlanMembership::native(vlan(1))]].concat();
        assert_eq!(set(1, &[5]).missing(&has), []);
        assert_eq!(set(1, &[5, 6]).missing(&has), tagged(&[6]));
        assert_eq!(set(7, &[7, 1]).missing(&has), tagged(&[7]), "once");
        assert_eq!(set(1, &[]).missing(&[]), tagged(&[1]));
    }
}
