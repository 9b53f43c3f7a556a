//! Preparation of a run between pods that are created for it.

use vtax_model::run::RunHeader;

use super::{PreparedRun, RunSetup, header};
use crate::{
    stop::{Blamed, Stop},
    study::{
        draft::check_baseline,
        ends::ConnectedEnds,
        options::ChangedStudy,
        pods::{OwnPods, choose_nodes},
    },
};

impl RunSetup<'_> {
    pub(super) fn begin_pods(&self, mut wanted: ChangedStudy) -> Result<PreparedRun, Stop> {
        let lacking = choose_nodes(&mut wanted.study)?;
        let mut header = header(wanted, lacking)?;
        let outlook = self.outlook(&mut header)?;
        outlook.lines.iter().for_each(|line| self.events.tell(line));
        // Until `begin`, Ctrl-C ends this process. The pods are removed nevertheless.
        let pods = OwnPods::create(&mut header, self.events)?;
        let mut ends = self.connect_pods(&header, pods)?;
        if let Some(mtu) = ends.mtu() {
            header.study.cells.iter_mut().filter_map(|cell| cell.net_mut()).for_each(|net| net.mtu = mtu);
        }
        header.unavailable.extend(ends.silent_services(self.events)?);
        check_baseline(&header.study, &header.unavailable).or_infrastructure()?;
        let prepared = self.begin(header, ends, None, None)?;
        Ok(PreparedRun { needs_pilot: outlook.needs_pilot, ..prepared })
    }

    fn connect_pods(&self, header: &RunHeader, pods: Option<OwnPods>) -> Result<ConnectedEnds, Stop> {
        let services = pods.as_ref().map(|pods| pods.services().clone()).unwrap_or_default();
        let ends = self.connect_through(self.connector().through(services), header)?;
        Ok(ends.with_pods(pods))
    }
}
