//! Masters: guests of labs and domains are started after the masters that they depend on.

use std::collections::HashSet;

use crate::topology::Name;

/// Maximum number of masters of a guest or domain, as in Oracle's `ldm`.
pub const MOST_MASTERS: usize = 4;

/// Returns all of `names`, each after its masters and otherwise in this order. The error is a cycle: each name has the
/// next one as a master, and the last is the first again.
pub(crate) fn masters_first<'a>(
    names: impl IntoIterator<Item = &'a Name>,
    masters: impl Fn(&Name) -> &'a [Name],
) -> Result<Vec<&'a Name>, Vec<Name>> {
    let mut walk = Walk { masters, way: Vec::new(), seen: HashSet::new(), ordered: Vec::new() };
    names.into_iter().try_for_each(|name| walk.visit(name))?;
    Ok(walk.ordered)
}

struct Walk<'a, M> {
    masters: M,
    /// From a guest or domain to its master, to that one's master, and so on.
    way: Vec<&'a Name>,
    seen: HashSet<&'a Name>,
    ordered: Vec<&'a Name>,
}

impl<'a, M: Fn(&Name) -> &'a [Name]> Walk<'a, M> {
    fn visit(&mut self, name: &'a Name) -> Result<(), Vec<Name>> {
        if let Some(start) = self.way.iter().position(|other| *other == name) {
            return Err(self.way[start..].iter().copied().chain([name]).cloned().collect());
        }
        if !self.seen.insert(name) {
            return Ok(());
        }
        self.way.push(name);
        (self.masters)(name).iter().try_for_each(|master| self.visit(master))?;
        self.way.pop();
        self.ordered.push(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn names(text: &str) -> Vec<Name> {
        text.split_whitespace().map(|name| name.parse().expect("a name")).collect()
    }

    /// In `a: b c`, a has the masters b and c.
    fn order(lines: &[&str]) -> Result<String, String> {
        let told = lines.iter().map(|line| line.split_once(':').expect("a name and its masters"));
        let all: BTreeMap<Name, Vec<Name>> =
            told.map(|(name, masters)| (name.parse().expect("a name"), names(masters))).collect();
        let joined = |names: Vec<&Name>| names.into_iter().map(Name::as_str).collect::<Vec<_>>().join(" ");
        let ordered = masters_first(all.keys(), |name| all.get(name).map_or(&[], Vec::as_slice));
        ordered.map(joined).map_err(|cycle| joined(cycle.iter().collect()))
    }

    #[test]
    fn each_comes_after_its_masters() {
        assert_eq!(order(&["a: c", "b:", "c: d b", "d:"]), Ok("d b c a".to_owned()));
    }

    #[test]
    fn a_cycle_is_reported_without_the_way_to_it() {
        assert_eq!(order(&["a: b", "b: c", "c: b"]), Err("b c b".to_owned()));
        assert_eq!(order(&["a: a"]), Err("a a".to_owned()));
    }
}
