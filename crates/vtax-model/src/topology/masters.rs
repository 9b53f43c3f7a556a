//! Start order of guests that depend on others.

use std::collections::HashMap;

use super::{Guest, Name};
use crate::masters::{MOST_MASTERS, masters_first};

/// Invalid masters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum BadMasters {
    #[error(
        "the guest `{guest}` has the master `{master}`, which is not a guest of the lab; use another, or remove it"
    )]
    #[diagnostic(code("bad-masters"))]
    Unknown { guest: Name, master: Name },
    #[error("the guest `{guest}` has {count} masters; it may have {most}", most = MOST_MASTERS)]
    #[diagnostic(code("bad-masters"))]
    TooMany { guest: Name, count: usize },
    #[error("dependency cycle: {}; remove one of these masters", .cycle.iter().map(Name::as_str).collect::<Vec<_>>().join(" -> "))]
    #[diagnostic(code("bad-masters"))]
    Cycle { cycle: Vec<Name> },
}

impl BadMasters {
    pub fn guest(&self) -> &Name {
        match self {
            BadMasters::Unknown { guest, .. } | BadMasters::TooMany { guest, .. } => guest,
            BadMasters::Cycle { cycle } => &cycle[0],
        }
    }
}

/// Returns the guests, each after its masters.
pub(super) fn ordered(guests: &[Guest]) -> Result<Vec<&Guest>, BadMasters> {
    let by_name: HashMap<&Name, &Guest> = guests.iter().map(|guest| (&guest.name, guest)).collect();
    for Guest { name, masters, .. } in guests {
        if masters.len() > MOST_MASTERS {
            return Err(BadMasters::TooMany { guest: name.clone(), count: masters.len() });
        }
        if let Some(master) = masters.iter().find(|master| !by_name.contains_key(master)) {
            return Err(BadMasters::Unknown { guest: name.clone(), master: master.clone() });
        }
    }
    let ordered = masters_first(guests.iter().map(|guest| &guest.name), |name| &by_name[name].masters);
    let ordered = ordered.map_err(|cycle| BadMasters::Cycle { cycle })?;
    Ok(ordered.into_iter().map(|name| by_name[name]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Attach;

    fn guest(name: &str, masters: &[&str]) -> Guest {
        let named = |text: &str| text.parse::<Name>().expect("a name");
        Guest {
            name: named(name),
            host: named("sut"),
            wire: named("w0"),
            attach: Attach::Paravirtual(Default::default()),
            mac: None,
            size: Default::default(),
            system: Default::default(),
            masters: masters.iter().map(|master| named(master)).collect(),
            disks: Vec::new(),
            lent: None,
        }
    }

    fn order(guests: &[Guest]) -> Result<String, String> {
        let ordered = ordered(guests).map_err(|error| error.to_string())?;
        Ok(ordered.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn each_comes_after_its_masters() {
        let guests = [guest("a", &["c"]), guest("b", &[]), guest("c", &["d", "b"]), guest("d", &[])];
        assert_eq!(order(&guests), Ok("d b c a".to_owned()));
    }

    #[test]
    fn cycles_and_strangers_are_named() {
        let error = order(&[guest("a", &["b"]), guest("b", &["c"]), guest("c", &["b"])]).expect_err("a cycle");
        assert!(error.contains("b -> c -> b"), "{error}");
        let error = order(&[guest("a", &["a"])]).expect_err("a cycle");
        assert!(error.contains("a -> a"), "{error}");
        let error = order(&[guest("a", &["x"])]).expect_err("a stranger");
        assert!(error.contains("`a`") && error.contains("`x`"), "{error}");
        let error = order(&[guest("a", &["b", "c", "d", "e", "f"])]).expect_err("too many");
        assert!(error.contains("5 masters"), "{error}");
    }
}
