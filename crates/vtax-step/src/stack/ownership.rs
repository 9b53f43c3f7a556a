//! Ownership of links.

use vtax_sys::netlink::Link;

use crate::part::StepReceipt;

/// Returns a description of a link that wasn't created by a step with this mark and receipt; `None` if it was. Without
/// a receipt, the step was interrupted: a link of this kind is then ours if it has our mark, or if it has none and was
/// never set up.
pub(super) fn foreign(found: &Link, kind: &str, mark: &str, receipt: Option<&StepReceipt>) -> Option<String> {
    let is_marked = found.alias.as_deref() == Some(mark);
    let is_new = receipt.is_none() && found.alias.is_none() && !found.up;
    let is_same = receipt.is_none_or(|receipt| receipt.0 == Some(found.index.to_string()));
    let is_ours = found.kind.as_deref() == Some(kind) && (is_marked || is_new) && is_same;
    (!is_ours).then(|| found.alias.clone().unwrap_or_else(|| "a link without a mark".to_owned()))
}

#[cfg(test)]
mod tests {
    use vtax_sys::netlink::IfIndex;

    use super::*;

    const MARK: &str = "vtax-ldm:mars";

    fn link(kind: &str, alias: Option<&str>, up: bool) -> Link {
        Link {
            index: IfIndex(7),
            name: "vnet2.0".parse().expect("a name"),
            kind: Some(kind.to_owned()),
            mtu: 1500,
            max_mtu: None,
            up,
            running: up,
            lower_up: up,
            master: None,
            parent: None,
            parent_elsewhere: false,
            alias: alias.map(str::to_owned),
            mac: None,
            tx_queue_length: None,
            tx_queues: None,
            rx_queues: None,
            qdisc: None,
        }
    }

    #[test]
    fn a_link_is_removed_only_if_its_step_has_made_it() {
        let (none, other) = ("a link without a mark", "vtax-ldm:venus");
        for (found, index, expected, why) in [
            (link("tun", Some(MARK), true), Some("7"), None, "it is the one"),
            (link("tun", Some(MARK), true), None, None, "the step was interrupted after it had marked the link"),
            (link("tun", None, false), None, None, "the step was interrupted before that"),
            (link("tun", None, true), None, Some(none), "a link that somebody else uses"),
            (link("tun", None, false), Some("7"), Some(none), "its mark was removed"),
            (link("tun", Some(other), true), None, Some(other), "another domain has that name now"),
            (link("tun", Some(other), true), Some("7"), Some(other), "it was marked by somebody else"),
            (link("dummy", Some(MARK), true), None, Some(MARK), "it is of another kind"),
            (link("tun", Some(MARK), true), Some("8"), Some(MARK), "it was made again"),
        ] {
            let receipt = index.map(|index| StepReceipt(Some(index.to_owned())));
            assert_eq!(foreign(&found, "tun", MARK, receipt.as_ref()).as_deref(), expected, "{why}");
        }
        let nic = Link { kind: None, ..link("tun", Some(MARK), true) };
        assert!(foreign(&nic, "tun", MARK, None).is_some(), "a NIC is never ours");
        // A receipt without an identity matches no link.
        let empty = StepReceipt(None);
        assert!(foreign(&link("tun", Some(MARK), true), "tun", MARK, Some(&empty)).is_some());
    }
}
