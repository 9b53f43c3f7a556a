//! What a failed sample doesn't say of itself: that a link was down.
//!
//! An end that gets no answer knows only that its peer is silent. Whether a link between them carries
//! packets is asked of the labs that the ends are in, and of the agents, which see their own links
//! from inside: a guest's NIC may have no carrier while its tap has one.

use std::{collections::BTreeSet, time::Duration};

use super::{ConnectedEnd, ConnectedEnds, ConnectedRow};
use crate::study::runner::SampleError;

/// How long an agent may take to describe its links. One that hangs is why the sample failed.
const ANSWER: Duration = Duration::from_secs(3);

impl ConnectedEnds {
    /// The error, with the links of these ends that carry no packets now. What can't be asked is left
    /// out: the error stands by itself.
    pub(super) fn with_links(&self, error: SampleError, staged: &ConnectedRow) -> SampleError {
        let SampleError::Cell { error, partial } = error else { return error };
        let mut parties: Vec<&ConnectedEnd> = staged.pairs.iter().flatten().collect();
        parties.sort_by_key(|party| (party.agent, party.address));
        parties.dedup_by_key(|party| (party.agent, party.address));
        let between = staged.pairs.iter().filter_map(|pair| self.down_between(pair));
        let down: BTreeSet<String> = between.chain(parties.iter().filter_map(|party| self.down_at(party))).collect();
        let down: Vec<String> = down.into_iter().collect();
        match down.is_empty() {
            true => SampleError::Cell { error, partial },
            false => SampleError::Cell { error: format!("{error}. A link is down: {}", down.join("; ")), partial },
        }
    }

    /// The first link that carries no packets of those that a lab has between these ends.
    fn down_between(&self, [initiator, responder]: &[ConnectedEnd; 2]) -> Option<String> {
        let (from, to) = (initiator.place.as_ref()?, responder.place.as_ref()?);
        let lab = self.labs().iter().find(|lab| lab.blueprint().lab == from.lab && from.lab == to.lab)?;
        lab.check_links(&from.endpoint, &to.endpoint).err().map(|error| error.to_string())
    }

    /// The link by which a party is reached, if that carries no packets. A lab knows those of its hosts
    /// and zones.
    fn down_at(&self, party: &ConnectedEnd) -> Option<String> {
        if party.place.is_some() && !party.in_guest() {
            return None;
        }
        let facts = self.agents.get(party).link.describe(ANSWER).ok()?;
        let link = facts.addresses.into_iter().find(|found| found.address == party.address)?;
        (!link.running).then(|| format!("{} of {} is off or has no carrier", link.link, party.name))
    }
}
