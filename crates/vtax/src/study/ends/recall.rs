//! The ends of a run that is resumed: the same, on the same CPUs, or it is refused.

use anyhow::anyhow;
use vtax_model::run::{EndRecord, Environment, RowEnds, RunHeader};

use super::{ConnectedEnd, ConnectedEnds, EndsLab};
use crate::study::session::same_machine;

impl ConnectedEnds {
    /// Takes the ends' CPUs from the run's plan, if these are the ends that it was begun with.
    pub(crate) fn restore_cpus(&mut self, header: &RunHeader) -> anyhow::Result<()> {
        self.shared_cpu = header.placement.path;
        let standing = matches!(self.ground, EndsLab::Standing(_));
        for staged in &mut self.rows {
            let of_row = |ends: &&RowEnds| ends.method == staged.row && ends.mtu == staged.mtu;
            let Some(then) = header.ends.iter().find(of_row).filter(|then| then.pairs.len() == staged.pairs.len())
            else {
                return Err(other(header, &format!("the ends of `{}`", staged.row)));
            };
            let pairs = staged.pairs.iter_mut().zip(&then.pairs);
            for (party, record) in pairs.flat_map(|([from, to], pair)| [(from, &pair.initiator), (to, &pair.responder)])
            {
                if standing {
                    same_end(header, party, record, self.agents.get(party).elsewhere())?;
                }
                party.cpus.clone_from(&record.cpus);
            }
        }
        Ok(())
    }
}

fn same_end(
    header: &RunHeader,
    now: &ConnectedEnd,
    then: &EndRecord,
    elsewhere: Option<&Environment>,
) -> anyhow::Result<()> {
    if now.name != then.name || now.address.to_string() != then.address {
        let (was, name, address) = (format!("{} at {}", then.name, then.address), &now.name, now.address);
        return Err(other(header, &format!("the end {was}, which is {name} at {address} now")));
    }
    if let (Some(tenant), Some(before)) = (&now.tenant, &then.domain)
        && !tenant.record.is_same_as(before)
    {
        return Err(other(header, &format!("the end {}, whose machine or NIC libvirt has changed since", then.name)));
    }
    match (elsewhere, &then.environment) {
        (Some(now), Some(before)) => same_machine(&header.id, Some(&then.name), before, now),
        (None, None) => Ok(()),
        _ => Err(other(header, &format!("the end {}, which is on another machine now", then.name))),
    }
}

fn other(header: &RunHeader, what: &str) -> anyhow::Error {
    let id = &header.id;
    anyhow!("the run {id} was begun with other ends: {what}; its samples would not belong together; start a new run")
}
