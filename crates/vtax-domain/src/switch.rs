//! Virtual switches as links of this host.

use vtax_model::topology::Name;
use xxhash_rust::xxh3::xxh3_64;

/// The longest name of a link: `IFNAMSIZ` without its zero.
const LONGEST: usize = 15;

/// The name of a switch's link: its own, or the beginning of it if the kernel's names are too short.
pub(crate) fn link_name(switch: &Name) -> String {
    match switch.as_str() {
        name if name.len() <= LONGEST => name.to_owned(),
        name => format!("{}-{:04x}", &name[..LONGEST - 5], xxh3_64(name.as_bytes()) & 0xffff),
    }
}

/// The alias of a link that vtax has made for a switch or a domain.
pub(crate) fn mark(object: &Name) -> String {
    format!("vtax-ldm:{object}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_becomes_a_short_one_of_its_own() {
        let name = |text: &str| -> Name { text.parse().expect("a name") };
        assert_eq!(link_name(&name("admin-vsw")), "admin-vsw");
        let long = ["production-network-1", "production-network-2"].map(|text| link_name(&name(text)));
        assert!(long.iter().all(|name| name.len() == LONGEST && name.starts_with("production-")), "{long:?}");
        assert_ne!(long[0], long[1]);
    }
}
