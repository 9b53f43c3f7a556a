//! The order in which guests that depend on others are started.

use super::{Guest, Name};

/// Masters that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadMasters {
    #[error("the guest `{guest}` has the master `{master}`, which is no guest of the lab; name another, or remove it")]
    #[diagnostic(code("bad-masters"))]
    Unknown { guest: Name, master: Name },
    #[error("the guest `{guest}` has {count} masters; it may have {most}", most = Guest::MOST_MASTERS)]
    #[diagnostic(code("bad-masters"))]
    TooMany { guest: Name, count: usize },
    #[error("dependency cycle: {}; remove one of these masters", .cycle.iter().map(Name::as_str).collect::<Vec<_>>().join(" -> "))]
    #[diagnostic(code("bad-masters"))]
    Cycle { cycle: Vec<Name> },
}

impl BadMasters {
    /// The guest that has these masters.
    pub fn guest(&self) -> &Name {
        match self {
            BadMasters::Unknown { guest, .. } | BadMasters::TooMany { guest, .. } => guest,
            BadMasters::Cycle { cycle } => &cycle[0],
        }
    }
}

/// The guests, each after its masters.
pub(super) fn ordered(guests: &[Guest]) -> Result<Vec<&Guest>, BadMasters> {
    let mut walk = Walk { guests, way: Vec::new(), ordered: Vec::new() };
    for guest in guests {
        walk.visit(guest)?;
    }
    Ok(walk.ordered)
}

struct Walk<'a> {
    guests: &'a [Guest],
    /// From a guest to its master, to that one's master, and so on.
    way: Vec<&'a Name>,
    ordered: Vec<&'a Guest>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, guest: &'a Guest) -> Result<(), BadMasters> {
        if self.ordered.iter().any(|done| done.name == guest.name) {
            return Ok(());
        }
        if let Some(start) = self.way.iter().position(|name| **name == guest.name) {
            let cycle = self.way[start..].iter().copied().chain([&guest.name]).cloned().collect();
            return Err(BadMasters::Cycle { cycle });
        }
        if guest.masters.len() > Guest::MOST_MASTERS {
            return Err(BadMasters::TooMany { guest: guest.name.clone(), count: guest.masters.len() });
        }
        self.way.push(&guest.name);
        for master in &guest.masters {
            self.visit(self.named(guest, master)?)?;
        }
        self.way.pop();
        self.ordered.push(guest);
        Ok(())
    }

    fn named(&self, guest: &Guest, master: &Name) -> Result<&'a Guest, BadMasters> {
        let found = self.guests.iter().find(|other| other.name == *master);
        found.ok_or_else(|| BadMasters::Unknown { guest: guest.name.clone(), master: master.clone() })
    }
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
