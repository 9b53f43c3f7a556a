//! Endpoints of a run that is resumed, or that confirms an earlier one. They must be the same as before, and get the
//! same CPUs; otherwise the run is refused.

use miette::miette;
use vtax_model::{
    run::{EndRecord, RowEnds, RunHeader},
    study::Row,
};

use super::{ConnectedEnds, end::ConnectedEnd};
use crate::study::session::same_machine;

impl ConnectedEnds {
    /// Takes the endpoints' CPUs from the header of the run, which must have been started with these endpoints.
    pub(crate) fn restore_cpus(&mut self, header: &RunHeader) -> miette::Result<()> {
        self.shared_cpu = header.placement.path;
        let are_endpoints = self.lab.is_none();
        for connected in &mut self.rows {
            let of_row = |ends: &&RowEnds| has_ends_of(ends.method, connected.row) && ends.mtu == connected.mtu;
            let Some(then) = header.ends.iter().find(of_row).filter(|then| then.pairs.len() == connected.pairs.len())
            else {
                return Err(other(header, &format!("the endpoints of `{}`", connected.row)));
            };
            let pairs = connected.pairs.iter_mut().zip(&then.pairs);
            for (end, record) in pairs.flat_map(|([from, to], pair)| [(from, &pair.initiator), (to, &pair.responder)]) {
                if are_endpoints {
                    same_end(header, end, record)?;
                }
                end.cpus.clone_from(&record.cpus);
            }
        }
        Ok(())
    }
}

/// Returns whether two rows have the same endpoints: settings are tried between the same two, so all rows of settings
/// share them.
fn has_ends_of(row: Row, other: Row) -> bool {
    let tries = |row: Row| matches!(row, Row::AsIs | Row::Tuned { path: None, .. });
    row == other || tries(row) && tries(other)
}

fn same_end(header: &RunHeader, now: &ConnectedEnd, then: &EndRecord) -> miette::Result<()> {
    let is_elsewhere = !now.is_lent && then.address != *now.address.to_string();
    if then.name != *now.name || is_elsewhere {
        let (was, name, address) = (format!("{} at {}", then.name, then.address), &now.name, now.address);
        return Err(other(header, &format!("the endpoint {was}, which is now {name} at {address}")));
    }
    if let (Some(domain), Some(before)) = (now.domain(), &then.domain)
        && !domain.is_same_as(before)
    {
        return Err(other(header, &format!("the endpoint {}, whose machine or NIC has changed since", then.name)));
    }
    if let (Some(held), Some(before)) = (now.attachment.namespace(), &then.namespace)
        && !held.record.is_same_as(before)
    {
        return Err(other(
            header,
            &format!("the endpoint {}, whose container or limits have changed since", then.name),
        ));
    }
    if let (Some(pod), Some(before)) = (now.pod(), &then.pod)
        && !pod.is_same_as(before)
    {
        return Err(other(
            header,
            &format!("the endpoint {}, whose node, container or limits have changed since", then.name),
        ));
    }
    match (now.agent.elsewhere(), &then.environment) {
        (Some(now), Some(before)) => same_machine(&header.id, Some(&then.name.to_string()), before, now),
        (None, None) => Ok(()),
        _ => Err(other(header, &format!("the endpoint {}, which is now on another machine", then.name))),
    }
}

fn other(header: &RunHeader, what: &str) -> miette::Report {
    let id = &header.id;
    miette!(
        code = "run-from-elsewhere",
        "the run {id} was started with other endpoints: {what}; its samples would not be comparable; start a new run"
    )
}
