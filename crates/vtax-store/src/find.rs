//! Resolution of user input to a run's ID.

use crate::{StoreError, error::StoreLocation};

/// Maximum number of IDs that an error lists.
const NAMED: usize = 5;

/// Finds the ID of a run; `ids` are those of all runs, newest first.
pub(crate) fn find(wanted: &str, mut ids: Vec<String>, place: &StoreLocation) -> Result<String, StoreError> {
    if ids.is_empty() {
        return Err(StoreError::Empty { dir: place.dir() });
    }
    if wanted == "last" {
        return Ok(ids.swap_remove(0));
    }
    if let Some(exact) = ids.iter().position(|id| id == wanted) {
        return Ok(ids.swap_remove(exact));
    }
    let (mut beginning, others): (Vec<String>, Vec<String>) =
        ids.into_iter().partition(|id| !wanted.is_empty() && id.starts_with(wanted));
    match beginning.len() {
        0 => Err(StoreError::NotFound { id: wanted.to_owned(), similar: similar(wanted, others) }),
        1 => Ok(beginning.swap_remove(0)),
        _ => {
            beginning.truncate(NAMED);
            Err(StoreError::Ambiguous { prefix: wanted.to_owned(), candidates: beginning })
        }
    }
}

/// Returns the IDs that share the longest prefix with `wanted`, or contain it.
fn similar(wanted: &str, mut ids: Vec<String>) -> Vec<String> {
    let alike = |id: &str| match id.contains(wanted) {
        true => wanted.len(),
        false => id.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count(),
    };
    let best = ids.iter().map(|id| alike(id)).max().unwrap_or(0);
    ids.retain(|id| alike(id) == best);
    ids.truncate(NAMED);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(wanted: &str) -> Result<String, StoreError> {
        let dir = tempfile::tempdir().expect("a folder");
        let ids = ["demo-20260102-b7", "demo-20260101-a1", "sparc-t7-1-20260101-c3"];
        find(wanted, ids.map(str::to_owned).to_vec(), &StoreLocation::new(dir.path()).expect("writable"))
    }

    #[test]
    fn by_id_by_beginning_and_by_last() {
        assert_eq!(lookup("demo-20260101-a1").unwrap(), "demo-20260101-a1");
        assert_eq!(lookup("sp").unwrap(), "sparc-t7-1-20260101-c3");
        assert_eq!(lookup("last").unwrap(), "demo-20260102-b7");
    }

    #[test]
    fn a_beginning_of_two_is_refused_and_both_are_named() {
        let error = lookup("demo").unwrap_err().to_string();
        assert!(error.contains("demo-20260102-b7, demo-20260101-a1"), "{error}");
        assert!(!error.contains("sparc"), "{error}");
    }

    #[test]
    fn a_missing_run_is_refused_with_similar_names() {
        let error = lookup("demo-20260101-a2").unwrap_err().to_string();
        assert!(error.contains("but demo-20260101-a1;"), "{error}");
        let error = lookup("c3").unwrap_err().to_string();
        assert!(error.contains("but sparc-t7-1-20260101-c3;"), "{error}");
        assert!(lookup("").is_err());
    }
}
