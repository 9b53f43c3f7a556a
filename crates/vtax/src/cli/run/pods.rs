//! The options of studies that create pods.

use clap::Args;
use vtax_model::{endpoint::ObjectName, foreign::ForeignText};
use vtax_run::study::PodChanges;

#[derive(Debug, Clone, Default, Args)]
pub(super) struct PodArgs {
    /// Study `pods`: namespace in which the pods are created, e.g. shop [default: default]
    #[arg(long, value_name = "NAME")]
    namespace: Option<ObjectName>,
    /// Study `pods`: image of the containers, with `sh` and `sleep`, e.g. registry.example/busybox:1.37 [default:
    /// docker.io/library/busybox:1.37]
    #[arg(long, value_name = "IMAGE")]
    image: Option<ForeignText>,
    /// Study `pods`: nodes of the pods, e.g. node1,node2; the first has the initiators [default: two that accept pods]
    #[arg(long, value_name = "NODE,…", value_delimiter = ',')]
    nodes: Vec<ObjectName>,
}

impl PodArgs {
    pub(super) fn changes(self) -> PodChanges {
        let PodArgs { namespace, image, nodes } = self;
        PodChanges { namespace, image, nodes }
    }
}
