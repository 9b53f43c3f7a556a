//! Objects that a lab leaves on the machine.

use std::fs;

use super::run_directory::in_run_directory;

/// The processes that were started in a lab.
pub(crate) fn processes(lab: &str) -> Vec<String> {
    let mark = format!("VTAX_LAB={lab}");
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let ours = all.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    });
    ours.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub(crate) fn assert_nothing_left(lab: &str) {
    for path in [format!("labs/{lab}"), format!("journals/{lab}.journal")] {
        let path = in_run_directory(&path);
        assert!(!path.exists(), "{} is left", path.display());
    }
    assert_eq!(processes(lab), Vec::<String>::new());
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc");
    let directory = in_run_directory(&format!("labs/{lab}/"));
    assert!(!mounts.contains(directory.to_str().expect("text")), "a mount is left");
}
