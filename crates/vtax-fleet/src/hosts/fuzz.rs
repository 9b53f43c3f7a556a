//! Fuzz target: host lists, which other programs write.

use vtax_model::located::Source;

use super::{
    HostList,
    tests::{ANSIBLE_JSON, INVENTORY, KUBERNETES, RACK_FILE, SLURM},
};

/// An error names a line of the text; the names in a list are printable and unique.
#[test]
fn host_lists() {
    vtax_fuzz::fuzz_text("host-lists", &[RACK_FILE, INVENTORY, SLURM, KUBERNETES, ANSIBLE_JSON], |text| {
        match HostList::parse(Source { name: "list", text }) {
            Ok(list) => {
                let mut names: Vec<&str> = list.hosts.iter().map(|host| host.name.as_str()).collect();
                assert!(!names.is_empty() && names.len() <= HostList::MOST);
                names.sort_unstable();
                assert!(names.windows(2).all(|two| two[0] != two[1]));
                assert!(list.hosts.iter().all(|host| !host.nics.is_empty()));
                Some(())
            }
            Err(error) => {
                assert!((1..=1 + text.matches('\n').count()).contains(&error.line), "{error:?}");
                None
            }
        }
    });
}
