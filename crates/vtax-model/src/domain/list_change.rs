//! Changes of lists: as a whole, or in part.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Change of a list property: a whole list, or elements to add or remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListChange<T> {
    Set(Vec<T>),
    Add(Vec<T>),
    Remove(Vec<T>),
}

impl<T: PartialEq> ListChange<T> {
    /// Returns the list that results from the previous one.
    pub fn applied<L: FromIterator<T>>(self, had: impl IntoIterator<Item = T>) -> L {
        match self {
            ListChange::Set(list) => list.into_iter().collect(),
            ListChange::Add(more) => had.into_iter().chain(more).collect(),
            ListChange::Remove(less) => had.into_iter().filter(|item| !less.contains(item)).collect(),
        }
    }
}

/// Elements separated by commas; `+1,2` and `-1,2` leave the other elements unchanged.
impl<T: FromStr> FromStr for ListChange<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<ListChange<T>, T::Err> {
        let list = |text: &str| -> Result<Vec<T>, T::Err> {
            text.split(',').filter(|part| !part.is_empty()).map(str::parse::<T>).collect()
        };
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(more), _) => list(more).map(ListChange::Add),
            (_, Some(less)) => list(less).map(ListChange::Remove),
            _ => list(text).map(ListChange::Set),
        }
    }
}

impl<T> FromIterator<T> for ListChange<T> {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> ListChange<T> {
        ListChange::Set(list.into_iter().collect())
    }
}

impl<T, const N: usize> From<[T; N]> for ListChange<T> {
    fn from(list: [T; N]) -> ListChange<T> {
        list.into_iter().collect()
    }
}
