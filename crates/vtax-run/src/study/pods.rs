//! Pods that a run creates in a cluster of Kubernetes as its endpoints.

use std::{collections::BTreeMap, net::SocketAddr};

use miette::miette;
use vtax_container::{ClusterError, Kubectl, PodPlan, PodRemover};
use vtax_model::{
    endpoint::{Control, End, Endpoint, ObjectName},
    method::Unsupported,
    run::{RunHeader, UnavailableRow},
    station::PublishedPorts,
    study::{PodPath, Row, Study, StudyPods},
};

use super::draft::available;
use crate::{events::RunEvents, stop::Stop};

/// Life of a run's pods beyond twice its planned time, in seconds.
const SPARE: f64 = 1_800.0;
/// Life of the pods of a run whose time isn't known, in seconds.
const DAY: f64 = 86_400.0;

/// Manifest of a run's pods, and the permissions that its user needs.
#[derive(Debug)]
pub struct PlannedPods {
    /// Pods and services, in YAML.
    pub manifest: String,
    /// Roles and their bindings, in YAML.
    pub permissions: String,
}

impl PlannedPods {
    /// Returns the pods of a run. `lists_nodes` is true if vtax chooses the nodes.
    pub(super) fn of(header: &RunHeader, lists_nodes: bool) -> Option<PlannedPods> {
        let plan = plan(header)?;
        Some(PlannedPods { manifest: plan.manifest(), permissions: plan.permissions(lists_nodes) })
    }
}

/// Pods and services of a run. Dropping this removes them, as does the end of this process.
pub(crate) struct OwnPods {
    /// `None` once the pods are removed.
    remover: Option<PodRemover>,
    /// Addresses of the services by which rows reach their responders.
    services: BTreeMap<Row, PublishedPorts>,
    events: RunEvents,
}

impl OwnPods {
    /// Creates the pods of a run, which are its endpoints from now on.
    pub(super) fn create(header: &mut RunHeader, events: &RunEvents) -> Result<Option<OwnPods>, Stop> {
        let (Some(plan), Some(pods)) = (plan(header), header.study.pods()) else { return Ok(None) };
        let nodes: Vec<&str> = pods.nodes.iter().map(ObjectName::as_str).collect();
        let (count, namespace) = (plan.pods().len(), plan.namespace());
        events.tell(format_args!(
            "creating {count} pods in the namespace {namespace} on {}, and removing them at the end",
            nodes.join(" and ")
        ));
        let kubectl = Kubectl::user();
        let remover = Some(plan.create(&kubectl)?);
        let mut own = OwnPods { remover, services: BTreeMap::new(), events: events.clone() };
        let rows = available(&header.study, &header.unavailable);
        let mut endpoints = Vec::new();
        for (row, path) in paths(&rows) {
            let ends = [End::Initiator, End::Responder].into_iter().zip(plan.ends(path));
            endpoints
                .extend(ends.map(|(end, pod)| Endpoint { method: Some(row), ..Endpoint::new(end, Control::Pod(pod)) }));
            if let Some(service) = plan.service(path) {
                let address = kubectl.service_address(plan.namespace(), &service)?;
                let (listen, count) = (plan.ports()[0], plan.ports().len() as u16);
                own.services.insert(row, PublishedPorts { at: SocketAddr::new(address, listen), listen, count });
            }
        }
        if let Some(network) = header.study.network_mut() {
            network.endpoints = endpoints;
        }
        Ok(Some(own))
    }

    pub(super) fn services(&self) -> &BTreeMap<Row, PublishedPorts> {
        &self.services
    }

    pub(super) fn down(mut self) -> miette::Result<()> {
        Ok(self.remover.take().map_or(Ok(()), PodRemover::remove)?)
    }
}

/// A run that fails before its first sample has another error to return.
impl Drop for OwnPods {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.remover.take().map(PodRemover::remove) {
            self.events.tell(format_args!("warning: {error}"));
        }
    }
}

/// Returns the pods of a run. None if its study creates none.
fn plan(header: &RunHeader) -> Option<PodPlan> {
    let rows = available(&header.study, &header.unavailable);
    let planned = header.nominal_seconds().filter(|_| header.unsettled.is_none());
    let life = planned.map_or(DAY, |seconds| SPARE + 2.0 * seconds);
    Some(PodPlan::new(&header.id, header.study.pods()?, paths(&rows).map(|(_, path)| path), life as u64))
}

fn paths(rows: &[Row]) -> impl Iterator<Item = (Row, PodPath)> {
    rows.iter().filter_map(|row| match row {
        Row::Pods(path) => Some((*row, *path)),
        _ => None,
    })
}

/// Chooses the nodes of a study's pods, unless the user has named them. Returns the rows that require more.
pub(super) fn choose_nodes(study: &mut Study) -> Result<Vec<UnavailableRow>, Stop> {
    let mut why = "only one node is named".to_owned();
    if study.pods().is_some_and(|pods| pods.nodes.is_empty()) {
        let nodes = Kubectl::user().nodes()?;
        let chosen = nodes.schedulable(StudyPods::MOST_NODES);
        why = format!("only one of the cluster's {} nodes accepts pods", nodes.count());
        if chosen.is_empty() {
            return Err(Stop::infrastructure(ClusterError::NoNodes { count: nodes.count() }));
        }
        set_nodes(study, chosen);
    }
    let nodes = study.pods().map_or(0, |pods| pods.nodes.len());
    let lacking = paths(&study.rows).filter(|(_, path)| path.nodes() > nodes);
    let unavailable = |(row, _)| UnavailableRow {
        method: row,
        unsupported: Unsupported {
            why: why.clone(),
            remedy: "add a node, or name two: --nodes node1,node2".to_owned(),
        },
    };
    Ok(lacking.map(unavailable).collect())
}

/// Names the nodes of a study's pods.
pub(super) fn set_nodes(study: &mut Study, nodes: Vec<ObjectName>) {
    if let Some(pods) = study.network_mut().and_then(|network| network.pods.as_mut()) {
        pods.nodes = nodes;
    }
}

/// Refuses to resume a run: its pods were removed when it ended, and others have other addresses.
pub(super) fn refuse_to_resume(header: &RunHeader) -> Stop {
    let id = &header.id;
    Stop::input(miette!(
        code = "run-from-elsewhere",
        "the run {id} cannot be resumed, because its pods were removed when it ended, and its samples would not be \
         comparable with those of others; start a new run: vtax run {}",
        header.study.id
    ))
}

#[cfg(test)]
mod tests {
    use vtax_model::run::Goal;
    use vtax_synthetic::header;

    use super::*;

    fn header_of(nodes: &[&str]) -> (RunHeader, Vec<UnavailableRow>) {
        let mut study = Study::built_in("pods").expect("built in");
        set_nodes(&mut study, nodes.iter().map(|node| node.parse().expect("a name")).collect());
        let lacking = choose_nodes(&mut study).map_err(|stop| stop.to_string()).expect("they are named");
        let header = RunHeader {
            plan: study.plan,
            unavailable: lacking.clone(),
            study,
            ..header("pods-20260102-030405-0a1b", "2026-01-02T03:04:05Z")
        };
        (header, lacking)
    }

    #[test]
    fn rows_that_lack_a_node_are_unavailable() {
        let (_, lacking) = header_of(&["n1"]);
        let rows: Vec<String> = lacking.iter().map(|row| row.method.to_string()).collect();
        assert_eq!(rows, ["host-network", "two-nodes", "two-nodes-service"]);
        assert!(header_of(&["n1", "n2"]).1.is_empty());
    }

    #[test]
    fn pods_outlive_the_run_but_not_by_much() {
        let (header, _) = header_of(&["n1", "n2"]);
        let life = |header: &RunHeader| {
            let manifest = plan(header).expect("of pods").manifest();
            let line = manifest.lines().find_map(|line| line.trim().strip_prefix("activeDeadlineSeconds: "));
            line.expect("a deadline").parse::<f64>().expect("seconds")
        };
        let planned = header.nominal_seconds().expect("known");
        assert_eq!(life(&header), (planned * 2.0 + 1_800.0).floor());
        let budget = "10m".parse().ok().map(|budget| Goal::of(None, Some(budget)));
        assert_eq!(life(&RunHeader { unsettled: budget.flatten(), ..header }), DAY);
    }
}
