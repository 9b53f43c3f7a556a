//! Causes that the error of a sample doesn't show: an endpoint that has ended, or a link that is down.
//!
//! Labs report which of their links carry packets. Agents report the links inside their endpoints, because a guest's
//! NIC may have no carrier while its tap has one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use super::{
    ConnectedEnds,
    end::{ConnectedEnd, ConnectedRow, common_lab},
};
use crate::{labs::DYING, study::runner::SampleError};

/// Time limit for an agent to describe its links. It is short: an agent that hangs may be the reason for the failure.
const ANSWER: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);

impl ConnectedEnds {
    /// Returns the reason why an endpoint has ended if one has, otherwise the error with the links that are down.
    pub(super) fn explain(&self, error: SampleError, connected: &ConnectedRow) -> SampleError {
        let (patience, partial) = match &error {
            SampleError::Run { partial, .. } => (DYING, partial),
            SampleError::Cell { partial, .. } => (Duration::ZERO, partial),
        };
        match self.dead_guest(patience) {
            Some(death) => SampleError::Run { error: death, partial: partial.clone() },
            None => with_links(error, connected),
        }
    }

    /// Returns the reason why the first endpoint that has ended did so: for a guest, with its last output. Waits for
    /// guests of labs, because their streams are closed before their processes exit.
    pub(super) fn dead_guest(&self, patience: Duration) -> Option<miette::Report> {
        let until = Instant::now() + patience;
        loop {
            if let Some(death) = self.ends().find_map(|end| end.attachment.death()) {
                return Some(death);
            }
            if self.lab_guests().next().is_none() || Instant::now() >= until {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Returns the error with the links between these endpoints that currently carry no packets, as far as known.
pub(super) fn with_links(error: SampleError, connected: &ConnectedRow) -> SampleError {
    let SampleError::Cell { error, partial } = error else { return error };
    let down: Vec<String> = dead_links(connected.pairs.iter()).into_iter().collect();
    match down.is_empty() {
        true => SampleError::Cell { error, partial },
        false => SampleError::Cell { error: format!("{error}. A link is down: {}", down.join("; ")), partial },
    }
}

/// Returns the links between these endpoints that currently carry no packets, as far as known. Pairs of the same
/// endpoints are checked once.
pub(super) fn dead_links<'a>(pairs: impl Iterator<Item = &'a [ConnectedEnd; 2]>) -> BTreeSet<String> {
    fn place(end: &ConnectedEnd) -> (&str, IpAddr) {
        (&end.name, end.address)
    }
    let pairs: BTreeMap<_, _> = pairs.map(|pair| (pair.each_ref().map(place), pair)).collect();
    let ends: BTreeMap<_, _> = pairs.values().flat_map(|pair| pair.iter()).map(|end| (place(end), end)).collect();
    let between = pairs.into_values().filter_map(down_between);
    between.chain(ends.into_values().filter_map(down_at)).collect()
}

/// Returns the first link of a lab between these endpoints that carries no packets.
fn down_between(pair: &[ConnectedEnd; 2]) -> Option<String> {
    let (lab, [from, to]) = common_lab(pair)?;
    lab.check_links(from, to).err().map(|error| error.to_string())
}

/// Returns the link with the endpoint's address, if it carries no packets.
fn down_at(end: &ConnectedEnd) -> Option<String> {
    if !end.attachment.has_links_of_its_own() {
        return None;
    }
    let facts = end.agent.link.describe(ANSWER).ok()?;
    let link = facts.addresses.into_iter().find(|found| found.address == end.address)?;
    (!link.running).then(|| format!("{} of {} is off or has no carrier", link.link, end.name))
}
