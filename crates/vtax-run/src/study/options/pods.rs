//! Changes to the pods that a study creates.

use miette::bail;
use serde::{Deserialize, Serialize};
use vtax_model::{
    endpoint::ObjectName,
    foreign::ForeignText,
    study::{Study, StudyPods},
};

use super::network_of;

/// Changes to the pods that a study creates. Those of the study remain where nothing is given.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PodChanges {
    /// Namespace in which they are created.
    pub namespace: Option<ObjectName>,
    /// Image of their containers.
    pub image: Option<ForeignText>,
    /// Nodes that they run on.
    pub nodes: Vec<ObjectName>,
}

impl PodChanges {
    pub(super) fn change(&self, study: &mut Study) -> miette::Result<()> {
        let PodChanges { namespace, image, nodes } = self;
        let options = [("namespace", namespace.is_some()), ("image", image.is_some()), ("nodes", !nodes.is_empty())];
        let Some((option, _)) = options.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        let id = study.id.clone();
        let Some(pods) = network_of(study, option)?.pods.as_mut() else {
            bail!(code = "option-not-for-this", "--{option}: `{id}` creates no pods; omit it");
        };
        if nodes.len() > StudyPods::MOST_NODES {
            bail!(code = "bad-option", "--nodes: `{id}` uses at most {} nodes; name fewer", StudyPods::MOST_NODES);
        }
        if let [one, other] = &nodes[..]
            && one == other
        {
            bail!(code = "named-twice", "--nodes: {one} is named twice; name two nodes, or one");
        }
        if let Some(namespace) = namespace {
            pods.namespace.clone_from(namespace);
        }
        if let Some(image) = image {
            pods.image.clone_from(image);
        }
        pods.nodes.clone_from(nodes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(id: &str, changes: &PodChanges) -> Result<Study, String> {
        let mut study = Study::built_in(id).expect("built in");
        changes.change(&mut study).map(|()| study).map_err(|error| error.to_string())
    }

    fn on(nodes: &[&str]) -> PodChanges {
        PodChanges { nodes: nodes.iter().map(|node| node.parse().expect("a name")).collect(), ..PodChanges::default() }
    }

    #[test]
    fn only_what_is_given_changes() {
        let image = PodChanges { image: Some("registry/tools:1".into()), ..on(&["n2", "n1"]) };
        let study = changed("pods", &image).expect("it creates pods");
        let pods = study.pods().expect("it creates pods");
        let nodes: Vec<&str> = pods.nodes.iter().map(ObjectName::as_str).collect();
        assert_eq!(
            (pods.namespace.as_str(), pods.image.raw(), nodes),
            ("default", "registry/tools:1", vec!["n2", "n1"])
        );
    }

    #[test]
    fn options_of_pods_are_refused_without_pods_and_with_wrong_nodes() {
        let told = changed("demo", &on(&["n1"])).expect_err("it has no pods");
        assert_eq!(told, "--nodes: `demo` creates no pods; omit it");
        assert!(changed("vdisk", &on(&["n1"])).expect_err("it has disks").contains("--nodes applies to network tests"));
        assert!(changed("pods", &on(&["n1", "n1"])).expect_err("twice").contains("n1 is named twice"));
        assert!(changed("pods", &on(&["n1", "n2", "n3"])).expect_err("too many").contains("at most 2 nodes"));
    }
}
