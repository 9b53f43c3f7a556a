//! MTU of the lab that is built for the run.

use std::{collections::BTreeMap, panic::resume_unwind, thread};

use vtax_model::units::Mtu;
use vtax_wire::{
    link::{AgentError, AgentLink},
    protocol::{Attached, LinkSetup},
};

use super::{ConnectedEnds, end::ConnectedEnd};
use crate::{labs::DYING, study::runner::SampleError, threads::start_in};

impl ConnectedEnds {
    /// Sets the MTU of the lab, in all guests concurrently, because a NIC may take seconds to regain its carrier.
    pub(super) fn fit(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        let Some(lab) = &self.lab else { return Ok(()) };
        lab.set_mtu(mtu).map_err(SampleError::run)?;
        let mut unfit = BTreeMap::new();
        for (name, done) in self.attach_guests(mtu).map_err(SampleError::run)? {
            match done {
                Ok(_) => {}
                Err(error) if error.is_death() => {
                    return Err(SampleError::run(self.dead_guest(DYING).unwrap_or_else(|| error.into())));
                }
                // If a guest's NIC doesn't support this MTU, the other rows are still measured.
                Err(error) => drop(unfit.insert(name.to_owned(), error.to_string())),
            }
        }
        self.unfit = unfit;
        Ok(())
    }

    fn attach_guests(&self, mtu: Mtu) -> miette::Result<Vec<(&str, Result<Attached, AgentError>)>> {
        let setup = |end: &ConnectedEnd| end.attachment.own_guest().map(|guest| guest.link_setup(mtu));
        let guests: BTreeMap<&str, (&AgentLink, LinkSetup)> =
            self.ends().filter_map(|end| Some((end.name.as_str(), (&end.agent.link, setup(end)?)))).collect();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (name, (link, setup)) in guests {
                threads.push((name, start_in(scope, "guest", move || link.attach(&setup))?));
            }
            let done = threads.into_iter().map(|(name, thread)| (name, thread.join()));
            Ok(done.map(|(name, done)| (name, done.unwrap_or_else(|panic| resume_unwind(panic)))).collect())
        })
    }

    /// Returns the reason if one of these endpoints can't have the MTU in force.
    pub(super) fn unfit<'a>(&self, mut ends: impl Iterator<Item = &'a ConnectedEnd>) -> Option<String> {
        ends.find_map(|end| self.unfit.get(&end.name).map(|why| format!("{}: {why}", end.name)))
    }
}
