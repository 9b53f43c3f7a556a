//! The links that a packet passes between two endpoints.

use vtax_model::{
    method::{DomainKind, IoMethod},
    units::Mtu,
};
use vtax_step::Place;

use super::{Blueprint, LabEndpoint};
impl Blueprint {
    /// Returns the links between two endpoints in the order in which a packet passes them: empty within one network
    /// stack, none without a wire.
    pub fn path(&self, from: &LabEndpoint, to: &LabEndpoint) -> Option<Vec<Place>> {
        let up = self.stack_towards(from, to);
        let down = self.stack_towards(to, from);
        let meet =
            up.iter().enumerate().find_map(|(i, place)| Some((i, down.iter().position(|other| other == place)?)));
        if let Some((i, j)) = meet {
            // Packets between two zones turn around in the switch that both are connected to. If both are on a wire's
            // end, the end passes their packets on without sending them.
            let turn = (self.is_bridge(&up[i])).then(|| up[i].clone());
            return Some(up[..i].iter().cloned().chain(turn).chain(down[..j].iter().rev().cloned()).collect());
        }
        let between = self.between(up.last()?, down.last()?, &mut Vec::new())?;
        Some(up.iter().cloned().chain(between).chain(down.iter().rev().cloned()).collect())
    }

    /// The links from an endpoint to the wire. A host reaches a zone in a tunnel by its own end of the tunnel.
    fn stack_towards<'a>(&'a self, endpoint: &'a LabEndpoint, other: &LabEndpoint) -> &'a [Place] {
        let tunnelled = endpoint.kind == DomainKind::Primary && other.method == IoMethod::Vxlan;
        let end = self.tunnels.iter().filter(|_| tunnelled).find(|tunnel| tunnel.zone == other.name);
        let end = end.filter(|tunnel| tunnel.stack[0].namespace == endpoint.host);
        end.map_or(&endpoint.stack, |tunnel| &tunnel.stack)
    }

    /// The links of switches between two ends of wires.
    fn between(&self, from: &Place, to: &Place, passed: &mut Vec<Place>) -> Option<Vec<Place>> {
        let (wire, end) =
            self.wires.iter().find_map(|wire| Some((wire, wire.ends.iter().position(|end| end == from)?)))?;
        let far = &wire.ends[1 - end];
        if far == to {
            return Some(Vec::new());
        }
        let switch = wire.switches[1 - end].as_ref().filter(|switch| !passed.contains(switch))?;
        passed.push(switch.clone());
        let ports = self.wires.iter().flat_map(|wire| wire.ends.iter().zip(&wire.switches));
        let other_ports = ports.filter(|(port, on)| on.as_ref() == Some(switch) && *port != far);
        other_ports.into_iter().find_map(|(port, _)| {
            let rest = self.between(port, to, &mut passed.clone())?;
            Some([far, switch, port].into_iter().cloned().chain(rest).collect())
        })
    }

    fn is_bridge(&self, place: &Place) -> bool {
        self.links.iter().any(|link| link.place == *place && link.kind == "bridge")
    }

    /// The largest packet between two endpoints.
    pub fn path_mtu(&self, from: &LabEndpoint, to: &LabEndpoint, wire: Mtu) -> Mtu {
        let overhead = |endpoint: &LabEndpoint| self.mtu.get() - endpoint.mtu.get();
        wire.less(overhead(from).max(overhead(to))).unwrap_or(Mtu::MIN)
    }
}
