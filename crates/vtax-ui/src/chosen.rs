//! Query parameters of a page.

use form_urlencoded::{Serializer, parse};

/// Fields of a form, as a browser encodes them in an address.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Chosen(Vec<(String, String)>);

impl Chosen {
    pub(crate) fn of(query: Option<&str>) -> Chosen {
        Chosen(parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// Returns every value of a field.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a field; empty if there is none.
    pub(crate) fn one(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }
}

/// Encodes fields as a part of an address.
pub(crate) fn query(fields: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_are_written() {
        let written = query(&[("words", "a & b=<c>"), ("state", ""), ("page", "2")]);
        let chosen = Chosen::of(Some(&written));
        assert_eq!((chosen.one("words"), chosen.one("state"), chosen.one("page")), ("a & b=<c>", "", "2"));
        assert_eq!(Chosen::of(Some("id=b&id=a&id=%C3")).all("id").collect::<Vec<_>>(), ["b", "a", "\u{fffd}"]);
        assert_eq!(Chosen::of(None), Chosen::default());
    }
}
