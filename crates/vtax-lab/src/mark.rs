//! The mark of a lab's links and namespaces: an alias, which `ip link` shows.
//!
//! A namespace has it on its `lo` before the namespace can be found. A link in a marked namespace is the lab's wherever
//! it came from, except a NIC of the machine, which the lab only borrows.

use vtax_model::topology::Name;

/// The mark of an object created for `object`, a host, zone, guest or wire.
pub(crate) fn mark(lab: &Name, object: &Name) -> String {
    format!("vtax:{lab}:{object}")
}

/// Returns whether an alias is a mark of this lab.
pub(crate) fn is_of(alias: &str, lab: &Name) -> bool {
    alias
        .strip_prefix("vtax:")
        .and_then(|rest| rest.strip_prefix(lab.as_str()))
        .is_some_and(|rest| rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_one_lab() {
        let name = |text: &str| -> Name { text.parse().expect("a name") };
        let mark = mark(&name("rack"), &name("sut"));
        assert!(is_of(&mark, &name("rack")));
        for other in ["rac", "rack-2", "sut", "vtax"] {
            assert!(!is_of(&mark, &name(other)), "{other}");
        }
        for alias in ["", "rack", "vtax:rack", "vtax:rack2:sut", "xvtax:rack:sut", "uplink of rack"] {
            assert!(!is_of(alias, &name("rack")), "{alias}");
        }
    }
}
