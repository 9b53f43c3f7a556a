//! "Did you mean" suggestions: the most similar known name.

/// Returns the name among `known` nearest to `written`: one letter may differ, plus one for every four letters.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = 1 + written.chars().count() / 4;
    let scored = known.into_iter().map(|name| (strsim::osa_distance(written, name), name));
    let (letters, name) = scored.min_by_key(|(letters, _)| *letters)?;
    (letters <= most && letters < name.chars().count()).then_some(name)
}

/// Returns how many letters have to be changed, added, removed or swapped to get from one word to the other.
pub fn letters_apart(written: &str, name: &str) -> usize {
    strsim::osa_distance(written, name)
}

/// Returns `; did you mean X?`, or nothing if no known name is near.
pub fn suggestion<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// Returns `did you mean X? (available: X, Y)`, or `available: X, Y` if none of the known names is
/// near.
pub fn available(written: &str, known: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let all = names.join(", ");
    match nearest(written, names) {
        Some(name) => format!("did you mean `{name}`? (available: {all})"),
        None => format!("available: {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["bridge", "veth", "vxlan", "demo"];
        assert_eq!(nearest("brigde", known), Some("bridge"));
        assert_eq!(nearest("demmo", known), Some("demo"));
        assert_eq!(nearest("vet", known), Some("veth"));
        for other in ["", "x", "nothing.toml", "sriov"] {
            assert_eq!(nearest(other, known), None, "{other}");
        }
        assert_eq!(suggestion("vxlam", known), "; did you mean `vxlan`?");
        assert_eq!(available("vxlam", &["vxlan", "veth"]), "did you mean `vxlan`? (available: vxlan, veth)");
        assert_eq!(available("nothing", &["vxlan", "veth"]), "available: vxlan, veth");
    }
}
