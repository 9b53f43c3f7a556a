//! Chooses the nodes of a cluster on which pods are created, from the output of `kubectl get nodes --output json`.

use serde::Deserialize;
use vtax_model::{endpoint::ObjectName, foreign::ForeignText};

/// Nodes as listed by the apiserver, with what decides whether they accept pods.
#[derive(Debug)]
pub struct ClusterNodes(Vec<NodeObject>);

#[derive(Debug, Deserialize)]
struct NodeList {
    kind: ForeignText,
    items: Vec<NodeObject>,
}

#[derive(Debug, Deserialize)]
struct NodeObject {
    metadata: NodeMetadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Deserialize)]
struct NodeMetadata {
    name: ForeignText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    taints: Vec<NodeTaint>,
}

#[derive(Debug, Deserialize)]
struct NodeTaint {
    #[serde(default)]
    effect: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeStatus {
    conditions: Vec<NodeCondition>,
    node_info: NodeSystem,
}

#[derive(Debug, Deserialize)]
struct NodeCondition {
    r#type: String,
    status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSystem {
    operating_system: String,
}

/// Reason why a cluster's list of its nodes cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadNodes {
    #[error("malformed JSON ({0})")]
    Json(#[from] serde_json::Error),
    #[error("it describes a {kind}, not a list of nodes")]
    Kind { kind: ForeignText },
}

impl ClusterNodes {
    pub(crate) fn read(text: &str) -> Result<ClusterNodes, BadNodes> {
        let NodeList { kind, items } = serde_json::from_str(text)?;
        match kind.raw() {
            // kubectl prints its own kind of list, the apiserver a list of nodes.
            "List" | "NodeList" => Ok(ClusterNodes(items)),
            _ => Err(BadNodes::Kind { kind }),
        }
    }

    /// Returns the names of up to `most` nodes on which a pod without tolerations may run, in alphabetical order.
    pub fn schedulable(&self, most: usize) -> Vec<ObjectName> {
        let fitting = self.0.iter().filter(|node| node.is_schedulable());
        let mut names: Vec<ObjectName> = fitting.filter_map(|node| node.metadata.name.raw().parse().ok()).collect();
        names.sort();
        names.truncate(most);
        names
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl NodeObject {
    fn is_schedulable(&self) -> bool {
        let is_ready = |condition: &NodeCondition| condition.r#type == "Ready" && condition.status == "True";
        let repels = |taint: &NodeTaint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
        let system = &self.status.node_info.operating_system;
        self.status.conditions.iter().any(is_ready)
            && !self.spec.unschedulable
            && !self.spec.taints.iter().any(repels)
            && (system.is_empty() || system == "linux")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, spec: &Value, ready: &str, system: &str) -> Value {
        let conditions =
            [json!({"type": "DiskPressure", "status": "False"}), json!({"type": "Ready", "status": ready})];
        let status = json!({"conditions": conditions, "nodeInfo": {"operatingSystem": system}});
        json!({"metadata": {"name": name}, "spec": spec, "status": status})
    }

    fn chosen(nodes: &[Value], most: usize) -> Vec<String> {
        let list = json!({"kind": "List", "items": nodes}).to_string();
        let nodes = ClusterNodes::read(&list).expect("a list");
        nodes.schedulable(most).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn nodes_that_take_no_pods_are_not_chosen() {
        let taint = |effect: &str| json!({"taints": [{"key": "k", "effect": effect}]});
        let nodes = [
            node("w3", &json!({}), "True", "linux"),
            node("cordoned", &json!({"unschedulable": true}), "True", "linux"),
            node("control", &taint("NoSchedule"), "True", "linux"),
            node("full", &taint("NoExecute"), "True", "linux"),
            node("away", &json!({}), "Unknown", "linux"),
            node("windows", &json!({}), "True", "windows"),
            node("w1", &taint("PreferNoSchedule"), "True", "linux"),
            node("w2", &json!({}), "True", ""),
        ];
        assert_eq!(chosen(&nodes, 8), ["w1", "w2", "w3"]);
        assert_eq!(chosen(&nodes, 2), ["w1", "w2"]);
        assert!(chosen(&nodes[1..5], 2).is_empty());
    }

    #[test]
    fn other_output_is_refused() {
        for text in ["", "[]", "{\"kind\": \"Pod\", \"items\": []}", "{\"kind\": \"List\"}"] {
            assert!(ClusterNodes::read(text).is_err(), "{text}");
        }
    }
}
