//! Connected endpoints: one of a pair, and those of a row.

use std::{net::IpAddr, sync::Arc};

use vtax_lab::{Lab, LabEndpoint};
use vtax_model::{
    endpoint::{DeviceName, Ends, Pinning},
    run::{DomainRecord, EndLocation, EndRecord, GuestMachine, Hop, PairRecord, PlacementNote, PodRecord, RowEnds},
    study::Row,
    units::Mtu,
};

use super::{
    agent::Agent,
    attachment::{Attachment, GuestProcess, SwitchedEnd, namespace::HeldNamespace},
};
use crate::{
    stop::Stop,
    study::steps::TunedPlace,
    tuning::{SharedTuner, TuningHost},
};

pub(super) struct ConnectedRow {
    pub(super) row: Row,
    /// MTU for which these endpoints are used. None for all MTUs.
    pub(super) mtu: Option<Mtu>,
    /// Initiator and responder of each pair. All pairs are measured concurrently.
    pub(super) pairs: Vec<[ConnectedEnd; 2]>,
}

pub(super) struct ConnectedEnd {
    pub(super) agent: Arc<Agent>,
    /// Name known to the user.
    pub(super) name: String,
    /// Address that its sockets are bound to.
    pub(super) address: IpAddr,
    /// True if vtax has assigned the address for the run. The next run may have another one.
    pub(super) is_lent: bool,
    /// Device that its sockets are bound to.
    pub(super) device: Option<DeviceName>,
    pub(super) attachment: Box<dyn Attachment>,
    /// Links by which its packets leave, the uppermost first. Empty in a lab built for the run, which knows its links.
    pub(super) route: Vec<Hop>,
    /// Context identifier of its machine, as known to the other endpoint.
    pub(super) cid: Option<u32>,
    /// CPUs requested by the user for this endpoint alone.
    pub(super) pin: Option<Pinning>,
    /// CPUs that its threads are pinned to.
    pub(super) cpus: Vec<u32>,
}

impl ConnectedRow {
    pub(super) fn ends(&self) -> impl Iterator<Item = &ConnectedEnd> {
        self.pairs.iter().flatten()
    }

    /// Returns the locations of the initiators and the responders.
    pub(super) fn locations(&self) -> Ends<EndLocation> {
        let of_role = |role: usize| {
            let mut locations = self.pairs.iter().map(|pair| pair[role].location());
            let first = locations.next().unwrap_or_default();
            if locations.all(|location| location == first) { first } else { EndLocation::Unknown }
        };
        Ends { initiator: of_role(0), responder: of_role(1) }
    }

    pub(super) fn record(&self) -> RowEnds {
        let pair = |[initiator, responder]: &[ConnectedEnd; 2]| PairRecord {
            initiator: initiator.record(),
            responder: responder.record(),
        };
        RowEnds { method: self.row, mtu: self.mtu, pairs: self.pairs.iter().map(pair).collect() }
    }
}

impl ConnectedEnd {
    fn record(&self) -> EndRecord {
        EndRecord {
            name: self.name.clone().into(),
            address: self.address.to_string().into(),
            cpus: self.cpus.clone(),
            environment: self.agent.elsewhere().cloned(),
            domain: self.domain().cloned(),
            namespace: self.attachment.namespace().map(|held| held.record.clone()),
            pod: self.pod(),
            published: self.attachment.published().cloned(),
        }
    }

    /// Returns the virtual machine of the endpoint, if it is in a guest.
    pub(super) fn guest_machine(&self) -> Option<GuestMachine> {
        self.attachment.guest()?.machine()
    }

    /// Returns the QEMU of the endpoint, if its threads can be observed on this machine.
    pub(super) fn qemu(&self) -> Option<GuestProcess> {
        self.attachment.guest()?.qemu()
    }

    /// Returns the record of the endpoint's domain.
    pub(super) fn domain(&self) -> Option<&DomainRecord> {
        self.attachment.guest()?.domain()
    }

    /// Returns the record of the endpoint's pod.
    pub(super) fn pod(&self) -> Option<PodRecord> {
        self.attachment.pod().map(|found| found.record(&self.agent.facts.limits))
    }

    pub(super) fn pod_note(&self) -> Option<PlacementNote> {
        self.pod().map(|pod| PlacementNote::Remark(format!("{} is {pod}", self.name)))
    }

    /// Returns the number of its virtual CPUs, if the run places them on the host.
    pub(super) fn vcpus(&self) -> Option<usize> {
        self.attachment.own_guest()?.vcpus()
    }

    fn location(&self) -> EndLocation {
        match (self.qemu(), self.guest_machine()) {
            (Some(_), _) => EndLocation::Guest,
            (None, Some(_)) => EndLocation::Unknown,
            (None, None) if !self.attachment.relays().is_empty() => EndLocation::Relayed,
            (None, None) => EndLocation::Host,
        }
    }

    /// Returns the network stacks whose settings affect the endpoint: its own, and its host's. Those of a pod are never
    /// changed.
    pub(super) fn tuned_places(&self, tuner: &SharedTuner) -> Result<Vec<TunedPlace>, Stop> {
        if self.attachment.pod().is_some() {
            return Ok(Vec::new());
        }
        let link = self.link().map(|hop| hop.link.clone());
        let by_agent = |link| {
            let host = TuningHost::by_agent(self.agent.clone());
            TunedPlace::other(host, &self.name, link)
        };
        if let Some(stack) = self.attachment.switched().and_then(SwitchedEnd::host_stack) {
            let host = match &stack.namespace {
                Some(path) => TunedPlace::namespace(tuner, path)?,
                None => TunedPlace::machine(tuner, &stack.link),
            };
            let inside = self.attachment.has_links_of_its_own().then(|| by_agent(link));
            return Ok(inside.into_iter().chain([host]).collect());
        }
        if let Some(path) = self.attachment.namespace().and_then(HeldNamespace::other_path) {
            return Ok(vec![TunedPlace::namespace(tuner, path)?]);
        }
        let Some(place) = self.attachment.place() else {
            return Ok(match (self.attachment.is_in_stack_of_vtax(), link) {
                (true, Some(link)) => vec![TunedPlace::machine(tuner, &link)],
                (true, None) => Vec::new(),
                (false, link) => vec![by_agent(link)],
            });
        };
        let host = place.lab.endpoints().iter().find(|endpoint| endpoint.name == place.endpoint.host);
        let is_guest = self.attachment.has_links_of_its_own();
        let stacks = Some(&place.endpoint).filter(|_| !is_guest).into_iter().chain(host);
        let stacks = stacks.map(|endpoint| TunedPlace::namespace(tuner, &place.lab.namespace_path(endpoint)));
        let inside = is_guest.then(|| Ok(by_agent(None)));
        stacks.chain(inside).collect()
    }

    pub(super) fn link(&self) -> Option<&Hop> {
        self.route.first()
    }

    pub(super) fn is_on_machine_of(&self, other: &ConnectedEnd) -> bool {
        self.agent.machine() == other.agent.machine()
    }
}

/// Returns the lab that contains both endpoints, and their endpoints there.
pub(super) fn common_lab(pair: &[ConnectedEnd; 2]) -> Option<(&Lab, [&LabEndpoint; 2])> {
    let [from, to] = [pair[0].attachment.place()?, pair[1].attachment.place()?];
    Arc::ptr_eq(&from.lab, &to.lab).then_some((&*from.lab, [&from.endpoint, &to.endpoint]))
}
