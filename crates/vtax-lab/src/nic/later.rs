//! Methods that hand over hardware. They are in the vocabulary, and a study
//! may name them; this version says why it can't build them on this machine.

use vtax_model::method::Unsupported;

use super::unsupported;
use crate::facts::Facts;

pub(crate) fn assigned(facts: &Facts) -> Unsupported {
    let nics = &facts.hardware.nics;
    let missing = match (nics.as_slice(), facts.hardware.iommu) {
        ([], _) => "; this machine has no PCI NIC either".to_owned(),
        (_, false) => "; this machine has no active IOMMU either".to_owned(),
        (nics, true) => format!("; this machine would have {} to assign", nics.join(", ")),
    };
    unsupported(
        &format!("this version of vtax hands over no PCI devices{missing}"),
        "use exclusive: a zone with a wire of its own",
    )
}

pub(crate) fn sr_iov(facts: &Facts) -> Unsupported {
    let missing = match facts.hardware.sriov_nics.as_slice() {
        [] => "; no NIC of this machine can have any either".to_owned(),
        nics => format!("; {} could have some", nics.join(", ")),
    };
    unsupported(
        &format!("this version of vtax makes no virtual functions{missing}"),
        "use macvlan, which gives a zone a MAC address of its own in software",
    )
}

pub(crate) fn root_domain(facts: &Facts) -> Unsupported {
    let missing = if facts.hardware.iommu { "" } else { "; this machine has no active IOMMU either" };
    unsupported(
        &format!("this version of vtax gives no root complexes away{missing}"),
        "use exclusive: a zone with a wire of its own",
    )
}
